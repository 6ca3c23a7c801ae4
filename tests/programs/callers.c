/* Call paths that are known: one kernel called by two functions for three quarters and one quarter of the time, from a recursion of
   many levels, from a thread, on a stack of makecontext, on an alternate stack, and on a thread's smallest stack. The first argument says
   which. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { WORDS = 1 << 12 };
static uint32_t table[WORDS];
static volatile uint64_t result;
static uint64_t rounds;
static ucontext_t back, inner;

NOINLINE void kernel(uint64_t n) {
    uint32_t at = 1;
    for (uint64_t i = 0; i < n; i++)
        at = table[(at + i) % WORDS];
    result += at;
}

NOINLINE void often(void) {
    kernel(3 * rounds);
    result++;
}

NOINLINE void seldom(void) {
    kernel(rounds);
    result++;
}

/* The frame is larger than what the recorder looks at of a stack when some are on top of each other. */
NOINLINE void descend(int depth) {
    volatile char room[64];
    memset((char *)room, depth, sizeof room);
    if (depth > 0)
        descend(depth - 1);
    else
        kernel(rounds);
    result += (uint64_t)room[depth % 64];
}

NOINLINE void ping(int depth);
NOINLINE void pong(int depth) {
    if (depth > 0)
        ping(depth - 1);
    else
        kernel(rounds);
    result++;
}
NOINLINE void ping(int depth) {
    pong(depth);
    result++;
}

NOINLINE void *threaded(void *unused) {
    for (int i = 0; i < 40; i++)
        kernel(rounds);
    result++;
    return unused;
}

NOINLINE void on_context(void) {
    for (int i = 0; i < 40; i++)
        kernel(rounds);
    result++;
}

NOINLINE void handler(int signal) {
    for (int i = 0; i < 40; i++)
        kernel(rounds);
    result += (uint64_t)signal;
}

static void in_thread(size_t bytes) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (bytes)
        pthread_attr_setstacksize(&attributes, bytes);
    pthread_create(&thread, &attributes, threaded, NULL);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "split";
    rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000000;
    for (uint32_t i = 0; i < WORDS; i++)
        table[i] = i * 2654435761u >> 7;
    if (!strcmp(what, "split")) {
        for (int i = 0; i < 40; i++) {
            often();
            seldom();
        }
    } else if (!strcmp(what, "recursion")) {
        for (int i = 0; i < 20; i++) {
            descend(8);
            descend(500);
            ping(6);
        }
    } else if (!strcmp(what, "thread")) {
        in_thread(0);
    } else if (!strcmp(what, "small")) {
        in_thread(PTHREAD_STACK_MIN);
    } else if (!strcmp(what, "context")) {
        /* At the very end of a mapping. */
        char *stack = aligned_alloc(4096, 1 << 16);
        getcontext(&inner);
        inner.uc_stack.ss_sp = stack;
        inner.uc_stack.ss_size = 1 << 16;
        inner.uc_link = &back;
        makecontext(&inner, on_context, 0);
        swapcontext(&back, &inner);
    } else if (!strcmp(what, "handler")) {
        stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&other, NULL);
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
        sigaction(SIGUSR1, &action, NULL);
        raise(SIGUSR1);
    }
    printf("%llu\n", (unsigned long long)result);
    return 0;
}
