/* Programs whose cache misses are predicted from samples and simulated from full traces (benches/run misses).
 *
 *     misses KIND ROUNDS
 *
 * Each kind sets its data up, then does ROUNDS equal rounds of a few million loads at most, so that what R rounds miss follows from two short runs. */
#define _GNU_SOURCE
#include "data.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that is read once and never again. */
ALONE static uint64_t stream(const uint64_t *at, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += at[i];
    return sum;
}

static uint64_t do_stream(long rounds) {
    size_t all = (size_t)1 << 40, part = 16 << 20;
    char *at = mmap(NULL, all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        exit(1);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        char *here = at + (size_t)r * part % all;
        sum += stream((uint64_t *)here, (long)(part / 8));
        madvise(here, part, MADV_DONTNEED);
    }
    return sum;
}

struct node {
    struct node *next;
    uint64_t pad[7];
};

static struct node *ring_of(size_t n) {
    struct node *nodes = take(n * sizeof *nodes);
    uint32_t *order = take(n * sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = draw() % (i + 1);
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < n; i++)
        nodes[order[i]].next = &nodes[order[(i + 1) % n]];
    free(order);
    return nodes;
}

ALONE static struct node *chase(struct node *at, long n) {
    for (long i = 0; i < n; i++)
        at = at->next;
    return at;
}

static uint64_t do_chase(long rounds, size_t bytes, long loops) {
    size_t n = bytes / sizeof(struct node);
    struct node *nodes = ring_of(n), *at = nodes;
    for (long r = 0; r < rounds; r++)
        at = chase(at, (long)n * loops);
    return (uint64_t)(at - nodes);
}

/* Random places of a table. */
ALONE static uint64_t probe(const uint64_t *table, uint64_t mask, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += table[draw() & mask];
    return sum;
}

static uint64_t do_table(long rounds, size_t bytes) {
    uint64_t *table = take(bytes), sum = 0;
    memset(table, 1, bytes);
    for (long r = 0; r < rounds; r++)
        sum += probe(table, bytes / 8 - 1, 500000);
    return sum;
}

/* Two tables, the small one three times as often. */
ALONE static uint64_t two(const uint64_t *small, uint64_t few, const uint64_t *large, uint64_t many, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        sum += small[draw() & few];
        sum += small[draw() & few];
        sum += small[draw() & few];
        sum += large[draw() & many];
    }
    return sum;
}

static uint64_t do_two(long rounds) {
    size_t little = 256 << 10, much = 32 << 20;
    uint64_t *small = take(little), *large = take(much), sum = 0;
    memset(small, 1, little);
    memset(large, 1, much);
    for (long r = 0; r < rounds; r++)
        sum += two(small, little / 8 - 1, large, much / 8 - 1, 200000);
    return sum;
}

/* A table whose places are used by a power law. */
ALONE static uint64_t skewed(const uint64_t *table, uint64_t mask, const uint32_t *ranks, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint64_t rank = ranks[draw() & 0xffff];
        rank += draw() % (rank / 8 + 1);
        sum += table[rank * 0x9e3779b97f4a7c15ull >> 20 & mask];
    }
    return sum;
}

static uint64_t do_skewed(long rounds) {
    size_t bytes = 64 << 20;
    uint64_t *table = take(bytes), sum = 0;
    uint32_t *ranks = take((1 << 16) * sizeof *ranks);
    memset(table, 1, bytes);
    for (int i = 0; i < 1 << 16; i++) {
        double u = (i + 0.5) / (1 << 16);
        ranks[i] = (uint32_t)(pow(u, 4.0) * (double)(bytes / 8));
    }
    for (long r = 0; r < rounds; r++)
        sum += skewed(table, bytes / 8 - 1, ranks, 400000);
    return sum;
}

/* A table of which one part after the other is used for a while: for longer than a sample, and for less
 * than lies between two. */
enum { PARTS = 256, PART_WORDS = 1 << 15 };

