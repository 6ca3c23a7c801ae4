/* Kernels whose working set has a given size: knees KERNEL BYTES SECONDS
 * Prints the nanoseconds per load of the kernel: the median of short rounds, and their least tenth.
 * Each round goes on where the last one ended. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE 64
#define INDICES (1 << 20)
#define ROW_BYTES 4160
#define LOADS (1 << 16)
#define ROUNDS (1 << 16)
#define NOINLINE __attribute__((noinline))

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *memory(size_t bytes) {
    void *block = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!block) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    memset(block, 1, bytes);
    return block;
}

/* Each line holds the address of the next one of a random cycle. */
static void *prepare_chase(size_t bytes) {
    size_t count = bytes / LINE;
    char *block = memory(bytes);
    size_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = next_random() % (i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (size_t i = 0; i < count; i++)
        *(void **)(block + order[i] * LINE) = block + order[(i + 1) % count] * LINE;
    free(order);
    return block;
}

NOINLINE uint64_t chase(void *block, size_t bytes, size_t loads) {
    static void *at;
    void *p = at ? at : block;
    (void)bytes;
    for (size_t i = 0; i < loads; i++)
        p = *(void **)p;
    at = p;
    return (uint64_t)p;
}

static uint32_t *indices;

static void *prepare_gather(size_t bytes) {
    indices = memory(INDICES * sizeof *indices);
    for (size_t i = 0; i < INDICES; i++)
        indices[i] = next_random() % (bytes / sizeof(uint64_t));
    return memory(bytes);
}

NOINLINE uint64_t gather(void *block, size_t bytes, size_t loads) {
    static size_t at;
    const uint64_t *values = block;
    uint64_t sum = 0;
    (void)bytes;
    for (size_t i = 0; i < loads; i++)
        sum += values[indices[at + i]];
    at = (at + loads) % INDICES;
    return sum;
}

static void *prepare_search(size_t bytes) {
    uint64_t *values = memory(bytes);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = 2 * i;
    return values;
}

NOINLINE uint64_t search(void *block, size_t bytes, size_t loads) {
    const uint64_t *values = block;
    size_t count = bytes / sizeof *values;
    uint64_t sum = 0;
    for (size_t done = 0; done < loads;) {
        uint64_t key = next_random() % (2 * count);
        size_t from = 0, to = count;
        while (from < to) {
            size_t middle = (from + to) / 2;
            if (values[middle] < key)
                from = middle + 1;
            else
                to = middle;
            done++;
        }
        sum += from;
    }
    return sum;
}

NOINLINE uint64_t probe(void *block, size_t bytes, size_t loads) {
    const uint64_t *values = block;
    static uint64_t key;
    size_t places = bytes / 16;
    uint64_t sum = 0;
    for (size_t i = 0; i < loads; i++) {
        uint64_t hash = (key + i) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 32;
        hash *= 0xd6e8feb86659fd93ull;
        sum += values[2 * (size_t)(((unsigned __int128)hash * places) >> 64)];
    }
    key += loads;
    return sum;
}

NOINLINE uint64_t column(void *block, size_t bytes, size_t loads) {
    const char *values = block;
    size_t rows = bytes / ROW_BYTES ? bytes / ROW_BYTES : 1;
    static size_t at, row;
    uint64_t sum = 0;
    for (size_t done = 0; done < loads;) {
        size_t end = row + loads - done < rows ? row + loads - done : rows;
        done += end - row;
        for (size_t r = row; r < end; r++)
            sum += *(const uint64_t *)(values + r * ROW_BYTES + at);
        at = end < rows ? at : (at + 8) % 4096;
        row = end < rows ? end : 0;
    }
    return sum;
}

static const struct {
    const char *name;
    void *(*prepare)(size_t);
    uint64_t (*run)(void *, size_t, size_t);
} KERNELS[] = {
    {"chase", prepare_chase, chase},  {"gather", prepare_gather, gather},
    {"search", prepare_search, search}, {"probe", memory, probe},
    {"column", memory, column},
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10);
    double end = atof(argv[3]) * 1e9;
    static double each[ROUNDS];
    for (size_t k = 0; k < sizeof KERNELS / sizeof *KERNELS; k++) {
        if (strcmp(KERNELS[k].name, argv[1]))
            continue;
        void *block = KERNELS[k].prepare(bytes);
        uint64_t sum = 0;
        size_t rounds = 0;
        for (double begin = now_ns(); rounds < ROUNDS && now_ns() < begin + end; rounds++) {
            double before = now_ns();
            sum += KERNELS[k].run(block, bytes, LOADS);
            each[rounds] = (now_ns() - before) / LOADS;
        }
        qsort(each, rounds, sizeof *each, compare);
        printf("%.3f %.3f %llu\n", each[rounds / 2], each[rounds / 10], (unsigned long long)sum);
        return 0;
    }
    return 2;
}
