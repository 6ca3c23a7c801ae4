/* Betweenness centrality of one root (Brandes): paths are counted on the way out and summed up on the way back. */
#include "common.h"

enum { NODES = 1 << 21, DEGREE = 6 };

__attribute__((noinline)) static uint32_t forward(struct graph g, int32_t *level, double *paths, uint32_t *queue, uint32_t root) {
    uint32_t head = 0, tail = 0;
    memset(level, 0xff, g.nodes * sizeof *level);
    memset(paths, 0, g.nodes * sizeof *paths);
    level[root] = 0;
    paths[root] = 1;
    queue[tail++] = root;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = g.first[v]; e < g.first[v + 1]; e++) {
            uint32_t u = g.to[e];
            if (level[u] < 0) {
                level[u] = level[v] + 1;
                queue[tail++] = u;
            }
            if (level[u] == level[v] + 1)
                paths[u] += paths[v];
        }
    }
    return tail;
}

__attribute__((noinline)) static void backward(struct graph g, const int32_t *level, const double *paths, const uint32_t *queue,
                                               uint32_t count, double *share) {
    for (uint32_t i = count; i-- > 0;) {
        uint32_t v = queue[i];
        double sum = 0;
        for (uint32_t e = g.first[v]; e < g.first[v + 1]; e++) {
            uint32_t u = g.to[e];
            if (level[u] == level[v] + 1)
                sum += (1 + share[u]) / paths[u];
        }
        share[v] = sum * paths[v];
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 2);
    uint64_t seed = 244948974ull;
    struct graph g = random_graph(NODES, DEGREE, &seed);
    int32_t *level = allocate(NODES, sizeof *level);
    double *paths = allocate(NODES, sizeof *paths), *share = calloc(NODES, sizeof *share), sum = 0;
    uint32_t *queue = allocate(NODES, sizeof *queue);
    for (long r = 0; r < rounds; r++) {
        uint32_t count = forward(g, level, paths, queue, (uint32_t)r * 37);
        backward(g, level, paths, queue, count, share);
        for (uint32_t v = 0; v < NODES; v += 101)
            sum += share[v];
    }
    return finish((uint64_t)(sum * 16));
}
