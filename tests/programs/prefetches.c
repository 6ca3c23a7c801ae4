// Loops whose loads may be prefetched: strided ones, gathers, probes of hash tables, lists. Arrays of
// indices end exactly where a page ends behind which nothing is mapped, so that an early load beyond
// the array would fault.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline))

enum { TABLE = 1 << 12 };

struct slot {
    uint64_t key, value;
};
struct node {
    struct node *next;
    uint64_t filler[3], value;
};
struct record {
    int32_t index;
    char filler[28];
};

NOINLINE uint64_t gather_bytes(const uint8_t *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += data[index[i]];
    return sum;
}

NOINLINE uint64_t gather_shorts(const uint16_t *index, long n, const uint32_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= data[index[i]] + (sum << 1);
    return sum;
}

NOINLINE uint64_t gather_ints(const int32_t *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= data[index[i]] + (sum << 1);
    return sum;
}

NOINLINE double gather_longs(const int64_t *index, long n, const double *data) {
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum = sum * 0.5 + data[index[i]];
    return sum;
}

NOINLINE uint64_t gather_backward(const int32_t *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = n - 1; i >= 0; i--)
        sum ^= data[index[i]] + (sum << 1);
    return sum;
}

NOINLINE uint64_t gather_records(const struct record *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= data[index[i].index] + (sum << 1);
    return sum;
}

NOINLINE void histogram(const uint16_t *index, long n, uint32_t *counts) {
    for (long i = 0; i < n; i++)
        counts[index[i]]++;
}

NOINLINE uint64_t probe(const uint64_t *keys, long n, const struct slot *table, uint64_t mask) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint64_t key = keys[i];
        uint64_t at = (key * 0x9e3779b97f4a7c15u >> 20) & mask;
        while (table[at].key != key) {
            if (!table[at].key)
                goto next;
            at = (at + 1) & mask;
        }
        sum += table[at].value;
    next:;
    }
    return sum;
}

NOINLINE uint64_t computed(const uint64_t *table, uint64_t n, uint64_t mask) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum ^= table[(i * 0x9e3779b97f4a7c15u >> 17) & mask] + (sum << 1);
    return sum;
}

// The index follows from a condition of what was loaded, as in benchmarks of random accesses.
NOINLINE uint64_t streams(uint64_t *states, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint64_t x = states[i];
        states[i] = x = x << 1 ^ ((int64_t)x < 0 ? 0x86b : 0);
        sum ^= data[x & 65535] + (sum << 1);
    }
    return sum;
}

NOINLINE uint64_t clamped(const uint32_t *index, long n, const uint64_t *data, uint32_t least, uint32_t most) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint32_t at = index[i] < least ? least : index[i];
        sum ^= data[at > most ? most : at] + (sum << 1);
    }
    return sum;
}

// The next index is loaded at the end of an iteration.
NOINLINE uint64_t queued(const uint32_t *queue, long n, const uint64_t *data) {
    uint64_t sum = 0;
    uint32_t at = queue[0];
    for (long i = 1;; i++) {
        sum ^= data[at] + (sum << 1);
        if (i == n)
            return sum;
        at = queue[i];
    }
}

NOINLINE uint64_t rows(const uint64_t *cells, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= cells[i * 700] + (sum << 1);
    return sum;
}

NOINLINE uint64_t column(const uint64_t *cells, long n, long width) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= cells[i * width] + (sum << 1);
    return sum;
}

NOINLINE uint64_t list(const struct node *node) {
    uint64_t sum = 0;
    for (; node; node = node->next) {
        sum += node->value;
        sum ^= sum << 7;
        sum ^= sum >> 9;
    }
    return sum;
}

