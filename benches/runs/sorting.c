/* Sorting and searching. */
#include "runs.h"

enum { N = 1 << 17 };
static uint32_t *given, *work, *spare, heads[256];

static void set_up(void) {
    uint32_t seed = 4;
    given = take(N * 4), work = take(N * 4), spare = take(N * 4);
    for (int i = 0; i < N; i++)
        given[i] = next_random(&seed);
}

ROW static void quick(uint32_t *from, uint32_t *to) {
    while (to - from > 16) {
        uint32_t pivot = from[(to - from) / 2], *i = from, *j = to - 1;
        while (i <= j) {
            while (*i < pivot)
                i++;
            while (*j > pivot)
                j--;
            if (i <= j) {
                uint32_t t = *i;
                *i++ = *j;
                *j-- = t;
            }
        }
        quick(from, j + 1);
        from = i;
    }
}

ROW static void insert(uint32_t *x, int n) {
    for (int i = 1; i < n; i++) {
        uint32_t v = x[i];
        int j = i;
        for (; j > 0 && x[j - 1] > v; j--)
            x[j] = x[j - 1];
        x[j] = v;
    }
}

ROW static void merge_pass(const uint32_t *from, uint32_t *to, int width) {
    for (int low = 0; low < N; low += 2 * width) {
        int i = low, j = low + width, end = low + 2 * width, middle = j;
        for (int k = low; k < end; k++)
            to[k] = i < middle && (j >= end || from[i] <= from[j]) ? from[i++] : from[j++];
    }
}

ROW static void digit_pass(const uint32_t *from, uint32_t *to, int shift) {
    memset(heads, 0, sizeof heads);
    for (int i = 0; i < N; i++)
        heads[from[i] >> shift & 255]++;
    uint32_t sum = 0;
    for (int d = 0; d < 256; d++) {
        uint32_t n = heads[d];
        heads[d] = sum;
        sum += n;
    }
    for (int i = 0; i < N; i++)
        to[heads[from[i] >> shift & 255]++] = from[i];
}

ROW static int halve(uint32_t key) {
    int low = 0, high = N;
    while (low < high) {
        int middle = (low + high) / 2;
        if (spare[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t quicksort(long k) {
    memcpy(work, given, N * 4);
    quick(work, work + N);
    insert(work, N);
    return k + work[N / 2];
}

static uint64_t mergesort(long k) {
    memcpy(work, given, N * 4);
    uint32_t *from = work, *to = spare;
    for (int width = 1; width < N; width *= 2) {
        merge_pass(from, to, width);
        uint32_t *t = from;
        from = to;
        to = t;
    }
    return k + from[N / 2];
}

static uint64_t radix(long k) {
    memcpy(work, given, N * 4);
    for (int shift = 0; shift < 32; shift += 16) {
        digit_pass(work, spare, shift);
        digit_pass(spare, work, shift + 8);
    }
    return k + work[N / 2];
}

static void ordered(void) {
    set_up();
    radix(0);
    memcpy(spare, work, N * 4);
}

static uint64_t search(long k) {
    uint64_t sum = k;
    for (int i = 0; i < N; i += 2)
        sum += halve(given[i]);
    return sum;
}

PROGRAMS({"quicksort", set_up, quicksort}, {"mergesort", set_up, mergesort}, {"radix", set_up, radix},
         {"bsearch", ordered, search})
