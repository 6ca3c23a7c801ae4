/* What sanitizers watch for, one kind for each argument; none of them: a program without mistakes. Prints sums that do not depend on addresses or time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SIZE = 1000 };

static long total;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long racy;
void *volatile kept;

static __attribute__((noinline)) long walk(const int *a, int rounds) {
    long sum = 0;
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < SIZE; i++)
            sum += a[(i * 7) % SIZE];
    return sum;
}

static void *work(void *argument) {
    long n = (long)argument;
    int *a = malloc(SIZE * sizeof *a);
    for (int i = 0; i < SIZE; i++)
        a[i] = i * (n & 7);
    long sum = walk(a, 200 + 100 * (n > 7));
    pthread_mutex_lock(&lock);
    total += sum % 1000003;
    pthread_mutex_unlock(&lock);
    free(a);
    return NULL;
}

static void threads(long more) {
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(t + i, NULL, work, (void *)(i + 1 + more));
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

/* Signals, jumps, children and alternate stacks, all as they should be. */
static volatile sig_atomic_t came;
static sigjmp_buf back;

static void count(int signal) { came += signal; }

static void leave(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void clean(const char *self) {
    threads(0);
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    int *a = calloc(SIZE, sizeof *a);
    for (int i = 0; i < 20; i++) {
        raise(SIGUSR1);
        total += walk(a, 20);
    }
    signal(SIGUSR2, leave);
    for (int i = 0; i < 5; i++)
        if (sigsetjmp(back, 1) == 0)
            raise(SIGUSR2);
        else
            total += walk(a, 20);
    free(a);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        threads(8);
        printf("child %ld\n", total);
        exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("came %d child %d\n", (int)came, WEXITSTATUS(status));
    fflush(stdout);
    child = vfork();
    if (child == 0) {
        execl(self, self, "brief", (char *)NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    printf("total %ld brief %d\n", total, WEXITSTATUS(status));
}

/* One thread for some tenths of a second, so that bursts find it. */
static void steady(void) {
    for (int i = 0; i < 600; i++) {
        int *a = malloc(SIZE * sizeof *a);
        for (int k = 0; k < SIZE; k++)
            a[k] = i + k;
        total += walk(a, 100);
        free(a);
    }
}

static __attribute__((noinline)) int overflow(int n) {
    int *b = malloc(10 * sizeof *b);
    for (int i = 0; i < 10; i++)
        b[i] = i;
    int got = b[n];
    free(b);
    return got == 12345;
}

static __attribute__((noinline)) int after_free(void) {
    char *text = malloc(20);
    strcpy(text, "gone");
    kept = text;
    free(text);
    return *(volatile char *)kept == 'x';
}

static void *race(void *argument) {
    for (int i = 0; i < 1000; i++)
        racy += (long)argument;
    return NULL;
}

static __attribute__((noinline)) void leak(void) {
    for (int i = 0; i < 3; i++) {
        kept = malloc(100);
        kept = NULL;
    }
}

static __attribute__((noinline)) int deep(int n) {
    volatile char room[2000];
    room[n % 2000] = (char)n;
    return n > 1000000000 ? 0 : deep(n + 1) + room[n % 2000];
}

static volatile int *volatile nowhere;

static void recovered(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    came += (long)info->si_addr == 0x10;
    siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "clean";
    int n = argc + 8;
    printf("begins %s\n", what);
    fflush(stdout);
    if (!strcmp(what, "clean"))
        clean(argv[0]);
    else if (!strcmp(what, "steady"))
        steady();
    else if (!strcmp(what, "lasting"))
        for (int i = 0; i < 15; i++)
            steady();
    else if (!strcmp(what, "late"))
        steady(), printf("%d\n", overflow(n));
    else if (!strcmp(what, "brief"))
        threads(0);
    else if (!strcmp(what, "overflow"))
        threads(0), printf("%d\n", overflow(n));
    else if (!strcmp(what, "free"))
        printf("%d\n", after_free());
    else if (!strcmp(what, "leak"))
        threads(0), leak();
    else if (!strcmp(what, "race")) {
        pthread_t a, b;
        pthread_create(&a, NULL, race, (void *)1);
        pthread_create(&b, NULL, race, (void *)2);
        pthread_join(a, NULL);
        pthread_join(b, NULL);
        threads(0);
    } else if (!strcmp(what, "uninitialised")) {
        int *a = malloc(SIZE * sizeof *a);
        if (walk(a, 1) == 17)
            puts("seventeen");
        free(a);
    } else if (!strcmp(what, "undefined")) {
        int most = 0x7fffffff;
        threads(0);
        printf("%d\n", (most + n) >> (n + 24));
    } else if (!strcmp(what, "null")) {
        threads(0);
        nowhere = (int *)0x10;
        printf("%d\n", *nowhere);
    } else if (!strcmp(what, "handled")) {
        struct sigaction action = {.sa_sigaction = recovered, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, NULL);
        for (int i = 0; i < 5; i++)
            if (sigsetjmp(back, 1) == 0) {
                nowhere = (int *)0x10;
                total += *nowhere;
            } else
                threads(0);
        printf("came %d\n", (int)came);
    } else if (!strcmp(what, "deep"))
        printf("%d\n", deep(n));
    else if (!strcmp(what, "abort"))
        threads(0), abort();
    printf("total %ld\n", total);
    return 0;
}
