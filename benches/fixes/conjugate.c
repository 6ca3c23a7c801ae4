/* Conjugate gradient steps with a random sparse matrix of six elements in each row, as in the NAS benchmark CG. */
#include "common.h"

enum { ROWS = 1 << 22, PER_ROW = 6 };

__attribute__((noinline)) static void multiply(double *restrict y, const double *restrict x, const uint32_t *restrict column,
                                               const float *restrict value) {
    for (int r = 0; r < ROWS; r++) {
        double s = 4 * x[r];
        for (int k = 0; k < PER_ROW; k++)
            s += value[r * PER_ROW + k] * x[column[r * PER_ROW + k]];
        y[r] = s;
    }
}

__attribute__((noinline)) static double dot(const double *a, const double *b) {
    double s = 0;
    for (int i = 0; i < ROWS; i++)
        s += a[i] * b[i];
    return s;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 8);
    uint64_t seed = 271828182ull;
    uint32_t *column = allocate((size_t)ROWS * PER_ROW, sizeof *column);
    float *value = allocate((size_t)ROWS * PER_ROW, sizeof *value);
    double *x = allocate(ROWS, sizeof *x), *p = allocate(ROWS, sizeof *p), *q = allocate(ROWS, sizeof *q),
           *rest = allocate(ROWS, sizeof *rest);
    for (long k = 0; k < (long)ROWS * PER_ROW; k++) {
        column[k] = below(&seed, ROWS);
        value[k] = (float)(column[k] % 7) / 16;
    }
    for (int i = 0; i < ROWS; i++) {
        x[i] = 0;
        p[i] = rest[i] = 1 + i % 5;
    }
    double rho = dot(rest, rest);
    for (long n = 0; n < rounds; n++) {
        multiply(q, p, column, value);
        double alpha = rho / dot(p, q);
        for (int i = 0; i < ROWS; i++) {
            x[i] += alpha * p[i];
            rest[i] -= alpha * q[i];
        }
        double before = rho;
        rho = dot(rest, rest);
        for (int i = 0; i < ROWS; i++)
            p[i] = rest[i] + rho / before * p[i];
    }
    return finish((uint64_t)(x[17] * 1e6) + (uint64_t)(rho * 1e3));
}
