/* Databases: columns, joins and indexes. */
#include "sealed.h"

/* Sums by group in a hash table with open addresses, which is new in each round. */
struct group {
    uint64_t key;
    double sum;
    uint32_t count, used;
};
enum { FACTS = 250000, GROUPS = 60000, SLOTS = 1 << 17 };
static uint32_t *keys;
static double *amounts;

static uint64_t mixed(uint64_t key) {
    key ^= key >> 31;
    key *= 0x7fb5d329728ea185u;
    return key ^ key >> 27;
}

static void group_set_up(void) {
    keys = need(FACTS * sizeof *keys);
    amounts = need(FACTS * sizeof *amounts);
    for (int i = 0; i < FACTS; i++) {
        keys[i] = skewed(GROUPS);
        amounts[i] = uniform();
    }
}

static double group_round(void) {
    struct group *table = calloc(SLOTS, sizeof *table);
    for (int i = 0; i < FACTS; i++) {
        uint32_t at = mixed(keys[i]) % SLOTS;
        while (table[at].used && table[at].key != keys[i])
            at = (at + 1) % SLOTS;
        table[at].used = 1;
        table[at].key = keys[i];
        table[at].sum += amounts[i];
        table[at].count++;
    }
    double most = 0;
    for (int i = 0; i < SLOTS; i++)
        if (table[i].used && table[i].sum / table[i].count > most)
            most = table[i].sum / table[i].count;
    free(table);
    return most;
}

/* Hash join: buckets of a chain each, entries in one array. */
struct joined {
    uint32_t key, price;
    int next;
};
enum { BUILD = 300000, PROBES = 500000, JOIN_SLOTS = 1 << 18 };
static struct joined *built;
static int *slots;
static uint32_t *probes;

static void join_set_up(void) {
    built = need(BUILD * sizeof *built);
    slots = need(JOIN_SLOTS * sizeof *slots);
    keys = need(BUILD * sizeof *keys);
    probes = need(PROBES * sizeof *probes);
    for (int i = 0; i < BUILD; i++)
        keys[i] = (uint32_t)next_random();
    for (int i = 0; i < PROBES; i++)
        probes[i] = below(3) ? keys[below(BUILD)] : (uint32_t)next_random();
}

static double join_round(void) {
    double sum = 0;
    memset(slots, 0xff, JOIN_SLOTS * sizeof *slots);
    for (int i = 0; i < BUILD; i++) {
        uint32_t slot = mixed(keys[i]) % JOIN_SLOTS;
        built[i] = (struct joined){keys[i], i, slots[slot]};
        slots[slot] = i;
    }
    for (int i = 0; i < PROBES; i++)
        for (int e = slots[mixed(probes[i]) % JOIN_SLOTS]; e >= 0; e = built[e].next)
            if (built[e].key == probes[i])
                sum += built[e].price;
    return sum;
}

/* A scan of one column, a selection, and a gather from two others. */
enum { TUPLES = 800000 };
static int32_t *quantity, *selected;
static double *price, *discount;

static void scan_set_up(void) {
    quantity = need(TUPLES * sizeof *quantity);
    selected = need(TUPLES * sizeof *selected);
    price = need(TUPLES * sizeof *price);
    discount = need(TUPLES * sizeof *discount);
    for (int i = 0; i < TUPLES; i++) {
        quantity[i] = below(1000);
        price[i] = uniform();
        discount[i] = uniform();
    }
}

static double scan_round(void) {
    int n = 0;
    for (int i = 0; i < TUPLES; i++) {
        selected[n] = i;
        n += quantity[i] < 120;
    }
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += price[selected[i]] * (1 - discount[selected[i]]);
    return sum;
}

/* Codes of a dictionary are decoded. */
enum { CODES = 900000, WORDS = 50000 };
static uint16_t *codes;
static double *dictionary;

static void decode_set_up(void) {
    codes = need(CODES * sizeof *codes);
    dictionary = need(WORDS * sizeof *dictionary);
    for (int i = 0; i < CODES; i++)
        codes[i] = skewed(WORDS);
    for (int i = 0; i < WORDS; i++)
        dictionary[i] = uniform();
}

static double decode_round(void) {
    double sum = 0;
    for (int i = 0; i < CODES; i++)
        sum += dictionary[codes[i]];
    return sum;
}

/* Bloom filter of five bits a key. */
enum { FILTER_BITS = 1 << 27, MEMBERS = 500000 };
static uint64_t *filter;

