/* More programs whose cache misses are predicted from samples and simulated from full traces (benches/run misses): see misses.c.
 *
 *     more KIND ROUNDS
 *
 * Whole algorithms, whose working sets grow, shrink and move within a round. As there, rounds are equal. */
#define _GNU_SOURCE
#include "data.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above zero, at most one. */
static double share(void) {
    return (double)((draw() >> 11) + 1) * 0x1p-53;
}

static void shuffle(uint32_t *order, size_t n) {
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = draw() % (i + 1);
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* LU factors in place of a dense matrix. */
enum { ORDER = 200 };

ALONE static void fill(double *a) {
    for (int i = 0; i < ORDER; i++)
        for (int j = 0; j < ORDER; j++)
            a[i * ORDER + j] = i == j ? 2 * ORDER : (i * 7 + j * 3) % 11 * 0.1;
}

ALONE static void factor(double *a) {
    for (int k = 0; k < ORDER; k++)
        for (int i = k + 1; i < ORDER; i++) {
            double f = a[i * ORDER + k] /= a[k * ORDER + k];
            for (int j = k + 1; j < ORDER; j++)
                a[i * ORDER + j] -= f * a[k * ORDER + j];
        }
}

static uint64_t do_lu(long rounds) {
    double *a = take(ORDER * ORDER * 8), sum = 0;
    for (long r = 0; r < rounds; r++) {
        fill(a);
        factor(a);
        sum += a[ORDER * ORDER - 1];
    }
    return (uint64_t)sum;
}

/* A hash join of two relations that are split alike: a part of the one is made a table, then the same part of the other looks it up. */
enum { JOIN_PARTS = 8, BUILD_ROWS = 20000, PROBE_ROWS = 60000, HEADS = 1 << 15 };

struct row {
    uint64_t key, value;
};

static inline uint32_t bucket(uint64_t key) {
    return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 49);
}

ALONE static void build(const struct row *rows, int *heads, int *next) {
    memset(heads, 0xff, HEADS * sizeof *heads);
    for (int i = 0; i < BUILD_ROWS; i++) {
        uint32_t b = bucket(rows[i].key);
        next[i] = heads[b];
        heads[b] = i;
    }
}

ALONE static uint64_t match(const struct row *rows, const int *heads, const int *next, const struct row *others) {
    uint64_t sum = 0;
    for (int i = 0; i < PROBE_ROWS; i++)
        for (int k = heads[bucket(others[i].key)]; k >= 0; k = next[k])
            if (rows[k].key == others[i].key)
                sum += rows[k].value ^ others[i].value;
    return sum;
}

