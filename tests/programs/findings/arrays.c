/* Walks: fields, columns, streams, pages, products, filters; and two threads. */
#include "planted.h"
#include <pthread.h>
#include <unistd.h>

enum { SIDE = 4096, PARTICLES = 1 << 21, WORDS = 1 << 24, BLOCK = 16, N = 1024 };

struct particle { double x, y, z, vx, vy, vz, mass, charge; };
static struct particle particles[PARTICLES];

NOINLINE static double sum_mass(uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += particles[i].mass; /* planted: field small_field */
    return sum;
}

struct record { uint32_t id; char name[92]; uint32_t flags; char rest[28]; };
static struct record records[1 << 20];

NOINLINE static uint64_t count_flags(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1 << 20; i++)
        sum += records[i].flags & 1; /* planted: record */
    return sum;
}

static double matrix[SIDE][SIDE], other[SIDE][SIDE];

/* Lines of one set of the first two levels. */
NOINLINE static double one_set(uint32_t times) {
    double sum = 0;
    for (uint32_t t = 0; t < times; t++)
        for (uint32_t i = 0; i < 40; i++)
            sum += matrix[i * 2][t & 7]; /* planted: conflicts */
    return sum;
}

/* As many lines, a line further apart each. */
NOINLINE static double many_sets(uint32_t times) {
    double sum = 0;
    for (uint32_t t = 0; t < times; t++)
        for (uint32_t i = 0; i < 40; i++)
            sum += matrix[i * 2][i * 8 + (t & 7)];
    return sum;
}

NOINLINE static double by_columns(uint32_t side) {
    double sum = 0;
    for (uint32_t j = 0; j < side; j++)
        for (uint32_t i = 0; i < side; i++)
            sum += matrix[i][j]; /* planted: columns */
    return sum;
}

NOINLINE static void transpose(void) {
    for (uint32_t i = 0; i < SIDE; i++)
        for (uint32_t j = 0; j < SIDE; j++)
            other[i][j] = matrix[j][i]; /* planted: transposed */
}

NOINLINE static void transpose_blocked(void) {
    for (uint32_t ii = 0; ii < SIDE; ii += BLOCK)
        for (uint32_t jj = 0; jj < SIDE; jj += BLOCK)
            for (uint32_t i = ii; i < ii + BLOCK; i++)
                for (uint32_t j = jj; j < jj + BLOCK; j++)
                    other[i][j] = matrix[j][i]; /* planted: transposed_blocked */
}

/* A filter of five by five points, column by column. */
NOINLINE static double convolve(int radius) {
    static double weights[25] = {1, 2, 3};
    double sum = 0;
    for (int j = radius; j < (int)SIDE - radius; j++)
        for (int i = radius; i < (int)SIDE - radius; i++) {
            double point = 0;
            for (int dj = -radius; dj <= radius; dj++)
                for (int di = -radius; di <= radius; di++)
                    point += weights[(di + radius) * (2 * radius + 1) + dj + radius] * matrix[i + di][j + dj]; /* planted: convolution */
            sum += point;
        }
    return sum;
}

/* A vertical filter of five taps, column by column. */
NOINLINE static double filter(void) {
    double sum = 0;
    for (uint32_t j = 0; j < SIDE; j++)
        for (uint32_t i = 2; i < SIDE - 2; i++)
            sum += matrix[i - 2][j] + 4 * matrix[i - 1][j] + 6 * matrix[i][j] /* planted: filter */
                   + 4 * matrix[i + 1][j] + matrix[i + 2][j];               /* planted: filter */
    return sum;
}

static double a[N][N], b[N][N], c[N][N];

NOINLINE static void product(void) {
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < N; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < N; k++)
                sum += a[i][k] * b[k][j]; /* planted: gemm */
            c[i][j] = sum;
            if (j % 256 == 0 && !planted_goes_on(0.5))
                return;
        }
}

NOINLINE static void product_blocked(double seconds) {
    for (uint32_t ii = 0; ii < N; ii += BLOCK)
        for (uint32_t jj = 0; jj < N; jj += BLOCK) {
            for (uint32_t kk = 0; kk < N; kk += BLOCK)
                for (uint32_t i = ii; i < ii + BLOCK; i++)
                    for (uint32_t k = kk; k < kk + BLOCK; k++) {
                        double x = a[i][k];
                        for (uint32_t j = jj; j < jj + BLOCK; j++)
                            c[i][j] += x * b[k][j]; /* planted: gemm_blocked */
                    }
            if (!planted_goes_on(seconds))
                return;
        }
}

static double stream[WORDS], second[WORDS];

NOINLINE static double read_all(uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += stream[i]; /* planted: stream capacity small_stream */
    return sum;
}

NOINLINE static void triad(void) {
    for (uint64_t i = 0; i < WORDS; i++)
        stream[i] = second[i] * 3 + stream[i]; /* planted: triad */
}

NOINLINE static double two_passes(void) {
    double sum = 0, most = 0;
    for (uint64_t i = 0; i < WORDS; i++)
        sum += stream[i]; /* planted: fusion */
    for (uint64_t i = 0; i < WORDS; i++)
        most = stream[i] > most ? stream[i] : most; /* planted: fusion */
    return sum + most;
}

