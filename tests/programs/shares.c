/* Two threads with different work, both with names: `walker` reads a table in order, `chaser` follows a chain, and reads a table that stays in the cache beside it. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 1 << 10, MANY = 1 << 23 };

static uint32_t near_by[FEW];
static uint32_t far_off[MANY];
static uint32_t rounds, steps;

__attribute__((noinline)) static uint64_t walk(const uint32_t *table) {
    uint64_t sum = 0;
    for (uint32_t round = 0; round < rounds; round++)
        for (uint32_t i = 0; i < FEW; i++)
            sum += table[i];
    return sum;
}

/* Each step hits the near table and waits for the far one. */
__attribute__((noinline)) static uint64_t chase(void) {
    uint32_t at = 1, sum = 0;
    for (uint32_t step = 0; step < steps; step++) {
        sum += near_by[step & (FEW - 1)];
        at = (at * 1664525u + 1013904223u + sum) & (MANY - 1);
        sum ^= far_off[at];
    }
    return sum;
}

static void *walker(void *result) {
    pthread_setname_np(pthread_self(), "walker");
    *(uint64_t *)result = walk(near_by);
    return 0;
}

static void *chaser(void *result) {
    pthread_setname_np(pthread_self(), "chaser");
    *(uint64_t *)result = chase();
    return 0;
}

int main(int count, char **words) {
    rounds = count > 1 ? (uint32_t)atoi(words[1]) : 100;
    steps = count > 2 ? (uint32_t)atoi(words[2]) : 10000;
    for (uint32_t i = 0; i < FEW; i++)
        near_by[i] = i * 2654435761u;
    memset(far_off, 1, sizeof far_off);
    uint64_t results[2];
    pthread_t threads[2];
    if (pthread_create(&threads[0], 0, walker, &results[0]) ||
        pthread_create(&threads[1], 0, chaser, &results[1]))
        return 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], 0);
        mix(results[i]);
    }
    report("shares");
    return 0;
}
