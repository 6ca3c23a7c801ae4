/* Lists, trees and tables of pointers, beside scans. */
#include "runs.h"

typedef struct Node {
    struct Node *next, *left, *right;
    uint64_t key, value[4];
} Node;

enum { NODES = 1 << 17, WORDS = 1 << 18 };
static Node *nodes, *list, *root, **buckets;
static uint64_t *words;
static uint32_t seed = 77;

ROW static uint64_t walk_list(long steps) {
    uint64_t sum = 0;
    Node *at = list;
    for (long i = 0; i < steps; i++, at = at->next)
        sum += at->key;
    return sum;
}

ROW static uint64_t walk_words(long times) {
    uint64_t sum = 0;
    for (long t = 0; t < times; t++)
        for (long i = 0; i < WORDS; i++)
            sum += words[i] * (i | 1);
    return sum;
}

ROW static uint64_t search_tree(uint64_t key) {
    for (Node *at = root; at; at = key < at->key ? at->left : at->right)
        if (at->key == key)
            return at->value[key & 3];
    return 0;
}

ROW static uint64_t search_chain(uint64_t key) {
    for (Node *at = buckets[key * 0x9e3779b97f4a7c15u >> 49]; at; at = at->left)
        if (at->key == key)
            return at->value[0];
    return 0;
}

static void common(void) {
    nodes = take(NODES * sizeof *nodes);
    words = take(WORDS * 8);
    uint32_t *order = take(NODES * 4);
    for (long i = 0; i < NODES; i++)
        order[i] = i;
    for (long i = NODES - 1; i > 0; i--) {
        long j = next_random(&seed) % (i + 1);
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (long i = 0; i < NODES; i++) {
        nodes[i].key = i * 2654435761u % (1u << 31);
        nodes[i].value[0] = i;
        nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
    }
    list = nodes + order[0];
    for (long i = 0; i < WORDS; i++)
        words[i] = i;
    free(order);
}

static void plant(void) {
    common();
    for (long i = 0; i < NODES; i++) {
        Node **at = &root;
        while (*at)
            at = nodes[i].key < (*at)->key ? &(*at)->left : &(*at)->right;
        *at = nodes + i;
    }
}

static void hang(void) {
    common();
    buckets = take((1 << 15) * sizeof *buckets);
    for (long i = 0; i < NODES; i++) {
        Node **at = buckets + (nodes[i].key * 0x9e3779b97f4a7c15u >> 49);
        nodes[i].left = *at;
        *at = nodes + i;
    }
}

static uint64_t lists(long k) { return k + walk_list(NODES * 2) + walk_words(1); }

static uint64_t trees(long k) {
    uint64_t sum = k;
    uint32_t random = 9;
    for (long i = 0; i < 60000; i++)
        sum += search_tree(nodes[next_random(&random) % NODES].key);
    return sum + walk_words(2);
}

static uint64_t chains(long k) {
    uint64_t sum = k;
    uint32_t random = 9;
    for (long i = 0; i < 150000; i++)
        sum += search_chain(nodes[next_random(&random) % NODES].key);
    return sum + walk_words(1);
}

PROGRAMS({"list", common, lists}, {"tree", plant, trees}, {"chain", hang, chains})
