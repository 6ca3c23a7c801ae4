/* Nodes, orders of visits, prefetches and huge pages. */
#include "pairs.h"
#include <sys/mman.h>

enum { NODES = 1 << 20, TREE = (1 << 20) - 1, KEYS = 1 << 20, GATHERED = 1 << 24 };

/* A list in an order without neighbors, or in the order of memory. */
struct node { struct node *next; uint64_t value; };

NOINLINE static uint64_t walk(const struct node *nodes) {
    uint64_t sum = 0;
    for (const struct node *n = nodes; n; n = n->next)
        sum += n->value;
    return sum;
}

static double pool(int after, long rounds) {
    struct node *nodes = take(NODES * sizeof *nodes);
    uint32_t *order = shuffled(NODES);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        struct node *n = &nodes[after ? i : order[i]];
        n->value = i % 7;
        n->next = i + 1 < NODES ? &nodes[after ? i + 1 : order[i + 1]] : NULL;
    }
    for (long r = 0; r < rounds; r++)
        sum += walk(&nodes[after ? 0 : order[0]]);
    return (double)sum;
}

/* A list of single values, or of chunks of values. */
struct chunk { struct chunk *next; uint64_t values[15]; };

NOINLINE static uint64_t walk_chunks(const struct chunk *chunks) {
    uint64_t sum = 0;
    for (const struct chunk *c = chunks; c; c = c->next)
        for (int i = 0; i < 15; i++)
            sum += c->values[i];
    return sum;
}

enum { CHUNKED = 15 << 16 };

static double unrolled(int after, long rounds) {
    struct node *nodes = take(CHUNKED * sizeof *nodes);
    struct chunk *chunks = take(CHUNKED / 15 * sizeof *chunks);
    uint32_t *order = shuffled(CHUNKED), *places = shuffled(CHUNKED / 15);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < CHUNKED; i++) {
        nodes[order[i]].value = chunks[places[i / 15]].values[i % 15] = i % 11;
        nodes[order[i]].next = i + 1 < CHUNKED ? &nodes[order[i + 1]] : NULL;
        if (i + 15 < CHUNKED)
            chunks[places[i / 15]].next = &chunks[places[i / 15 + 1]];
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? walk_chunks(&chunks[places[0]]) : walk(&nodes[order[0]]);
    return (double)sum;
}

/* A binary tree in random places that is visited in order; or placed in this order. */
struct leaf { struct leaf *left, *right; uint64_t key, value; };

static struct leaf *build(struct leaf *leaves, const uint32_t *order, uint32_t from, uint32_t to) {
    if (from == to)
        return NULL;
    uint32_t middle = from + (to - from) / 2;
    struct leaf *leaf = &leaves[order ? order[middle] : middle];
    leaf->key = 2 * middle;
    leaf->value = middle % 5;
    leaf->left = build(leaves, order, from, middle);
    leaf->right = build(leaves, order, middle + 1, to);
    return leaf;
}

NOINLINE static uint64_t sum_tree(const struct leaf *leaf) {
    return leaf ? sum_tree(leaf->left) + leaf->value + sum_tree(leaf->right) : 0;
}

static double tree(int after, long rounds) {
    struct leaf *leaves = take(TREE * sizeof *leaves);
    struct leaf *root = build(leaves, after ? NULL : shuffled(TREE), 0, TREE);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += sum_tree(root);
    return (double)sum;
}

/* Look-ups in a binary tree, or in a tree of sixteen keys a node. */
enum { FAN = 16 };
struct wide { uint32_t keys[FAN]; };

NOINLINE static uint64_t find_leaf(const struct leaf *root, uint64_t key) {
    const struct leaf *best = NULL;
    while (root) {
        if (root->key <= key) {
            best = root;
            root = root->right;
        } else
            root = root->left;
    }
    return best ? best->key : 0;
}

static struct wide *levels[8];

NOINLINE static uint64_t find_wide(int depth, uint64_t key) {
    uint32_t at = 0;
    for (int level = 0; level < depth; level++) {
        const struct wide *node = &levels[level][at];
        uint32_t below_key = 0;
        for (int i = 1; i < FAN; i++)
            below_key += node->keys[i] <= key;
        at = at * FAN + below_key;
    }
    return 2 * (uint64_t)at;
}

