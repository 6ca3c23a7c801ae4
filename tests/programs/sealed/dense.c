/* Dense linear algebra, transforms and layers of networks. */
#include "sealed.h"

static double *filled(size_t n) {
    double *to = need(n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = uniform();
    return to;
}

static float *filled_single(size_t n) {
    float *to = need(n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = (float)uniform() - 0.5f;
    return to;
}

/* Transposition, by columns of the source. */
enum { TALL = 1300, WIDE = 1100 };
static double *source, *target;

static void turn_set_up(void) {
    source = filled(TALL * WIDE);
    target = filled(TALL * WIDE);
}

static double turn_round(void) {
    for (int j = 0; j < WIDE; j++)
        for (int i = 0; i < TALL; i++)
            target[j * TALL + i] = source[i * WIDE + j];
    return target[9];
}

/* Transposition in place, in blocks, of a size that is a power of two. */
enum { SIDE = 1024, TILE = 16 };
static float *square;

static void flip_set_up(void) { square = filled_single(SIDE * SIDE); }

static double flip_round(void) {
    for (int bi = 0; bi < SIDE; bi += TILE)
        for (int bj = 0; bj <= bi; bj += TILE)
            for (int i = bi; i < bi + TILE; i++)
                for (int j = bj; j < bj + TILE && j < i; j++) {
                    float t = square[i * SIDE + j];
                    square[i * SIDE + j] = square[j * SIDE + i];
                    square[j * SIDE + i] = t;
                }
    return square[1];
}

/* LU decomposition with pivots; rows are reached by pointers. */
enum { ORDER = 190 };
static double **lu_rows, *lu_given;

static void lu_set_up(void) {
    lu_given = filled(ORDER * ORDER);
    lu_rows = need(ORDER * sizeof *lu_rows);
    for (int i = 0; i < ORDER; i++)
        lu_rows[i] = need(ORDER * sizeof **lu_rows);
}

static double lu_round(void) {
    for (int i = 0; i < ORDER; i++)
        memcpy(lu_rows[i], lu_given + i * ORDER, ORDER * sizeof **lu_rows);
    for (int k = 0; k < ORDER; k++) {
        int pivot = k;
        for (int i = k + 1; i < ORDER; i++)
            if (fabs(lu_rows[i][k]) > fabs(lu_rows[pivot][k]))
                pivot = i;
        double *t = lu_rows[k];
        lu_rows[k] = lu_rows[pivot];
        lu_rows[pivot] = t;
        for (int i = k + 1; i < ORDER; i++) {
            double factor = lu_rows[i][k] /= lu_rows[k][k];
            for (int j = k + 1; j < ORDER; j++)
                lu_rows[i][j] -= factor * lu_rows[k][j];
        }
    }
    return lu_rows[ORDER - 1][ORDER - 1];
}

/* Cholesky decomposition, one row after another. */
enum { DEGREE = 260 };
static double *symmetric, *lower;

static void cholesky_set_up(void) {
    symmetric = filled(DEGREE * DEGREE);
    lower = filled(DEGREE * DEGREE);
    for (int i = 0; i < DEGREE; i++)
        symmetric[i * DEGREE + i] += DEGREE;
}

static double cholesky_round(void) {
    for (int i = 0; i < DEGREE; i++)
        for (int j = 0; j <= i; j++) {
            double sum = symmetric[i * DEGREE + j];
            for (int k = 0; k < j; k++)
                sum -= lower[i * DEGREE + k] * lower[j * DEGREE + k];
            lower[i * DEGREE + j] = i == j ? sqrt(fabs(sum)) : sum / lower[j * DEGREE + j];
        }
    return lower[DEGREE * DEGREE - 1];
}

/* Fast Fourier transform in place. */
enum { BITS = 16, POINTS = 1 << BITS };
static double *re, *im, *cosines, *sines;

static void fft_set_up(void) {
    re = filled(POINTS);
    im = filled(POINTS);
    cosines = need(POINTS / 2 * sizeof *cosines);
    sines = need(POINTS / 2 * sizeof *sines);
    for (int i = 0; i < POINTS / 2; i++) {
        cosines[i] = cos(2 * M_PI * i / POINTS);
        sines[i] = sin(2 * M_PI * i / POINTS);
    }
}

static void reverse_bits(void) {
    for (int i = 1, j = 0; i < POINTS; i++) {
        int bit = POINTS >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double t = re[i];
            re[i] = re[j], re[j] = t;
            t = im[i], im[i] = im[j], im[j] = t;
        }
    }
}

static double fft_round(void) {
    reverse_bits();
    for (int half = 1; half < POINTS; half *= 2)
        for (int start = 0; start < POINTS; start += 2 * half)
            for (int k = 0; k < half; k++) {
                double c = cosines[k * (POINTS / 2 / half)], s = sines[k * (POINTS / 2 / half)];
                int a = start + k, b = a + half;
                double r = re[b] * c - im[b] * s, i = re[b] * s + im[b] * c;
                re[b] = 0.5 * (re[a] - r), im[b] = 0.5 * (im[a] - i);
                re[a] = 0.5 * (re[a] + r), im[a] = 0.5 * (im[a] + i);
            }
    return re[3];
}

/* Convolution as a product with a matrix of patches. */
enum { CHANNELS = 12, EDGE = 58, OUT = 56, FILTERS = 8, PATCH = CHANNELS * 9 };
static float *picture, *patches, *filters, *maps;

static void patches_set_up(void) {
    picture = filled_single(CHANNELS * EDGE * EDGE);
    patches = filled_single(PATCH * OUT * OUT);
    filters = filled_single(FILTERS * PATCH);
    maps = filled_single(FILTERS * OUT * OUT);
}

static void unfold(void) {
    float *to = patches;
    for (int c = 0; c < CHANNELS; c++)
        for (int di = 0; di < 3; di++)
            for (int dj = 0; dj < 3; dj++)
                for (int i = 0; i < OUT; i++)
                    for (int j = 0; j < OUT; j++)
                        *to++ = picture[(c * EDGE + i + di) * EDGE + j + dj];
}

static double patches_round(void) {
    unfold();
    memset(maps, 0, FILTERS * OUT * OUT * sizeof *maps);
    for (int f = 0; f < FILTERS; f++)
        for (int k = 0; k < PATCH; k++) {
            float w = filters[f * PATCH + k];
            for (int p = 0; p < OUT * OUT; p++)
                maps[f * OUT * OUT + p] += w * patches[k * OUT * OUT + p];
        }
    return maps[5];
}

/* A recurrent cell: four gates, each a matrix by a vector, some steps a round. */
enum { HIDDEN = 224, INPUT = 96, GATE = HIDDEN + INPUT };
static float *gates, *state, *cell, *inputs;

static void recurrent_set_up(void) {
    gates = filled_single(4 * HIDDEN * GATE);
    state = filled_single(GATE);
    cell = filled_single(HIDDEN);
    inputs = filled_single(64 * INPUT);
}

static float gate(int g, int h) {
    const float *w = gates + (size_t)(g * HIDDEN + h) * GATE;
    float sum = 0;
    for (int k = 0; k < GATE; k++)
        sum += w[k] * state[k];
    return sum;
}

static double recurrent_round(void) {
    float next[HIDDEN];
    for (int step = 0; step < 6; step++) {
        memcpy(state + HIDDEN, inputs + step * INPUT, INPUT * sizeof *inputs);
        for (int h = 0; h < HIDDEN; h++) {
            float in = 1 / (1 + expf(-gate(0, h))), forget = 1 / (1 + expf(-gate(1, h)));
            float out = 1 / (1 + expf(-gate(2, h)));
            cell[h] = forget * cell[h] + in * tanhf(gate(3, h));
            next[h] = out * tanhf(cell[h]);
        }
        memcpy(state, next, sizeof next);
    }
    return state[0];
}

static const struct kind kinds[] = {
    {"transpose-columns", turn_set_up, turn_round},
    {"transpose-in-place", flip_set_up, flip_round},
    {"lu-pivots", lu_set_up, lu_round},
    {"cholesky", cholesky_set_up, cholesky_round},
    {"fft", fft_set_up, fft_round},
    {"im2col", patches_set_up, patches_round},
    {"lstm", recurrent_set_up, recurrent_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
