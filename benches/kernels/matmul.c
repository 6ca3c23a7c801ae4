/* Dense matrix product in blocks: strided, with reuse in the first-level cache. */
#include "kernel.h"

enum { N = 192, BLOCK = 48 };

__attribute__((noinline)) static void multiply(double *restrict c, const double *restrict a, const double *restrict b) {
    for (int ii = 0; ii < N; ii += BLOCK)
        for (int kk = 0; kk < N; kk += BLOCK)
            for (int jj = 0; jj < N; jj += BLOCK)
                for (int i = ii; i < ii + BLOCK; i++)
                    for (int k = kk; k < kk + BLOCK; k++) {
                        double x = a[i * N + k];
                        for (int j = jj; j < jj + BLOCK; j++)
                            c[i * N + j] += x * b[k * N + j];
                    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 700);
    double *a = take(N * N * sizeof *a), *b = take(N * N * sizeof *b), *c = take(N * N * sizeof *c);
    for (int i = 0; i < N * N; i++) {
        a[i] = i % 17;
        b[i] = i % 11;
        c[i] = 0;
    }
    for (long r = 0; r < rounds; r++)
        multiply(c, a, b);
    double total = 0;
    for (int i = 0; i < N * N; i++)
        total += c[i];
    return finish((uint64_t)total);
}
