// Three threads that load `cold` outside of phases and `hot` inside, so often as the arguments say:
// rounds, loads of each in a round. Says on standard error where both are.
#include "mgz.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 1 << 15, THREADS = 3 };
static uint64_t hot[WORDS], cold[WORDS];
static pthread_barrier_t barrier;
static long rounds = 20, loads = 1000;

__attribute__((noinline, noipa)) static uint64_t sum(const uint64_t *words, long n) {
    uint64_t total = 0;
    for (long i = 0; i < n; i++)
        total += ((const volatile uint64_t *)words)[i % WORDS];
    return total;
}

__attribute__((noinline, noipa)) uint64_t hot_part(long n) {
    return sum(hot, n);
}

static void meet(void) {
    pthread_barrier_wait(&barrier);
}

static void *work(void *number) {
    uint64_t total = 0;
    for (long round = 0; round < rounds; round++) {
        total += sum(cold, loads);
        meet();
        if (!number)
            mgz_start();
        meet();
        total += hot_part(loads);
        meet();
        if (!number)
            mgz_stop();
        meet();
        total += sum(cold, loads);
    }
    return (void *)total;
}

int main(int argc, char **argv) {
    if (argc > 1)
        rounds = atol(argv[1]);
    if (argc > 2)
        loads = atol(argv[2]);
    for (int i = 0; i < WORDS; i++)
        hot[i] = cold[i] = i;
    fprintf(stderr, "hot %p cold %p bytes %zu\n", (void *)hot, (void *)cold, sizeof hot);
    pthread_barrier_init(&barrier, 0, THREADS);
    pthread_t threads[THREADS];
    for (long i = 1; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    uint64_t total = (uint64_t)work(0);
    for (int i = 1; i < THREADS; i++) {
        void *one;
        pthread_join(threads[i], &one);
        total += (uint64_t)one;
    }
    printf("%lu\n", (unsigned long)total);
    return 0;
}