ALONE static uint64_t part(const uint64_t *table, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += table[draw() & (PART_WORDS - 1)];
    return sum;
}

static uint64_t do_parts(long rounds) {
    size_t words = (size_t)PARTS * PART_WORDS;
    uint64_t *table = take(words * 8), sum = 0;
    memset(table, 1, words * 8);
    for (long r = 0; r < rounds; r++)
        for (long p = 0; p < PARTS; p++)
            sum += part(table + (p * 101 % PARTS) * PART_WORDS, 60000);
    return sum;
}

enum { N = 288, B = 48 };

ALONE static void multiply_blocked(const double *a, const double *b, double *c) {
    for (int ii = 0; ii < N; ii += B)
        for (int kk = 0; kk < N; kk += B)
            for (int jj = 0; jj < N; jj += B)
                for (int i = ii; i < ii + B; i++)
                    for (int k = kk; k < kk + B; k++) {
                        double f = a[i * N + k];
                        for (int j = jj; j < jj + B; j++)
                            c[i * N + j] += f * b[k * N + j];
                    }
}

ALONE static void multiply_plain(const double *a, const double *b, double *c) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i * N + k] * b[k * N + j];
            c[i * N + j] += sum;
        }
}

static uint64_t do_multiply(long rounds, int blocked) {
    double *a = take(N * N * 8), *b = take(N * N * 8), *c = take(N * N * 8);
    for (int i = 0; i < N * N; i++) {
        a[i] = i % 7;
        b[i] = i % 5;
        c[i] = 0;
    }
    for (long r = 0; r < rounds; r++) {
        if (blocked)
            multiply_blocked(a, b, c);
        else
            multiply_plain(a, b, c);
    }
    return (uint64_t)c[N + 1];
}

ALONE static void five(const float *from, float *to, int rows, int columns) {
    for (int y = 1; y < rows - 1; y++)
        for (int x = 1; x < columns - 1; x++)
            to[y * columns + x] = 0.2f * (from[y * columns + x] + from[y * columns + x - 1] + from[y * columns + x + 1] +
                                          from[(y - 1) * columns + x] + from[(y + 1) * columns + x]);
}

static uint64_t do_stencil(long rounds, int rows, int columns) {
    size_t n = (size_t)rows * (size_t)columns;
    float *a = take(n * 4), *b = take(n * 4);
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] = (float)(i % 9);
    for (long r = 0; r < rounds; r++) {
        five(a, b, rows, columns);
        float *t = a;
        a = b;
        b = t;
    }
    return (uint64_t)a[columns + 1];
}

ALONE static void seven(const double *from, double *to, int n) {
    for (int z = 1; z < n - 1; z++)
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++) {
                int i = (z * n + y) * n + x;
                to[i] = from[i] + 0.1 * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n] + from[i - n * n] + from[i + n * n]);
            }
}

static uint64_t do_cube(long rounds) {
    int n = 96;
    size_t all = (size_t)n * n * n;
    double *a = take(all * 8), *b = take(all * 8);
    for (size_t i = 0; i < all; i++)
        a[i] = b[i] = (double)(i % 9);
    for (long r = 0; r < rounds; r++) {
        seven(a, b, n);
        double *t = a;
        a = b;
        b = t;
    }
    return (uint64_t)a[n * n + n + 1];
}

/* A sparse matrix times a vector. */
ALONE static void sparse(const int *starts, const int *columns, const double *values, const double *x, double *y, int rows) {
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int k = starts[i]; k < starts[i + 1]; k++)
            sum += values[k] * x[columns[k]];
        y[i] = sum;
    }
}

