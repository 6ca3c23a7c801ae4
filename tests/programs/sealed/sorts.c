/* Sorts, merges and a sieve. */
#include "sealed.h"

static uint64_t *given, *work, *spare;

static void take_numbers(size_t n) {
    given = need(n * sizeof *given);
    work = need(n * sizeof *work);
    spare = need(n * sizeof *spare);
    for (size_t i = 0; i < n; i++)
        given[i] = next_random();
}

/* Merge sort from the bottom up. */
enum { MERGED = 100000 };

static void merge_set_up(void) { take_numbers(MERGED); }

static void merge_two(const uint64_t *from, uint64_t *to, int low, int middle, int high) {
    int a = low, b = middle;
    for (int i = low; i < high; i++)
        to[i] = a < middle && (b >= high || from[a] <= from[b]) ? from[a++] : from[b++];
}

static double merge_round(void) {
    memcpy(work, given, MERGED * sizeof *work);
    for (int width = 1; width < MERGED; width *= 2) {
        for (int low = 0; low < MERGED; low += 2 * width) {
            int middle = low + width < MERGED ? low + width : MERGED;
            int high = low + 2 * width < MERGED ? low + 2 * width : MERGED;
            merge_two(work, spare, low, middle, high);
        }
        uint64_t *t = work;
        work = spare;
        spare = t;
    }
    return (double)work[MERGED / 2];
}

/* Radix sort by eleven bits, from the lowest on. */
enum { DIGITS = 350000, RADIX = 1 << 11 };

static void digits_set_up(void) {
    take_numbers(DIGITS);
    for (int i = 0; i < DIGITS; i++)
        given[i] >>= 31;
}

static double digits_round(void) {
    memcpy(work, given, DIGITS * sizeof *work);
    for (int shift = 0; shift < 33; shift += 11) {
        static uint32_t starts[RADIX + 1];
        memset(starts, 0, sizeof starts);
        for (int i = 0; i < DIGITS; i++)
            starts[(work[i] >> shift) % RADIX + 1]++;
        for (int d = 0; d < RADIX; d++)
            starts[d + 1] += starts[d];
        for (int i = 0; i < DIGITS; i++)
            spare[starts[(work[i] >> shift) % RADIX]++] = work[i];
        uint64_t *t = work;
        work = spare;
        spare = t;
    }
    return (double)work[DIGITS / 2];
}

/* Heap sort. */
enum { HEAPED = 80000 };

static void heaped_set_up(void) { take_numbers(HEAPED); }

static void sift(uint64_t *heap, int at, int n) {
    uint64_t moved = heap[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (heap[child] <= moved)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static double heaped_round(void) {
    memcpy(work, given, HEAPED * sizeof *work);
    for (int i = HEAPED / 2 - 1; i >= 0; i--)
        sift(work, i, HEAPED);
    for (int n = HEAPED - 1; n > 0; n--) {
        uint64_t t = work[0];
        work[0] = work[n];
        work[n] = t;
        sift(work, 0, n);
    }
    return (double)work[HEAPED / 2];
}

/* Compaction: sorted runs are merged through a tree of losers. */
struct record {
    uint64_t key, value;
};
enum { RUNS = 16, RUN_LENGTH = 20000 };
static struct record *runs[RUNS], *compacted;
static int at_run[RUNS], losers[RUNS];

static void compact_set_up(void) {
    compacted = need(RUNS * RUN_LENGTH * sizeof *compacted);
    for (int r = 0; r < RUNS; r++) {
        uint64_t key = 0;
        runs[r] = need((RUN_LENGTH + 1) * sizeof **runs);
        for (int i = 0; i < RUN_LENGTH; i++)
            runs[r][i] = (struct record){key += 1 + below(1000), i};
        runs[r][RUN_LENGTH].key = UINT64_MAX;
    }
}

static uint64_t key_of(int r) { return runs[r][at_run[r]].key; }

static double compact_round(void) {
    int winners[2 * RUNS];
    for (int r = 0; r < RUNS; r++) {
        at_run[r] = 0;
        winners[RUNS + r] = r;
    }
    for (int i = RUNS - 1; i > 0; i--) {
        int a = winners[2 * i], b = winners[2 * i + 1];
        winners[i] = key_of(a) <= key_of(b) ? a : b;
        losers[i] = key_of(a) <= key_of(b) ? b : a;
    }
    int winner = winners[1], n = 0;
    while (key_of(winner) != UINT64_MAX) {
        compacted[n++] = runs[winner][at_run[winner]++];
        for (int i = (winner + RUNS) / 2; i > 0; i /= 2)
            if (key_of(losers[i]) < key_of(winner)) {
                int t = losers[i];
                losers[i] = winner;
                winner = t;
            }
    }
    return (double)compacted[n / 2].key;
}

/* Sieve of odd numbers, one bit each. */
enum { LIMIT = 10000000 };
static uint32_t *composite;

static void sieve_set_up(void) { composite = need(LIMIT / 64 * 4 + 4); }

static double sieve_round(void) {
    int primes = 1;
    memset(composite, 0, LIMIT / 64 * 4 + 4);
    for (int n = 3; n < LIMIT; n += 2) {
        if (composite[n / 64] >> n / 2 % 32 & 1)
            continue;
        primes++;
        for (int64_t m = (int64_t)n * n; m < LIMIT; m += 2 * n)
            composite[m / 64] |= 1u << m / 2 % 32;
    }
    return primes;
}

static const struct kind kinds[] = {
    {"merge-sort", merge_set_up, merge_round}, {"radix-lsd", digits_set_up, digits_round},
    {"heap-sort", heaped_set_up, heaped_round}, {"lsm-merge", compact_set_up, compact_round},
    {"sieve", sieve_set_up, sieve_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
