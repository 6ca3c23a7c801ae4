/* Two threads: alike, and with unlike work. */
#include "runs.h"

enum { WORDS = 1 << 19 };
static double *x, *y, *z;
static uint32_t *order;

static void set_up(void) {
    uint32_t seed = 8;
    x = take(WORDS * 8), y = take(WORDS * 8), z = take(WORDS * 8), order = take(WORDS * 4);
    for (long i = 0; i < WORDS; i++) {
        x[i] = i % 13, y[i] = i % 11;
        order[i] = next_random(&seed) % WORDS;
    }
}

ROW static double triad(long from, long to) {
    double sum = 0;
    for (long i = from; i < to; i++)
        sum += z[i] = x[i] + 0.5 * y[i];
    return sum;
}

ROW static double shuffle(long from, long to) {
    double sum = 0;
    for (long i = from; i < to; i++)
        sum += x[order[i]];
    return sum;
}

static uint64_t alike(long k) {
    double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) num_threads(2)
    for (long i = 0; i < 64; i++)
        sum += triad(i * (WORDS / 64), (i + 1) * (WORDS / 64)) +
               shuffle(i * (WORDS / 64), (i + 1) * (WORDS / 64));
    return k + (uint64_t)sum;
}

static uint64_t unlike(long k) {
    double sum = 0;
#pragma omp parallel sections reduction(+ : sum) num_threads(2)
    {
#pragma omp section
        sum += triad(0, WORDS);
#pragma omp section
        sum += shuffle(0, WORDS) + shuffle(0, WORDS);
    }
    return k + (uint64_t)sum;
}

PROGRAMS({"omp-alike", set_up, alike}, {"omp-unlike", set_up, unlike})
