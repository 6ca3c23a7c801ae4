/* Breadth-first search over a graph in compressed form: a work queue and random marks. */
#include "kernel.h"

enum { NODES = 16384, DEGREE = 6 };

__attribute__((noinline)) static uint32_t search(const uint32_t *edges, uint32_t *mark, uint32_t *queue, uint32_t start, uint32_t round) {
    uint32_t head = 0, tail = 0, sum = 0;
    queue[tail++] = start;
    mark[start] = round;
    while (head < tail) {
        uint32_t v = queue[head++];
        sum += v * head;
        for (int k = 0; k < DEGREE; k++) {
            uint32_t u = edges[v * DEGREE + k];
            if (mark[u] != round) {
                mark[u] = round;
                queue[tail++] = u;
            }
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 3000);
    uint64_t seed = 161803398ull, total = 0;
    uint32_t *edges = take(NODES * DEGREE * sizeof *edges), *mark = take(NODES * sizeof *mark), *queue = take(NODES * sizeof *queue);
    for (int i = 0; i < NODES * DEGREE; i++)
        edges[i] = (uint32_t)(next_random(&seed) % NODES);
    memset(mark, 0xff, NODES * sizeof *mark);
    for (long r = 0; r < rounds; r++)
        total += search(edges, mark, queue, (uint32_t)(r % NODES), (uint32_t)r);
    return finish(total);
}
