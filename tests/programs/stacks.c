/* Arrays on the stacks of the first thread and of two others, which live long enough to be seen. */
#include "mix.h"
#include <pthread.h>
#include <unistd.h>

enum { WORDS = 2048, WALKS = 50 };

__attribute__((noinline)) static uint64_t walk(const volatile uint64_t *words) {
    uint64_t sum = 0;
    for (int w = 0; w < WALKS; w++)
        for (int i = 0; i < WORDS; i++)
            sum += words[i];
    return sum;
}

static void *start(void *argument) {
    volatile uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = (uint64_t)i;
    usleep(200000);
    *(uint64_t *)argument = walk(words);
    return 0;
}

int main(void) {
    pthread_t threads[2];
    uint64_t sums[3];
    for (int t = 0; t < 2; t++)
        if (pthread_create(&threads[t], 0, start, &sums[t]))
            return 1;
    start(&sums[2]);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], 0);
    for (int t = 0; t < 3; t++)
        mix(sums[t]);
    report("stacks");
    return 0;
}
