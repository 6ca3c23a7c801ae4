// Signals that are blocked and waited for: sigwait, sigtimedwait, signalfd, sigsuspend, pselect, a full mask, in threads that compute in between.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static uint32_t table[4096];
static volatile sig_atomic_t handled;

__attribute__((noinline)) static uint32_t work(long n) {
    uint32_t x = 1;
    while (n-- > 0)
        x = x * 1664525 + table[x >> 20];
    return x;
}

static void on_usr2(int s) { handled += s == SIGUSR2; }

static void *waiter(void *argument) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    uint32_t result = 0;
    for (int i = 0; i < 50; i++) {
        int got = 0;
        result += work(200000);
        // Everything: whatever else is pending would be taken for a signal of the program.
        if (sigwait(&all, &got) != 0 || got != SIGUSR1) {
            printf("sigwait gave %d\n", got);
            break;
        }
        siginfo_t info;
        struct timespec none = {0, 100000};
        int r = sigtimedwait(&all, &info, &none);
        if (r != -1 || errno != EAGAIN) {
            printf("sigtimedwait gave %d, errno %d\n", r, errno);
            break;
        }
        __atomic_store_n((int *)argument, i + 1, __ATOMIC_RELEASE);
    }
    *(uint32_t *)argument = result;
    return NULL;
}

int main(void) {
    for (int i = 0; i < 4096; i++)
        table[i] = i * 2654435761u;
    int turns = 0;
    pthread_t thread;
    sigset_t usr1, usr2, old;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    pthread_create(&thread, NULL, waiter, &turns);
    for (int i = 0; i < 50; i++) {
        pthread_kill(thread, SIGUSR1);
        while (i < 49 && __atomic_load_n(&turns, __ATOMIC_ACQUIRE) <= i)
            work(1000);
    }
    pthread_join(thread, NULL);
    printf("thread: %u\n", (unsigned)turns);

    // signalfd
    int fd = signalfd(-1, &usr1, 0);
    struct signalfd_siginfo info;
    for (int i = 0; i < 20; i++) {
        work(100000);
        raise(SIGUSR1);
        ssize_t n = read(fd, &info, sizeof info);
        if (n != sizeof info || info.ssi_signo != SIGUSR1)
            printf("signalfd gave %zd bytes\n", n);
    }
    // sigsuspend and pselect return for the program's signal only.
    signal(SIGUSR2, on_usr2);
    sigprocmask(SIG_BLOCK, &usr2, &old);
    for (int i = 0; i < 20; i++) {
        work(100000);
        raise(SIGUSR2);
        sigset_t none;
        sigfillset(&none);
        sigdelset(&none, SIGUSR2);
        int before = handled;
        if (sigsuspend(&none) != -1 || errno != EINTR || handled != before + 1)
            printf("sigsuspend: %d, handled %d\n", errno, (int)handled - before);
        struct timespec soon = {0, 200000};
        sigemptyset(&none);
        int r = pselect(0, NULL, NULL, NULL, &soon, &none);
        if (r != 0)
            printf("pselect: %d, errno %d\n", r, errno);
        struct timespec rest, nap = {0, 300000};
        if (nanosleep(&nap, &rest) != 0)
            printf("nanosleep: %d\n", errno);
    }
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    printf("blocked then: %d %d %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2), sigismember(&now, SIGRTMIN + 26));
    printf("handled %d\n", (int)handled);
    return 0;
}