static char pages[1 << 29];

NOINLINE static uint64_t touch_pages(void) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < sizeof pages; at += 4096 + 64)
        sum += (uint8_t)pages[at]; /* planted: pages */
    return sum;
}

struct block { char bytes[4096]; };
static struct block blocks[1 << 14], kept[64];

NOINLINE static void copy_blocks(void) {
    for (uint32_t i = 0; i < 1 << 14; i++) {
        const char *from = blocks[i].bytes;
        char *to = kept[i % 64].bytes;
        uint64_t count = sizeof kept[0];
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory"); /* planted: copy */
    }
}

static volatile uint64_t counters[2];
static _Alignas(64) volatile uint64_t total;
static double thread_seconds;

NOINLINE static void *count_own(void *number) {
    double end = planted_now() + thread_seconds;
    volatile uint64_t *mine = &counters[(intptr_t)number];
    while (planted_now() < end)
        for (int i = 0; i < 10000; i++)
            *mine += 1; /* planted: false_sharing */
    return NULL;
}

NOINLINE static void *count_total(void *number) {
    (void)number;
    double end = planted_now() + thread_seconds;
    while (planted_now() < end)
        for (int i = 0; i < 10000; i++)
            __atomic_fetch_add(&total, 1, __ATOMIC_RELAXED); /* planted: true_sharing */
    return NULL;
}

static void threads(void *(*what)(void *), double seconds) {
    pthread_t all[2];
    thread_seconds = seconds;
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&all[i], NULL, what, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(all[i], NULL);
}

NOINLINE static double stencil(uint32_t side) {
    double sum = 0;
    for (uint32_t i = 1; i < side; i++)
        for (uint32_t j = 1; j < side; j++)
            sum += matrix[i][j - 1] + matrix[i][j + 1] + matrix[i - 1][j];
    return sum;
}

NOINLINE static uint64_t compute(uint64_t n) {
    uint64_t x = n;
    for (uint64_t i = 0; i < 100000; i++)
        x = x * 6364136223846793005u + (stream[x >> 56] > 1);
    return x;
}

NOINLINE static uint64_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "field";
    double seconds = argc > 2 ? atof(argv[2]) : 0.5, sum = 0;
#define CASE(name) (!strcmp(what, name))
    memset(particles, 1, sizeof particles);
    memset(stream, 0, sizeof stream);
    memset(second, 0, sizeof second);
    if (CASE("columns") || CASE("transposed") || CASE("transposed_blocked") || CASE("convolution") || CASE("filter") || CASE("small_stencil") || CASE("conflicts") || CASE("small_sets"))
        memset(matrix, 0, sizeof matrix);
    memset(a, 1, sizeof a);
    memset(b, 1, sizeof b);
    if (CASE("pages"))
        memset(pages, 1, sizeof pages);
    if (CASE("copy"))
        memset(blocks, 1, sizeof blocks);
    if (CASE("record"))
        memset(records, 1, sizeof records);
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    uint64_t just_above = (uint64_t)(l2 > 0 ? l2 : 1 << 20) * 3 / 2 / sizeof(double);
    if (CASE("false_sharing") || CASE("true_sharing")) {
        threads(CASE("false_sharing") ? count_own : count_total, seconds);
        return 0;
    }
    while (planted_goes_on(seconds)) {
        if (CASE("field"))
            sum += sum_mass(PARTICLES);
        else if (CASE("small_field"))
            sum += sum_mass(200);
        else if (CASE("record"))
            sum += (double)count_flags();
        else if (CASE("columns"))
            sum += by_columns(SIDE);
        else if (CASE("conflicts"))
            sum += one_set(1 << 16);
        else if (CASE("small_sets"))
            sum += many_sets(1 << 16);
        else if (CASE("transposed"))
            transpose();
        else if (CASE("transposed_blocked"))
            transpose_blocked();
        else if (CASE("convolution"))
            sum += convolve(2);
        else if (CASE("filter"))
            sum += filter();
        else if (CASE("gemm"))
            product();
        else if (CASE("gemm_blocked"))
            product_blocked(seconds);
        else if (CASE("stream"))
            sum += read_all(WORDS);
        else if (CASE("capacity"))
            sum += read_all(just_above);
        else if (CASE("small_stream"))
            sum += read_all(2000);
        else if (CASE("triad"))
            triad();
        else if (CASE("fusion"))
            sum += two_passes();
        else if (CASE("pages"))
            sum += (double)touch_pages();
        else if (CASE("copy"))
            copy_blocks();
        else if (CASE("small_stencil"))
            sum += stencil(32);
        else if (CASE("compute"))
            sum += (double)compute(7);
        else if (CASE("fibonacci"))
            sum += (double)fibonacci(25);
        else
            return 2;
    }
    // What nobody reads the compiler does not write.
    sum += other[7][9] + c[5][6] + (double)kept[3].bytes[1] + stream[3];
    planted_sink = (uint64_t)sum;
    return 0;
}
