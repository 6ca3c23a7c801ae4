/* Thread-local storage in the models that the compiler is told to use, read and written in several threads, with addresses taken. */
#include "mix.h"
#include <pthread.h>

__thread int a __attribute__((tls_model("local-exec"))) = 5;
__thread int b __attribute__((tls_model("initial-exec"))) = 7;
__thread int c __attribute__((tls_model("local-dynamic"))) = 11;
__thread int d __attribute__((tls_model("global-dynamic"))) = 13;
static __thread long block[40] = {1, 2, 3};
static __thread char zero[3000];

static __attribute__((noinline)) long walk(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        a += i;
        b ^= a;
        c += b & 15;
        d = d * 3 + c;
        block[(unsigned)d % 40] += d;
        zero[(unsigned)c % 3000]++;
        sum += block[i % 40] + zero[(unsigned)(c + i) % 3000];
    }
    return sum;
}

static void *run(void *p) {
    int *at = &b;
    *(long *)p = walk(100 + (int)*(long *)p);
    *at += 1;
    *(long *)p += b + walk(30);
    return NULL;
}

int main(void) {
    long results[6];
    for (long i = 0; i < 6; i++) {
        pthread_t thread;
        results[i] = i;
        pthread_create(&thread, NULL, run, &results[i]);
        pthread_join(thread, NULL);
        mix((uint64_t)results[i]);
    }
    run(results);
    mix((uint64_t)results[0]);
    mix((uint64_t)(a + b + c + d));
    report("tls");
    return 0;
}
