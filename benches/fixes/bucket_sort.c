/* Ranks of keys by counting, as in the NAS benchmark IS: one random increment for each key. */
#include "common.h"

enum { KEYS = 1 << 23, BUCKETS = 1 << 25 };

__attribute__((noinline)) static void count_keys(uint32_t *restrict counts, const uint32_t *restrict keys) {
    for (int i = 0; i < KEYS; i++)
        counts[keys[i]]++;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 24);
    uint64_t seed = 314159265ull, sum = 0;
    uint32_t *keys = allocate(KEYS, sizeof *keys), *counts = allocate(BUCKETS, sizeof *counts);
    for (int i = 0; i < KEYS; i++)
        keys[i] = below(&seed, BUCKETS);
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (long r = 0; r < rounds; r++) {
        keys[r] = (uint32_t)r;
        count_keys(counts, keys);
    }
    for (int i = 0; i < BUCKETS; i++)
        sum = sum * 31 + counts[i];
    return finish(sum);
}
