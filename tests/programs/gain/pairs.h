/* Frame of programs with pairs: the same work before and after a remedy.
 *
 * PROGRAM PAIR before|after [ROUNDS] runs one version and prints its result, which both versions
 * have in common. */
#ifndef PAIRS_H
#define PAIRS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps calls in loops: neither inlined nor moved out. */
#define NOINLINE __attribute__((noipa))

/* Runs a version for some rounds; `after`: with the remedy. */
typedef double work(int after, long rounds);

struct pair {
    const char *name;
    work *run;
    long rounds;
};

static uint64_t state = 88172645463325252u;

/* A random number below `n`, by xorshift. */
static inline uint64_t below(uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint64_t)(((unsigned __int128)state * n) >> 64);
}

static void *take(size_t bytes) {
    void *block = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!block)
        abort();
    memset(block, 0, bytes);
    return block;
}

/* The numbers below `n` in random order. */
static inline uint32_t *shuffled(uint32_t n) {
    uint32_t *order = (uint32_t *)take(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = (uint32_t)below(i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    return order;
}

static inline int run_pair(const struct pair *pairs, size_t count, int argc, char **argv) {
    if (argc < 3)
        return 2;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(pairs[i].name, argv[1])) {
            long rounds = argc > 3 ? atol(argv[3]) : pairs[i].rounds;
            printf("%.10g\n", pairs[i].run(!strcmp(argv[2], "after"), rounds));
            return 0;
        }
    return 2;
}

#define MAIN(pairs)                                                                \
    int main(int argc, char **argv) {                                              \
        return run_pair(pairs, sizeof pairs / sizeof *pairs, argc, argv);          \
    }
#endif