static uint64_t do_sparse(long rounds) {
    int rows = 150000, each = 8;
    int *starts = take((size_t)(rows + 1) * 4), *columns = take((size_t)rows * each * 4);
    double *values = take((size_t)rows * each * 8), *x = take((size_t)rows * 8), *y = take((size_t)rows * 8);
    for (int i = 0; i <= rows; i++)
        starts[i] = i * each;
    for (int i = 0; i < rows * each; i++) {
        columns[i] = (int)(draw() % (uint64_t)rows);
        values[i] = 1;
    }
    for (int i = 0; i < rows; i++)
        x[i] = i;
    for (long r = 0; r < rounds; r++) {
        sparse(starts, columns, values, x, y, rows);
        double *t = x;
        x = y;
        y = t;
    }
    return (uint64_t)x[1] & 1;
}

/* Breadth-first search in a random graph. */
ALONE static long search(const int *edges, int each, int vertices, int *level, int *queue, int from) {
    for (int i = 0; i < vertices; i++)
        level[i] = -1;
    long head = 0, tail = 0;
    level[from] = 0;
    queue[tail++] = from;
    while (head < tail) {
        int v = queue[head++];
        for (int k = 0; k < each; k++) {
            int w = edges[(long)v * each + k];
            if (level[w] < 0) {
                level[w] = level[v] + 1;
                queue[tail++] = w;
            }
        }
    }
    return tail;
}

static uint64_t do_search(long rounds) {
    int vertices = 1 << 17, each = 8;
    int *edges = take((size_t)vertices * each * 4), *level = take((size_t)vertices * 4), *queue = take((size_t)vertices * 4);
    for (int i = 0; i < vertices * each; i++)
        edges[i] = (int)(draw() % (uint64_t)vertices);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += (uint64_t)search(edges, each, vertices, level, queue, (int)(draw() % (uint64_t)vertices));
    return sum;
}

