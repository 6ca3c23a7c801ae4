/* Shared by the programs of benches/run fix: data far larger than the caches, the same in each run. Each takes one
 * optional argument, the number of rounds, and prints one checksum line. */
#ifndef MGZ_FIXES_COMMON_H
#define MGZ_FIXES_COMMON_H
#include "../kernels/kernel.h"

static inline void *allocate(size_t count, size_t bytes) {
    void *p = malloc(count * bytes);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static inline uint32_t below(uint64_t *state, uint32_t bound) {
    return (uint32_t)(((next_random(state) >> 32) * bound) >> 32);
}

/* A directed graph in compressed form: the edges of v are to[first[v]] up to to[first[v + 1]]. */
struct graph {
    uint32_t nodes;
    uint32_t *first, *to;
};

/* Nodes have 1 to 2 * degree - 1 random neighbours. */
static inline struct graph random_graph(uint32_t nodes, uint32_t degree, uint64_t *seed) {
    struct graph g = {nodes, allocate(nodes + 1, sizeof *g.first), NULL};
    uint32_t edges = 0;
    for (uint32_t v = 0; v < nodes; v++) {
        g.first[v] = edges;
        edges += 1 + below(seed, 2 * degree - 1);
    }
    g.first[nodes] = edges;
    g.to = allocate(edges, sizeof *g.to);
    for (uint32_t e = 0; e < edges; e++)
        g.to[e] = below(seed, nodes);
    return g;
}
#endif