static double wide_nodes(int after, long rounds) {
    struct leaf *leaves = take(TREE * sizeof *leaves);
    struct leaf *root = build(leaves, shuffled(TREE), 0, TREE);
    uint64_t sum = 0, places = 1;
    int depth = 5;
    for (int level = 0; level < depth; level++, places *= FAN) {
        levels[level] = take(places * sizeof(struct wide));
        for (uint64_t i = 0; i < places * FAN; i++) {
            uint64_t first = i * ((1u << 20) / (places * FAN));
            levels[level][i / FAN].keys[i % FAN] = first < TREE ? (uint32_t)(2 * first) : UINT32_MAX;
        }
    }
    for (long r = 0; r < rounds; r++) {
        uint64_t key = below(2 * TREE);
        sum += after ? find_wide(depth, key) : find_leaf(root, key);
    }
    return (double)sum;
}

/* Sums of a gather over much memory, with small or huge pages. */
NOINLINE static double gather(const double *values, uint64_t times) {
    double sum = 0;
    uint64_t at = 1;
    for (uint64_t i = 0; i < times; i++) {
        at = at * 6364136223846793005u + 1442695040888963407u;
        sum += values[at >> 40];
    }
    return sum;
}

static double *take_pages(size_t bytes, int huge) {
    double *block = aligned_alloc(1 << 21, bytes);
    if (!block || (huge && madvise(block, bytes, MADV_HUGEPAGE)))
        abort();
    for (size_t i = 0; i < bytes / sizeof *block; i++)
        block[i] = i % 3;
    return block;
}

static double huge_gather(int after, long rounds) {
    return gather(take_pages(GATHERED * sizeof(double), after), (uint64_t)rounds);
}

/* A chase through much memory, with small or huge pages. */
NOINLINE static uint64_t chase(const uint64_t *next, uint64_t times) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < times; i++)
        at = next[at];
    return at;
}

static double huge_chase(int after, long rounds) {
    uint64_t *next = (uint64_t *)take_pages((1 << 22) * 16, after);
    uint64_t n = 1 << 20;
    for (uint64_t i = 0; i < n; i++)
        next[8 * i] = 8 * ((i * 1664525 + 1013904223) & (n - 1));
    return (double)chase(next, (uint64_t)rounds);
}

/* Probes of a table with keys that are known ahead, without or with prefetches. */
struct entry { uint64_t key, value, more[6]; };

NOINLINE static uint64_t probe(const struct entry *entries, const uint32_t *hashes) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct entry *e = &entries[hashes[i]];
        for (uint64_t k = 0; k < (e->key & 3); k++)
            sum = (sum ^ (sum >> 7)) * 31 + e->value;
        sum += e->key;
    }
    return sum;
}

NOINLINE static uint64_t probe_ahead(const struct entry *entries, const uint32_t *hashes) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        if (i + 16 < KEYS)
            __builtin_prefetch(&entries[hashes[i + 16]]);
        const struct entry *e = &entries[hashes[i]];
        for (uint64_t k = 0; k < (e->key & 3); k++)
            sum = (sum ^ (sum >> 7)) * 31 + e->value;
        sum += e->key;
    }
    return sum;
}

static double prefetched(int after, long rounds) {
    struct entry *entries = take(KEYS * sizeof *entries);
    uint32_t *hashes = shuffled(KEYS);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        entries[i].key = below(1 << 20);
        entries[i].value = i % 9;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? probe_ahead(entries, hashes) : probe(entries, hashes);
    return (double)(sum % 1000003);
}

/* Buddies of freed pages are read, without or with prefetches. */
struct page { uint64_t flags, private, rest[6]; };

NOINLINE static uint64_t free_pages(struct page *pages, const uint32_t *list) {
    uint64_t merged = 0;
    for (uint32_t i = 0; i < KEYS / 2; i++) {
        struct page *page = &pages[list[i]], *buddy = &pages[list[i] ^ 1024];
        if (buddy->flags & 1)
            merged += buddy->private;
        else
            page->private ++;
    }
    return merged;
}

