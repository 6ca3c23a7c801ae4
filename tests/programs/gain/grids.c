/* Order of loops, blocks, padding, false sharing, streaming stores. */
#include "pairs.h"
#include <emmintrin.h>
#include <pthread.h>

/* Heat of a body: the first index runs fastest, or the last one. */
enum { CUBE = 160 };
typedef double cube[CUBE][CUBE];

NOINLINE static double heat_across(const cube *heat) {
    double sum = 0;
    for (uint32_t z = 0; z < CUBE; z++)
        for (uint32_t y = 0; y < CUBE; y++)
            for (uint32_t x = 1; x < CUBE; x++)
                sum += heat[x][y][z] * heat[x - 1][y][z];
    return sum;
}

NOINLINE static double heat_along(const cube *heat) {
    double sum = 0;
    for (uint32_t x = 1; x < CUBE; x++)
        for (uint32_t y = 0; y < CUBE; y++)
            for (uint32_t z = 0; z < CUBE; z++)
                sum += heat[x][y][z] * heat[x - 1][y][z];
    return sum;
}

static double heat(int after, long rounds) {
    cube *heat = take(CUBE * sizeof *heat);
    double sum = 0;
    for (uint32_t i = 0; i < CUBE * CUBE * CUBE; i++)
        (&heat[0][0][0])[i] = i % 6;
    for (long r = 0; r < rounds; r++)
        sum += (after ? heat_along : heat_across)(heat);
    return sum;
}

/* Products of pairs of features: columns of the samples, or rows of the transposed samples. */
enum { SAMPLES = 16384, FEATURES = 256 };

NOINLINE static double covariances(const float *data, uint32_t features) {
    double sum = 0;
    for (uint32_t a = 0; a < features; a++)
        for (uint32_t b = 0; b < a; b++) {
            float product = 0;
            for (uint32_t s = 0; s < SAMPLES; s++)
                product += data[s * FEATURES + a] * data[s * FEATURES + b];
            sum += product;
        }
    return sum;
}

NOINLINE static double covariances_of_rows(const float *data, uint32_t features) {
    double sum = 0;
    for (uint32_t a = 0; a < features; a++)
        for (uint32_t b = 0; b < a; b++) {
            float product = 0;
            for (uint32_t s = 0; s < SAMPLES; s++)
                product += data[a * SAMPLES + s] * data[b * SAMPLES + s];
            sum += product;
        }
    return sum;
}

static double covariance(int after, long rounds) {
    float *data = take(SAMPLES * FEATURES * sizeof *data);
    for (uint32_t s = 0; s < SAMPLES; s++)
        for (uint32_t f = 0; f < FEATURES; f++)
            data[after ? f * SAMPLES + s : s * FEATURES + f] = (float)((s + f) % 3);
    return (after ? covariances_of_rows : covariances)(data, (uint32_t)rounds);
}

/* Many buffers of one size, each at the begin of a page, or a line further than the one before. */
enum { BUFFERS = 96, BUFFER = 1024, LINE = 16 };

NOINLINE static double mix_aligned(const float *buffers) {
    double sum = 0;
    for (uint32_t i = 0; i < 64; i++)
        for (uint32_t b = 0; b < BUFFERS; b++)
            sum += buffers[b * BUFFER + i];
    return sum;
}

NOINLINE static double mix_shifted(const float *buffers) {
    double sum = 0;
    for (uint32_t i = 0; i < 64; i++)
        for (uint32_t b = 0; b < BUFFERS; b++)
            sum += buffers[b * (BUFFER + LINE) + i];
    return sum;
}

static double buffers(int after, long rounds) {
    float *buffers = take(BUFFERS * (BUFFER + LINE) * sizeof *buffers);
    double sum = 0;
    for (uint32_t i = 0; i < BUFFERS * 64; i++)
        buffers[i / 64 * (after ? BUFFER + LINE : BUFFER) + i % 64] = (float)(i % 5);
    for (long r = 0; r < rounds; r++)
        sum += (after ? mix_shifted : mix_aligned)(buffers);
    return sum;
}

/* Fill states of buffers that threads aggregate into: in one line, or a line each. */
enum { THREADS = 2 };
static _Alignas(256) volatile long fills[THREADS * 64];

struct filler { long rounds; uint32_t seed; volatile long *fill; };

static void *fill_buffer(void *of) {
    const struct filler *filler = of;
    uint32_t random = filler->seed;
    for (long r = 0; r < filler->rounds; r++) {
        random = random * 1664525 + 1013904223;
        *filler->fill = *filler->fill == 4096 ? 0 : *filler->fill + (random >> 31);
    }
    return NULL;
}

static double aggregators(int after, long rounds) {
    pthread_t threads[THREADS];
    struct filler fillers[THREADS];
    double sum = 0;
    for (uint32_t t = 0; t < THREADS; t++) {
        fillers[t] = (struct filler){rounds, t, &fills[after ? t * 32 : t]};
        pthread_create(&threads[t], NULL, fill_buffer, &fillers[t]);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        sum += (double)*fillers[t].fill;
    }
    return sum;
}

/* Rows by rows of two matrices, one after the other or in blocks that stay in the cache. */
enum { SIZE = 2048, TILE = 32 };