/* Binary search in a sorted array. */
ALONE static long bisect(const uint64_t *sorted, long n, uint64_t key) {
    long low = 0, high = n;
    while (low < high) {
        long middle = (low + high) / 2;
        if (sorted[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t do_bisect(long rounds) {
    long n = 2 << 20;
    uint64_t *sorted = take((size_t)n * 8), sum = 0;
    for (long i = 0; i < n; i++)
        sorted[i] = (uint64_t)i * 3;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < 50000; i++)
            sum += (uint64_t)bisect(sorted, n, draw() % (uint64_t)(3 * n));
    return sum;
}

ALONE static void count(const uint32_t *keys, long n, uint32_t *bins, uint32_t mask) {
    for (long i = 0; i < n; i++)
        bins[keys[i] & mask]++;
}

static uint64_t do_histogram(long rounds) {
    long n = 2 << 20, bins = 1 << 16;
    uint32_t *keys = take((size_t)n * 4), *all = take((size_t)bins * 4);
    for (long i = 0; i < n; i++)
        keys[i] = (uint32_t)draw();
    memset(all, 0, (size_t)bins * 4);
    for (long r = 0; r < rounds; r++)
        count(keys, n, all, (uint32_t)bins - 1);
    return all[5];
}

ALONE static void transpose(const float *from, float *to, int rows, int columns) {
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            to[(long)y * columns + x] = from[(long)x * rows + y];
}

static uint64_t do_transpose(long rounds) {
    int rows = 1500, columns = 1500;
    float *a = take((size_t)rows * columns * 4), *b = take((size_t)rows * columns * 4);
    for (int i = 0; i < rows * columns; i++)
        a[i] = (float)i;
    for (long r = 0; r < rounds; r++)
        transpose(a, b, rows, columns);
    return (uint64_t)b[7];
}

/* Loops over 16 KiB, over 4 MiB and over 16 MiB, one after the other, for as many loads each. */
ALONE static uint64_t walk(const uint64_t *at, long n, int times) {
    uint64_t sum = 0;
    for (int t = 0; t < times; t++)
        for (long i = 0; i < n; i += 8)
            sum += at[i] ^ sum;
    return sum;
}

static uint64_t do_phases(long rounds) {
    size_t most = 16 << 20;
    uint64_t *at = take(most), sum = 0;
    memset(at, 1, most);
    for (long r = 0; r < rounds; r++) {
        sum += walk(at, (16 << 10) / 8, 4096);
        sum += walk(at, (4 << 20) / 8, 16);
        sum += walk(at, (long)(most / 8), 4);
    }
    return sum;
}

/* Tiles of 512 KiB, each used twenty times, over 32 MiB. */
static uint64_t do_tiles(long rounds) {
    size_t all = 32 << 20, tile = 512 << 10;
    char *at = take(all);
    uint64_t sum = 0;
    memset(at, 1, all);
    for (long r = 0; r < rounds; r++)
        for (size_t from = 0; from < all; from += tile)
            sum += walk((uint64_t *)(at + from), (long)(tile / 8), 20);
    return sum;
}

/* A transform in place, in steps that double. */
ALONE static void transform(double *re, double *im, long n) {
    for (long half = 1; half < n; half *= 2)
        for (long from = 0; from < n; from += 2 * half)
            for (long k = from; k < from + half; k++) {
                double a = re[k], b = im[k], c = re[k + half], d = im[k + half];
                re[k] = (a + c) * 0.5;
                im[k] = (b + d) * 0.5;
                re[k + half] = (a - c) * 0.5;
                im[k + half] = (b - d) * 0.5;
            }
}

static uint64_t do_transform(long rounds) {
    long n = 1 << 17;
    double *re = take((size_t)n * 8), *im = take((size_t)n * 8);
    for (long i = 0; i < n; i++)
        re[i] = im[i] = (double)(i % 3);
    for (long r = 0; r < rounds; r++)
        transform(re, im, n);
    return (uint64_t)(re[0] * 1000);
}

struct particle {
    double x, y, z, vx, vy, vz, mass, charge;
};

ALONE static double mass(const struct particle *all, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += all[i].mass;
    return sum;
}

static uint64_t do_fields(long rounds) {
    long n = 200000;
    struct particle *all = take((size_t)n * sizeof *all);
    for (long i = 0; i < n; i++)
        all[i].mass = 1;
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += mass(all, n);
    return (uint64_t)sum;
}

ALONE static long letters(const unsigned char *text, long n) {
    long sum = 0;
    unsigned last = 0;
    for (long i = 0; i < n; i++) {
        if (text[i] == last)
            sum++;
        last = text[i] + (unsigned)(sum & 1);
    }
    return sum;
}

static uint64_t do_text(long rounds) {
    long n = 4 << 20;
    unsigned char *text = take((size_t)n);
    for (long i = 0; i < n; i++)
        text[i] = (unsigned char)(draw() & 15);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += (uint64_t)letters(text, n);
    return sum;
}

ALONE static void convolve(const float *from, float *to, int rows, int columns, const float *kernel) {
    for (int y = 0; y < rows - 7; y++)
        for (int x = 0; x < columns - 7; x++) {
            float sum = 0;
            for (int v = 0; v < 7; v++)
                for (int u = 0; u < 7; u++)
                    sum += kernel[v * 7 + u] * from[(y + v) * columns + x + u];
            to[y * columns + x] = sum;
        }
}

static uint64_t do_convolve(long rounds) {
    int rows = 128, columns = 2048;
    float *a = take((size_t)rows * columns * 4), *b = take((size_t)rows * columns * 4), kernel[49];
    for (int i = 0; i < 49; i++)
        kernel[i] = (float)i;
    for (int i = 0; i < rows * columns; i++)
        a[i] = b[i] = (float)(i % 5);
    for (long r = 0; r < rounds; r++)
        convolve(a, b, rows, columns, kernel);
    return (uint64_t)b[9];
}

/* Rows of a table that each follow from the one before. */
ALONE static void align(const unsigned char *a, const unsigned char *b, int n, int m, int *above, int *here) {
    for (int i = 1; i < n; i++) {
        for (int j = 1; j < m; j++) {
            int best = a[i] == b[j] ? above[j - 1] + 1 : above[j] > here[j - 1] ? above[j] : here[j - 1];
            here[j] = best;
        }
        int *t = above;
        above = here;
        here = t;
    }
}

static uint64_t do_align(long rounds) {
    int n = 64, m = 40000;
    unsigned char *a = take((size_t)m), *b = take((size_t)m);
    int *above = take((size_t)m * 4), *here = take((size_t)m * 4);
    for (int i = 0; i < m; i++) {
        a[i] = draw() & 3;
        b[i] = draw() & 3;
        above[i] = here[i] = 0;
    }
    for (long r = 0; r < rounds; r++)
        align(a, b, n, m, above, here);
    return (uint64_t)above[m - 1];
}

/* Keys that are gathered through an index: half of them near each other, half anywhere. */
ALONE static uint64_t gather(const uint64_t *data, const uint32_t *index, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += data[index[i]];
    return sum;
}

static uint64_t do_gather(long rounds) {
    long n = 1 << 20;
    uint64_t *data = take((size_t)n * 8), sum = 0;
    uint32_t *index = take((size_t)n * 4);
    for (long i = 0; i < n; i++) {
        data[i] = (uint64_t)i;
        index[i] = (uint32_t)(i & 1 ? (uint64_t)i : draw() % (uint64_t)n);
    }
    for (long r = 0; r < rounds; r++)
        sum += gather(data, index, n);
    return sum;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    uint64_t sum;
    if (!strcmp(kind, "stream"))
        sum = do_stream(rounds);
    else if (!strcmp(kind, "chase46m"))
        sum = do_chase(rounds, 46 << 20, 1);
    else if (!strcmp(kind, "chase512k"))
        sum = do_chase(rounds, 512 << 10, 50);
    else if (!strcmp(kind, "chase4m"))
        sum = do_chase(rounds, 4 << 20, 10);
    else if (!strcmp(kind, "table64m"))
        sum = do_table(rounds, 64 << 20);
    else if (!strcmp(kind, "table2m"))
        sum = do_table(rounds, 2 << 20);
    else if (!strcmp(kind, "two"))
        sum = do_two(rounds);
    else if (!strcmp(kind, "skewed"))
        sum = do_skewed(rounds);
    else if (!strcmp(kind, "parts"))
        sum = do_parts(rounds);
    else if (!strcmp(kind, "gemm-blocked"))
        sum = do_multiply(rounds, 1);
    else if (!strcmp(kind, "gemm"))
        sum = do_multiply(rounds, 0);
    else if (!strcmp(kind, "stencil"))
        sum = do_stencil(rounds, 1024, 1024);
    else if (!strcmp(kind, "stencil-wide"))
        sum = do_stencil(rounds, 64, 16384);
    else if (!strcmp(kind, "cube"))
        sum = do_cube(rounds);
    else if (!strcmp(kind, "sparse"))
        sum = do_sparse(rounds);
    else if (!strcmp(kind, "search"))
        sum = do_search(rounds);
    else if (!strcmp(kind, "bisect"))
        sum = do_bisect(rounds);
    else if (!strcmp(kind, "histogram"))
        sum = do_histogram(rounds);
    else if (!strcmp(kind, "transpose"))
        sum = do_transpose(rounds);
    else if (!strcmp(kind, "phases"))
        sum = do_phases(rounds);
    else if (!strcmp(kind, "tiles"))
        sum = do_tiles(rounds);
    else if (!strcmp(kind, "transform"))
        sum = do_transform(rounds);
    else if (!strcmp(kind, "fields"))
        sum = do_fields(rounds);
    else if (!strcmp(kind, "text"))
        sum = do_text(rounds);
    else if (!strcmp(kind, "convolve"))
        sum = do_convolve(rounds);
    else if (!strcmp(kind, "align"))
        sum = do_align(rounds);
    else if (!strcmp(kind, "gather"))
        sum = do_gather(rounds);
    else
        return 2;
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
