/* Kinds of data that only the order of visits tells apart: trees, lists of siblings, columns, many streams, chains. */
#include "planted.h"

enum { BODIES = 1 << 19, ITEMS = 1 << 20, NODES = 1 << 22, ROWS = 2048, COLUMNS = 2048, STREAMS = 96, LENGTH = 1 << 16 };

/* A tree with eight children a cell, walked with a stack of cells as in codes of gravity. */
struct cell { double x, size, mass; struct cell *child[8]; };
static struct cell cells[BODIES];
static uint32_t cells_used, *cell_order;

static struct cell *plant_cell(double x, double size, int depth) {
    struct cell *c = &cells[cell_order[cells_used++]];
    *c = (struct cell){x, size, size, {NULL}};
    for (int i = 0; i < 8 && depth > 0; i++)
        if (cells_used < BODIES && planted_random() % 4 != 0)
            c->child[i] = plant_cell(x + (i - 3.5) * size / 8, size / 8, depth - 1);
    return c;
}

NOINLINE static double force(const struct cell *root, double x) {
    const struct cell *stack[128];
    int top = 0;
    double sum = 0;
    stack[top++] = root;
    while (top > 0) {
        const struct cell *c = stack[--top];
        double apart = c->x > x ? c->x - x : x - c->x; /* planted: treecode */
        if (apart > 12 * c->size)                     /* planted: treecode */
            sum += c->mass / (apart + 1e-9);          /* planted: treecode */
        else
            for (int i = 0; i < 8; i++)
                if (c->child[i])                /* planted: treecode */
                    stack[top++] = c->child[i]; /* planted: treecode */
    }
    return sum;
}

/* A document: each element has its first child and its next sibling. */
struct element { struct element *first, *next; uint64_t value; uint64_t rest[5]; };
static struct element elements[ITEMS];

NOINLINE static uint64_t visit_element(const struct element *e) {
    uint64_t sum = 0;
    for (; e; e = e->next) {      /* planted: siblings */
        sum += e->value;          /* planted: siblings */
        if (e->first)             /* planted: siblings */
            sum += visit_element(e->first); /* planted: siblings */
    }
    return sum;
}

/* A column of a matrix, by a function that knows one column only. */
static double *grid;

NOINLINE static double column_sum(const double *first, uint64_t apart, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += first[i * apart]; /* planted: column_pages */
    return sum;
}

/* Runs that are read in turn, as when sorted runs are joined. */
static double *runs[STREAMS];

NOINLINE static double add_runs(uint64_t length) {
    double sum = 0;
    for (uint64_t i = 0; i < length; i++)
        for (int s = 0; s < STREAMS; s++)
            sum += runs[s][i]; /* planted: streams */
    return sum;
}

/* Decisions in arrays: feature, limit, and the two next nodes. */
static int32_t left_of[NODES], right_of[NODES];
static float limit_of[NODES];
static uint8_t feature_of[NODES];

NOINLINE static float decide(const float *features) {
    int32_t at = 0;
    while (left_of[at] >= 0) {                    /* planted: decisions */
        if (features[feature_of[at]] < limit_of[at]) /* planted: decisions */
            at = left_of[at];                        /* planted: decisions */
        else
            at = right_of[at]; /* planted: decisions */
    }
    return limit_of[at]; /* planted: decisions */
}

static int32_t plant_decisions(uint32_t *used, const uint32_t *order, int depth) {
    int32_t at = *used == 0 ? 0 : (int32_t)order[*used];
    ++*used;
    feature_of[at] = (uint8_t)(planted_random() % 16);
    limit_of[at] = (float)(planted_random() % 1000) / 1000;
    left_of[at] = right_of[at] = -1;
    if (depth > 0) {
        left_of[at] = plant_decisions(used, order, depth - 1);
        right_of[at] = plant_decisions(used, order, depth - 1);
    }
    return at;
}

/* A heap in an array. */
static uint64_t heap[1 << 23];

NOINLINE static uint64_t replace_least(uint64_t key, uint64_t count) {
    uint64_t least = heap[0], at = 0;
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child + 1 < count && heap[child + 1] < heap[child]) /* planted: heap */
            child++;
        if (child >= count || heap[child] >= key) /* planted: heap */
            break;
        heap[at] = heap[child]; /* planted: heap */
        at = child;
    }
    heap[at] = key;
    return least;
}

/* Places with the same hash form chains through an array of numbers, as in a compressor. The chain is walked by a
 * function of its own. */
