/* Byte histogram into four tables: strided reads, data-dependent read-modify-write. */
#include "kernel.h"

enum { BYTES = 1 << 17 };

__attribute__((noinline)) static void count(uint32_t table[4][256], const uint8_t *data, long n) {
    for (long i = 0; i < n; i += 4) {
        table[0][data[i]]++;
        table[1][data[i + 1]]++;
        table[2][data[i + 2]]++;
        table[3][data[i + 3]]++;
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 16000);
    uint64_t seed = 2463534242ull;
    uint8_t *data = take(BYTES);
    /* No static: several threads may run this at once. */
    uint32_t table[4][256] = {{0}};
    for (int i = 0; i < BYTES; i++) {
        uint64_t r = next_random(&seed);
        data[i] = (uint8_t)((r >> 32) & (r >> 40));
    }
    for (long r = 0; r < rounds; r++)
        count(table, data, BYTES);
    uint64_t total = 0;
    for (int i = 0; i < 256; i++)
        total = total * 31 + table[0][i] + table[1][i] + table[2][i] + table[3][i];
    return finish(total);
}