static uint64_t do_join(long rounds) {
    struct row *rows = take(sizeof *rows * JOIN_PARTS * BUILD_ROWS), *others = take(sizeof *others * JOIN_PARTS * PROBE_ROWS);
    int *heads = take(HEADS * sizeof *heads), *next = take(BUILD_ROWS * sizeof *next);
    for (long p = 0; p < JOIN_PARTS; p++) {
        for (long i = 0; i < BUILD_ROWS; i++)
            rows[p * BUILD_ROWS + i] = (struct row){draw() % (2 * BUILD_ROWS) * JOIN_PARTS + (uint64_t)p, (uint64_t)i};
        for (long i = 0; i < PROBE_ROWS; i++)
            others[p * PROBE_ROWS + i] = (struct row){draw() % (2 * BUILD_ROWS) * JOIN_PARTS + (uint64_t)p, (uint64_t)i};
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        for (long p = 0; p < JOIN_PARTS; p++) {
            build(rows + p * BUILD_ROWS, heads, next);
            sum += match(rows + p * BUILD_ROWS, heads, next, others + p * PROBE_ROWS);
        }
    return sum;
}

/* Look-ups in a B+-tree whose nodes lie in no order. */
enum { FANOUT = 16 };

struct page {
    uint64_t keys[FANOUT];
    union {
        struct page *child;
        uint64_t value;
    } at[FANOUT];
};

ALONE static uint64_t find(const struct page *root, int depth, uint64_t keys, long n) {
    uint64_t sum = 0;
    for (long t = 0; t < n; t++) {
        uint64_t key = draw() % keys;
        const struct page *page = root;
        for (int level = 0;; level++) {
            int i = FANOUT - 1;
            while (i > 0 && page->keys[i] > key)
                i--;
            if (level == depth) {
                sum += page->at[i].value;
                break;
            }
            page = page->at[i].child;
        }
    }
    return sum;
}

static uint64_t do_bplus(long rounds) {
    size_t keys = 400000, most = keys / FANOUT * 9 / 8, used = 0;
    struct page *pages = take(most * sizeof *pages), **below = take(most * sizeof *below);
    uint32_t *order = take(most * sizeof *order);
    shuffle(order, most);
    size_t count = 0;
    for (size_t from = 0; from < keys; from += FANOUT) {
        struct page *page = &pages[order[used++]];
        for (size_t i = 0; i < FANOUT; i++) {
            page->keys[i] = from + i;
            page->at[i].value = from ^ i;
        }
        below[count++] = page;
    }
    int depth = 0;
    for (; count > 1; depth++) {
        size_t parents = 0;
        for (size_t from = 0; from < count; from += FANOUT) {
            struct page *page = &pages[order[used++]];
            for (size_t i = 0; i < FANOUT; i++) {
                page->keys[i] = from + i < count ? below[from + i]->keys[0] : UINT64_MAX;
                page->at[i].child = from + i < count ? below[from + i] : NULL;
            }
            below[parents++] = page;
        }
        count = parents;
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += find(below[0], depth, keys, 40000);
    return sum;
}

/* Radix sort from the lowest digit. */
struct item {
    uint32_t key, value;
};

ALONE static void pass(const struct item *from, struct item *to, long n, int shift) {
    uint32_t places[256] = {0}, sum = 0;
    for (long i = 0; i < n; i++)
        places[from[i].key >> shift & 255]++;
    for (int d = 0; d < 256; d++) {
        uint32_t here = places[d];
        places[d] = sum;
        sum += here;
    }
    for (long i = 0; i < n; i++)
        to[places[from[i].key >> shift & 255]++] = from[i];
}

static uint64_t do_radix(long rounds) {
    long n = 250000;
    struct item *given = take((size_t)n * 8), *a = take((size_t)n * 8), *b = take((size_t)n * 8);
    for (long i = 0; i < n; i++)
        given[i] = (struct item){(uint32_t)(draw() >> 32), (uint32_t)i};
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        pass(given, a, n, 0);
        pass(a, b, n, 8);
        pass(b, a, n, 16);
        pass(a, b, n, 24);
        sum += b[n / 2].value;
    }
    return sum;
}

/* The best value of things that fit into a sack, from the largest sack down. */
ALONE static void pack(int *best, int most, int weight, int value) {
    for (int c = most; c >= weight; c--)
        if (best[c - weight] + value > best[c])
            best[c] = best[c - weight] + value;
}

static uint64_t do_knapsack(long rounds) {
    static const int weights[] = {1200, 90000, 17000, 45000, 300, 150000, 8000, 62000, 27000, 5000};
    int most = 300000;
    int *best = take((size_t)(most + 1) * 4);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        memset(best, 0, (size_t)(most + 1) * 4);
        for (int i = 0; i < 10; i++)
            pack(best, most, weights[i], weights[i] / 3 + i * 100);
        sum += (uint64_t)best[most];
    }
    return sum;
}

/* Ranks of the vertices of a graph in which few vertices have most of the edges. */
ALONE static void rank(const int *starts, const int *sources, const double *given, double *got, int vertices) {
    for (int v = 0; v < vertices; v++) {
        double sum = 0;
        for (int k = starts[v]; k < starts[v + 1]; k++)
            sum += given[sources[k]];
        got[v] = 0.15 / vertices + 0.85 * sum;
    }
}

