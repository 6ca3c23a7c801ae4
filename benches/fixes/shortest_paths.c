/* Shortest paths from one node, by a worklist: the distances of a node's neighbours are lowered. */
#include "common.h"

enum { NODES = 1 << 21, DEGREE = 6 };

__attribute__((noinline)) static uint32_t relax(struct graph g, const uint32_t *weight, uint32_t *distance, uint8_t *queued,
                                                const uint32_t *work, uint32_t count, uint32_t *more) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t v = work[i], here = distance[v];
        queued[v] = 0;
        for (uint32_t e = g.first[v]; e < g.first[v + 1]; e++) {
            uint32_t u = g.to[e], there = here + weight[e];
            if (there < distance[u]) {
                distance[u] = there;
                if (!queued[u]) {
                    queued[u] = 1;
                    more[next++] = u;
                }
            }
        }
    }
    return next;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 1);
    uint64_t seed = 223606797ull, sum = 0;
    struct graph g = random_graph(NODES, DEGREE, &seed);
    uint32_t edges = g.first[NODES];
    uint32_t *weight = allocate(edges, sizeof *weight), *distance = allocate(NODES, sizeof *distance);
    uint32_t *work = allocate(NODES, sizeof *work), *more = allocate(NODES, sizeof *more);
    uint8_t *queued = calloc(NODES, 1);
    for (uint32_t e = 0; e < edges; e++)
        weight[e] = 1 + below(&seed, 255);
    for (long r = 0; r < rounds; r++) {
        memset(distance, 0x7f, NODES * sizeof *distance);
        uint32_t count = 1;
        work[0] = (uint32_t)r * 1001;
        distance[work[0]] = 0;
        while (count) {
            count = relax(g, weight, distance, queued, work, count, more);
            uint32_t *spare = work;
            work = more;
            more = spare;
        }
        for (uint32_t v = 0; v < NODES; v += 13)
            sum = sum * 31 + distance[v];
    }
    return finish(sum);
}
