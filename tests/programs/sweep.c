/* A kernel whose footprint and reuse distances can be told by hand: ten sweeps over 100,000 words, then a walk over a
   list of 5,000 nodes that lie 128 bytes apart. */
#include "mix.h"

enum { WORDS = 100000, SWEEPS = 10, NODES = 5000, WALKS = 4 };
static _Alignas(4096) uint64_t words[WORDS];
struct node {
    struct node *next;
    uint64_t room[15];
};
static _Alignas(4096) struct node nodes[NODES];

__attribute__((noinline)) uint64_t sweep(const uint64_t *p, long n) {
    uint64_t s = 0;
    for (long i = 0; i < n; i++)
        s += p[i];
    return s;
}

__attribute__((noinline)) long walk(const struct node *n) {
    long steps = 0;
    do {
        n = n->next;
        steps++;
    } while (n != nodes);
    return steps;
}

int main(void) {
    for (int i = 0; i < NODES; i++)
        nodes[(long)i * 1237 % NODES].next = &nodes[(long)(i + 1) * 1237 % NODES];
    for (int i = 0; i < SWEEPS; i++)
        mix(sweep(words, WORDS));
    for (int i = 0; i < WALKS; i++)
        mix((uint64_t)walk(nodes));
    report("sweep");
    return 0;
}
