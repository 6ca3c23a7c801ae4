/* Three arrays of 64 MiB each, in order: the processor's own prefetcher follows them. */
#include "common.h"

enum { ELEMENTS = 1 << 23 };

__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b, const double *restrict c, double s) {
    for (int i = 0; i < ELEMENTS; i++)
        a[i] = b[i] + s * c[i];
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 200);
    double *a = allocate(ELEMENTS, sizeof *a), *b = allocate(ELEMENTS, sizeof *b), *c = allocate(ELEMENTS, sizeof *c);
    for (int i = 0; i < ELEMENTS; i++) {
        b[i] = i % 7;
        c[i] = i % 11;
    }
    for (long r = 0; r < rounds; r++)
        triad(r % 2 ? b : a, r % 2 ? a : b, c, 1e-3);
    return finish((uint64_t)(a[ELEMENTS / 3] * 1e6));
}
