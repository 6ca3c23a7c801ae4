/* Sparse matrix (compressed rows) times vector: strided values and columns, irregular vector reads. */
#include "kernel.h"

enum { ROWS = 4096, PER_ROW = 12 };

__attribute__((noinline)) static void multiply(double *restrict y, const double *restrict x, const int *restrict first, const int *restrict column,
                                               const double *restrict value) {
    for (int r = 0; r < ROWS; r++) {
        double s = 0;
        for (int k = first[r]; k < first[r + 1]; k++)
            s += value[k] * x[column[k]];
        y[r] = s;
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 25000);
    uint64_t seed = 88172645463325252ull;
    int *first = take((ROWS + 1) * sizeof *first), *column = take(ROWS * PER_ROW * sizeof *column);
    double *value = take(ROWS * PER_ROW * sizeof *value), *x = take(ROWS * sizeof *x), *y = take(ROWS * sizeof *y);
    int n = 0;
    for (int r = 0; r < ROWS; r++) {
        first[r] = n;
        x[r] = r % 29;
        int here = PER_ROW / 2 + (int)(next_random(&seed) % (PER_ROW / 2));
        for (int k = 0; k < here; k++) {
            column[n] = (int)(next_random(&seed) % ROWS);
            value[n++] = (double)(next_random(&seed) % 3);
        }
    }
    first[ROWS] = n;
    double total = 0;
    for (long r = 0; r < rounds; r++) {
        multiply(y, x, first, column, value);
        total += y[r % ROWS];
        x[r % ROWS] = (double)(r % 31);
    }
    return finish((uint64_t)total);
}
