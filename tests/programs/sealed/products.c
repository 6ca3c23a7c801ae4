/* Sparse products and a triangular solve. */
#include "sealed.h"

static int *rows, *columns, *starts;
static double *values, *x, *y;

static double *filled(size_t n) {
    double *to = need(n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = uniform();
    return to;
}

/* Compressed rows: some entries near the diagonal, some anywhere. */
enum { CSR_ROWS = 50000, CSR_EACH = 14 };

static void csr_set_up(void) {
    x = filled(CSR_ROWS);
    y = filled(CSR_ROWS);
    values = filled((size_t)CSR_ROWS * CSR_EACH);
    columns = need((size_t)CSR_ROWS * CSR_EACH * sizeof *columns);
    starts = need((CSR_ROWS + 1) * sizeof *starts);
    for (int i = 0, at = 0; i <= CSR_ROWS; i++) {
        starts[i] = at;
        for (int k = 0; i < CSR_ROWS && k < CSR_EACH; k++)
            columns[at++] = k < 9 ? (i + 37 * k) % CSR_ROWS : (int)below(CSR_ROWS);
    }
}

static double csr_round(void) {
    for (int i = 0; i < CSR_ROWS; i++) {
        double sum = 0;
        for (int k = starts[i]; k < starts[i + 1]; k++)
            sum += values[k] * x[columns[k]];
        y[i] = sum;
    }
    return y[7];
}

/* Coordinates in random order. */
enum { COO_SIZE = 30000, COO_ENTRIES = 500000 };

static void coo_set_up(void) {
    x = filled(COO_SIZE);
    y = filled(COO_SIZE);
    values = filled(COO_ENTRIES);
    rows = need(COO_ENTRIES * sizeof *rows);
    columns = need(COO_ENTRIES * sizeof *columns);
    for (int k = 0; k < COO_ENTRIES; k++) {
        rows[k] = below(COO_SIZE);
        columns[k] = below(COO_SIZE);
    }
}

static double coo_round(void) {
    for (int k = 0; k < COO_ENTRIES; k++)
        y[rows[k]] += values[k] * x[columns[k]];
    return y[7];
}

/* ELLPACK: entries of all rows stand in columns of equal length. */
enum { ELL_ROWS = 60000, ELL_WIDTH = 16 };

static void ell_set_up(void) {
    x = filled(ELL_ROWS);
    y = filled(ELL_ROWS);
    values = filled((size_t)ELL_ROWS * ELL_WIDTH);
    columns = need((size_t)ELL_ROWS * ELL_WIDTH * sizeof *columns);
    for (int i = 0; i < ELL_ROWS * ELL_WIDTH; i++)
        columns[i] = below(ELL_ROWS);
}

static double ell_round(void) {
    for (int i = 0; i < ELL_ROWS; i++) {
        double sum = 0;
        for (int k = 0; k < ELL_WIDTH; k++)
            sum += values[(size_t)k * ELL_ROWS + i] * x[columns[(size_t)k * ELL_ROWS + i]];
        y[i] = sum;
    }
    return y[7];
}

/* Forward substitution with a sparse lower triangle. */
enum { LOWER = 60000, LOWER_EACH = 8 };

static void solve_set_up(void) {
    x = filled(LOWER);
    y = filled(LOWER);
    values = filled((size_t)LOWER * LOWER_EACH);
    columns = need((size_t)LOWER * LOWER_EACH * sizeof *columns);
    starts = need((LOWER + 1) * sizeof *starts);
    int at = 0;
    for (int i = 0; i < LOWER; i++) {
        starts[i] = at;
        for (int k = 0; k < LOWER_EACH && i > 0; k++)
            columns[at++] = (int)((double)i * (1 - 0.5 * uniform() * uniform()));
    }
    starts[LOWER] = at;
    for (int k = 0; k < at; k++)
        values[k] *= 0.05;
}

static double solve_round(void) {
    for (int i = 0; i < LOWER; i++) {
        double sum = y[i];
        for (int k = starts[i]; k < starts[i + 1]; k++)
            if (columns[k] < i)
                sum -= values[k] * x[columns[k]];
        x[i] = sum;
    }
    return x[LOWER - 1];
}

/* Product of two sparse matrices by Gustavson's algorithm, with a dense accumulator. */
enum { SQUARE = 16000, SQUARE_EACH = 6 };
static int *touched, *mark;

static void square_set_up(void) {
    values = filled(SQUARE * SQUARE_EACH);
    columns = need(SQUARE * SQUARE_EACH * sizeof *columns);
    for (int k = 0; k < SQUARE * SQUARE_EACH; k++)
        columns[k] = below(SQUARE);
    x = calloc(SQUARE, sizeof *x);
    mark = calloc(SQUARE, sizeof *mark);
    touched = need(SQUARE_EACH * SQUARE_EACH * sizeof *touched);
}

static double square_round(void) {
    double trace = 0;
    memset(mark, 0, SQUARE * sizeof *mark);
    for (int i = 0; i < SQUARE; i++) {
        int n = 0;
        for (int a = i * SQUARE_EACH; a < (i + 1) * SQUARE_EACH; a++) {
            int k = columns[a];
            for (int b = k * SQUARE_EACH; b < (k + 1) * SQUARE_EACH; b++) {
                int j = columns[b];
                if (mark[j] != i + 1) {
                    mark[j] = i + 1;
                    x[j] = 0;
                    touched[n++] = j;
                }
                x[j] += values[a] * values[b];
            }
        }
        for (int t = 0; t < n; t++)
            trace += x[touched[t]];
    }
    return trace;
}

static const struct kind kinds[] = {
    {"csr", csr_set_up, csr_round},       {"coo", coo_set_up, coo_round},
    {"ell", ell_set_up, ell_round},       {"lower-solve", solve_set_up, solve_round},
    {"spgemm", square_set_up, square_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
