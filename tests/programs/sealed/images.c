/* Images and grids. */
#include "sealed.h"

/* Rotation by an angle: each pixel of the target takes the nearest one of the source. */
enum { WIDTH = 1100, HEIGHT = 900 };
static uint32_t *pixels, *rotated;
static double angle = 0.6;

static void rotate_set_up(void) {
    pixels = need(WIDTH * HEIGHT * sizeof *pixels);
    rotated = need(WIDTH * HEIGHT * sizeof *rotated);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        pixels[i] = (uint32_t)next_random();
}

static double rotate_round(void) {
    double c = cos(angle), s = sin(angle);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            double dx = x - WIDTH / 2, dy = y - HEIGHT / 2;
            int from_x = (int)(c * dx + s * dy) + WIDTH / 2;
            int from_y = (int)(c * dy - s * dx) + HEIGHT / 2;
            int inside = from_x >= 0 && from_x < WIDTH && from_y >= 0 && from_y < HEIGHT;
            rotated[y * WIDTH + x] = inside ? pixels[from_y * WIDTH + from_x] : 0;
        }
    return rotated[WIDTH * HEIGHT / 2];
}

/* Blur in two passes: along rows, and along columns one column after another. */
enum { BLUR_WIDTH = 700, BLUR_HEIGHT = 500, RADIUS = 2 };
static float *sharp, *between, *soft;
static const float weights[2 * RADIUS + 1] = {0.06f, 0.24f, 0.4f, 0.24f, 0.06f};

static void blur_set_up(void) {
    sharp = need(BLUR_WIDTH * BLUR_HEIGHT * sizeof *sharp);
    between = calloc(BLUR_WIDTH * BLUR_HEIGHT, sizeof *between);
    soft = calloc(BLUR_WIDTH * BLUR_HEIGHT, sizeof *soft);
    for (int i = 0; i < BLUR_WIDTH * BLUR_HEIGHT; i++)
        sharp[i] = (float)uniform();
}

static double blur_round(void) {
    for (int y = 0; y < BLUR_HEIGHT; y++)
        for (int x = RADIUS; x < BLUR_WIDTH - RADIUS; x++) {
            float sum = 0;
            for (int d = -RADIUS; d <= RADIUS; d++)
                sum += weights[d + RADIUS] * sharp[y * BLUR_WIDTH + x + d];
            between[y * BLUR_WIDTH + x] = sum;
        }
    for (int x = 0; x < BLUR_WIDTH; x++)
        for (int y = RADIUS; y < BLUR_HEIGHT - RADIUS; y++) {
            float sum = 0;
            for (int d = -RADIUS; d <= RADIUS; d++)
                sum += weights[d + RADIUS] * between[(y + d) * BLUR_WIDTH + x];
            soft[y * BLUR_WIDTH + x] = sum;
        }
    return soft[BLUR_WIDTH * 30 + 30];
}

/* Conway's cells. */
enum { CELLS_X = 800, CELLS_Y = 600 };
static uint8_t *now, *then;

static void life_set_up(void) {
    now = calloc(CELLS_X * CELLS_Y, 1);
    then = calloc(CELLS_X * CELLS_Y, 1);
    for (int i = 0; i < CELLS_X * CELLS_Y; i++)
        now[i] = below(3) == 0;
}

static double life_round(void) {
    for (int y = 1; y < CELLS_Y - 1; y++)
        for (int x = 1; x < CELLS_X - 1; x++) {
            const uint8_t *c = now + y * CELLS_X + x;
            int n = c[-CELLS_X - 1] + c[-CELLS_X] + c[-CELLS_X + 1] + c[-1] + c[1] +
                    c[CELLS_X - 1] + c[CELLS_X] + c[CELLS_X + 1];
            then[y * CELLS_X + x] = (n | *c) == 3;
        }
    uint8_t *t = now;
    now = then;
    then = t;
    return now[CELLS_X * 50 + 50];
}

/* Successive overrelaxation, red cells and then black ones. */
enum { PLATE = 1100 };
static double *plate;

static void sor_set_up(void) {
    plate = need(PLATE * PLATE * sizeof *plate);
    for (int i = 0; i < PLATE * PLATE; i++)
        plate[i] = uniform();
}

static double sor_round(void) {
    for (int color = 0; color < 2; color++)
        for (int i = 1; i < PLATE - 1; i++)
            for (int j = 1 + (i + color) % 2; j < PLATE - 1; j += 2) {
                double *at = plate + i * PLATE + j;
                *at += 1.5 * (0.25 * (at[-PLATE] + at[PLATE] + at[-1] + at[1]) - *at);
            }
    return plate[PLATE * 20 + 20];
}