/* What a vertex has, by its edges. */
ALONE static void divide(const double *got, const int *degrees, double *given, int vertices) {
    for (int v = 0; v < vertices; v++)
        given[v] = got[v] / degrees[v];
}

static uint64_t do_pagerank(long rounds) {
    int vertices = 160000, most = 2000000, edges = 0;
    int *starts = take((size_t)(vertices + 1) * 4), *sources = take((size_t)most * 4), *degrees = take((size_t)vertices * 4);
    double *given = take((size_t)vertices * 8), *got = take((size_t)vertices * 8);
    uint32_t *names = take((size_t)vertices * 4);
    shuffle(names, (size_t)vertices);
    for (int v = 0; v < vertices; v++) {
        degrees[v] = 1;
        got[v] = 1.0 / vertices;
    }
    for (int v = 0; v < vertices; v++) {
        starts[v] = edges;
        double degree = fmin(2000, 2.5 / sqrt(share()));
        for (int k = 0; k < (int)degree && edges < most; k++) {
            int from = (int)names[(int)(pow(share(), 3) * (vertices - 1))];
            sources[edges++] = from;
            degrees[from]++;
        }
    }
    starts[vertices] = edges;
    for (long r = 0; r < rounds; r++) {
        divide(got, degrees, given, vertices);
        rank(starts, sources, given, got, vertices);
    }
    return (uint64_t)(got[names[0]] * 1e9);
}

/* A binary heap that is filled and emptied. */
struct event {
    uint64_t time, what;
};

ALONE static void push(struct event *heap, long n, struct event new) {
    while (n > 0) {
        long above = (n - 1) / 2;
        if (heap[above].time <= new.time)
            break;
        heap[n] = heap[above];
        n = above;
    }
    heap[n] = new;
}

/* Takes the first of n. */
ALONE static struct event pop(struct event *heap, long n) {
    struct event first = heap[0], last = heap[--n];
    long at = 0;
    for (long below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && heap[below + 1].time < heap[below].time)
            below++;
        if (last.time <= heap[below].time)
            break;
        heap[at] = heap[below];
    }
    heap[at] = last;
    return first;
}

static uint64_t do_heap(long rounds) {
    long n = 100000;
    struct event *heap = take((size_t)n * sizeof *heap);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        for (long i = 0; i < n; i++)
            push(heap, i, (struct event){draw() >> 20, (uint64_t)i});
        for (long i = n; i > 0; i--)
            sum = sum * 3 + pop(heap, i).what;
    }
    return sum;
}

/* Sets that are joined, with paths halved. */
ALONE static int root_of(int *parents, int v) {
    while (parents[v] != v) {
        parents[v] = parents[parents[v]];
        v = parents[v];
    }
    return v;
}

ALONE static long unite(int *parents, int sets, const int *a, const int *b, long n) {
    for (int i = 0; i < sets; i++)
        parents[i] = i;
    long joined = 0;
    for (long i = 0; i < n; i++) {
        int x = root_of(parents, a[i]), y = root_of(parents, b[i]);
        if (x != y) {
            parents[x < y ? y : x] = x < y ? x : y;
            joined++;
        }
    }
    return joined;
}

