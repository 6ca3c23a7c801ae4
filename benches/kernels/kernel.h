/* Shared by all kernels: a generator with a fixed seed, and the work argument.
 *
 * Every kernel takes one optional argument, the number of rounds; its work is proportional to it, and 0
 * does the set-up only. Rounds differ a little in their data, so that no compiler folds them into one. It prints one checksum line, the same on every machine. Data stay within the
 * second-level cache (1 MiB), so that the loads come fast: a load every 0.3 to 1 ns. */
#ifndef MGZ_KERNEL_H
#define MGZ_KERNEL_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

static inline long rounds_or(int argc, char **argv, long standard) {
    return argc > 1 ? strtol(argv[1], NULL, 10) : standard;
}

static inline void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static inline int finish(uint64_t checksum) {
    printf("%016llx\n", (unsigned long long)checksum);
    return 0;
}
#endif
