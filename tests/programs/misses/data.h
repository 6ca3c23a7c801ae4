/* Random numbers and memory of the programs here. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#define ALONE __attribute__((noinline))

static uint64_t state = 88172645463325252ull;

static inline uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *take(size_t bytes) {
    void *p = malloc(bytes);
    if (!p)
        exit(1);
    return p;
}