NOINLINE static uint64_t free_ahead(struct page *pages, const uint32_t *list) {
    uint64_t merged = 0;
    for (uint32_t i = 0; i < KEYS / 2; i++) {
        if (i + 12 < KEYS / 2) {
            __builtin_prefetch(&pages[list[i + 12]]);
            __builtin_prefetch(&pages[list[i + 12] ^ 1024]);
        }
        struct page *page = &pages[list[i]], *buddy = &pages[list[i] ^ 1024];
        if (buddy->flags & 1)
            merged += buddy->private;
        else
            page->private ++;
    }
    return merged;
}

static double buddies(int after, long rounds) {
    struct page *pages = take(KEYS * sizeof *pages);
    uint32_t *list = shuffled(KEYS);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        pages[i].flags = below(2);
    for (long r = 0; r < rounds; r++)
        sum += after ? free_ahead(pages, list) : free_pages(pages, list);
    return (double)(sum % 1000003);
}

/* Counts by keys in random order, or in sorted order. */
NOINLINE static void count_keys(uint32_t *counts, const uint32_t *keys) {
    for (uint32_t i = 0; i < KEYS; i++)
        counts[keys[i]]++;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double sorted_counts(int after, long rounds) {
    uint32_t *counts = take((KEYS << 4) * sizeof *counts), *keys = take(KEYS * sizeof *keys);
    double sum = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = (uint32_t)below(KEYS << 4);
    if (after)
        qsort(keys, KEYS, sizeof *keys, compare);
    for (long r = 0; r < rounds; r++)
        count_keys(counts, keys);
    for (uint32_t i = 0; i < KEYS << 4; i++)
        sum += counts[i];
    return sum;
}

/* Edges of a graph in random order, or batched by blocks of their sources (PageRank). */
enum { VERTICES = 1 << 21, EDGES = 1 << 22, BATCH = 1 << 15 };

NOINLINE static double pull_ranks(const double *ranks, const uint32_t *from) {
    double sum = 0;
    for (uint32_t e = 0; e < EDGES; e++)
        sum += ranks[from[e]];
    return sum;
}

static double ranks(int after, long rounds) {
    double *old = take(VERTICES * sizeof *old), sum = 0;
    uint32_t *from = take(EDGES * sizeof *from), *batched = take(EDGES * sizeof *batched);
    uint32_t first[VERTICES / BATCH + 1] = {0};
    for (uint32_t v = 0; v < VERTICES; v++)
        old[v] = v % 3;
    for (uint32_t e = 0; e < EDGES; e++) {
        from[e] = (uint32_t)below(VERTICES);
        first[from[e] / BATCH + 1]++;
    }
    for (uint32_t b = 0; b < VERTICES / BATCH; b++)
        first[b + 1] += first[b];
    for (uint32_t e = 0; e < EDGES; e++)
        batched[first[from[e] / BATCH]++] = from[e];
    for (long r = 0; r < rounds; r++)
        sum += pull_ranks(old, after ? batched : from);
    return sum;
}

/* Chains of a hash table whose nodes lie at random, or chain by chain. */
struct link { struct link *next; uint64_t key; };
enum { BUCKETS = 1 << 18 };

NOINLINE static uint64_t sum_chains(struct link **buckets, const uint32_t *order) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (const struct link *l = buckets[order[i]]; l; l = l->next)
            sum += l->key;
    return sum;
}

static double chains(int after, long rounds) {
    struct link *links = take(NODES * sizeof *links), **buckets = take(BUCKETS * sizeof *buckets);
    uint32_t *order = shuffled(BUCKETS), *places = shuffled(NODES);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        struct link *l = &links[after ? i : places[i]];
        l->key = i % 13;
        l->next = buckets[i / 4];
        buckets[i / 4] = l;
    }
    for (long r = 0; r < rounds; r++)
        sum += sum_chains(buckets, order);
    return (double)sum;
}

static const struct pair pairs[] = {
    {"pool", pool, 15},           {"unrolled", unrolled, 15},
    {"tree", tree, 80},           {"wide_nodes", wide_nodes, 1500000},
    {"huge_gather", huge_gather, 100000000}, {"huge_chase", huge_chase, 10000000},
    {"prefetched", prefetched, 40}, {"buddies", buddies, 120},
    {"sorted_counts", sorted_counts, 150}, {"ranks", ranks, 40},
    {"chains", chains, 150},
};
MAIN(pairs)