static uint64_t do_union(long rounds) {
    int sets = 400000;
    long n = 300000;
    int *parents = take((size_t)sets * 4), *a = take((size_t)n * 4), *b = take((size_t)n * 4);
    for (long i = 0; i < n; i++) {
        a[i] = (int)(draw() % (uint64_t)sets);
        b[i] = (int)(draw() % (uint64_t)sets);
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += (uint64_t)unite(parents, sets, a, b, n);
    return sum;
}

/* A store of the entries that were used last: a hash table and a list by age, with keys by Zipf's law. */
enum { ENTRIES = 50000, CHAINS = 1 << 16, KEYS = 500000 };

struct entry {
    uint64_t key;
    struct entry *chain, *newer, *older;
    uint64_t value[2];
};

struct store {
    struct entry **chains, *entries, ends;
    long used;
};

static inline struct entry **chain_of(struct store *s, uint64_t key) {
    return &s->chains[key * 0x9e3779b97f4a7c15ull >> 48];
}

static inline void take_out(struct entry *e) {
    e->newer->older = e->older;
    e->older->newer = e->newer;
}

static inline void put_first(struct store *s, struct entry *e) {
    e->newer = &s->ends;
    e->older = s->ends.older;
    s->ends.older->newer = e;
    s->ends.older = e;
}

/* Whether it was there. */
ALONE static int use(struct store *s, uint64_t key) {
    struct entry **chain = chain_of(s, key), *e = *chain;
    while (e && e->key != key)
        e = e->chain;
    if (e) {
        take_out(e);
        put_first(s, e);
        e->value[0]++;
        return 1;
    }
    if (s->used < ENTRIES) {
        e = &s->entries[s->used++];
    } else {
        e = s->ends.newer;
        take_out(e);
        struct entry **link = chain_of(s, e->key);
        while (*link != e)
            link = &(*link)->chain;
        *link = e->chain;
    }
    e->key = key;
    e->value[0] = 0;
    e->chain = *chain;
    *chain = e;
    put_first(s, e);
    return 0;
}

static uint64_t request(struct store *s, long n) {
    uint64_t found = 0;
    for (long i = 0; i < n; i++)
        found += (uint64_t)use(s, (uint64_t)exp(share() * log(KEYS)));
    return found;
}

static uint64_t do_lru(long rounds) {
    struct store s = {take(CHAINS * sizeof *s.chains), take(ENTRIES * sizeof *s.entries), {0}, 0};
    s.ends.newer = s.ends.older = &s.ends;
    memset(s.chains, 0, CHAINS * sizeof *s.chains);
    request(&s, 500000);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += request(&s, 100000);
    return sum;
}

/* A wavelet of an image: rows, then columns, then the same for the quarter that is left. */
enum { SIDE = 1000 };

ALONE static void by_rows(const float *from, float *to, int n) {
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n / 2; x++) {
            float a = from[y * SIDE + 2 * x], b = from[y * SIDE + 2 * x + 1];
            to[y * SIDE + x] = (a + b) * 0.5f;
            to[y * SIDE + n / 2 + x] = a - b;
        }
}

ALONE static void by_columns(const float *from, float *to, int n) {
    for (int x = 0; x < n; x++)
        for (int y = 0; y < n / 2; y++) {
            float a = from[2 * y * SIDE + x], b = from[(2 * y + 1) * SIDE + x];
            to[y * SIDE + x] = (a + b) * 0.5f;
            to[(n / 2 + y) * SIDE + x] = a - b;
        }
}

static uint64_t do_wavelet(long rounds) {
    float *image = take(SIDE * SIDE * 4), *half = take(SIDE * SIDE * 4), *done = take(SIDE * SIDE * 4), sum = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        image[i] = (float)(i % 251);
    for (long r = 0; r < rounds; r++) {
        by_rows(image, half, SIDE);
        by_columns(half, done, SIDE);
        for (int n = SIDE / 2; n >= SIDE / 4; n /= 2) {
            by_rows(done, half, n);
            by_columns(half, done, n);
        }
        sum += done[0];
    }
    return (uint64_t)sum;
}

/* An interpreter: loops of a few instructions, each with its own part of a heap, and all with the same table. */
enum { PUSH, LOCAL, KEEP, ADD, XOR, MIX, GET, PUT, SHARED, AGAIN, STOP };
enum { LOOPS = 400, TURNS = 100, HEAP = (12 << 20) / 8, OBJECT = 8192, TABLE = 1 << 15 };

struct code {
    uint32_t op;
    int32_t operand;
};

