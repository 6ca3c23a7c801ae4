/* Records and arrays: split, packed, smaller, interleaved, prefetched, in huge pages. */
#include "pairs.h"
#include <sys/mman.h>

/* Nodes of a syntax tree, of which a pass reads the tags. */
enum { SYNTAX = 1 << 20 };
struct syntax { uint8_t tag; uint32_t token, left, right, parent, more; };

NOINLINE static uint64_t calls_of_nodes(const struct syntax *nodes) {
    uint64_t calls = 0;
    for (uint32_t i = 0; i < SYNTAX; i++)
        calls += nodes[i].tag == 7;
    return calls;
}

NOINLINE static uint64_t calls_of_tags(const uint8_t *tags) {
    uint64_t calls = 0;
    for (uint32_t i = 0; i < SYNTAX; i++)
        calls += tags[i] == 7;
    return calls;
}

static double tags(int after, long rounds) {
    struct syntax *nodes = take(SYNTAX * sizeof *nodes);
    uint8_t *tags = take(SYNTAX);
    uint64_t calls = 0;
    for (uint32_t i = 0; i < SYNTAX; i++)
        tags[i] = nodes[i].tag = (uint8_t)below(40);
    for (long r = 0; r < rounds; r++)
        calls += after ? calls_of_tags(tags) : calls_of_nodes(nodes);
    return (double)calls;
}

/* Spheres, of which a test reads center and radius. */
enum { SPHERES = 1 << 18 };
struct sphere { float x, y, z, radius, color[4], matter[20], normal[4]; };

NOINLINE static double sphere_volumes(const struct sphere *spheres) {
    double sum = 0;
    for (uint32_t i = 0; i < SPHERES; i++) {
        const struct sphere *s = &spheres[i];
        if (s->x * s->x + s->y * s->y < s->radius)
            sum += s->radius;
    }
    return sum;
}

NOINLINE static double circle_volumes(const float *x, const float *y, const float *radius) {
    double sum = 0;
    for (uint32_t i = 0; i < SPHERES; i++)
        if (x[i] * x[i] + y[i] * y[i] < radius[i])
            sum += radius[i];
    return sum;
}

