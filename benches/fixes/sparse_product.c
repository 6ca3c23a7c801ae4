/* Sparse matrix in compressed rows times a vector: rows of different lengths, and a vector larger than the caches. */
#include "common.h"

enum { ROWS = 1 << 21, COLUMNS = 1 << 23, PER_ROW = 8 };

__attribute__((noinline)) static void multiply(double *restrict y, const double *restrict x, const uint32_t *restrict first,
                                               const uint32_t *restrict column, const double *restrict value) {
    for (int r = 0; r < ROWS; r++) {
        double s = 0;
        for (uint32_t k = first[r]; k < first[r + 1]; k++)
            s += value[k] * x[column[k]];
        y[r] = s;
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 12);
    uint64_t seed = 282842712ull, n = 0;
    uint32_t *first = allocate(ROWS + 1, sizeof *first);
    for (int r = 0; r < ROWS; r++) {
        first[r] = (uint32_t)n;
        n += 1 + below(&seed, 2 * PER_ROW - 1);
    }
    first[ROWS] = (uint32_t)n;
    uint32_t *column = allocate(n, sizeof *column);
    double *value = allocate(n, sizeof *value), *x = allocate(COLUMNS, sizeof *x), *y = allocate(ROWS, sizeof *y), total = 0;
    for (uint64_t k = 0; k < n; k++) {
        column[k] = below(&seed, COLUMNS);
        value[k] = column[k] % 3;
    }
    for (int c = 0; c < COLUMNS; c++)
        x[c] = c % 29;
    for (long r = 0; r < rounds; r++) {
        multiply(y, x, first, column, value);
        total += y[r * 1001];
        x[r] += 1;
    }
    return finish((uint64_t)total);
}
