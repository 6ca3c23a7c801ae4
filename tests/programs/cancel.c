/* pthread_cancel: of threads that wait, that compute with asynchronous cancellation, and that ask by themselves; with cleanup handlers
   and thread-specific data whose destructors load and store. */
#include "mix.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static int data[256];
static sem_t ready;
static pthread_key_t key;
static int cleaned, destroyed;

static void clean(void *p) {
    int sum = 0;
    for (int i = 0; i < 16; i++)
        sum += ((int *)p)[i];
    __atomic_add_fetch(&cleaned, sum != 0, __ATOMIC_SEQ_CST);
}

static void destroy(void *p) {
    int *q = p;
    __atomic_add_fetch(&destroyed, q[0] + q[1], __ATOMIC_SEQ_CST);
    free(p);
}

static void hold(int value) {
    int *p = malloc(2 * sizeof *p);
    p[0] = value;
    p[1] = 1;
    pthread_setspecific(key, p);
}

static __attribute__((noinline)) void deep(int n) {
    volatile int local[8] = {n, n + 1};
    pthread_cleanup_push(clean, data + n);
    if (n > 0)
        deep(n - 1);
    else {
        sem_post(&ready);
        for (;;)
            pause();
    }
    pthread_cleanup_pop(1);
    local[0] = local[1];
}

static void *waits(void *p) {
    hold(2);
    deep(*(int *)p % 7 + 3);
    return NULL;
}

static void *computes(void *p) {
    int old;
    uint64_t sum = 0;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    sem_post(&ready);
    for (;;)
        for (int i = 0; i < 256; i++)
            sum += (uint64_t)((volatile int *)data)[i];
    return p;
}

static void *asks(void *p) {
    hold(4);
    pthread_cleanup_push(clean, data);
    sem_post(&ready);
    for (;;) {
        for (int i = 0; i < 256; i++)
            *(volatile int *)&data[i] = data[i];
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return p;
}

static void *leaves(void *p) {
    hold(8);
    pthread_cleanup_push(clean, data);
    sem_post(&ready);
    pthread_exit(p);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    void *(*routines[])(void *) = {waits, computes, asks, leaves};
    for (int i = 0; i < 256; i++)
        data[i] = i + 1;
    sem_init(&ready, 0, 0);
    pthread_key_create(&key, destroy);
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        void *result = NULL;
        int kind = round % 4;
        pthread_create(&thread, NULL, routines[kind], &data[round]);
        sem_wait(&ready);
        if (kind != 3)
            pthread_cancel(thread);
        pthread_join(thread, &result);
        mix(kind == 3 ? result == &data[round] : result == PTHREAD_CANCELED);
    }
    mix((uint64_t)cleaned);
    mix((uint64_t)destroyed);
    report("cancel");
    printf("%d %d\n", cleaned, destroyed);
    return 0;
}
