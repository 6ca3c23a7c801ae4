/* Order of loops, blocks, padding, streaming stores, threads. */
#include "pairs.h"
#include <emmintrin.h>
#include <pthread.h>

enum { SIDE = 2048, N = 768, BLOCK = 32, FILL = 1 << 22 };

/* Sums by columns, or by rows. */
NOINLINE static double by_columns(double (*grid)[SIDE]) {
    double sum = 0;
    for (uint32_t j = 0; j < SIDE; j++)
        for (uint32_t i = 0; i < SIDE; i++)
            sum += grid[i][j];
    return sum;
}

NOINLINE static double by_rows(double (*grid)[SIDE]) {
    double sum = 0;
    for (uint32_t i = 0; i < SIDE; i++)
        for (uint32_t j = 0; j < SIDE; j++)
            sum += grid[i][j];
    return sum;
}

static double exchange(int after, long rounds) {
    double(*grid)[SIDE] = take(SIDE * sizeof *grid), sum = 0;
    for (uint32_t i = 0; i < SIDE * SIDE; i++)
        grid[i / SIDE][i % SIDE] = i % 10;
    for (long r = 0; r < rounds; r++)
        sum += after ? by_rows(grid) : by_columns(grid);
    return sum;
}

/* Matrix product: rows by columns, rows by rows of the transposed matrix, or in blocks. */
NOINLINE static void product(double (*a)[N], double (*b)[N], double (*c)[N], uint32_t rows) {
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < N; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

NOINLINE static void product_transposed(double (*a)[N], double (*b)[N], double (*c)[N], uint32_t rows) {
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < N; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < N; k++)
                sum += a[i][k] * b[j][k];
            c[i][j] = sum;
        }
}

static double matrix(int after, long rounds) {
    double(*a)[N] = take(N * sizeof *a), (*b)[N] = take(N * sizeof *b), (*c)[N] = take(N * sizeof *c), sum = 0;
    for (uint32_t i = 0; i < N * N; i++) {
        a[i / N][i % N] = i % 7;
        b[after ? i % N : i / N][after ? i / N : i % N] = i % 5;
    }
    (after ? product_transposed : product)(a, b, c, (uint32_t)rounds);
    for (uint32_t i = 0; i < N * N; i++)
        sum += c[i / N][i % N];
    return sum;
}

/* Smoothing down the columns of a grid, column by column or row by row. */
NOINLINE static void smooth_columns(float (*from)[SIDE], float (*to)[SIDE]) {
    for (uint32_t j = 0; j < SIDE; j++)
        for (uint32_t i = 1; i < SIDE - 1; i++)
            to[i][j] = from[i - 1][j] + 2 * from[i][j] + from[i + 1][j];
}

NOINLINE static void smooth_rows(float (*from)[SIDE], float (*to)[SIDE]) {
    for (uint32_t i = 1; i < SIDE - 1; i++)
        for (uint32_t j = 0; j < SIDE; j++)
            to[i][j] = from[i - 1][j] + 2 * from[i][j] + from[i + 1][j];
}

static double stencil(int after, long rounds) {
    float(*from)[SIDE] = take(SIDE * sizeof *from), (*to)[SIDE] = take(SIDE * sizeof *to);
    for (uint32_t i = 0; i < SIDE * SIDE; i++)
        from[i / SIDE][i % SIDE] = i % 3;
    for (long r = 0; r < rounds; r++)
        (after ? smooth_rows : smooth_columns)(from, to);
    return to[5][7] + to[1000][1000];
}

/* A transposed copy, whole or in blocks. */
NOINLINE static void turn(double (*from)[SIDE], double (*to)[SIDE]) {
    for (uint32_t i = 0; i < SIDE; i++)
        for (uint32_t j = 0; j < SIDE; j++)
            to[i][j] = from[j][i];
}

NOINLINE static void turn_blocks(double (*from)[SIDE], double (*to)[SIDE]) {
    for (uint32_t ii = 0; ii < SIDE; ii += 8)
        for (uint32_t jj = 0; jj < SIDE; jj += 8)
            for (uint32_t i = ii; i < ii + 8; i++)
                for (uint32_t j = jj; j < jj + 8; j++)
                    to[i][j] = from[j][i];
}

