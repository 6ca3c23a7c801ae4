/* Handles its own faults, with a handler that the C library does not know of: installed by `syscall`, or (argument `asm`) by a system call instruction of its
   own. Counts what it handles, and asks for the handler again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

enum { SIZE = 1 << 12, RESTORER = 0x04000000 };

static int by_asm;
static sigjmp_buf back;
static volatile int handled, wrong;

__asm__(".text\n.globl give_back\n.type give_back, @function\ngive_back:\nmov $15, %eax\nsyscall\n.size give_back, . - give_back");
void give_back(void);

static long own_call(long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_rt_sigaction), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

static long action(int signal, const struct kernel_action *new, struct kernel_action *old) {
    if (by_asm)
        return own_call(signal, (long)new, (long)old, 8);
    return syscall(SYS_rt_sigaction, signal, new, old, 8UL);
}

static void fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if ((uintptr_t)info->si_addr == 0x123)
        handled++;
    else
        wrong++;
    siglongjmp(back, 1);
}

static long __attribute__((noinline)) walk(const long *a, int rounds) {
    long sum = 0;
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < SIZE; i++)
            sum += a[(i * 5) % SIZE];
    return sum;
}

static void *other(void *a) { return (void *)walk(a, 60); }

int main(int argc, char **argv) {
    by_asm = argc > 1 && !strcmp(argv[1], "asm");
    static long a[SIZE];
    for (int i = 0; i < SIZE; i++)
        a[i] = i;
    long sum = walk(a, 50);
    struct kernel_action new = {fault, SA_SIGINFO | SA_NODEFER | RESTORER, give_back, 0}, old, seen;
    printf("installed %ld\n", action(SIGSEGV, &new, &old));
    printf("before %d\n", old.handler == NULL);
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(back, 1) == 0)
            sum += *(volatile int *)0x123;
        sum += walk(a, 20);
    }
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, other, a);
    sum += walk(a, 60);
    pthread_join(thread, &result);
    action(SIGSEGV, NULL, &seen);
    printf("the same %d\n", seen.handler == fault && seen.restorer == give_back);
    /* Of the kernel's errors. */
    printf("refused %ld\n", action(SIGKILL, &new, NULL) < 0 ? -1L : 0L);
    printf("handled %d wrong %d sum %ld\n", handled, wrong, sum + (long)result);
    return 0;
}
