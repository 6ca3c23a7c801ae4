/* Particles. */
#include "sealed.h"

struct body {
    double x, y, z, mass, vx, vy, vz;
};
static struct body *bodies;

static void place(int n, int flat) {
    bodies = need(n * sizeof *bodies);
    for (int i = 0; i < n; i++)
        bodies[i] = (struct body){uniform(), uniform(), flat ? 0 : uniform(), 1. / n, 0, 0, 0};
}

/* All pairs. */
enum { STARS = 900 };

static void pairs_set_up(void) { place(STARS, 0); }

static double pairs_round(void) {
    for (int i = 0; i < STARS; i++) {
        double ax = 0, ay = 0, az = 0;
        for (int j = 0; j < STARS; j++) {
            double dx = bodies[j].x - bodies[i].x, dy = bodies[j].y - bodies[i].y;
            double dz = bodies[j].z - bodies[i].z, r2 = dx * dx + dy * dy + dz * dz + 1e-4;
            double f = bodies[j].mass / (r2 * sqrt(r2));
            ax += f * dx, ay += f * dy, az += f * dz;
        }
        bodies[i].vx += 1e-6 * ax, bodies[i].vy += 1e-6 * ay, bodies[i].vz += 1e-6 * az;
    }
    for (int i = 0; i < STARS; i++)
        bodies[i].x += bodies[i].vx, bodies[i].y += bodies[i].vy, bodies[i].z += bodies[i].vz;
    return bodies[0].x;
}

/* Barnes and Hut: a tree of quarters that is new in each round. */
struct quarter {
    double x, y, mass, left, low, size;
    struct body *body;
    struct quarter *parts[4];
};
enum { GALAXY = 7000 };

static void galaxy_set_up(void) { place(GALAXY, 1); }

static struct quarter *new_quarter(double left, double low, double size) {
    struct quarter *q = calloc(1, sizeof *q);
    q->left = left, q->low = low, q->size = size;
    return q;
}

static void insert(struct quarter *q, struct body *b);

static void insert_below(struct quarter *q, struct body *b) {
    double half = q->size / 2;
    int east = b->x >= q->left + half, north = b->y >= q->low + half, part = east + 2 * north;
    if (!q->parts[part])
        q->parts[part] = new_quarter(q->left + east * half, q->low + north * half, half);
    insert(q->parts[part], b);
}

static void insert(struct quarter *q, struct body *b) {
    if (q->mass == 0) {
        q->body = b;
    } else if (q->size > 1e-7) {
        if (q->body)
            insert_below(q, q->body);
        q->body = NULL;
        insert_below(q, b);
    }
    q->x = (q->x * q->mass + b->x * b->mass) / (q->mass + b->mass);
    q->y = (q->y * q->mass + b->y * b->mass) / (q->mass + b->mass);
    q->mass += b->mass;
}

static void pull(const struct quarter *q, struct body *b) {
    double dx = q->x - b->x, dy = q->y - b->y, r2 = dx * dx + dy * dy + 1e-5;
    if (q->body || q->size * q->size < 0.6 * r2) {
        double f = q->mass / (r2 * sqrt(r2));
        b->vx += 1e-7 * f * dx, b->vy += 1e-7 * f * dy;
        return;
    }
    for (int i = 0; i < 4; i++)
        if (q->parts[i])
            pull(q->parts[i], b);
}

static void discard(struct quarter *q) {
    for (int i = 0; i < 4; i++)
        if (q->parts[i])
            discard(q->parts[i]);
    free(q);
}

static double galaxy_round(void) {
    struct quarter *top = new_quarter(-1, -1, 4);
    for (int i = 0; i < GALAXY; i++)
        insert(top, &bodies[i]);
    for (int i = 0; i < GALAXY; i++)
        pull(top, &bodies[i]);
    for (int i = 0; i < GALAXY; i++)
        bodies[i].x += bodies[i].vx, bodies[i].y += bodies[i].vy;
    discard(top);
    return bodies[3].x;
}

/* Short-range forces with lists of atoms by cell. */
enum { ATOMS = 30000, CELLS = 18 };
static int *cell_first, *cell_next;

static void cells_set_up(void) {
    place(ATOMS, 0);
    cell_first = need(CELLS * CELLS * CELLS * sizeof *cell_first);
    cell_next = need(ATOMS * sizeof *cell_next);
}

static int cell_of(double v) { return v <= 0 ? 0 : v >= 1 ? CELLS - 1 : (int)(v * CELLS); }

static double force_from(int cell, const struct body *b) {
    double sum = 0;
    for (int j = cell_first[cell]; j >= 0; j = cell_next[j]) {
        double dx = bodies[j].x - b->x, dy = bodies[j].y - b->y, dz = bodies[j].z - b->z;
        double r2 = dx * dx + dy * dy + dz * dz;
        if (r2 < 1e-3 && r2 > 0)
            sum += 1e-9 / (r2 * r2) - 1e-6 / r2;
    }
    return sum;
}

static double cells_round(void) {
    memset(cell_first, 0xff, CELLS * CELLS * CELLS * sizeof *cell_first);
    for (int i = 0; i < ATOMS; i++) {
        const struct body *b = &bodies[i];
        int cell = (cell_of(b->x) * CELLS + cell_of(b->y)) * CELLS + cell_of(b->z);
        cell_next[i] = cell_first[cell];
        cell_first[cell] = i;
    }
    double energy = 0;
    for (int i = 0; i < ATOMS; i += 4) {
        const struct body *b = &bodies[i];
        int cx = cell_of(b->x), cy = cell_of(b->y), cz = cell_of(b->z);
        for (int x = cx - (cx > 0); x <= cx + (cx < CELLS - 1); x++)
            for (int y = cy - (cy > 0); y <= cy + (cy < CELLS - 1); y++)
                for (int z = cz - (cz > 0); z <= cz + (cz < CELLS - 1); z++)
                    energy += force_from((x * CELLS + y) * CELLS + z, b);
    }
    return energy;
}

/* Monte Carlo transport: a search in a grid of energies, and a gather from tables. */
enum { ENERGIES = 400000, NUCLIDES = 24, POINTS = 4000 };
static double *energies;
static int *positions;
static float *sections;

static void transport_set_up(void) {
    energies = need(ENERGIES * sizeof *energies);
    positions = need((size_t)ENERGIES * 4 * sizeof *positions);
    sections = need(NUCLIDES * POINTS * 4 * sizeof *sections);
    for (int i = 0; i < ENERGIES; i++)
        energies[i] = (i + uniform()) / ENERGIES;
    for (int i = 0; i < ENERGIES * 4; i++)
        positions[i] = (int)((double)(i / 4) / ENERGIES * (POINTS - 1));
    for (int i = 0; i < NUCLIDES * POINTS * 4; i++)
        sections[i] = (float)uniform();
}

static double transport_round(void) {
    double sum = 0;
    for (int event = 0; event < 40000; event++) {
        double energy = uniform();
        int low = 0, high = ENERGIES - 1;
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (energies[middle] > energy)
                high = middle;
            else
                low = middle;
        }
        for (int n = 0; n < 4; n++) {
            int nuclide = (event + 5 * n) % NUCLIDES;
            const float *s = sections + (nuclide * POINTS + positions[low * 4 + n]) * 4;
            sum += s[0] + s[1] + s[3];
        }
    }
    return sum;
}

static const struct kind kinds[] = {
    {"nbody", pairs_set_up, pairs_round},
    {"barnes-hut", galaxy_set_up, galaxy_round},
    {"cell-lists", cells_set_up, cells_round},
    {"monte-carlo", transport_set_up, transport_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
