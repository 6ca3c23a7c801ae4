/* Lists, trees, tables, searches and gathers. */
#include "planted.h"

enum { NODES = 1 << 20, LEAVES = 1 << 18, WORDS = 1 << 23, SMALL = 1 << 11 };

struct node { struct node *next; uint64_t value; uint64_t rest[6]; };
static struct node nodes[NODES];

static void link_nodes(uint32_t n) {
    uint32_t *order = planted_order(n);
    for (uint32_t i = 0; i < n; i++) {
        nodes[order[i]].next = i + 1 < n ? &nodes[order[i + 1]] : NULL;
        nodes[order[i]].value = i;
    }
    nodes[n] = (struct node){.next = &nodes[order[0]]};
    free(order);
}

NOINLINE static uint64_t walk_list(const struct node *p) {
    uint64_t sum = 0;
    while (p) {
        sum += p->value; /* planted: list small_list */
        p = p->next;     /* planted: list small_list */
    }
    return sum;
}

struct leaf { struct leaf *left, *right; uint64_t key; uint64_t rest[5]; };
static struct leaf leaves[LEAVES];
static struct leaf *root;

static struct leaf *plant(const uint32_t *order, uint64_t from, uint64_t to) {
    if (from >= to)
        return NULL;
    uint64_t middle = (from + to) / 2;
    struct leaf *l = &leaves[order[middle]];
    l->key = middle;
    l->left = plant(order, from, middle);
    l->right = plant(order, middle + 1, to);
    return l;
}

NOINLINE static uint64_t find_tree(uint64_t key) {
    const struct leaf *l = root;
    while (l && l->key != key)                /* planted: tree */
        l = key < l->key ? l->left : l->right; /* planted: tree */
    return l ? l->key : 0;
}

NOINLINE static uint64_t sum_tree(const struct leaf *l) {
    if (!l)
        return 0;
    return l->key + sum_tree(l->left) + sum_tree(l->right); /* planted: tree_sum */
}

struct entry { struct entry *next; uint64_t key, value; uint64_t rest[5]; };
static struct entry entries[NODES];
static struct entry *buckets[NODES];

static uint64_t mix(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 44; }

NOINLINE static uint64_t find_chain(uint64_t key) {
    for (const struct entry *e = buckets[mix(key)]; e; e = e->next) /* planted: chain */
        if (e->key == key)                                          /* planted: chain */
            return e->value;                                        /* planted: chain */
    return 0;
}

struct slot { uint64_t key, value; };
static struct slot slots[1 << 21];

NOINLINE static uint64_t find_open(uint64_t key, uint64_t mask) {
    uint64_t at = (key * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (slots[at].key && slots[at].key != key) /* planted: open small_open */
        at = (at + 1) & mask;
    return slots[at].value; /* planted: open small_open */
}

static uint64_t words[WORDS];

NOINLINE static uint64_t search(uint64_t key, uint64_t n) {
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (words[middle] < key) /* planted: search small_search */
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

NOINLINE static uint64_t search_flat(uint64_t key, uint64_t n) {
    const uint64_t *base = words;
    while (n > 1) {
        uint64_t half = n / 2;
        base = base[half - 1] < key ? base + half : base; /* planted: search_flat */
        n -= half;
    }
    return (uint64_t)(base - words);
}

static uint32_t picks[WORDS];
struct edge { struct edge *next; uint32_t to; uint32_t rest[5]; };
static struct edge edges[NODES];
static struct edge *first[NODES];

/* A graph whose vertices have lists of their neighbours: there is no key that a place is computed from. */
NOINLINE static uint64_t neighbours(const uint32_t *vertices, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        for (const struct edge *e = first[vertices[i]]; e; e = e->next) /* planted: adjacency */
            sum += e->to;                                              /* planted: adjacency */
    return sum;
}

static double left[WORDS], right[WORDS];

NOINLINE static double gather(uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += left[picks[i]]; /* planted: gather small_gather */
    return sum;
}

NOINLINE static double gather_two(uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = picks[i];
        sum += left[at] * right[at]; /* planted: gather_two */
    }
    return sum;
}

NOINLINE static void count_up(uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        words[picks[i]]++; /* planted: histogram */
}

static uint32_t follow[1 << 22];

NOINLINE static uint32_t jump(uint32_t at, uint32_t steps) {
    while (steps--)
        at = follow[at]; /* planted: index_chase */
    return at;
}

static struct node *pointers[NODES];

NOINLINE static uint64_t visit(uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += pointers[i]->value; /* planted: scattered */
    return sum;
}

/* A product of a sparse matrix, in rows, with a vector. */
static uint32_t row_begin[(1 << 19) + 1];

NOINLINE static double sparse(double *y, uint32_t rows) {
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t j = row_begin[r]; j < row_begin[r + 1]; j++)
            sum += right[j] * left[picks[j]]; /* planted: sparse */
        y[r] = sum;
    }
    return y[0];
}

/* As XSBench looks up cross sections: a search in the grid of energies, then values of some nuclides at the place found. */
static uint32_t grid_index[1 << 21];

NOINLINE static double look_up(uint64_t key, uint64_t n) {
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (words[middle] <= key) /* planted: xs */
            low = middle;
        else
            high = middle;
    }
    double sum = 0;
    for (int k = 0; k < 8; k++)
        sum += left[(grid_index[low] + (uint32_t)k * 1000003u) % WORDS]; /* planted: xs */
    return sum;
}