static uint8_t text[1 << 24];
static uint32_t heads[1 << 16], before[1 << 24];

NOINLINE static uint32_t longest(const uint8_t *here, uint32_t at, uint32_t place, int depth) {
    uint32_t best = 0;
    while (place && depth-- > 0) {
        const uint8_t *there = here - (at - place);
        if (there[best] == here[best]) { /* planted: matches */
            uint32_t n = 0;
            while (n < 32 && there[n] == here[n]) /* planted: matches */
                n++;
            best = n > best ? n : best;
        }
        place = before[place]; /* planted: matches */
    }
    return best;
}

NOINLINE static uint32_t find_matches(uint32_t from, uint32_t count) {
    uint32_t sum = 0;
    for (uint32_t at = from; at < from + count; at++) {
        uint32_t key = (text[at] * 0x9e3779b1u ^ text[at + 1] * 0x85ebca6bu ^ text[at + 2] * 0xc2b2ae35u) >> 16;
        uint32_t place = heads[key]; /* planted: matches */
        sum += longest(text + at, at, place, 24);
    }
    return sum;
}

/* A tree whose branches are bits of the key. */
struct branch { uint32_t child[2]; };
static struct branch branches[1 << 23];

NOINLINE static uint32_t follow_bits(uint32_t key) {
    uint32_t at = 1;
    for (int bit = 21; bit >= 0; bit--)
        at = branches[at].child[key >> bit & 1]; /* planted: bits */
    return at;
}

/* Rows of a sparse matrix times a vector: columns anywhere, or beside the diagonal. */
static uint32_t column_of[1 << 23];
static double value_of[1 << 23], vector[1 << 20];

NOINLINE static double product(uint32_t rows, uint32_t each) {
    double all = 0;
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t k = r * each; k < (r + 1) * each; k++)
            sum += value_of[k] * vector[column_of[k]]; /* planted: product */
        all += sum;
    }
    return all;
}

/* Shortest paths between all pairs, in blocks. */
enum { CITIES = 1024, SIDE = 64 };
static float path[CITIES][CITIES];

NOINLINE static void block_paths(uint32_t bi, uint32_t bj, uint32_t bk) {
    for (uint32_t k = bk; k < bk + SIDE; k++)
        for (uint32_t i = bi; i < bi + SIDE; i++) {
            float way = path[i][k];
            for (uint32_t j = bj; j < bj + SIDE; j++) {
                float longer = way + path[k][j];
                path[i][j] = longer < path[i][j] ? longer : path[i][j];
            }
        }
}

static void all_paths(double seconds) {
    for (uint32_t k = 0; k < CITIES; k += SIDE)
        for (uint32_t i = 0; i < CITIES; i += SIDE)
            for (uint32_t j = 0; j < CITIES; j += SIDE) {
                block_paths(i, j, k);
                if (!planted_goes_on(seconds))
                    return;
            }
}

NOINLINE static uint64_t sieve(uint8_t *composite, uint32_t n) {
    uint64_t primes = 0;
    memset(composite, 0, n);
    for (uint32_t i = 2; i < n; i++)
        if (!composite[i]) {
            primes++;
            for (uint32_t j = 2 * i; j < n; j += i)
                composite[j] = 1;
        }
    return primes;
}

NOINLINE static uint32_t count_words(uint32_t *counts, const uint8_t *words, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 0; i + 4 < n; i += 4) {
        uint32_t word;
        memcpy(&word, words + i, 4);
        uint32_t *count = &counts[word * 0x9e3779b1u >> 20];
        most = ++*count > most ? *count : most;
    }
    return most;
}

static void fill_product(uint32_t rows, uint32_t each, uint32_t columns, int banded) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < each; k++) {
            uint32_t near = (uint32_t)((uint64_t)r * columns / rows) + k;
            column_of[r * each + k] = banded ? near % columns : (uint32_t)(planted_random() % columns);
            value_of[r * each + k] = 1;
        }
    for (uint32_t c = 0; c < columns; c++)
        vector[c] = c;
}

