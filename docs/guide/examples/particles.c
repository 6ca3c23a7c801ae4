/* particles.c: three ways to walk over the same data; `particles ROUNDS`.
 *
 * cc -O2 -g particles.c -o particles            particles as an array of structures
 * cc -O2 -g -DSPLIT particles.c -o particles    the masses in an array of their own
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef SPLIT
struct particle {
    double x, y, z, vx, vy, vz, charge;
};
static double *masses;
#define MASS(i) masses[i]
#else
struct particle {
    double x, y, z, vx, vy, vz, mass, charge;
};
#define MASS(i) particles[i].mass
#endif

enum { COUNT = 1 << 20, CELLS = 4096 };
static double grid[CELLS];

/* One field of each structure, in order. */
__attribute__((noinline)) static double total_mass(const struct particle *particles) {
    (void)particles;
    double sum = 0;
    for (long i = 0; i < COUNT; i++)
        sum += MASS(i);
    return sum;
}

/* One field of each structure, in the order of an index. */
__attribute__((noinline)) static double visit(const struct particle *particles, const int *order) {
    double sum = 0;
    for (long i = 0; i < COUNT; i++)
        sum += particles[order[i]].x;
    return sum;
}

/* An array that fits the first cache. */
__attribute__((noinline)) static void smooth(void) {
    for (int pass = 0; pass < 256; pass++)
        for (int c = 1; c + 1 < CELLS; c++)
            grid[c] = 0.25 * grid[c - 1] + 0.5 * grid[c] + 0.25 * grid[c + 1];
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    struct particle *particles = calloc(COUNT, sizeof *particles);
    int *order = malloc(COUNT * sizeof *order);
#ifdef SPLIT
    masses = calloc(COUNT, sizeof *masses);
#endif
    unsigned state = 1;
    for (int i = 0; i < COUNT; i++) {
        MASS(i) = particles[i].x = i % 7;
        state = state * 1664525 + 1013904223;
        order[i] = (int)(state >> 12);
    }
    double sum = 0;
    for (int round = 0; round < rounds; round++) {
        sum += total_mass(particles) + visit(particles, order);
        grid[round % CELLS] += sum;
        smooth();
    }
    printf("%.0f %.3g\n", sum, grid[7]);
#ifdef SPLIT
    free(masses);
#endif
    free(order);
    free(particles);
    return 0;
}