static double spheres(int after, long rounds) {
    struct sphere *spheres = take(SPHERES * sizeof *spheres);
    float *x = take(SPHERES * sizeof *x), *y = take(SPHERES * sizeof *y), *radius = take(SPHERES * sizeof *radius);
    double sum = 0;
    for (uint32_t i = 0; i < SPHERES; i++) {
        x[i] = spheres[i].x = (float)below(10);
        y[i] = spheres[i].y = (float)below(10);
        radius[i] = spheres[i].radius = (float)below(200);
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? circle_volumes(x, y, radius) : sphere_volumes(spheres);
    return sum;
}

/* Entries with holes between their members, or with members from large to small. */
enum { ENTRIES = 1 << 19 };
struct loose_entry { uint8_t type; uint64_t offset; uint8_t depth; uint64_t size; uint16_t name; uint64_t base; };
struct tight_entry { uint64_t offset, size, base; uint16_t name; uint8_t type, depth; };

#define SUM_OF_ENTRIES(function, entry)                                                     \
    NOINLINE static uint64_t function(const struct entry *entries, const uint32_t *order) { \
        uint64_t sum = 0;                                                                   \
        for (uint32_t i = 0; i < ENTRIES; i++) {                                            \
            const struct entry *e = &entries[order[i]];                                     \
            sum += e->type + e->offset + e->depth + e->size + e->name + e->base;            \
        }                                                                                   \
        return sum;                                                                         \
    }
SUM_OF_ENTRIES(sum_loose, loose_entry)
SUM_OF_ENTRIES(sum_tight, tight_entry)

static double entries(int after, long rounds) {
    struct loose_entry *loose = take(ENTRIES * sizeof *loose);
    struct tight_entry *tight = take(ENTRIES * sizeof *tight);
    uint32_t *order = shuffled(ENTRIES);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        loose[i].offset = tight[i].offset = i;
        loose[i].size = tight[i].size = i % 100;
        loose[i].type = tight[i].type = i % 5;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? sum_tight(tight, order) : sum_loose(loose, order);
    return (double)sum;
}

/* Heights of a terrain at random places, in 64 or in 16 bits. */
enum { HEIGHTS = 1 << 22, STEPS = 1 << 21 };

#define SUM_OF_HEIGHTS(name, height)                                                     \
    NOINLINE static int64_t name(const height *heights, const uint32_t *places) {        \
        int64_t sum = 0;                                                                 \
        for (uint32_t i = 0; i < STEPS; i++)                                             \
            sum += heights[places[i]];                                                   \
        return sum;                                                                      \
    }
SUM_OF_HEIGHTS(sum_wide, int64_t)
SUM_OF_HEIGHTS(sum_narrow, int16_t)

static double heights(int after, long rounds) {
    int64_t *wide = take(HEIGHTS * sizeof *wide), sum = 0;
    int16_t *narrow = take(HEIGHTS * sizeof *narrow);
    uint32_t *places = take(STEPS * sizeof *places);
    for (uint32_t i = 0; i < HEIGHTS; i++)
        wide[i] = narrow[i] = (int16_t)(i % 1000);
    for (uint32_t i = 0; i < STEPS; i++)
        places[i] = (uint32_t)below(HEIGHTS);
    for (long r = 0; r < rounds; r++)
        sum += after ? sum_narrow(narrow, places) : sum_wide(wide, places);
    return (double)sum;
}

/* Complex numbers at random places: two arrays, or one of pairs. */
enum { SIGNAL = 1 << 22 };

NOINLINE static double power_of_parts(const double *re, const double *im, const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < SIGNAL / 4; i++)
        sum += re[order[i]] * re[order[i]] + im[order[i]] * im[order[i]];
    return sum;
}

NOINLINE static double power_of_pairs(const double (*both)[2], const uint32_t *order) {
    double sum = 0;
    for (uint32_t i = 0; i < SIGNAL / 4; i++)
        sum += both[order[i]][0] * both[order[i]][0] + both[order[i]][1] * both[order[i]][1];
    return sum;
}

static double signal(int after, long rounds) {
    double *re = take(SIGNAL * sizeof *re), *im = take(SIGNAL * sizeof *im), sum = 0;
    double(*both)[2] = take(SIGNAL * sizeof *both);
    uint32_t *order = shuffled(SIGNAL);
    for (uint32_t i = 0; i < SIGNAL; i++) {
        both[i][0] = re[i] = i % 3;
        both[i][1] = im[i] = i % 4;
    }
    for (long r = 0; r < rounds; r++)
        sum += after ? power_of_pairs(both, order) : power_of_parts(re, im, order);
    return sum;
}

/* Groups of rows in a table with open addresses, without or with prefetches. */
enum { CELLS = 1 << 21, TABLE_ROWS = 1 << 20, AHEAD = 16 };
struct cell { uint64_t key, count; };

static inline uint32_t cell_of(uint64_t key) {
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 43);
}

static inline uint64_t add_row(struct cell *cells, uint64_t key) {
    uint32_t at = cell_of(key);
    while (cells[at].key && cells[at].key != key)
        at = (at + 1) % CELLS;
    cells[at].key = key;
    return ++cells[at].count;
}

NOINLINE static uint64_t count_groups(struct cell *cells, const uint64_t *keys) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TABLE_ROWS; i++)
        sum += add_row(cells, keys[i]);
    return sum;
}

NOINLINE static uint64_t count_groups_ahead(struct cell *cells, const uint64_t *keys) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TABLE_ROWS; i++) {
        if (i + AHEAD < TABLE_ROWS)
            __builtin_prefetch(&cells[cell_of(keys[i + AHEAD])], 1);
        sum += add_row(cells, keys[i]);
    }
    return sum;
}

