/* A small graph program whose parts differ in how they use memory; scripts/demo records it.
 *
 *   build_index   a hash table of node names: irregular reads, one or two per lookup
 *   degrees       one pass over the edges: unit stride
 *   rank_step     page rank by pulling: strided over edges, irregular in the ranks
 *   column_sums   a matrix read by columns: a stride of a whole row
 *   longest_chain a linked list in shuffled order: every address is the result of the last load
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 60000, EDGES_PER_NODE = 8, TABLE = 1 << 17, SIDE = 512 };

struct entry {
    uint64_t name;
    uint32_t node;
    uint32_t used;
};

struct link {
    struct link *next;
    uint32_t weight;
};

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *take(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (!p) {
        perror("graph");
        exit(1);
    }
    return p;
}

static uint64_t slot_of(uint64_t name) {
    return name * 0x9e3779b97f4a7c15ull >> 47;
}

__attribute__((noinline)) static void build_index(struct entry *table, const uint64_t *names) {
    for (uint32_t n = 0; n < NODES; n++) {
        uint64_t at = slot_of(names[n]);
        while (table[at].used)
            at = (at + 1) % TABLE;
        table[at] = (struct entry){names[n], n, 1};
    }
}

__attribute__((noinline)) static uint32_t lookup(const struct entry *table, uint64_t name) {
    uint64_t at = slot_of(name);
    while (table[at].used && table[at].name != name)
        at = (at + 1) % TABLE;
    return table[at].used ? table[at].node : NODES;
}

__attribute__((noinline)) static void degrees(uint32_t *degree, const uint32_t *source, uint32_t edges) {
    for (uint32_t e = 0; e < edges; e++)
        degree[source[e]]++;
}

__attribute__((noinline)) static void rank_step(float *to, const float *from, const uint32_t *first, const uint32_t *source, const uint32_t *degree) {
    for (uint32_t v = 0; v < NODES; v++) {
        float sum = 0;
        for (uint32_t e = first[v]; e < first[v + 1]; e++)
            sum += from[source[e]] / (float)degree[source[e]];
        to[v] = 0.15f + 0.85f * sum;
    }
}

__attribute__((noinline)) static double column_sums(const double *matrix) {
    double total = 0;
    for (int x = 0; x < SIDE; x++)
        for (int y = 0; y < SIDE; y++)
            total += matrix[y * SIDE + x];
    return total;
}

__attribute__((noinline)) static uint64_t longest_chain(const struct link *at) {
    uint64_t weight = 0;
    for (; at; at = at->next)
        weight += at->weight;
    return weight;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t *names = take(NODES, sizeof *names);
    struct entry *table = take(TABLE, sizeof *table);
    for (uint32_t n = 0; n < NODES; n++)
        names[n] = next_random();
    build_index(table, names);

    uint32_t edges = NODES * EDGES_PER_NODE, found = 0;
    uint32_t *first = take(NODES + 1, sizeof *first), *source = take(edges, sizeof *source), *degree = take(NODES, sizeof *degree);
    for (uint32_t v = 0; v <= NODES; v++)
        first[v] = v * EDGES_PER_NODE;
    for (uint32_t e = 0; e < edges; e++) {
        source[e] = lookup(table, names[next_random() % NODES]);
        found += source[e] < NODES;
    }
    degrees(degree, source, edges);

    float *a = take(NODES, sizeof *a), *b = take(NODES, sizeof *b);
    for (uint32_t v = 0; v < NODES; v++)
        a[v] = 1;
    double *matrix = take(SIDE * SIDE, sizeof *matrix);
    for (int i = 0; i < SIDE * SIDE; i++)
        matrix[i] = i % 7;

    struct link *links = take(NODES, sizeof *links);
    uint32_t *order = take(NODES, sizeof *order);
    for (uint32_t n = 0; n < NODES; n++)
        order[n] = n;
    for (uint32_t n = NODES - 1; n > 0; n--) {
        uint32_t m = (uint32_t)(next_random() % (n + 1)), t = order[n];
        order[n] = order[m];
        order[m] = t;
    }
    for (uint32_t n = 0; n < NODES; n++)
        links[order[n]] = (struct link){n + 1 < NODES ? &links[order[n + 1]] : NULL, n % 5};

    double columns = 0;
    uint64_t chain = 0;
    for (int r = 0; r < rounds; r++) {
        rank_step(b, a, first, source, degree);
        float *t = a;
        a = b;
        b = t;
        matrix[r % (SIDE * SIDE)] += 1;
        columns += column_sums(matrix);
        links[0].weight = (uint32_t)r;
        chain += longest_chain(&links[order[0]]);
    }
    double ranks = 0;
    for (uint32_t v = 0; v < NODES; v++)
        ranks += a[v];
    printf("%u edges found, ranks %.0f, columns %.0f, chain %llu\n", found, ranks, columns, (unsigned long long)chain);
    return 0;
}
