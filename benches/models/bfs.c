/* Breadth-first search, level by level: `bfs NODES`, from four start nodes of a random graph with eight edges a node; with
 * -fopenmp, the nodes of each level are divided among threads. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 1000, degree = 8;
    uint32_t *edges = malloc(n * degree * sizeof *edges);
    int32_t *level = malloc(n * sizeof *level);
    uint64_t state = 88172645463325252ull;
    for (long i = 0; i < n * degree; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        edges[i] = (uint32_t)(state % (uint64_t)n);
    }
    long reached = 0;
    for (int start = 0; start < 4; start++) {
        for (long i = 0; i < n; i++)
            level[i] = -1;
        level[start] = 0;
        for (int depth = 0, more = 1; more; depth++) {
            more = 0;
#pragma omp parallel for schedule(static) reduction(| : more)
            for (long i = 0; i < n; i++)
                if (level[i] == depth)
                    for (long k = 0; k < degree; k++) {
                        uint32_t to = edges[i * degree + k];
                        if (level[to] < 0) {
                            level[to] = depth + 1;
                            more = 1;
                        }
                    }
        }
        for (long i = 0; i < n; i++)
            reached += level[i] >= 0;
    }
    printf("%ld\n", reached);
    return 0;
}
