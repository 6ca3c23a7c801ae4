/* Pointer chasing: shuffled list, binary tree, pointers to pointers, list reversal, and many steps in one straight piece of code. */
#include "mix.h"

struct node {
    struct node *next;
    uint64_t value;
};
struct tree {
    struct tree *left, *right;
    uint32_t key;
};

__attribute__((noinline)) static uint64_t walk(const struct node *n, int steps) {
    uint64_t s = 0;
    while (steps--) {
        s = s * 5 + n->value;
        n = n->next;
    }
    return s;
}

#define TEN(x) x x x x x x x x x x
/* Each load has an address of its own: more than a piece that is recorded together has room for. */
__attribute__((noinline)) static uint64_t walk_straight(const struct node *n) {
    TEN(TEN(n = n->next;) TEN(n = n->next;))
    return n->value;
}

__attribute__((noinline)) static void insert(struct tree **at, uint32_t key) {
    while (*at) {
        if ((*at)->key == key)
            return;
        at = key < (*at)->key ? &(*at)->left : &(*at)->right;
    }
    *at = calloc(1, sizeof **at);
    (*at)->key = key;
}

__attribute__((noinline)) static uint64_t depth_sum(const struct tree *t, int depth) {
    return t ? t->key * (uint64_t)depth + depth_sum(t->left, depth + 1) + depth_sum(t->right, depth + 1) : 0;
}

__attribute__((noinline)) static struct node *reverse(struct node *n) {
    struct node *done = 0;
    while (n) {
        struct node *next = n->next;
        n->next = done;
        done = n;
        n = next;
    }
    return done;
}

int main(void) {
    enum { N = 256 };
    static struct node nodes[N];
    static int order[N];
    uint32_t state = 7;
    for (int i = 0; i < N; i++)
        order[i] = i;
    for (int i = N - 1; i > 0; i--) {
        int j = (int)(next_random(&state) % (uint32_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int i = 0; i < N; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % N]];
        nodes[i].value = next_random(&state);
    }
    mix(walk(nodes, 3 * N));
    mix(walk_straight(nodes));
    nodes[order[N - 1]].next = 0;
    struct node *r = reverse(&nodes[order[0]]);
    mix(walk(r, N - 1));
    struct tree *root = 0;
    for (int i = 0; i < 300; i++)
        insert(&root, next_random(&state) % 1000);
    mix(depth_sum(root, 1));
    report("chase");
    return 0;
}
