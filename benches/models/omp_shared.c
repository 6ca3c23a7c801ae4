/* Parallel programs whose rate in a shared cache depends on the number of threads: `omp_shared NAME SIZE`.
 *
 * blocks: each thread goes again and again over a block of its own; scratch: over a heap block that
 * it allocates; local: over thread-local storage; columns: a matrix by columns; cyclic: the same by
 * schedule(static,4); uneven: rows of a triangle by schedule(dynamic,8); nested: rows, with a parallel
 * region for each inside; large: as blocks, of 1 MiB; bfs: breadth-first search over a random graph,
 * level by level; matmul: a matrix of SIZE rows and 15/62 as many columns times one with 7/62 as many
 * columns. */
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

/* As blocks, with 32 parts of 1 MiB, for caches of several MiB. */
static double large(long n) {
    enum { PARTS = 32, PART_WORDS = 16 * WORDS };
    double *data = numbers(PARTS * PART_WORDS), sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < n; i++) {
        const double *part = data + i * PARTS / n * PART_WORDS;
        for (long k = 0; k < 128; k++)
            sum += part[(i * 9973 + k * 1021) % PART_WORDS];
    }
    return sum;
}

/* Each node has eight neighbours. */
static double bfs(long n) {
    enum { DEGREE = 8 };
    int *to = malloc(n * DEGREE * sizeof *to), *cost = malloc(n * sizeof *cost);
    char *front = calloc(n, 1), *next = calloc(n, 1);
    unsigned long state = 42;
    for (long i = 0; i < n * DEGREE; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        to[i] = (int)((state >> 33) % (unsigned long)n);
    }
    memset(cost, -1, n * sizeof *cost);
    cost[0] = 0;
    front[0] = 1;
    for (long found = 1, level = 1; found; level++) {
        found = 0;
#pragma omp parallel for schedule(static)
        for (long v = 0; v < n; v++)
            if (front[v]) {
                front[v] = 0;
                for (long e = v * DEGREE; e < (v + 1) * DEGREE; e++)
                    if (cost[to[e]] < 0)
                        next[to[e]] = 1;
            }
#pragma omp parallel for schedule(static) reduction(+ : found)
        for (long v = 0; v < n; v++)
            if (next[v]) {
                next[v] = 0;
                front[v] = 1;
                cost[v] = (int)level;
                found++;
            }
    }
    double sum = 0;
    for (long v = 0; v < n; v++)
        sum += cost[v];
    return sum;
}

static double matmul(long n) {
    long inner = n * 15 / 62, columns = n * 7 / 62;
    double *a = numbers(n * inner), *b = numbers(inner * columns), *out = numbers(n * columns);
#pragma omp parallel for schedule(static)
    for (long y = 0; y < n; y++)
        for (long x = 0; x < columns; x++) {
            double sum = 0;
            for (long k = 0; k < inner; k++)
                sum += a[y * inner + k] * b[k * columns + x];
            out[y * columns + x] = sum;
        }
    return out[n / 2];
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "blocks";
    long n = argc > 2 ? atol(argv[2]) : 100;
    struct {
        const char *name;
        double (*run)(long);
    } all[] = {{"blocks", blocks}, {"scratch", scratch}, {"local", local}, {"columns", columns}, {"cyclic", cyclic}, {"uneven", uneven}, {"nested", nested}, {"large", large}, {"bfs", bfs}, {"matmul", matmul}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            printf("%g\n", all[i].run(n));
            return 0;
        }
    fprintf(stderr, "no program %s\n", name);
    return 2;
}
