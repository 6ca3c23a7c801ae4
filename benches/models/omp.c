/* Small parallel programs: `omp NAME SIZE`. With -fopenmp each loop is divided among threads statically.
 *
 * triad: a = b + s c over arrays; jacobi: five-point stencil; spmv: sparse matrix times vector; transpose: of a square matrix;
 * nbody: forces of all on all; kmeans: points to the nearest of eight centres; matvec: dense matrix times vector; gather: by random indices. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double *numbers(long n) {
    double *out = malloc(n * sizeof *out);
    for (long i = 0; i < n; i++)
        out[i] = (double)(next() % 1000);
    return out;
}

static double triad(long n) {
    double *a = numbers(n), *b = numbers(n), *c = numbers(n);
    for (int round = 0; round < 8; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            a[i] = b[i] + 0.5 * c[i];
        double *t = a;
        a = b;
        b = t;
    }
    return b[n / 2];
}

static double jacobi(long n) {
    double *from = numbers(n * n), *to = numbers(n * n);
    for (int round = 0; round < 6; round++) {
#pragma omp parallel for schedule(static)
        for (long y = 1; y < n - 1; y++)
            for (long x = 1; x < n - 1; x++)
                to[y * n + x] = 0.2 * (from[y * n + x] + from[y * n + x - 1] + from[y * n + x + 1] + from[(y - 1) * n + x] + from[(y + 1) * n + x]);
        double *t = from;
        from = to;
        to = t;
    }
    return from[n * n / 2];
}

static double spmv(long n) {
    long each = 16;
    double *value = numbers(n * each), *x = numbers(n), *y = numbers(n);
    uint32_t *column = malloc(n * each * sizeof *column);
    for (long i = 0; i < n * each; i++)
        column[i] = (uint32_t)(next() % (uint64_t)n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) {
            double sum = 0;
            for (long k = i * each; k < (i + 1) * each; k++)
                sum += value[k] * x[column[k]];
            y[i] = sum;
        }
    }
    return y[n / 2];
}

static double transpose(long n) {
    double *from = numbers(n * n), *to = numbers(n * n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++)
                to[y * n + x] = from[x * n + y];
        double *t = from;
        from = to;
        to = t;
    }
    return from[n];
}

static double nbody(long n) {
    double *x = numbers(n), *y = numbers(n), *m = numbers(n), *fx = numbers(n), *fy = numbers(n);
    for (int round = 0; round < 2; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) {
            double ax = 0, ay = 0;
            for (long j = 0; j < n; j++) {
                double dx = x[j] - x[i], dy = y[j] - y[i], d = dx * dx + dy * dy + 1.0;
                ax += m[j] * dx / d;
                ay += m[j] * dy / d;
            }
            fx[i] = ax;
            fy[i] = ay;
        }
    }
    return fx[n / 2] + fy[n / 2];
}

static double kmeans(long n) {
    enum { K = 8, D = 4 };
    double *point = numbers(n * D), *centre = numbers(K * D);
    int *owner = malloc(n * sizeof *owner);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) {
            double least = 1e300;
            for (int k = 0; k < K; k++) {
                double sum = 0;
                for (int d = 0; d < D; d++) {
                    double difference = point[i * D + d] - centre[k * D + d];
                    sum += difference * difference;
                }
                if (sum < least) {
                    least = sum;
                    owner[i] = k;
                }
            }
        }
        for (long i = 0; i < n; i++)
            for (int d = 0; d < D; d++)
                centre[owner[i] * D + d] = 0.9 * centre[owner[i] * D + d] + 0.1 * point[i * D + d];
    }
    return centre[0];
}

static double matvec(long n) {
    double *matrix = numbers(n * n), *x = numbers(n), *y = numbers(n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) {
            double sum = 0;
            for (long k = 0; k < n; k++)
                sum += matrix[i * n + k] * x[k];
            y[i] = sum;
        }
    }
    return y[n / 2];
}

static double gather(long n) {
    double *from = numbers(n), *to = numbers(n);
    uint32_t *index = malloc(n * sizeof *index);
    for (long i = 0; i < n; i++)
        index[i] = (uint32_t)(next() % (uint64_t)n);
    for (int round = 0; round < 8; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            to[i] = from[index[i]] * 0.5;
    }
    return to[n / 2];
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "triad";
    long n = argc > 2 ? atol(argv[2]) : 1000;
    struct {
        const char *name;
        double (*run)(long);
    } all[] = {{"triad", triad}, {"jacobi", jacobi}, {"spmv", spmv}, {"transpose", transpose}, {"nbody", nbody}, {"kmeans", kmeans}, {"matvec", matvec}, {"gather", gather}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            printf("%g\n", all[i].run(n));
            return 0;
        }
    fprintf(stderr, "no program %s\n", name);
    return 2;
}
