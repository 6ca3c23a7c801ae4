/* Pointer chasing: `list NODES [PASSES]`, five passes over a linked list in random order. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
    struct node *next;
    long value;
    char filler[48];
};

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 1000;
    long passes = argc > 2 ? atol(argv[2]) : 5;
    struct node *nodes = malloc(n * sizeof *nodes);
    uint32_t *order = malloc(n * sizeof *order);
    uint64_t state = 42;
    for (long i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (long i = n - 1; i > 0; i--) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        long j = (long)((state >> 33) % (uint64_t)(i + 1));
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (long i = 0; i < n; i++) {
        nodes[order[i]].next = i + 1 < n ? &nodes[order[i + 1]] : 0;
        nodes[order[i]].value = i;
    }
    long sum = 0;
    for (long pass = 0; pass < passes; pass++)
        for (struct node *p = &nodes[order[0]]; p; p = p->next)
            sum += p->value;
    printf("%ld\n", sum);
    return 0;
}
