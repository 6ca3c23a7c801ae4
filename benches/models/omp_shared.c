/* Parallel programs whose rate in a shared cache depends on the number of threads: `omp_shared NAME SIZE`.
 *
 * blocks: each thread goes again and again over a block of its own; scratch: over a heap block that it allocates; local: over
 * thread-local storage; columns: a matrix by columns; cyclic: the same by schedule(static,4); uneven: rows of a triangle by
 * schedule(dynamic,8); nested: rows, with a parallel region for each inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *numbers(long n) {
    double *out = malloc(n * sizeof *out);
    for (long i = 0; i < n; i++)
        out[i] = (double)(i * 7919 % 1000);
    return out;
}

enum { WORDS = 8192 };

/* Iterations of a thread share one part of 64 KiB: with n threads n parts are in use at a time. */
static double blocks(long n) {
    enum { PARTS = 64 };
    double *data = numbers(PARTS * WORDS), sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < n; i++) {
        const double *part = data + i * PARTS / n * WORDS;
        for (long k = 0; k < 128; k++)
            sum += part[(i * 1031 + k * 61) % WORDS];
    }
    return sum;
}

static double scratch(long n) {
    double *from = numbers(n), sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < n; i++) {
        double *own = malloc(2 * WORDS * sizeof *own);
        for (long k = 0; k < 256; k++)
            own[k * 64] = from[i] * (double)k;
        for (long k = 0; k < 256; k++)
            sum += own[(i * 17 + k * 64) % WORDS / 64 * 64];
        free(own);
    }
    return sum;
}

static _Thread_local double table[WORDS];

static double local(long n) {
    double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < n; i++)
        for (long k = 0; k < 256; k++) {
            double *place = &table[(i * 1031 + k * 61) % WORDS];
            *place += (double)k;
            sum += *place;
        }
    return sum;
}

static double columns(long n) {
    double *matrix = numbers(n * n), *out = numbers(n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long x = 0; x < n; x++) {
            double sum = 0;
            for (long y = 0; y < n; y++)
                sum += matrix[y * n + x];
            out[x] = sum;
        }
    }
    return out[n / 2];
}

static double cyclic(long n) {
    double *matrix = numbers(n * n), *out = numbers(n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static, 4)
        for (long x = 0; x < n; x++) {
            double sum = 0;
            for (long y = 0; y < n; y++)
                sum += matrix[y * n + x];
            out[x] = sum;
        }
    }
    return out[n / 2];
}

static double uneven(long n) {
    double *matrix = numbers(n * n), *out = numbers(n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(dynamic, 8)
        for (long y = 0; y < n; y++) {
            double sum = 0;
            for (long x = 0; x < y; x++)
                sum += matrix[x * n + y];
            out[y] = sum;
        }
    }
    return out[n / 2];
}

static double nested(long n) {
    double *matrix = numbers(n * n), *out = numbers(n);
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(static)
        for (long y = 0; y < n; y++) {
            double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
            for (long x = 0; x < n; x++)
                sum += matrix[x * n + y];
            out[y] = sum;
        }
    }
    return out[n / 2];
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "blocks";
    long n = argc > 2 ? atol(argv[2]) : 100;
    struct {
        const char *name;
        double (*run)(long);
    } all[] = {{"blocks", blocks}, {"scratch", scratch}, {"local", local}, {"columns", columns}, {"cyclic", cyclic}, {"uneven", uneven}, {"nested", nested}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            printf("%g\n", all[i].run(n));
            return 0;
        }
    fprintf(stderr, "no program %s\n", name);
    return 2;
}
