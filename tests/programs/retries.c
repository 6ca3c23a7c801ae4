/* SIGSEGV handlers that do not look at their context: one maps the missing page, so that the load is run again, one leaves by
   siglongjmp. Both go by the fault's address alone. */
#define _GNU_SOURCE
#include "mix.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static char *area;
static sigjmp_buf out;
static volatile int leave, faults;

static void handler(int s, siginfo_t *info, void *context) {
    (void)s;
    (void)context;
    faults++;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    if (leave)
        siglongjmp(out, 5);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

__attribute__((noinline)) static long sum(const long *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += p[i] + i;
    return s;
}

__attribute__((noinline)) static long pick(const long *p, const int *which, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s = s * 3 + p[which[i] * 64] + p[which[i] * 64 + 3];
    return s;
}

int main(void) {
    int which[32];
    area = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16 * 512; i++)
        ((long *)area)[i] = i % 97;
    for (int i = 0; i < 32; i++)
        which[i] = i * 7 % 32;
    for (int i = 1; i < 16; i++)
        mprotect(area + i * 4096, 4096, PROT_NONE);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = handler;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &a, 0);
    mix((uint64_t)sum((long *)(area + 4096 - 64), 700));
    mix((uint64_t)pick((long *)(area + 4 * 4096), which, 32));
    mix((uint64_t)faults);
    leave = 1;
    int got = sigsetjmp(out, 1);
    if (got == 0)
        mix((uint64_t)sum((long *)(area + 12 * 4096), 3));
    mix((uint64_t)got);
    got = sigsetjmp(out, 1);
    if (got == 0)
        mix((uint64_t)pick((long *)(area + 13 * 4096), which, 3));
    mix((uint64_t)got);
    mix((uint64_t)faults);
    report("retries");
    return 0;
}
