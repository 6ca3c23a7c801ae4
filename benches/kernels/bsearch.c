/* Branch-free binary searches in a sorted array, four at a time: irregular, log-many loads each. */
#include "kernel.h"

enum { N = 1 << 14, QUERIES = 4096 };

__attribute__((noinline)) static uint64_t searches(const uint32_t *sorted, const uint32_t *queries, int n) {
    uint64_t total = 0;
    for (int q = 0; q < n; q += 4) {
        uint32_t w = queries[q], x = queries[q + 1], y = queries[q + 2], z = queries[q + 3];
        const uint32_t *a = sorted, *b = sorted, *c = sorted, *d = sorted;
        for (uint32_t half = N / 2; half; half /= 2) {
            a = a[half - 1] < w ? a + half : a;
            b = b[half - 1] < x ? b + half : b;
            c = c[half - 1] < y ? c + half : c;
            d = d[half - 1] < z ? d + half : d;
        }
        total += (uint64_t)((a - sorted) + (b - sorted) + (c - sorted) + (d - sorted));
    }
    return total;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 15000);
    uint64_t seed = 987654321ull;
    uint32_t *sorted = take(N * sizeof *sorted), *queries = take(QUERIES * sizeof *queries);
    for (int i = 0; i < N; i++)
        sorted[i] = (uint32_t)i * 5 + (uint32_t)(next_random(&seed) % 5);
    for (int i = 0; i < QUERIES; i++)
        queries[i] = (uint32_t)(next_random(&seed) % (N * 5));
    uint64_t total = 0;
    for (long r = 0; r < rounds; r++) {
        queries[r % QUERIES] ^= 64;
        total += searches(sorted, queries, QUERIES);
    }
    return finish(total);
}
