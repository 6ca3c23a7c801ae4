/* Shared by the case studies: a generator with a fixed seed, graphs, and the last line of output.
 *
 * Each program takes the variant first and then its size, runs in one thread, and prints one line that is the same
 * on every machine. Arrays are static or allocated once, so that reports can name them. */
#ifndef MGZ_CASES_H
#define MGZ_CASES_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static inline uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

static inline double next_fraction(uint64_t *state) {
    return (double)(next_random(state) >> 11) / 9007199254740992.0;
}

/* Room for a number of things, all zero. */
#define TAKE(type, count) ((type *)take((size_t)(count) * sizeof(type)))

static inline void *take(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static inline int usage(const char *text) {
    fprintf(stderr, "usage: %s\n", text);
    return 2;
}

/* An undirected graph: the neighbours of v are to[first[v]] … to[first[v + 1] - 1]. */
struct graph {
    uint32_t nodes;
    uint64_t edges;
    uint64_t *first;
    uint32_t *to;
};

/* A graph of 2^scale nodes by recursive choice of a quadrant (Chakrabarti et al., R-MAT; probabilities of Graph500), so that
 * few nodes have most of the edges. Numbers are shuffled, so that a node's number says nothing of its degree. Of each `near` edges
 * one is to a node with a number close by, as in graphs of places or pages of one site; 0: none. */
static inline struct graph random_graph(int scale, int degree, int near) {
    uint32_t nodes = (uint32_t)1 << scale;
    uint64_t pairs = (uint64_t)nodes * (uint64_t)degree / 2, seed = 88172645463325252ull;
    uint32_t *ends = TAKE(uint32_t, pairs * 2), *name = TAKE(uint32_t, nodes);
    for (uint32_t v = 0; v < nodes; v++)
        name[v] = v;
    for (uint32_t v = nodes - 1; v > 0; v--) {
        uint32_t u = (uint32_t)(next_random(&seed) % (v + 1)), t = name[u];
        name[u] = name[v];
        name[v] = t;
    }
    struct graph g = {nodes, pairs * 2, TAKE(uint64_t, nodes + 1), TAKE(uint32_t, pairs * 2)};
    for (uint64_t e = 0; e < pairs; e++) {
        uint32_t a = 0, b = 0;
        for (int bit = 0; bit < scale; bit++) {
            double x = next_fraction(&seed);
            a = a * 2 + (x >= 0.76);
            b = b * 2 + ((x >= 0.57 && x < 0.76) || x >= 0.95);
        }
        uint32_t u = name[a], v = name[b];
        if (near && e % (uint64_t)near == 0) {
            u = (uint32_t)(e / (uint64_t)near % nodes);
            v = (u + 1 + (uint32_t)(next_random(&seed) % 16)) % nodes;
        }
        ends[2 * e] = u;
        ends[2 * e + 1] = v;
        g.first[u + 1]++;
        g.first[v + 1]++;
    }
    for (uint32_t v = 0; v < nodes; v++)
        g.first[v + 1] += g.first[v];
    uint64_t *next = TAKE(uint64_t, nodes);
    memcpy(next, g.first, nodes * sizeof *next);
    for (uint64_t e = 0; e < pairs; e++) {
        g.to[next[ends[2 * e]]++] = ends[2 * e + 1];
        g.to[next[ends[2 * e + 1]]++] = ends[2 * e];
    }
    free(next);
    free(name);
    free(ends);
    return g;
}
#endif
