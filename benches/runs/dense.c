/* Dense arrays: products, convolutions, stencils, transposes. */
#include "runs.h"

enum { N = 128, SIDE = 1024, CUBE = 96, BLOCK = 32, IMAGE = 256 };
static double *a, *b, *c, *grid, *other;
static float *image, *out, kernel[49];

static void matrices(void) {
    a = take(SIDE * SIDE * 8), b = take(SIDE * SIDE * 8), c = take(SIDE * SIDE * 8);
    for (long i = 0; i < SIDE * SIDE; i++)
        a[i] = i % 17, b[i] = i % 19;
}

static void cubes(void) {
    long n = (long)CUBE * CUBE * CUBE > SIDE * SIDE ? (long)CUBE * CUBE * CUBE : SIDE * SIDE;
    grid = take(n * 8), other = take(n * 8);
    for (long i = 0; i < n; i++)
        grid[i] = i % 23;
}

static void images(void) {
    image = take(IMAGE * IMAGE * 4), out = take(IMAGE * IMAGE * 4);
    for (long i = 0; i < IMAGE * IMAGE; i++)
        image[i] = i % 29;
    for (int i = 0; i < 49; i++)
        kernel[i] = i;
}

ROW static void multiply(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i * N + k] * b[k * N + j];
            c[i * N + j] = sum;
        }
}

ROW static void multiply_blocks(void) {
    for (int ii = 0; ii < N; ii += BLOCK)
        for (int kk = 0; kk < N; kk += BLOCK)
            for (int i = ii; i < ii + BLOCK; i++)
                for (int k = kk; k < kk + BLOCK; k++)
                    for (int j = 0; j < N; j++)
                        c[i * N + j] += a[i * N + k] * b[k * N + j];
}

ROW static double norm(const double *x, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

ROW static void transpose_rows(void) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            c[i * SIDE + j] = a[j * SIDE + i];
}

ROW static void transpose_blocks(void) {
    for (int ii = 0; ii < SIDE; ii += 16)
        for (int jj = 0; jj < SIDE; jj += 16)
            for (int i = ii; i < ii + 16; i++)
                for (int j = jj; j < jj + 16; j++)
                    c[i * SIDE + j] = a[j * SIDE + i];
}

ROW static void heat_plane(const double *from, double *to) {
    for (int i = 1; i < SIDE - 1; i++)
        for (int j = 1; j < SIDE - 1; j++) {
            const double *p = from + i * SIDE + j;
            to[i * SIDE + j] = 0.25 * (p[-1] + p[1] + p[-SIDE] + p[SIDE]);
        }
}

ROW static void heat_cube(const double *from, double *to) {
    for (int i = 1; i < CUBE - 1; i++)
        for (int j = 1; j < CUBE - 1; j++)
            for (int k = 1; k < CUBE - 1; k++) {
                const double *p = from + ((long)i * CUBE + j) * CUBE + k;
                to[((long)i * CUBE + j) * CUBE + k] =
                    (p[-1] + p[1] + p[-CUBE] + p[CUBE] + p[-CUBE * CUBE] + p[CUBE * CUBE]) / 6;
            }
}

ROW static void convolve(void) {
    for (int i = 3; i < IMAGE - 3; i++)
        for (int j = 3; j < IMAGE - 3; j++) {
            float sum = 0;
            for (int u = 0; u < 7; u++)
                for (int v = 0; v < 7; v++)
                    sum += kernel[u * 7 + v] * image[(i + u - 3) * IMAGE + j + v - 3];
            out[i * IMAGE + j] = sum;
        }
}

ROW static float pool(void) {
    float sum = 0;
    for (int i = 0; i + 1 < IMAGE; i += 2)
        for (int j = 0; j + 1 < IMAGE; j += 2) {
            float most = out[i * IMAGE + j];
            if (out[i * IMAGE + j + 1] > most)
                most = out[i * IMAGE + j + 1];
            if (out[(i + 1) * IMAGE + j] > most)
                most = out[(i + 1) * IMAGE + j];
            sum += most;
        }
    return sum;
}

static uint64_t gemm(long k) { multiply(); return k + (uint64_t)norm(c, N * N); }
static uint64_t blocked(long k) { multiply_blocks(); return k + (uint64_t)norm(c, N * N); }

static uint64_t transpose(long k) {
    transpose_rows();
    transpose_blocks();
    return k + (uint64_t)norm(c, SIDE * SIDE);
}

static uint64_t heat2(long k) {
    heat_plane(grid, other);
    heat_plane(other, grid);
    return k + (uint64_t)norm(grid, SIDE * SIDE);
}

static uint64_t heat3(long k) {
    heat_cube(grid, other);
    heat_cube(other, grid);
    return k;
}

static uint64_t conv(long k) { convolve(); return k + (uint64_t)pool(); }

PROGRAMS({"gemm", matrices, gemm}, {"blocked", matrices, blocked}, {"transpose", matrices, transpose},
         {"heat2", cubes, heat2}, {"heat3", cubes, heat3}, {"conv", images, conv})
