/* Breadth-first search in a random graph: a queue of nodes, their edges, and a random look at each neighbour. */
#include "common.h"

enum { NODES = 1 << 22, DEGREE = 6 };

__attribute__((noinline)) static uint64_t search(struct graph g, int32_t *level, uint32_t *queue, uint32_t root) {
    uint32_t head = 0, tail = 0;
    uint64_t sum = 0;
    memset(level, 0xff, g.nodes * sizeof *level);
    level[root] = 0;
    queue[tail++] = root;
    while (head < tail) {
        uint32_t v = queue[head++];
        sum += (uint64_t)level[v] * head;
        for (uint32_t e = g.first[v]; e < g.first[v + 1]; e++) {
            uint32_t u = g.to[e];
            if (level[u] < 0) {
                level[u] = level[v] + 1;
                queue[tail++] = u;
            }
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 2);
    uint64_t seed = 141421356ull, sum = 0;
    struct graph g = random_graph(NODES, DEGREE, &seed);
    int32_t *level = allocate(NODES, sizeof *level);
    uint32_t *queue = allocate(NODES, sizeof *queue);
    for (long r = 0; r < rounds; r++)
        sum += search(g, level, queue, (uint32_t)r * 101);
    return finish(sum);
}