static void fill_matches(void) {
    for (uint32_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(planted_random() % 23 + planted_random() % 23);
    for (uint32_t at = 0; at < sizeof text / 2; at++) {
        uint32_t key = (text[at] * 0x9e3779b1u ^ text[at + 1] * 0x85ebca6bu ^ text[at + 2] * 0xc2b2ae35u) >> 16;
        before[at] = heads[key];
        heads[key] = at;
    }
}

static uint32_t plant_bits(uint32_t *used, const uint32_t *order, int depth) {
    uint32_t at = *used == 0 ? 1 : order[*used] + 2;
    ++*used;
    if (depth > 0) {
        branches[at].child[0] = plant_bits(used, order, depth - 1);
        branches[at].child[1] = plant_bits(used, order, depth - 1);
    }
    return at;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "treecode";
    double seconds = argc > 2 ? atof(argv[2]) : 0.5, sum = 0;
#define CASE(name) (!strcmp(what, name))
    if (CASE("treecode")) {
        cell_order = planted_order(BODIES);
        struct cell *root = plant_cell(0, 1, 8);
        while (planted_goes_on(seconds))
            sum += force(root, (double)planted_random() / 0x1p64 - 0.5);
    } else if (CASE("siblings")) {
        uint32_t *order = planted_order(ITEMS);
        for (uint32_t i = 1; i < ITEMS; i++) {
            struct element *parent = &elements[order[(i - 1) / 12]], *e = &elements[order[i]];
            e->value = i;
            e->next = parent->first;
            parent->first = e;
        }
        while (planted_goes_on(seconds))
            sum += (double)visit_element(&elements[order[0]]);
    } else if (CASE("column_pages")) {
        grid = malloc(sizeof(double) * ROWS * COLUMNS);
        memset(grid, 1, sizeof(double) * ROWS * COLUMNS);
        while (planted_goes_on(seconds))
            for (uint32_t j = 0; j < COLUMNS; j++)
                sum += column_sum(grid + j, COLUMNS, ROWS);
    } else if (CASE("streams")) {
        for (int s = 0; s < STREAMS; s++) {
            runs[s] = malloc(sizeof(double) * LENGTH);
            memset(runs[s], 1, sizeof(double) * LENGTH);
        }
        while (planted_goes_on(seconds))
            sum += add_runs(LENGTH);
    } else if (CASE("decisions")) {
        uint32_t used = 0, *order = planted_order(NODES);
        for (uint32_t i = 0; i < NODES; i++)
            if (order[i] == 0) {
                order[i] = order[0];
                order[0] = 0;
            }
        plant_decisions(&used, order, 20);
        float features[16];
        while (planted_goes_on(seconds)) {
            for (int f = 0; f < 16; f++)
                features[f] = (float)(planted_random() % 1000) / 1000;
            sum += decide(features);
        }
    } else if (CASE("heap")) {
        for (uint64_t i = 0; i < 1 << 23; i++)
            heap[i] = i << 20;
        while (planted_goes_on(seconds))
            for (int i = 0; i < 100; i++)
                sum += (double)replace_least((heap[0] + (planted_random() % ((uint64_t)1 << 43))), 1 << 23);
    } else if (CASE("matches")) {
        fill_matches();
        while (planted_goes_on(seconds))
            sum += find_matches((uint32_t)(sizeof text / 2 + planted_random() % (sizeof text / 2 - 2000)), 1000);
    } else if (CASE("bits")) {
        uint32_t used = 0, *order = planted_order((1 << 23) - 2);
        plant_bits(&used, order, 21);
        /* The order takes a second where other programs use the caches. */
        while (planted_goes_on(3 * seconds))
            for (int i = 0; i < 100; i++)
                sum += follow_bits((uint32_t)planted_random());
    } else if (CASE("product") || CASE("product_banded")) {
        int banded = CASE("product_banded");
        uint32_t rows = banded ? 1 << 12 : 1 << 19;
        fill_product(rows, 12, banded ? rows : 1 << 20, banded);
        while (planted_goes_on(seconds))
            sum += product(rows, 12);
    } else if (CASE("paths_blocked")) {
        for (uint32_t i = 0; i < CITIES * CITIES; i++)
            path[i / CITIES][i % CITIES] = (float)(planted_random() % 1000);
        while (planted_goes_on(seconds))
            all_paths(seconds);
        sum = path[3][5];
    } else if (CASE("small_sieve")) {
        static uint8_t composite[1 << 18];
        while (planted_goes_on(seconds))
            sum += (double)sieve(composite, sizeof composite);
    } else if (CASE("small_words")) {
        static uint32_t counts[1 << 12];
        static uint8_t words[1 << 16];
        for (uint32_t i = 0; i < sizeof words; i++)
            words[i] = (uint8_t)planted_random();
        while (planted_goes_on(seconds))
            sum += count_words(counts, words, sizeof words);
    } else
        return 2;
    planted_sink = (uint64_t)sum;
    return 0;
}
