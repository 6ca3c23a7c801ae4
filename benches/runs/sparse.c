/* Graphs, sparse matrices, gathers, tables with open addressing. */
#include "runs.h"

enum { VERTICES = 1 << 16, DEGREE = 8, SLOTS = 1 << 18, KEYS = 1 << 17 };
static uint32_t *offsets, *edges, *queue, *levels, *keys, *slots;
static double *rank, *next, *values;

static void graph(void) {
    uint32_t seed = 3;
    offsets = take((VERTICES + 1) * 4), edges = take((long)VERTICES * DEGREE * 4);
    queue = take(VERTICES * 4), levels = take(VERTICES * 4);
    rank = take(VERTICES * 8), next = take(VERTICES * 8), values = take((long)VERTICES * DEGREE * 8);
    for (long v = 0; v <= VERTICES; v++)
        offsets[v] = v * DEGREE;
    for (long e = 0; e < (long)VERTICES * DEGREE; e++) {
        /* A few vertices are met often. */
        uint32_t x = next_random(&seed), y = next_random(&seed);
        edges[e] = (x & (y | 0xff)) % VERTICES;
        values[e] = x % 7;
    }
    for (long v = 0; v < VERTICES; v++)
        rank[v] = 1;
}

static void table(void) {
    uint32_t seed = 11;
    keys = take(KEYS * 4), slots = take(SLOTS * 4);
    for (long i = 0; i < KEYS; i++) {
        keys[i] = next_random(&seed) | 1;
        uint32_t at = keys[i] * 2654435761u >> 14;
        while (slots[at])
            at = (at + 1) % SLOTS;
        slots[at] = keys[i];
    }
}

ROW static long breadth_first(uint32_t start) {
    memset(levels, 0xff, VERTICES * 4);
    long head = 0, tail = 0;
    queue[tail++] = start;
    levels[start] = 0;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = offsets[v]; e < offsets[v + 1]; e++) {
            uint32_t w = edges[e];
            if (levels[w] == ~0u) {
                levels[w] = levels[v] + 1;
                queue[tail++] = w;
            }
        }
    }
    return tail;
}

ROW static void pull(const double *from, double *to) {
    for (long v = 0; v < VERTICES; v++) {
        double sum = 0;
        for (uint32_t e = offsets[v]; e < offsets[v + 1]; e++)
            sum += from[edges[e]];
        to[v] = 0.15 + 0.85 / DEGREE * sum;
    }
}

ROW static void multiply_sparse(const double *x, double *y) {
    for (long v = 0; v < VERTICES; v++) {
        double sum = 0;
        for (uint32_t e = offsets[v]; e < offsets[v + 1]; e++)
            sum += values[e] * x[edges[e]];
        y[v] = sum * 0.01;
    }
}

ROW static double dot(const double *x, const double *y) {
    double sum = 0;
    for (long v = 0; v < VERTICES; v++)
        sum += x[v] * y[v];
    return sum;
}

ROW static long probe(uint32_t key) {
    long steps = 1;
    for (uint32_t at = key * 2654435761u >> 14; slots[at] && slots[at] != key; at = (at + 1) % SLOTS)
        steps++;
    return steps;
}

ROW static uint64_t sum_keys(void) {
    uint64_t sum = 0;
    for (long i = 0; i < KEYS; i++)
        sum += keys[i];
    return sum;
}

static uint64_t bfs(long k) { return k + breadth_first(1) + breadth_first(77); }

static uint64_t pagerank(long k) {
    pull(rank, next);
    pull(next, rank);
    return k + (uint64_t)(dot(rank, next) * 1e-6);
}

static uint64_t spmv(long k) {
    multiply_sparse(rank, next);
    for (int i = 0; i < 10; i++)
        k += (long)dot(next, rank);
    return k;
}

static uint64_t open_table(long k) {
    uint64_t sum = k;
    for (long i = 0; i < KEYS; i++)
        sum += probe(keys[i]);
    return sum + sum_keys();
}

PROGRAMS({"bfs", graph, bfs}, {"pagerank", graph, pagerank}, {"spmv", graph, spmv},
         {"open", table, open_table})
