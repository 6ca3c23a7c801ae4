/* Four interleaved pointer chases through lists in the cache: every address is the last load's result. */
#include "kernel.h"

enum { NODES = 2048, CHAINS = 4 };

struct node {
    struct node *next;
    uint64_t value;
};

__attribute__((noinline)) static uint64_t walk(struct node *const *start, long steps) {
    const struct node *a = start[0], *b = start[1], *c = start[2], *d = start[3];
    uint64_t total = 0;
    for (long i = 0; i < steps; i++) {
        total += a->value + b->value + c->value + d->value;
        a = a->next;
        b = b->next;
        c = c->next;
        d = d->next;
    }
    return total;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 100000);
    uint64_t seed = 123456789ull;
    struct node *nodes = take(NODES * sizeof *nodes);
    int *order = take(NODES * sizeof *order);
    for (int i = 0; i < NODES; i++)
        order[i] = i;
    for (int i = NODES - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    struct node *start[CHAINS];
    for (int i = 0; i < NODES; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
        nodes[order[i]].value = (uint64_t)i;
    }
    for (int c = 0; c < CHAINS; c++)
        start[c] = &nodes[order[c * (NODES / CHAINS)]];
    uint64_t total = 0;
    for (long r = 0; r < rounds; r++) {
        start[r % CHAINS] = start[r % CHAINS]->next;
        total += walk(start, 4000);
    }
    return finish(total);
}
