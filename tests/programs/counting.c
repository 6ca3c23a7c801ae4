/* Loads that are to be counted to the last one, whatever control does: loops, nested ones, calls that never return, jumps out of loops and of
 * handlers, threads, children, another program. With `ends`: loops that end from outside; prints how often they went round. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long data[256];
static sigjmp_buf out;

__attribute__((noinline)) static long hot(const long *p, long n) {
    long s = 0;
    for (long i = 0; i < n; i++) {
        s += p[i & 255];
        __asm__ volatile("" : "+r"(s));
    }
    return s;
}

__attribute__((noinline)) static long nested(const long *p, long n) {
    long s = 0;
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < (i & 15); j++) {
            if (p[j] & 1)
                s += p[j + 1];
            else
                s ^= p[i & 255];
            __asm__ volatile("" : "+r"(s));
        }
        s += p[0];
    }
    return s;
}

/* Flags live across loads. */
__attribute__((noinline)) static long carries(const unsigned long *a, const unsigned long *b) {
    unsigned long r0 = a[0], r1 = a[1], r2 = a[2];
    __asm__("addq (%3), %0; adcq 8(%3), %1; adcq 16(%3), %2" : "+r"(r0), "+r"(r1), "+r"(r2) : "r"(b) : "cc", "memory");
    return (long)(r0 ^ r1 ^ r2);
}

__attribute__((noinline)) static void leave(const long *p, long at) {
    for (long i = 0;; i++)
        if (p[i] == at)
            siglongjmp(out, 1);
}

static void handler(int s) {
    (void)s;
    siglongjmp(out, 1);
}

static void counted(int s) { data[255] += s; }

__attribute__((noinline)) static void interrupted(const long *p) {
    for (long i = 0;; i++)
        if (p[i] == 100)
            raise(SIGUSR1);
}

static void *thread(void *arg) {
    long s = hot(data, (long)arg);
    if (s)
        pthread_exit((void *)s);
    return NULL;
}

/* The loads of one round are two. */
__attribute__((noinline)) static void spin(volatile long *p, volatile long *rounds) {
    for (;;) {
        (void)*p;
        *rounds = *rounds + 1;
    }
}

static int ends(void) {
    volatile long *rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    signal(SIGALRM, handler);
    for (int turn = 0; turn < 20; turn++) {
        struct itimerval in = {{0, 0}, {0, 2000 + 500 * turn}};
        if (sigsetjmp(out, 1) == 0) {
            setitimer(ITIMER_REAL, &in, NULL);
            spin(data, &rounds[0]);
        }
    }
    pid_t child = fork();
    if (child == 0)
        spin(data, &rounds[1]);
    while (rounds[1] < 100000)
        usleep(1000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("%ld\n", rounds[0] + rounds[1]);
    return 0;
}

int main(int argc, char **argv) {
    for (long i = 0; i < 256; i++)
        data[i] = i * 7 % 256;
    if (argc > 1 && !strcmp(argv[1], "ends"))
        return ends();
    int again = argc > 1 && !strcmp(argv[1], "again");
    long s = hot(data, 300000) + nested(data, 20000);
    for (int i = 0; i < 100; i++)
        s += carries((unsigned long *)data + i, (unsigned long *)data + i + 8);
    for (volatile int i = 0; i < 100; i++)
        if (sigsetjmp(out, 1) == 0)
            leave(data, i);
    signal(SIGUSR1, handler);
    for (volatile int i = 0; i < 100; i++)
        if (sigsetjmp(out, 1) == 0)
            interrupted(data);
    signal(SIGUSR1, counted);
    for (int i = 0; i < 100; i++)
        raise(SIGUSR1);
    pthread_t t[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, thread, (void *)(1000 + i * 5000));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        s += hot(data, 12345);
        _exit(s == 0);
    }
    waitpid(child, NULL, 0);
    printf("%ld\n", s);
    fflush(stdout);
    if (again)
        exit((int)(hot(data, 777) & 1));
    execl("/proc/self/exe", argv[0], "again", NULL);
    return 1;
}
