/* Calls that do not return, at the end of functions and of blocks: to exit, abort (caught), longjmp, pthread_exit, an own function,
   through a pointer, and as the last instruction before data or another function. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static jmp_buf out;
static int table[32];

static __attribute__((noinline, noreturn)) void leave(int code) {
    table[code % 32]++;
    longjmp(out, code + 1);
}

static void (*volatile through)(int) __attribute__((noreturn)) = leave;

static __attribute__((noinline)) int check(const int *p, int n) {
    if (p[n] < 0)
        leave(p[n + 1]);
    if (p[n] > 1000)
        through(p[n + 2]);
    switch (p[n] & 7) {
    case 0: return p[1];
    case 1: leave(n);
    case 2: return p[n] * 2;
    case 3: through(n + 3);
    case 4: return p[3] + p[n];
    case 5: return -p[n];
    default: __builtin_unreachable();
    }
}

static __attribute__((noinline)) void last_is_a_call(const int *p) {
    if (p[0] & 1)
        leave(p[1]);
    abort();
}

static void aborted(int s) {
    leave(s);
}

static void *exits(void *p) {
    if (((int *)p)[3] >= 0)
        pthread_exit(&table[((int *)p)[3] % 32]);
    abort();
}

int main(void) {
    int data[200];
    volatile int i;
    volatile int jumps = 0;
    uint32_t state = 5;
    for (i = 0; i < 200; i++) {
        uint32_t r = next_random(&state) % 1100;
        data[i] = r % 8 > 5 ? (int)(r / 8 * 8 + 2) : (int)r;
        if (i % 9 == 4)
            data[i] = -data[i];
        if (data[i] < 0 || i % 9 == 5 || i % 9 == 6)
            data[i] = i % 9 == 4 ? data[i] : (data[i] & ~7) % 900;
    }
    for (i = 0; i < 190; i++) {
        int code = setjmp(out);
        if (code == 0)
            mix((uint64_t)check(data, i));
        else {
            jumps++;
            mix((uint64_t)code);
        }
    }
    for (i = 0; i < 4; i++)
        if (setjmp(out) == 0) {
            int pair[2] = {1, i};
            last_is_a_call(pair);
        } else
            jumps++;
    signal(SIGABRT, aborted);
    if (setjmp(out) == 0) {
        int pair[2] = {2, 2};
        last_is_a_call(pair);
    }
    pthread_t thread;
    void *result;
    int pair[4] = {0, 0, 0, 9};
    pthread_create(&thread, NULL, exits, pair);
    pthread_join(thread, &result);
    mix((uint64_t)((int *)result - table));
    mix((uint64_t)jumps);
    for (i = 0; i < 32; i++)
        mix((uint64_t)table[i]);
    report("noreturn");
    exit((int)(mgz_sum & 63));
}