ALONE static uint64_t interpret(const struct code *program, uint64_t *heap, const uint64_t *table) {
    uint64_t stack[16], locals[8] = {1, 2, 0}, *top = stack;
    for (const struct code *at = program;; at++) {
        switch (at->op) {
        case PUSH:
            *top++ = (uint64_t)at->operand;
            break;
        case LOCAL:
            *top++ = locals[at->operand];
            break;
        case KEEP:
            locals[at->operand] = *--top;
            break;
        case ADD:
            top--;
            top[-1] += top[0];
            break;
        case XOR:
            top--;
            top[-1] ^= top[0];
            break;
        case MIX:
            top[-1] = top[-1] * 6364136223846793005ull + 1442695040888963407ull;
            break;
        case GET:
            top[-1] = heap[(size_t)at->operand + (top[-1] >> 40) % OBJECT];
            break;
        case PUT:
            top -= 2;
            heap[(size_t)at->operand + (top[0] >> 40) % OBJECT] = top[1];
            break;
        case SHARED:
            top[-1] = table[(top[-1] >> 40) % TABLE];
            break;
        case AGAIN:
            if (--locals[2])
                at += at->operand;
            break;
        default:
            return locals[1];
        }
    }
}

static uint64_t do_interpret(long rounds) {
    static const struct code start[] = {{PUSH, TURNS}, {KEEP, 2}};
    static const struct code body[] = {
        {LOCAL, 0}, {MIX, 0},    {KEEP, 0},  {LOCAL, 0}, {GET, 0},  {LOCAL, 1}, {ADD, 0},   {KEEP, 1}, {LOCAL, 0},
        {MIX, 0},   {SHARED, 0}, {LOCAL, 1}, {XOR, 0},   {KEEP, 1}, {LOCAL, 0}, {LOCAL, 1}, {PUT, 0},
    };
    enum { BODY = sizeof body / sizeof *body };
    struct code *program = take((LOOPS * (BODY + 3) + 1) * sizeof *program), *end = program;
    uint64_t *heap = take(HEAP * 8), *table = take(TABLE * 8), sum = 0;
    for (int l = 0; l < LOOPS; l++) {
        memcpy(end, start, sizeof start);
        memcpy(end + 2, body, sizeof body);
        for (int i = 2; i < 2 + BODY; i++)
            if (end[i].op == GET || end[i].op == PUT)
                end[i].operand = (int32_t)((uint64_t)l * 7919 * 64 % (HEAP - OBJECT));
        end += 2 + BODY;
        *end++ = (struct code){AGAIN, -BODY - 1};
    }
    end->op = STOP;
    memset(heap, 1, HEAP * 8);
    memset(table, 2, TABLE * 8);
    for (long r = 0; r < rounds; r++)
        sum += interpret(program, heap, table);
    return sum;
}

/* Points that are given to the nearest centre, and centres that follow. */
enum { POINTS = 40000, CENTRES = 8, AXES = 8 };

ALONE static void nearest(const float (*points)[AXES], float (*centres)[AXES]) {
    float sums[CENTRES][AXES] = {{0}};
    int counts[CENTRES] = {0};
    for (int i = 0; i < POINTS; i++) {
        int best = 0;
        float least = INFINITY;
        for (int c = 0; c < CENTRES; c++) {
            float far = 0;
            for (int d = 0; d < AXES; d++) {
                float by = points[i][d] - centres[c][d];
                far += by * by;
            }
            if (far < least) {
                least = far;
                best = c;
            }
        }
        counts[best]++;
        for (int d = 0; d < AXES; d++)
            sums[best][d] += points[i][d];
    }
    for (int c = 0; c < CENTRES; c++)
        for (int d = 0; d < AXES; d++)
            if (counts[c])
                centres[c][d] = sums[c][d] / (float)counts[c];
}

static uint64_t do_kmeans(long rounds) {
    float (*points)[AXES] = take(POINTS * sizeof *points), centres[CENTRES][AXES];
    for (int i = 0; i < POINTS; i++)
        for (int d = 0; d < AXES; d++)
            points[i][d] = (float)share();
    memcpy(centres, points, sizeof centres);
    for (long r = 0; r < rounds; r++)
        nearest(points, centres);
    return (uint64_t)(centres[0][0] * 1e6f);
}

/* Merge sort of pointers to records. */
struct record {
    uint64_t key;
    char text[56];
};

