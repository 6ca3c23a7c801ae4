/* Bottom-up merge sort of 32-bit keys: streams whose pace depends on the data. */
#include "kernel.h"

enum { N = 1 << 14 };

__attribute__((noinline)) static void merge(uint32_t *restrict to, const uint32_t *a, const uint32_t *a_end, const uint32_t *b, const uint32_t *b_end) {
    while (a < a_end && b < b_end) {
        uint32_t x = *a, y = *b;
        int left = x <= y;
        *to++ = left ? x : y;
        a += left;
        b += !left;
    }
    while (a < a_end)
        *to++ = *a++;
    while (b < b_end)
        *to++ = *b++;
}

__attribute__((noinline)) static uint32_t *sort(uint32_t *from, uint32_t *to) {
    for (long width = 1; width < N; width *= 2) {
        for (long i = 0; i < N; i += 2 * width)
            merge(to + i, from + i, from + i + width, from + i + width, from + i + 2 * width);
        uint32_t *t = from;
        from = to;
        to = t;
    }
    return from;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 1000);
    uint64_t seed = 271828182ull, total = 0;
    uint32_t *input = take(N * sizeof *input), *a = take(N * sizeof *a), *b = take(N * sizeof *b);
    for (int i = 0; i < N; i++)
        input[i] = (uint32_t)(next_random(&seed) >> 32);
    for (long r = 0; r < rounds; r++) {
        memcpy(a, input, N * sizeof *a);
        const uint32_t *sorted = sort(a, b);
        total = total * 31 + sorted[r % N];
    }
    return finish(total);
}
