/* Stack overflow: a handler on an alternate stack finds it by the fault's address and leaves by siglongjmp; again and again, in the main
   thread and in another. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

static __thread sigjmp_buf out;
static __thread char *low, *high;
static __thread int caught, strange;
static int table[64];

static void handler(int s, siginfo_t *info, void *context) {
    char *at = info->si_addr;
    (void)context;
    if (at >= low - 65536 && at < high)
        caught++;
    else
        strange++;
    siglongjmp(out, s);
}

static __attribute__((noinline)) int deep(int *p, int n) {
    int local[50];
    for (int i = 0; i < 50; i++)
        local[i] = p[(n + i) & 31] + table[i];
    return deep(local, n + 1) + local[n % 50];
}

static void *overflow(void *p) {
    pthread_attr_t attributes;
    size_t size;
    void *start;
    stack_t alternate = {.ss_size = 65536};
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &size);
    low = start;
    high = low + size;
    pthread_attr_destroy(&attributes);
    alternate.ss_sp = malloc(alternate.ss_size);
    sigaltstack(&alternate, NULL);
    for (volatile int i = 0; i < 3; i++)
        if (sigsetjmp(out, 1) == 0)
            strange += deep(table, i) != 0;
        else
            *(int *)p += table[i] + 1;
    mix((uint64_t)caught);
    mix((uint64_t)strange);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct rlimit limit;
    int sum = 0;
    pthread_t thread;
    pthread_attr_t small;
    for (int i = 0; i < 64; i++)
        table[i] = i * i;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_STACK, &limit);
    sigaction(SIGSEGV, &action, NULL);
    overflow(&sum);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    pthread_create(&thread, &small, overflow, &sum);
    pthread_join(thread, NULL);
    mix((uint64_t)sum);
    report("overflow");
    return 0;
}