ALONE static void merge(struct record **from, struct record **to, long low, long middle, long high) {
    long a = low, b = middle;
    for (long i = low; i < high; i++)
        to[i] = b >= high || (a < middle && from[a]->key <= from[b]->key) ? from[a++] : from[b++];
}

static uint64_t do_records(long rounds) {
    long n = 50000;
    struct record *all = take((size_t)n * sizeof *all), **from = take((size_t)n * sizeof *from), **to = take((size_t)n * sizeof *to);
    for (long i = 0; i < n; i++)
        all[i].key = draw() >> 8;
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        for (long i = 0; i < n; i++)
            from[i] = &all[i];
        for (long width = 1; width < n; width *= 2) {
            for (long low = 0; low < n; low += 2 * width) {
                long middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
                merge(from, to, low, middle, high);
            }
            struct record **t = from;
            from = to;
            to = t;
        }
        sum += (uint64_t)(from[n / 2] - all);
    }
    return sum;
}

/* Messages through a ring: some are written, then they are read and booked. */
enum { SLOTS = 24000, BATCH = 4000, BATCHES = 30, ACCOUNTS = (4 << 20) / 8, INPUT = (10 << 20) / 8 };

struct message {
    uint64_t account, words[7];
};

ALONE static void produce(struct message *ring, long head, const uint64_t *input, long from) {
    for (long i = 0; i < BATCH; i++) {
        struct message *m = &ring[(head + i) % SLOTS];
        uint64_t word = input[(from + i) % INPUT];
        m->account = word % ACCOUNTS;
        for (int k = 0; k < 7; k++)
            m->words[k] = word >> k;
    }
}

ALONE static uint64_t consume(const struct message *ring, long tail, uint64_t *accounts) {
    uint64_t sum = 0;
    for (long i = 0; i < BATCH; i++) {
        const struct message *m = &ring[(tail + i) % SLOTS];
        uint64_t mark = 0;
        for (int k = 0; k < 7; k++)
            mark = mark * 31 + m->words[k];
        accounts[m->account] += mark;
        sum ^= mark;
    }
    return sum;
}

static uint64_t do_ring(long rounds) {
    struct message *ring = take(SLOTS * sizeof *ring);
    uint64_t *accounts = take(ACCOUNTS * 8), *input = take(INPUT * 8), sum = 0;
    memset(ring, 0, SLOTS * sizeof *ring);
    memset(accounts, 0, ACCOUNTS * 8);
    for (long i = 0; i < INPUT; i++)
        input[i] = draw();
    for (long r = 0; r < rounds; r++)
        for (long b = r * BATCHES; b < (r + 1) * BATCHES; b++) {
            produce(ring, b * BATCH, input, b * BATCH);
            sum += consume(ring, b * BATCH, accounts);
        }
    return sum;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    uint64_t sum;
    if (!strcmp(kind, "lu"))
        sum = do_lu(rounds);
    else if (!strcmp(kind, "join"))
        sum = do_join(rounds);
    else if (!strcmp(kind, "bplus"))
        sum = do_bplus(rounds);
    else if (!strcmp(kind, "radix"))
        sum = do_radix(rounds);
    else if (!strcmp(kind, "knapsack"))
        sum = do_knapsack(rounds);
    else if (!strcmp(kind, "pagerank"))
        sum = do_pagerank(rounds);
    else if (!strcmp(kind, "heap"))
        sum = do_heap(rounds);
    else if (!strcmp(kind, "union"))
        sum = do_union(rounds);
    else if (!strcmp(kind, "lru"))
        sum = do_lru(rounds);
    else if (!strcmp(kind, "wavelet"))
        sum = do_wavelet(rounds);
    else if (!strcmp(kind, "interpret"))
        sum = do_interpret(rounds);
    else if (!strcmp(kind, "kmeans"))
        sum = do_kmeans(rounds);
    else if (!strcmp(kind, "records"))
        sum = do_records(rounds);
    else if (!strcmp(kind, "ring"))
        sum = do_ring(rounds);
    else
        return 2;
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
