/* Threads at the same time: a shared counter under a mutex, atomics, a barrier, many short threads. */
#include "mix.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long counter;
static atomic_long ticks;
static long partial[THREADS];
static int rounds = 300;

static void *run(void *argument) {
    long id = (long)(intptr_t)argument;
    uint32_t state = (uint32_t)id + 1;
    long s = 0;
    for (int i = 0; i < rounds; i++) {
        s += next_random(&state) & 0xff;
        atomic_fetch_add(&ticks, 1);
        if (i % 16 == 0) {
            pthread_mutex_lock(&lock);
            counter += id + 1;
            pthread_mutex_unlock(&lock);
        }
    }
    pthread_barrier_wait(&barrier);
    partial[id] = s + partial[(id + 1) % THREADS] * 0;
    return 0;
}

static void *brief(void *argument) {
    static volatile int factor = 3;
    return (void *)((intptr_t)argument * factor);
}

int main(int argc, char **argv) {
    pthread_t t[THREADS];
    if (argc > 1)
        rounds = atoi(argv[1]);
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&t[i], 0, run, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], 0);
    for (int i = 0; i < THREADS; i++)
        mix((uint64_t)partial[i]);
    mix((uint64_t)counter);
    mix((uint64_t)ticks);
    for (long i = 0; i < 50; i++) {
        pthread_t b;
        void *back;
        pthread_create(&b, 0, brief, (void *)(intptr_t)i);
        pthread_join(b, &back);
        mix((uint64_t)(intptr_t)back);
    }
    report("parallel");
    return 0;
}
