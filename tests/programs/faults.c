/* SIGSEGV handlers: one maps the missing page and retries, one changes a register, one leaves by
   siglongjmp, one skips the instruction. The handler checks what it sees. With an argument, the registers are left
   alone. */
#define _GNU_SOURCE
#include "mix.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static char *area;
static sigjmp_buf out;
static volatile int mode, faults;
static volatile uint64_t seen[64];
static volatile unsigned seen_count;
extern const char faulting_load[], after_load[];

static void note(uint64_t value) {
    seen[seen_count++ & 63] = value;
}

static void handler(int s, siginfo_t *info, void *raw) {
    ucontext_t *context = raw;
    (void)s;
    faults++;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    note((uint64_t)(page - area));
    switch (mode) {
    case 0:
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        break;
    case 1:
        /* rbx held the bad pointer. */
        note((uint64_t)((char *)context->uc_mcontext.gregs[REG_RBX] - area));
        note((uint64_t)((const char *)context->uc_mcontext.gregs[REG_RIP] - faulting_load));
        context->uc_mcontext.gregs[REG_RBX] = (greg_t)area;
        break;
    case 2:
        siglongjmp(out, 5);
    case 3:
        note((uint64_t)((const char *)context->uc_mcontext.gregs[REG_RIP] - faulting_load));
        context->uc_mcontext.gregs[REG_RIP] = (greg_t)after_load;
        context->uc_mcontext.gregs[REG_RAX] = 4321;
        break;
    }
}

__attribute__((noinline)) static long sum(const long *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += p[i] + i;
    return s;
}

__attribute__((noinline)) static long load_by_rbx(const long *p) {
    long value;
    __asm__ volatile(".globl faulting_load, after_load\n"
                     "faulting_load: movq 16(%1), %%rax\n"
                     "after_load: movq %%rax, %0\n"
                     : "=r"(value)
                     : "b"(p)
                     : "rax");
    return value;
}

int main(int argc, char **argv) {
    (void)argv;
    area = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16 * 512; i++)
        ((long *)area)[i] = i % 97;
    for (int i = 1; i < 16; i++)
        mprotect(area + i * 4096, 4096, PROT_NONE);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = handler;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &a, 0);
    mix((uint64_t)sum((long *)(area + 4096 - 64), 700));
    mix((uint64_t)faults);
    if (argc == 1) {
        mode = 1;
        mix((uint64_t)load_by_rbx((long *)(area + 9 * 4096)));
        mode = 3;
        mix((uint64_t)load_by_rbx((long *)(area + 10 * 4096)));
    }
    mode = 2;
    int got = sigsetjmp(out, 1);
    if (got == 0)
        mix((uint64_t)sum((long *)(area + 12 * 4096), 3));
    mix((uint64_t)got);
    mix((uint64_t)faults);
    for (unsigned i = 0; i < seen_count; i++)
        mix(seen[i]);
    report("faults");
    return 0;
}