static void fill_words(void) {
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = i * 16;
}

/* (What is never written the compiler takes for zeros.) */
static void fill_picks(uint32_t n) {
    memset(left, 1, sizeof left);
    memset(right, 1, sizeof right);
    for (uint32_t i = 0; i < WORDS; i++)
        picks[i] = (uint32_t)(planted_random() % n);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "list";
    double seconds = argc > 2 ? atof(argv[2]) : 0.5;
    uint64_t sum = 0;
#define CASE(name) (!strcmp(what, name))
    if (CASE("list") || CASE("small_list")) {
        uint32_t n = CASE("list") ? NODES - 1 : 128;
        link_nodes(n);
        while (planted_goes_on(seconds))
            sum += walk_list(nodes[n].next);
    } else if (CASE("tree") || CASE("tree_sum")) {
        uint32_t *order = planted_order(LEAVES);
        root = plant(order, 0, LEAVES);
        while (planted_goes_on(seconds))
            if (CASE("tree_sum"))
                sum += sum_tree(root);
            else
                for (int i = 0; i < 1000; i++)
                    sum += find_tree(planted_random() % LEAVES);
    } else if (CASE("chain")) {
        uint32_t *order = planted_order(NODES);
        for (uint64_t i = 0; i < NODES; i++) {
            struct entry *e = &entries[order[i]];
            e->key = i;
            e->value = i;
            e->next = buckets[mix(i)];
            buckets[mix(i)] = e;
        }
        while (planted_goes_on(seconds))
            for (int i = 0; i < 1000; i++)
                sum += find_chain(planted_random() % NODES);
    } else if (CASE("adjacency")) {
        uint32_t *order = planted_order(NODES);
        for (uint32_t i = 0; i < NODES; i++) {
            struct edge *e = &edges[order[i]];
            struct edge **head = &first[i / 8];
            e->to = i;
            e->next = *head;
            *head = e;
        }
        uint32_t *vertices = planted_order(NODES / 8);
        while (planted_goes_on(seconds))
            sum += neighbours(vertices, NODES / 8);
    } else if (CASE("open") || CASE("small_open")) {
        uint64_t mask = CASE("open") ? (1 << 21) - 1 : 511;
        for (uint64_t k = 1; k <= mask / 4; k++) {
            uint64_t at = (k * 0x9e3779b97f4a7c15u >> 32) & mask;
            while (slots[at].key)
                at = (at + 1) & mask;
            slots[at] = (struct slot){k, k};
        }
        while (planted_goes_on(seconds))
            for (int i = 0; i < 1000; i++)
                sum += find_open(1 + planted_random() % (mask / 4), mask);
    } else if (CASE("search") || CASE("search_flat") || CASE("small_search")) {
        fill_words();
        uint64_t n = CASE("small_search") ? SMALL : WORDS;
        while (planted_goes_on(seconds))
            for (int i = 0; i < 1000; i++) {
                uint64_t key = planted_random() % (n * 16);
                sum += CASE("search_flat") ? search_flat(key, n) : search(key, n);
            }
    } else if (CASE("gather") || CASE("small_gather") || CASE("gather_two") || CASE("histogram")) {
        fill_picks(CASE("small_gather") ? SMALL : WORDS);
        while (planted_goes_on(seconds)) {
            uint32_t n = 1 << 16, from = (uint32_t)(planted_random() % (WORDS - n));
            if (CASE("small_gather"))
                sum += (uint64_t)gather(SMALL);
            else {
                memmove(picks, picks + from, 0);
                if (CASE("histogram"))
                    count_up(WORDS);
                else
                    sum += (uint64_t)(CASE("gather_two") ? gather_two(WORDS) : gather(WORDS));
            }
        }
    } else if (CASE("index_chase")) {
        uint32_t n = 1 << 22, *order = planted_order(n);
        for (uint32_t i = 0; i < n; i++)
            follow[order[i]] = order[(i + 1) % n];
        free(order);
        while (planted_goes_on(seconds))
            sum = jump((uint32_t)sum, 100000);
    } else if (CASE("scattered")) {
        uint32_t *order = planted_order(NODES);
        for (uint32_t i = 0; i < NODES; i++) {
            pointers[i] = &nodes[order[i]];
            nodes[i].value = i;
        }
        while (planted_goes_on(seconds))
            sum += visit(NODES);
    } else if (CASE("sparse")) {
        uint32_t rows = 1 << 19;
        double *y = malloc(rows * sizeof *y);
        fill_picks(WORDS);
        for (uint32_t r = 0; r <= rows; r++)
            row_begin[r] = r * 16;
        while (planted_goes_on(seconds))
            sum += (uint64_t)sparse(y, rows);
    } else if (CASE("xs")) {
        fill_words();
        memset(left, 1, sizeof left);
        for (uint32_t i = 0; i < 1 << 21; i++)
            grid_index[i] = (uint32_t)planted_random();
        while (planted_goes_on(seconds))
            for (int i = 0; i < 1000; i++)
                sum += (uint64_t)look_up(planted_random() % ((1 << 21) * 16), 1 << 21);
    } else
        return 2;
    planted_sink = sum;
    return 0;
}