/* Multigrid: one V cycle for Poisson's equation. */
enum { FINEST = 9 };
static float *guess[FINEST + 1], *right[FINEST + 1], *rest[FINEST + 1];

static int side_of(int level) { return (1 << level) + 1; }

static void cycle_set_up(void) {
    for (int level = 1; level <= FINEST; level++) {
        size_t n = (size_t)side_of(level) * side_of(level);
        guess[level] = calloc(n, sizeof(float));
        right[level] = calloc(n, sizeof(float));
        rest[level] = calloc(n, sizeof(float));
        for (size_t i = 0; level == FINEST && i < n; i++)
            right[level][i] = (float)uniform();
    }
}

static void smooth(int level) {
    int n = side_of(level);
    float *u = guess[level], *f = right[level];
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            u[i * n + j] = 0.25f * (u[(i - 1) * n + j] + u[(i + 1) * n + j] + u[i * n + j - 1] +
                                   u[i * n + j + 1] + f[i * n + j]);
}

static void find_rest(int level) {
    int n = side_of(level);
    float *u = guess[level];
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            rest[level][i * n + j] = right[level][i * n + j] - 4 * u[i * n + j] +
                                     u[(i - 1) * n + j] + u[(i + 1) * n + j] +
                                     u[i * n + j - 1] + u[i * n + j + 1];
}

static void restrict_to(int level) {
    int n = side_of(level), fine = side_of(level + 1);
    memset(guess[level], 0, (size_t)n * n * sizeof(float));
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++) {
            const float *r = rest[level + 1] + 2 * i * fine + 2 * j;
            right[level][i * n + j] = r[0] + 0.5f * (r[-1] + r[1] + r[-fine] + r[fine]);
        }
}

static void prolong_from(int level) {
    int n = side_of(level), fine = side_of(level + 1);
    float *u = guess[level + 1];
    for (int i = 1; i < fine - 1; i++)
        for (int j = 1; j < fine - 1; j++) {
            const float *c = guess[level] + i / 2 * n + j / 2;
            u[i * fine + j] += 0.25f * (c[0] + c[j % 2] + c[i % 2 * n] + c[i % 2 * n + j % 2]);
        }
}

static void v_cycle(int level) {
    smooth(level);
    if (level > 1) {
        find_rest(level);
        restrict_to(level - 1);
        v_cycle(level - 1);
        prolong_from(level - 1);
    }
    smooth(level);
}

static double cycle_round(void) {
    v_cycle(FINEST);
    return guess[FINEST][side_of(FINEST) * 9 + 9];
}

/* Lattice Boltzmann: nine populations, each in its own array. */
enum { LATTICE_X = 400, LATTICE_Y = 250, SPEEDS = 9 };
static double *old[SPEEDS], *new[SPEEDS];
static const int ex[SPEEDS] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
static const int ey[SPEEDS] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

static void flow_set_up(void) {
    for (int k = 0; k < SPEEDS; k++) {
        old[k] = need(LATTICE_X * LATTICE_Y * sizeof(double));
        new[k] = need(LATTICE_X * LATTICE_Y * sizeof(double));
        for (int i = 0; i < LATTICE_X * LATTICE_Y; i++)
            old[k][i] = new[k][i] = 0.1 + 0.01 * uniform();
    }
}

static double flow_round(void) {
    for (int y = 1; y < LATTICE_Y - 1; y++)
        for (int x = 1; x < LATTICE_X - 1; x++) {
            double f[SPEEDS], rho = 0, ux = 0, uy = 0;
            for (int k = 0; k < SPEEDS; k++) {
                f[k] = old[k][(y - ey[k]) * LATTICE_X + x - ex[k]];
                rho += f[k], ux += ex[k] * f[k], uy += ey[k] * f[k];
            }
            for (int k = 0; k < SPEEDS; k++) {
                double weight = k == 0 ? 4. / 9 : k < 5 ? 1. / 9 : 1. / 36;
                double along = 3 * (ex[k] * ux + ey[k] * uy);
                new[k][y * LATTICE_X + x] = f[k] + 0.6 * (weight * (rho + along) - f[k]);
            }
        }
    for (int k = 0; k < SPEEDS; k++) {
        double *t = old[k];
        old[k] = new[k];
        new[k] = t;
    }
    return old[3][LATTICE_X * 5 + 5];
}

static const struct kind kinds[] = {
    {"rotate", rotate_set_up, rotate_round}, {"blur", blur_set_up, blur_round},
    {"life", life_set_up, life_round},       {"sor", sor_set_up, sor_round},
    {"multigrid", cycle_set_up, cycle_round}, {"lattice", flow_set_up, flow_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
