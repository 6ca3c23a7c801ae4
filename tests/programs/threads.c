/* Threads, one at a time: each is joined before the next starts. With thread-local storage. */
#include "mix.h"
#include <pthread.h>

static __thread long local_sum;
static __thread int local_table[32];

struct job {
    int id, n;
    long result;
    const int *data;
};

__attribute__((noinline)) static long work(struct job *j) {
    for (int i = 0; i < j->n; i++) {
        local_table[j->data[i] & 31] += j->id + 1;
        local_sum += local_table[i & 31] * j->data[i];
    }
    return local_sum;
}

static void *start(void *argument) {
    struct job *j = argument;
    j->result = work(j);
    return j;
}

int main(void) {
    static int data[200];
    uint32_t state = 23;
    for (int i = 0; i < 200; i++)
        data[i] = (int)(next_random(&state) % 1000);
    for (int i = 0; i < 5; i++) {
        struct job j = {i, 100 + 20 * i, 0, data};
        pthread_t t;
        void *back;
        if (pthread_create(&t, 0, start, &j) || pthread_join(t, &back) || back != &j)
            return 1;
        mix((uint64_t)j.result);
    }
    mix((uint64_t)local_sum);
    report("threads");
    return 0;
}