static inline float dot(const float *a, const float *b) {
    __m128 sums[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
    for (uint32_t k = 0; k < SIZE; k += 16)
        for (int part = 0; part < 4; part++)
            sums[part] = _mm_add_ps(sums[part], _mm_mul_ps(_mm_load_ps(a + k + 4 * part), _mm_load_ps(b + k + 4 * part)));
    float sum[4];
    _mm_storeu_ps(sum, _mm_add_ps(_mm_add_ps(sums[0], sums[1]), _mm_add_ps(sums[2], sums[3])));
    return sum[0] + sum[1] + sum[2] + sum[3];
}

NOINLINE static void multiply(float (*a)[SIZE], float (*b)[SIZE], float (*c)[SIZE], uint32_t rows) {
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < SIZE; j++)
            c[i][j] = dot(a[i], b[j]);
}

NOINLINE static void multiply_tiles(float (*a)[SIZE], float (*b)[SIZE], float (*c)[SIZE], uint32_t rows) {
    for (uint32_t jj = 0; jj < SIZE; jj += TILE)
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = jj; j < jj + TILE; j++)
                c[i][j] = dot(a[i], b[j]);
}

static double tiles(int after, long rounds) {
    float(*a)[SIZE] = take(SIZE * sizeof *a), (*b)[SIZE] = take(SIZE * sizeof *b), (*c)[SIZE] = take(SIZE * sizeof *c);
    double sum = 0;
    for (uint32_t i = 0; i < SIZE * SIZE; i++) {
        a[i / SIZE][i % SIZE] = (float)(i % 3);
        b[i / SIZE][i % SIZE] = (float)(i % 4);
    }
    (after ? multiply_tiles : multiply)(a, b, c, (uint32_t)rounds);
    for (uint32_t i = 0; i < SIZE * SIZE; i++)
        sum += c[i / SIZE][i % SIZE];
    return sum;
}

/* Sweeps over a grid: each over all rows, or all sweeps over a band of rows. */
enum { WIDTH = 4096, HEIGHT = 8192, SWEEPS = 8 };

NOINLINE static void sweep(float (*grid)[WIDTH], uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        for (uint32_t j = 0; j < WIDTH; j++)
            grid[i][j] = grid[i][j] * 0.5f + 1;
}

static double sweeps(int after, long rounds) {
    float(*grid)[WIDTH] = take(HEIGHT * sizeof *grid);
    for (long r = 0; r < rounds; r++) {
        if (after)
            for (uint32_t band = 0; band < HEIGHT; band += 2)
                for (uint32_t s = 0; s < SWEEPS; s++)
                    sweep(grid, band, band + 2);
        else
            for (uint32_t s = 0; s < SWEEPS; s++)
                sweep(grid, 0, HEIGHT);
    }
    return grid[5][5] + grid[5000][4000];
}

/* Large arrays that are set, and pixels that are mixed, with stores through caches or around them. */
enum { PIXELS = 1 << 24 };

NOINLINE static void set(uint8_t *to, uint8_t value) {
    __m128i all = _mm_set1_epi8((char)value);
    for (uint32_t i = 0; i < 2 * PIXELS; i += 16)
        _mm_store_si128((__m128i *)(to + i), all);
}

NOINLINE static void set_around(uint8_t *to, uint8_t value) {
    __m128i all = _mm_set1_epi8((char)value);
    for (uint32_t i = 0; i < 2 * PIXELS; i += 16)
        _mm_stream_si128((__m128i *)(to + i), all);
}

static double cleared(int after, long rounds) {
    uint8_t *to = take(2 * PIXELS);
    for (long r = 0; r < rounds; r++)
        (after ? set_around : set)(to, (uint8_t)r);
    return to[12345];
}

NOINLINE static void mix(uint8_t *to, const uint8_t *a, const uint8_t *b) {
    for (uint32_t i = 0; i < PIXELS; i += 16)
        _mm_store_si128((__m128i *)(to + i), _mm_avg_epu8(_mm_load_si128((const __m128i *)(a + i)), _mm_load_si128((const __m128i *)(b + i))));
}

NOINLINE static void mix_around(uint8_t *to, const uint8_t *a, const uint8_t *b) {
    for (uint32_t i = 0; i < PIXELS; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_avg_epu8(_mm_load_si128((const __m128i *)(a + i)), _mm_load_si128((const __m128i *)(b + i))));
}

static double mixed(int after, long rounds) {
    uint8_t *to = take(PIXELS), *a = take(PIXELS), *b = take(PIXELS);
    memset(a, 100, PIXELS);
    memset(b, 50, PIXELS);
    for (long r = 0; r < rounds; r++)
        (after ? mix_around : mix)(to, a, b);
    return to[12345];
}

static const struct pair pairs[] = {
    {"heat", heat, 60},           {"covariance", covariance, 256},
    {"buffers", buffers, 100000}, {"aggregators", aggregators, 400000000},
    {"tiles", tiles, 2048},       {"sweeps", sweeps, 20},
    {"cleared", cleared, 800},    {"mixed", mixed, 600},
};
MAIN(pairs)
