/* Shared by the programs of the sealed set: `PROGRAM KIND ROUNDS` does equal rounds of one kind. */
#ifndef SEALED_H
#define SEALED_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kind {
    const char *name;
    void (*set_up)(void);
    double (*round)(void);
};

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint64_t next_random(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static inline uint32_t below(uint32_t n) { return (next_random() >> 32) * n >> 32; }

static inline double uniform(void) { return (double)(next_random() >> 11) * 0x1p-53; }

/* Few small numbers are frequent. */
static inline uint32_t skewed(uint32_t n) { return (uint32_t)(n * pow(uniform(), 3)); }

static inline void *need(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return block;
}

static inline int run_kinds(const struct kind *kinds, size_t n, int argc, char **argv) {
    for (size_t i = 0; argc == 3 && i < n; i++) {
        if (strcmp(kinds[i].name, argv[1]))
            continue;
        double sum = 0;
        kinds[i].set_up();
        for (long left = atol(argv[2]); left > 0; left--)
            sum += kinds[i].round();
        printf("%g\n", sum);
        return 0;
    }
    fprintf(stderr, "usage: %s KIND ROUNDS\n", argv[0]);
    return 2;
}

#define RUN(kinds) run_kinds(kinds, sizeof kinds / sizeof *kinds, argc, argv)

#endif