NOINLINE long search(const uint64_t *sorted, long n, uint64_t wanted) {
    long low = 0, high = n;
    while (low < high) {
        long middle = low + (high - low) / 2;
        if (sorted[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t state = 88172645463325252u;
static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

// Memory of `bytes` bytes, of which the last is the last of a page (the first the first, if `front`),
// with nothing readable beyond.
static void *at_edge(size_t bytes, int front) {
    size_t room = (bytes + 4095) / 4096 * 4096;
    char *all = mmap(0, room + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + 4096, room, PROT_READ | PROT_WRITE))
        exit(2);
    return front ? all + 4096 : all + 4096 + room - bytes;
}

static uint64_t data[65536];
static double reals[65536];
static uint32_t counts[65536];
static uint64_t cells[700 * 200];
static struct slot table[TABLE];
static struct node nodes[1000];

static void gathers(long n, int front) {
    uint8_t *bytes = at_edge(n, front);
    uint16_t *shorts = at_edge(2 * n, front);
    int32_t *ints = at_edge(4 * n, front);
    int64_t *longs = at_edge(8 * n, front);
    struct record *records = at_edge(n * sizeof *records, front);
    for (long i = 0; i < n; i++) {
        bytes[i] = draw();
        shorts[i] = draw();
        ints[i] = records[i].index = draw() % 65536;
        longs[i] = draw() % 65536;
    }
    printf("%016lx ", gather_bytes(bytes, n, data));
    printf("%016lx ", gather_shorts(shorts, n, (uint32_t *)data));
    printf("%016lx ", gather_ints(ints, n, data));
    printf("%.17g ", gather_longs(longs, n, reals));
    printf("%016lx ", gather_backward(ints, n, data));
    printf("%016lx ", gather_records(records, n, data));
    histogram(shorts, n, counts);
    uint64_t *keys = at_edge(8 * n, front);
    for (long i = 0; i < n; i++)
        keys[i] = draw() % (2 * TABLE) + 1;
    printf("%016lx ", probe(keys, n, table, TABLE - 1));
    printf("%016lx ", computed(data, n, 65535));
    printf("%016lx ", streams((uint64_t *)longs, n, data));
    printf("%016lx ", clamped((uint32_t *)ints, n, data, 40, 40000));
    printf("%016lx\n", queued((uint32_t *)ints, n, data));
}

int main(void) {
    for (int i = 0; i < 65536; i++)
        data[i] = draw(), reals[i] = (double)draw();
    for (int i = 0; i < 700 * 200; i++)
        cells[i] = draw();
    for (int i = 0; i < TABLE / 2; i++) {
        uint64_t key = draw() % (2 * TABLE) + 1;
        uint64_t at = (key * 0x9e3779b97f4a7c15u >> 20) & (TABLE - 1);
        while (table[at].key && table[at].key != key)
            at = (at + 1) & (TABLE - 1);
        table[at] = (struct slot){key, draw()};
    }
    for (int i = 0; i < 1000; i++) {
        nodes[i].value = draw();
        nodes[i].next = i ? &nodes[(i - 1) * 7 % 1000] : 0;
        if (nodes[i].next >= &nodes[i])
            nodes[i].next = i ? &nodes[i - 1] : 0;
    }
    long lengths[] = {1, 2, 15, 16, 17, 100, 1000, 1023, 1024, 1025, 5000};
    for (unsigned k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int front = 0; front < 2; front++)
            gathers(lengths[k], front);
    uint64_t sum = 0;
    for (int i = 0; i < 65536; i++)
        sum = sum * 31 + counts[i];
    printf("%016lx %016lx %016lx ", sum, rows(cells, 200), column(cells, 200, 700));
    printf("%016lx %016lx ", column(cells, 3, 46000), list(&nodes[999]));
    uint64_t sorted[1000];
    for (int i = 0; i < 1000; i++)
        sorted[i] = 10 * i;
    long found = 0;
    for (int i = 0; i < 1000; i++)
        found = found * 3 + search(sorted, 1000, draw() % 10000);
    printf("%016lx\n", found);
    return 0;
}