static double groups(int after, long rounds) {
    struct cell *cells = take(CELLS * sizeof *cells);
    uint64_t *keys = take(TABLE_ROWS * sizeof *keys), sum = 0;
    for (uint32_t i = 0; i < TABLE_ROWS; i++)
        keys[i] = 1 + below(1 << 20);
    for (long r = 0; r < rounds; r++)
        sum += after ? count_groups_ahead(cells, keys) : count_groups(cells, keys);
    return (double)sum;
}

/* Candidates of a search for near vectors, without or with prefetches. */
enum { VECTORS = 1 << 18, LENGTH = 32 };
typedef float vector[LENGTH];

static inline float distance(const float *a, const float *b) {
    float sum = 0;
    for (int i = 0; i < LENGTH; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

NOINLINE static double candidates_near(const vector *vectors, const uint32_t *candidates, const float *query) {
    double sum = 0;
    for (uint32_t i = 0; i < VECTORS; i++)
        sum += distance(vectors[candidates[i]], query);
    return sum;
}

NOINLINE static double candidates_ahead(const vector *vectors, const uint32_t *candidates, const float *query) {
    double sum = 0;
    for (uint32_t i = 0; i < VECTORS; i++) {
        if (i + 4 < VECTORS) {
            __builtin_prefetch(vectors[candidates[i + 4]]);
            __builtin_prefetch(&vectors[candidates[i + 4]][16]);
        }
        sum += distance(vectors[candidates[i]], query);
    }
    return sum;
}

static double candidates(int after, long rounds) {
    vector *vectors = take(VECTORS * sizeof *vectors), query = {1, 2, 3};
    uint32_t *candidates = shuffled(VECTORS);
    double sum = 0;
    for (uint32_t i = 0; i < VECTORS * LENGTH; i++)
        vectors[i / LENGTH][i % LENGTH] = (float)(i % 17);
    for (long r = 0; r < rounds; r++)
        sum += (after ? candidates_ahead : candidates_near)(vectors, candidates, query);
    return sum;
}

/* Positions of a game in a large table, and counts of word groups, with small or huge pages. */
struct position { uint32_t key; int16_t move, value; uint8_t depth, bound, age, rest[5]; };

NOINLINE static void *take_table(size_t bytes, int huge) {
    void *block = aligned_alloc(1 << 21, bytes);
    if (!block || (huge && madvise(block, bytes, MADV_HUGEPAGE)))
        abort();
    memset(block, 1, bytes);
    return block;
}

NOINLINE static uint64_t probe_positions(const struct position *table, uint64_t mask, long times) {
    uint64_t sum = 0, game = 1;
    for (long i = 0; i < times; i++) {
        const struct position *p = &table[game & mask];
        game = game * 6364136223846793005u + 1442695040888963407u + p->depth;
        game ^= game >> 29;
        sum += p->value;
    }
    return sum;
}

static double positions(int after, long rounds) {
    size_t count = 1 << 24;
    return (double)probe_positions(take_table(count * sizeof(struct position), after), count - 1, rounds);
}

NOINLINE static uint64_t count_grams(uint32_t *counts, uint64_t mask, long times) {
    uint64_t sum = 0, text = 1;
    for (long i = 0; i < times; i++) {
        text = text * 6364136223846793005u + 1442695040888963407u;
        sum += ++counts[(text >> 30) & mask];
    }
    return sum;
}

static double grams(int after, long rounds) {
    size_t count = 1 << 25;
    return (double)count_grams(take_table(count * sizeof(uint32_t), after), count - 1, rounds);
}

static const struct pair pairs[] = {
    {"tags", tags, 1500},         {"spheres", spheres, 400},
    {"entries", entries, 100},    {"heights", heights, 200},
    {"signal", signal, 100},      {"groups", groups, 100},
    {"candidates", candidates, 60}, {"positions", positions, 5000000},
    {"grams", grams, 100000000},
};
MAIN(pairs)
