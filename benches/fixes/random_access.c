/* Random updates of a large table, 128 streams side by side, as in the HPC Challenge benchmark RandomAccess. */
#include "common.h"

enum { SLOTS = 1 << 24, STREAMS = 128, UPDATES = 1 << 27 };

static inline uint64_t step(uint64_t x) { return x << 1 ^ ((int64_t)x < 0 ? 7 : 0); }

__attribute__((noinline)) static void update(uint64_t *table, uint64_t *streams, long rounds) {
    for (long r = 0; r < rounds; r++)
        for (int j = 0; j < STREAMS; j++) {
            streams[j] = step(streams[j]);
            table[streams[j] & (SLOTS - 1)] ^= streams[j];
        }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, UPDATES / STREAMS);
    uint64_t seed = 264575131ull, sum = 0, streams[STREAMS];
    uint64_t *table = allocate(SLOTS, sizeof *table);
    for (uint64_t i = 0; i < SLOTS; i++)
        table[i] = i;
    for (int j = 0; j < STREAMS; j++)
        streams[j] = next_random(&seed);
    update(table, streams, rounds);
    for (long i = 0; i < SLOTS; i++)
        sum = sum * 31 + table[i];
    return finish(sum);
}
