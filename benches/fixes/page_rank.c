/* PageRank: each node sums the shares of the nodes that its edges lead to. */
#include "common.h"

enum { NODES = 1 << 22, DEGREE = 6 };

__attribute__((noinline)) static void pull(struct graph g, double *restrict after, const double *restrict share) {
    for (uint32_t v = 0; v < g.nodes; v++) {
        double sum = 0;
        for (uint32_t e = g.first[v]; e < g.first[v + 1]; e++)
            sum += share[g.to[e]];
        after[v] = 0.15 / NODES + 0.85 * sum;
    }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 11);
    uint64_t seed = 173205080ull;
    struct graph g = random_graph(NODES, DEGREE, &seed);
    double *rank = allocate(NODES, sizeof *rank), *share = allocate(NODES, sizeof *share);
    for (uint32_t v = 0; v < NODES; v++)
        rank[v] = 1.0 / NODES;
    for (long r = 0; r < rounds; r++) {
        for (uint32_t v = 0; v < NODES; v++)
            share[v] = rank[v] / (g.first[v + 1] - g.first[v]);
        pull(g, rank, share);
    }
    double sum = 0;
    for (uint32_t v = 0; v < NODES; v += 97)
        sum += rank[v];
    return finish((uint64_t)(sum * 1e15));
}
