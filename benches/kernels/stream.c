/* Sum and triad over arrays of doubles: pure unit stride. */
#include "kernel.h"

enum { N = 8192 };

__attribute__((noinline)) static double sum(const double *a, long n) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (long i = 0; i < n; i += 4) {
        s0 += a[i];
        s1 += a[i + 1];
        s2 += a[i + 2];
        s3 += a[i + 3];
    }
    return s0 + s1 + s2 + s3;
}

__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b, const double *restrict c, double q, long n) {
    for (long i = 0; i < n; i++)
        a[i] = b[i] + q * c[i];
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 150000);
    double *a = take(N * sizeof *a), *b = take(N * sizeof *b), *c = take(N * sizeof *c);
    for (int i = 0; i < N; i++) {
        a[i] = 0;
        b[i] = i % 13;
        c[i] = i % 7;
    }
    double total = 0;
    for (long r = 0; r < rounds; r++) {
        triad(a, b, c, (double)(r & 3), N);
        total += sum(a, N);
    }
    return finish((uint64_t)total);
}