static double blocked(int after, long rounds) {
    double(*from)[SIDE] = take(SIDE * sizeof *from), (*to)[SIDE] = take(SIDE * sizeof *to);
    for (uint32_t i = 0; i < SIDE * SIDE; i++)
        from[i / SIDE][i % SIDE] = i;
    for (long r = 0; r < rounds; r++)
        (after ? turn_blocks : turn)(from, to);
    return to[3][9] + to[99][5];
}

/* Distances of all pairs of points, point by point or in blocks. */
enum { POINTS = 1 << 18, QUERIES = 64 };

NOINLINE static double nearest(const float *points, const float *queries) {
    double sum = 0;
    for (uint32_t q = 0; q < QUERIES; q++) {
        float least = 1e9f;
        for (uint32_t i = 0; i < 4 * POINTS; i++) {
            float d = points[i] > queries[q] ? points[i] - queries[q] : queries[q] - points[i];
            least = d < least ? d : least;
        }
        sum += least;
    }
    return sum;
}

NOINLINE static double nearest_blocks(const float *points, const float *queries) {
    float least[QUERIES];
    double sum = 0;
    for (uint32_t q = 0; q < QUERIES; q++)
        least[q] = 1e9f;
    for (uint32_t ii = 0; ii < 4 * POINTS; ii += 4096)
        for (uint32_t q = 0; q < QUERIES; q++) {
            float l = least[q];
            for (uint32_t i = ii; i < ii + 4096; i++) {
                float d = points[i] > queries[q] ? points[i] - queries[q] : queries[q] - points[i];
                l = d < l ? d : l;
            }
            least[q] = l;
        }
    for (uint32_t q = 0; q < QUERIES; q++)
        sum += least[q];
    return sum;
}

static double pairs_blocked(int after, long rounds) {
    float *points = take(4 * POINTS * sizeof *points), queries[QUERIES];
    double sum = 0;
    for (uint32_t i = 0; i < 4 * POINTS; i++)
        points[i] = (float)below(1000000);
    for (uint32_t q = 0; q < QUERIES; q++)
        queries[q] = (float)q * 10000.5f;
    for (long r = 0; r < rounds; r++)
        sum += after ? nearest_blocks(points, queries) : nearest(points, queries);
    return sum;
}

/* Some columns of a matrix whose rows are a power of two apart, or a line longer. */
enum { HEIGHT = 512 };

NOINLINE static double some_columns(const double *grid) {
    double sum = 0;
    for (uint32_t j = 0; j < 64; j++)
        for (uint32_t i = 0; i < HEIGHT; i++)
            sum += grid[i * 1024 + j];
    return sum;
}

NOINLINE static double padded_columns(const double *grid) {
    double sum = 0;
    for (uint32_t j = 0; j < 64; j++)
        for (uint32_t i = 0; i < HEIGHT; i++)
            sum += grid[i * 1032 + j];
    return sum;
}

static double padded(int after, long rounds) {
    double *grid = take(HEIGHT * 1032 * sizeof *grid), sum = 0;
    for (uint32_t i = 0; i < HEIGHT * 64; i++)
        grid[i / 64 * (after ? 1032 : 1024) + i % 64] = i % 9;
    for (long r = 0; r < rounds; r++)
        sum += after ? padded_columns(grid) : some_columns(grid);
    return sum;
}

/* Forward elimination of a column of 4 KiB rows. */
enum { ORDER = 128 };

NOINLINE static double eliminate(const float *rows) {
    double sum = 0;
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t i = 0; i < ORDER; i++)
            sum += rows[i * 1024 + k] * 0.5f;
    return sum;
}

NOINLINE static double eliminate_padded(const float *rows) {
    double sum = 0;
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t i = 0; i < ORDER; i++)
            sum += rows[i * 1040 + k] * 0.5f;
    return sum;
}

