/* Product of two square matrices: `matmul SIDE`; with -fopenmp, rows are divided among threads. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 60;
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    for (long i = 0; i < n * n; i++) {
        a[i] = (double)(i % 13);
        b[i] = (double)(i % 7);
    }
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    printf("%.1f\n", c[n * n / 2]);
    return 0;
}
