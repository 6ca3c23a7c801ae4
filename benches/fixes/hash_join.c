/* Join of two relations: buckets of two tuples with overflow buckets are built from one and probed with the other. */
#include "common.h"

enum { BUCKETS_LOG2 = 21, BUILT = 1 << 21, PROBED = 1 << 23 };

struct tuple {
    uint32_t key, payload;
};

struct bucket {
    uint32_t count;
    struct tuple tuples[2];
    struct bucket *next;
};

static inline uint32_t hash(uint32_t key) { return key * 2654435761u >> (32 - BUCKETS_LOG2); }

static void insert(struct bucket *table, struct tuple tuple) {
    struct bucket *b = &table[hash(tuple.key)];
    if (b->count == 2) {
        struct bucket *over = allocate(1, sizeof *over);
        *over = *b;
        b->next = over;
        b->count = 0;
    }
    b->tuples[b->count++] = tuple;
}

__attribute__((noinline)) static uint64_t probe(const struct bucket *table, const struct tuple *probes) {
    uint64_t sum = 0;
    for (int i = 0; i < PROBED; i++) {
        const struct bucket *b = &table[hash(probes[i].key)];
        do {
            for (uint32_t n = 0; n < b->count; n++)
                if (b->tuples[n].key == probes[i].key)
                    sum += b->tuples[n].payload ^ probes[i].payload;
            b = b->next;
        } while (b);
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 7);
    uint64_t seed = 577215664ull, sum = 0;
    struct bucket *table = calloc(1 << BUCKETS_LOG2, sizeof *table);
    struct tuple *probes = allocate(PROBED, sizeof *probes);
    if (!table)
        return 1;
    for (uint32_t i = 0; i < BUILT; i++)
        insert(table, (struct tuple){i * 2 + 1, i});
    for (uint32_t i = 0; i < PROBED; i++)
        probes[i] = (struct tuple){below(&seed, BUILT * 2), i};
    for (long r = 0; r < rounds; r++) {
        probes[r].payload ^= 1;
        sum += probe(table, probes);
    }
    return finish(sum);
}