static double columns_of_sets(int after, long rounds) {
    float *rows = take(ORDER * 1040 * sizeof *rows);
    double sum = 0;
    for (uint32_t i = 0; i < ORDER * 16; i++)
        rows[i / 16 * (after ? 1040 : 1024) + i % 16] = i % 9;
    for (long r = 0; r < rounds; r++)
        sum += after ? eliminate_padded(rows) : eliminate(rows);
    return sum;
}

/* Counters of two threads in one line, or in two. */
static struct { _Alignas(256) volatile long counts[64]; } shared;

struct job { long rounds; volatile long *count; };

static void *count(void *of) {
    struct job *job = of;
    for (long r = 0; r < job->rounds; r++)
        ++*job->count;
    return NULL;
}

static double counters(int after, long rounds) {
    struct job jobs[2] = {{rounds, &shared.counts[0]}, {rounds, &shared.counts[after ? 32 : 1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, count, &jobs[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return (double)(*jobs[0].count + *jobs[1].count);
}

/* A reader of a limit beside a counter of another thread. */
static void *check(void *of) {
    struct job *job = of;
    volatile long *limit = job->count;
    long over = 0;
    for (long r = 0; r < job->rounds; r++)
        over += *limit > r;
    *(long *)&job->rounds = over;
    return NULL;
}

static double limit(int after, long rounds) {
    struct job counting = {rounds, &shared.counts[0]}, checking = {rounds, &shared.counts[after ? 32 : 1]};
    pthread_t threads[2];
    shared.counts[1] = shared.counts[32] = 1L << 60;
    pthread_create(&threads[0], NULL, count, &counting);
    pthread_create(&threads[1], NULL, check, &checking);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return (double)(checking.rounds + shared.counts[0]);
}

/* Large copies and fills, with stores through the caches or around them. */
NOINLINE static void copy(double *to, const double *from) {
    for (uint32_t i = 0; i < FILL; i += 2)
        _mm_store_pd(to + i, _mm_load_pd(from + i));
}

NOINLINE static void copy_around(double *to, const double *from) {
    for (uint32_t i = 0; i < FILL; i += 2)
        _mm_stream_pd(to + i, _mm_load_pd(from + i));
}

static double streamed_copy(int after, long rounds) {
    double *to = take(FILL * sizeof *to), *from = take(FILL * sizeof *from);
    for (uint32_t i = 0; i < FILL; i++)
        from[i] = i;
    for (long r = 0; r < rounds; r++)
        (after ? copy_around : copy)(to, from);
    return to[1000];
}

NOINLINE static void triad(double *to, const double *a, const double *b) {
    __m128d factor = _mm_set1_pd(3);
    for (uint32_t i = 0; i < FILL; i += 2)
        _mm_store_pd(to + i, _mm_add_pd(_mm_load_pd(a + i), _mm_mul_pd(factor, _mm_load_pd(b + i))));
}

NOINLINE static void triad_around(double *to, const double *a, const double *b) {
    __m128d factor = _mm_set1_pd(3);
    for (uint32_t i = 0; i < FILL; i += 2)
        _mm_stream_pd(to + i, _mm_add_pd(_mm_load_pd(a + i), _mm_mul_pd(factor, _mm_load_pd(b + i))));
}

static double streamed_triad(int after, long rounds) {
    double *to = take(FILL * sizeof *to), *a = take(FILL * sizeof *a), *b = take(FILL * sizeof *b);
    for (uint32_t i = 0; i < FILL; i++)
        a[i] = b[i] = i;
    for (long r = 0; r < rounds; r++)
        (after ? triad_around : triad)(to, a, b);
    return to[1000];
}

static const struct pair pairs[] = {
    {"exchange", exchange, 60},      {"matrix", matrix, 768},
    {"stencil", stencil, 20},        {"blocked", blocked, 50},
    {"pairs_blocked", pairs_blocked, 8}, {"padded", padded, 20000},
    {"columns_of_sets", columns_of_sets, 800000}, {"counters", counters, 500000000},
    {"limit", limit, 500000000},     {"streamed_copy", streamed_copy, 150},
    {"streamed_triad", streamed_triad, 120},
};
MAIN(pairs)
