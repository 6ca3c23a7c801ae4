/* For attaching to: `attached SECONDS`; SIGUSR2 ends it earlier. Threads that live long and threads that come and go, signals with handlers, on the usual stack and on an
 * alternate one, a thread that waits in a system call all the time, and a library that is loaded late. Checks itself; prints "fine". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1 << 16 };
long forward[WORDS], linked[WORDS];
static volatile sig_atomic_t alarms, users;
static volatile double until;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void must(int holds, const char *what) {
    if (!holds) {
        printf("not so: %s\n", what);
        fflush(stdout);
        _exit(1);
    }
}

__attribute__((noinline, noclone)) static long sum(const long *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += p[i];
    return s;
}

__attribute__((noinline, noclone)) static long chase(const long *p, int n) {
    long at = 0;
    for (int i = 0; i < n; i++)
        at = p[at];
    return at;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms += sum(forward, 100) == 4950;
}

static void on_user(int signal) {
    (void)signal;
    /* Long enough for somebody to come meanwhile. */
    users += sum(forward, WORDS) > 0;
}

static void on_end(int signal) {
    (void)signal;
    until = 0;
}

static void *worker(void *argument) {
    char *stack = malloc(1 << 16);
    stack_t alternate = {.ss_sp = stack, .ss_size = 1 << 16}, seen;
    must(sigaltstack(&alternate, 0) == 0, "sigaltstack");
    while (now() < until) {
        must(sum(forward, WORDS) == (long)WORDS * (WORDS - 1) / 2, "the sum");
        must(chase(linked, WORDS) == 0, "the way round");
        must(sigaltstack(0, &seen) == 0 && seen.ss_sp == stack && seen.ss_size == 1 << 16, "the alternate stack stays");
        pthread_kill(pthread_self(), SIGUSR1);
    }
    alternate.ss_flags = SS_DISABLE;
    must(sigaltstack(&alternate, 0) == 0, "sigaltstack");
    free(stack);
    return argument;
}

static void *sleeper(void *argument) {
    double began = now();
    struct timespec rest = {.tv_sec = 0, .tv_nsec = 300000000}, left;
    while (now() < until) {
        struct timespec t = rest;
        /* Alarms interrupt it; nothing else may. */
        while (nanosleep(&t, &left) != 0) {
            must(errno == EINTR, "nanosleep");
            t = left;
        }
    }
    must(now() - began < 1e9, "time");
    return argument;
}

static void *brief(void *argument) {
    return (void *)(sum(forward, WORDS / 4) + (long)argument);
}

int main(int count, char **arguments) {
    until = now() + (count > 1 ? atof(arguments[1]) : 1);
    for (long i = 0; i < WORDS; i++)
        /* One cycle through all words: the multiplier less one is a multiple of four, the summand odd. */
        forward[i] = i, linked[i] = (i * 40501 + 1) & (WORDS - 1);
    struct sigaction alarm = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, user = {.sa_handler = on_user, .sa_flags = SA_ONSTACK}, seen;
    sigaction(SIGALRM, &alarm, 0);
    sigaction(SIGUSR1, &user, 0);
    struct sigaction end = {.sa_handler = on_end, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &end, 0);
    struct itimerval often = {{0, 7000}, {0, 7000}};
    setitimer(ITIMER_REAL, &often, 0);
    pthread_t threads[3];
    pthread_create(&threads[0], 0, worker, 0);
    pthread_create(&threads[1], 0, worker, 0);
    pthread_create(&threads[2], 0, sleeper, 0);
    for (long done = 0; now() < until; done++) {
        pthread_t one;
        void *result;
        must(pthread_create(&one, 0, brief, (void *)done) == 0 && pthread_join(one, &result) == 0, "a thread");
        must((long)result == (long)(WORDS / 4) * (WORDS / 4 - 1) / 2 + done, "its sum");
        must(sigaction(SIGALRM, 0, &seen) == 0 && seen.sa_handler == on_alarm, "the handler stays");
        must(sigaction(SIGIO, 0, &seen) == 0 && seen.sa_handler == SIG_DFL, "none comes");
        if (done == 20) {
            void *library = dlopen("libm.so.6", RTLD_NOW);
            double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : 0;
            must(!cosine || cosine(0) == 1, "the library");
        }
        usleep(2000);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    must(alarms > 0 && users > 0, "signals came");
    puts("fine");
    return 7;
}
