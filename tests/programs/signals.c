/* Signals raised by the program itself: handlers that load and store, nested, on another stack, and one
   that leaves by siglongjmp. */
#include "mix.h"
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static volatile int hits;
static int table[64];
static sigjmp_buf out;

static void count(int s) {
    for (int i = 0; i < 8; i++)
        table[(s + i) & 63] += i;
    hits++;
}

static void nest(int s, siginfo_t *info, void *context) {
    (void)context;
    table[s & 63] += info->si_signo;
    if (hits < 20)
        raise(SIGUSR2);
    hits += 2;
}

static void leave(int s) {
    table[s & 63]++;
    siglongjmp(out, 1);
}

__attribute__((noinline)) static long work(const int *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++) {
        s += p[i & 63] * i;
        if (i % 10 == 3)
            raise(SIGUSR1);
        if (i % 25 == 7)
            raise(SIGALRM);
    }
    return s;
}

int main(void) {
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = count;
    sigaction(SIGUSR2, &a, 0);
    signal(SIGALRM, count);
    a.sa_flags = SA_SIGINFO;
    a.sa_sigaction = nest;
    sigaction(SIGUSR1, &a, 0);
    for (int i = 0; i < 64; i++)
        table[i] = i;
    mix((uint64_t)work(table, 60));
    if (sigaltstack(&alternate, 0))
        return 1;
    a.sa_flags = SA_ONSTACK;
    a.sa_handler = count;
    sigaction(SIGUSR1, &a, 0);
    mix((uint64_t)work(table, 30));
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    sigprocmask(SIG_BLOCK, &block, &old);
    kill(getpid(), SIGUSR2);
    mix((uint64_t)hits);
    sigprocmask(SIG_SETMASK, &old, 0);
    mix((uint64_t)hits);
    a.sa_handler = leave;
    a.sa_flags = 0;
    sigaction(SIGUSR2, &a, 0);
    if (sigsetjmp(out, 1) == 0) {
        raise(SIGUSR2);
        mix(1);
    } else {
        mix(2);
    }
    struct sigaction now;
    sigaction(SIGUSR2, 0, &now);
    mix(now.sa_handler == leave);
    for (int i = 0; i < 64; i++)
        mix((uint64_t)table[i]);
    report("signals");
    return 0;
}
