/* A list whose nodes lie in random order. Of the two fields that each step reads, which share a cache line, the first one waits. */
#include "mix.h"
#include <stdlib.h>

enum { NODES = 1 << 20 };

typedef struct Node {
    struct Node *next;
    uint64_t value, rest[6];
} Node;

static Node nodes[NODES];

__attribute__((noinline)) static uint64_t follow(const Node *at, uint32_t steps) {
    uint64_t sum = 0;
    while (steps--) {
        sum += at->value; /* waits */
        at = at->next;    /* hits */
    }
    return sum;
}

int main(int count, char **words) {
    uint32_t steps = count > 1 ? (uint32_t)atoi(words[1]) : 10000, state = 1;
    uint32_t *order = malloc(NODES * sizeof *order);
    for (uint32_t i = 0; i < NODES; i++)
        order[i] = i;
    for (uint32_t i = NODES - 1; i > 0; i--) {
        state = state * 1664525u + 1013904223u;
        uint32_t j = (uint32_t)(((uint64_t)state * i) >> 32), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
        nodes[order[i]].value = i;
    }
    mix(follow(&nodes[order[0]], steps));
    free(order);
    report("two_fields");
    return 0;
}
