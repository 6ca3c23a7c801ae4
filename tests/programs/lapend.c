/* Threads that end by pthread_exit, which unwinds from wherever they are: soon after they began to load. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { WORDS = 1 << 12 };
static uint64_t words[WORDS];

__attribute__((noinline)) static uint64_t add(long n) {
    uint64_t x = 1, total = 0;
    while (n-- > 0) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        total += words[x >> 52];
    }
    return total;
}

static void *worker(void *argument) {
    uint64_t total = 0;
    for (int i = 0; i < 100; i++)
        total += add((long)(uintptr_t)argument + i);
    pthread_exit((void *)(uintptr_t)(total & 0xffff));
}

int main(void) {
    for (int i = 0; i < WORDS; i++)
        words[i] = (uint64_t)i;
    uint64_t all = 0;
    for (int i = 0; i < 600; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, worker, (void *)(uintptr_t)(i + 300));
        pthread_join(thread, &result);
        all += (uintptr_t)result;
    }
    printf("%llu\n", (unsigned long long)all);
    return 0;
}
