/* A binary search tree of nodes that were allocated one by one, among blocks of other kinds, in random order of keys. */
#include "common.h"

enum { NODES = 1 << 19, SEARCHES = 1 << 20 };

struct node {
    uint64_t key;
    struct node *left, *right;
    char *name;
};

static void insert(struct node **root, uint64_t key) {
    while (*root)
        root = key < (*root)->key ? &(*root)->left : &(*root)->right;
    struct node *node = malloc(sizeof *node);
    *node = (struct node){key, NULL, NULL, malloc(16 + key % 96)};
    node->name[0] = (char)key;
    *root = node;
}

__attribute__((noinline)) static uint64_t search(const struct node *root, const uint64_t *keys) {
    uint64_t sum = 0;
    for (int i = 0; i < SEARCHES; i++) {
        const struct node *node = root;
        while (node && node->key != keys[i])
            node = keys[i] < node->key ? node->left : node->right;
        sum = sum * 3 + (node != NULL);
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 1);
    uint64_t seed = 331662479ull, sum = 0;
    struct node *root = NULL;
    uint64_t *keys = allocate(SEARCHES, sizeof *keys);
    for (int i = 0; i < NODES; i++) {
        uint64_t key = next_random(&seed);
        insert(&root, key);
        keys[2 * i] = key;
        keys[2 * i + 1] = key + (i & 1);
    }
    for (int i = SEARCHES - 1; i > 0; i--) {
        uint32_t j = below(&seed, (uint32_t)i + 1);
        uint64_t t = keys[i];
        keys[i] = keys[j];
        keys[j] = t;
    }
    for (long r = 0; r < rounds; r++) {
        keys[r] ^= 1;
        sum += search(root, keys);
    }
    return finish(sum);
}
