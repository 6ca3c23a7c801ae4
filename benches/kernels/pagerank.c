/* Page rank by pulling over incoming edges: irregular reads of rank and degree. */
#include "kernel.h"

enum { NODES = 8192, EDGES = NODES * 8 };

__attribute__((noinline)) static void step(float *restrict to, const float *restrict from, const uint32_t *restrict first,
                                           const uint32_t *restrict source, const float *restrict share) {
    for (uint32_t v = 0; v < NODES; v++) {
        float s = 0;
        for (uint32_t e = first[v]; e < first[v + 1]; e++) {
            uint32_t u = source[e];
            s += from[u] * share[u];
        }
        to[v] = 0.15f + 0.85f * s;
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 12000);
    uint64_t seed = 362436069ull;
    uint32_t *first = take((NODES + 1) * sizeof *first), *source = take(EDGES * sizeof *source);
    uint32_t *degree = take(NODES * sizeof *degree);
    float *a = take(NODES * sizeof *a), *b = take(NODES * sizeof *b), *share = take(NODES * sizeof *share);
    memset(degree, 0, NODES * sizeof *degree);
    uint32_t n = 0;
    for (uint32_t v = 0; v < NODES; v++) {
        first[v] = n;
        uint32_t last = (v + 1) * (uint64_t)EDGES / NODES;
        while (n < last) {
            uint64_t r = next_random(&seed);
            /* Half of the edges come from few nodes, as in a web graph. */
            uint32_t u = r & 1 ? (r >> 8) % 256 : (r >> 8) % NODES;
            source[n++] = u;
            degree[u]++;
        }
    }
    first[NODES] = n;
    for (uint32_t v = 0; v < NODES; v++) {
        a[v] = 1;
        share[v] = degree[v] ? 1.0f / (float)degree[v] : 0;
    }
    for (long r = 0; r < rounds; r++) {
        step(b, a, first, source, share);
        float *t = a;
        a = b;
        b = t;
    }
    double total = 0;
    for (uint32_t v = 0; v < NODES; v++)
        total += a[v];
    return finish((uint64_t)(total * 16));
}
