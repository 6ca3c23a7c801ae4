/* makecontext and swapcontext: generators on stacks of their own, a context that ends into another, a context that is made anew,
   and signals that arrive while another stack is in use. */
#define _GNU_SOURCE
#include "mix.h"
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

enum { WORKERS = 5, STACK = 64 * 1024 };

static ucontext_t back, workers[WORKERS], last;
static char *stacks[WORKERS + 1];
static int values[512], turn, ended;
static volatile uint64_t ticks;

static void tick(int s) {
    /* The handler stores, so that it must not meet what a probe has half written. */
    ticks += (uint64_t)values[ticks % 512] * 0 + (s > 0);
}

static __attribute__((noinline)) uint64_t walk(const int *p, int from, int step) {
    uint64_t sum = 0;
    for (int i = from; i < 512; i += step)
        sum = sum * 31 + (uint64_t)p[i];
    return sum;
}

static void work(int number, int rounds) {
    for (int i = 0; i < rounds; i++) {
        mix(walk(values, number, i % 3 + 1) + (uint64_t)i);
        turn = number;
        swapcontext(&workers[number], &back);
    }
    ended++;
}

static void finish(void) {
    mix(walk(values, 3, 3));
    ended += 100;
}

int main(void) {
    uint32_t state = 77;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 700}, {0, 700}}, off = {{0, 0}, {0, 0}};
    for (int i = 0; i < 512; i++)
        values[i] = (int)(next_random(&state) % 1000);
    for (int i = 0; i <= WORKERS; i++)
        stacks[i] = malloc(STACK);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int again = 0; again < 20; again++) {
        ended = 0;
        for (int i = 0; i < WORKERS; i++) {
            getcontext(&workers[i]);
            workers[i].uc_stack.ss_sp = stacks[i];
            workers[i].uc_stack.ss_size = STACK;
            workers[i].uc_link = &back;
            makecontext(&workers[i], (void (*)(void))work, 2, i, 10 + i);
        }
        while (ended < WORKERS)
            for (int i = 0; i < WORKERS; i++)
                if (ended < WORKERS && (ended == 0 || i >= ended))
                    swapcontext(&back, &workers[i]);
        mix((uint64_t)turn);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    getcontext(&last);
    last.uc_stack.ss_sp = stacks[WORKERS];
    last.uc_stack.ss_size = STACK;
    last.uc_link = &back;
    makecontext(&last, finish, 0);
    swapcontext(&back, &last);
    mix((uint64_t)ended);
    report("contexts");
    return ended == 100 + WORKERS ? 0 : 1;
}