static uint32_t bit_of(uint64_t key, int n) {
    uint64_t h = mixed(key);
    return ((uint32_t)h + n * (uint32_t)(h >> 32 | 1)) % FILTER_BITS;
}

static void bloom_set_up(void) {
    filter = calloc(FILTER_BITS / 64, sizeof *filter);
    for (uint64_t key = 0; key < MEMBERS; key++)
        for (int n = 0; n < 5; n++)
            filter[bit_of(key, n) / 64] |= 1ull << bit_of(key, n) % 64;
}

static int may_have(uint64_t key) {
    for (int n = 0; n < 5; n++) {
        uint32_t bit = bit_of(key, n);
        if (!(filter[bit / 64] >> bit % 64 & 1))
            return 0;
    }
    return 1;
}

static double bloom_round(void) {
    double sum = 0;
    for (int i = 0; i < 400000; i++)
        sum += may_have(below(2 * MEMBERS));
    return sum;
}

/* B-tree: loaded in bulk, then searches and short scans. */
enum { FANOUT = 32, BTREE_KEYS = 400000 };
struct page {
    int n, leaf;
    uint64_t keys[FANOUT];
    void *below[FANOUT];
};
static struct page *btree;

static struct page *new_page(int leaf) {
    struct page *p = need(sizeof *p);
    p->n = 0;
    p->leaf = leaf;
    return p;
}

static void btree_set_up(void) {
    int n = 0;
    struct page **level = need((BTREE_KEYS / 24 + 1) * sizeof *level);
    for (uint64_t key = 0; key < BTREE_KEYS; key++) {
        if (key % 24 == 0)
            level[n++] = new_page(1);
        struct page *p = level[n - 1];
        p->below[p->n] = NULL;
        p->keys[p->n++] = key * 5;
    }
    while (n > 1) {
        int above = 0;
        for (int i = 0; i < n; i++) {
            struct page *child = level[i];
            if (i % 24 == 0)
                level[above++] = new_page(0);
            struct page *p = level[above - 1];
            p->below[p->n] = child;
            p->keys[p->n++] = child->keys[0];
        }
        n = above;
    }
    btree = level[0];
    free(level);
}

static int last_at_most(const struct page *p, uint64_t key) {
    int low = 0, high = p->n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (p->keys[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double btree_round(void) {
    double sum = 0;
    for (int i = 0; i < 40000; i++) {
        uint64_t key = below(BTREE_KEYS * 5);
        const struct page *p = btree;
        while (!p->leaf)
            p = p->below[last_at_most(p, key)];
        for (int k = last_at_most(p, key); k < p->n && k < 8; k++)
            sum += p->keys[k];
    }
    return sum;
}

/* Strings are interned: equal ones share a block. */
enum { NAMES = 25000, INTERN_SLOTS = 1 << 16, LOOKUPS = 60000 };
static char **interned, (*names)[24];

static const char *intern(const char *name) {
    uint32_t hash = 2166136261u;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    uint32_t at = (hash ^ hash >> 15) % INTERN_SLOTS;
    for (; interned[at]; at = (at + 1) % INTERN_SLOTS) {
        const char *a = interned[at], *b = name;
        while (*a && *a == *b)
            a++, b++;
        if (*a == *b)
            return interned[at];
    }
    interned[at] = need(strlen(name) + 1);
    strcpy(interned[at], name);
    return interned[at];
}

static void intern_set_up(void) {
    interned = calloc(INTERN_SLOTS, sizeof *interned);
    names = need(NAMES * sizeof *names);
    for (int i = 0; i < NAMES; i++)
        sprintf(names[i], "%s_%u", i % 2 ? "module" : "value", below(1000000));
    for (int i = 0; i < NAMES; i++)
        intern(names[i]);
}

static double intern_round(void) {
    double sum = 0;
    for (int i = 0; i < LOOKUPS; i++)
        sum += intern(names[skewed(NAMES)])[3];
    return sum;
}

static const struct kind kinds[] = {
    {"group-by", group_set_up, group_round},   {"hash-join", join_set_up, join_round},
    {"scan-filter", scan_set_up, scan_round},  {"dictionary", decode_set_up, decode_round},
    {"bloom", bloom_set_up, bloom_round},      {"btree", btree_set_up, btree_round},
    {"intern", intern_set_up, intern_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
