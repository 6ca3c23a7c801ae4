/* Calls through pointers with tags, at which no code can be, fail at the call. The handler takes the tag away, and the call is made again: what was called must see what the caller
   gave it, and nothing else may run. System calls that a filter refuses are told by their address, too. */
#define _GNU_SOURCE
#include "mix.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

typedef long (*Function)(long, const void *);

static volatile uintptr_t tag, place;
static volatile int faults;

static void handler(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    place = registers[REG_RIP];
    if (++faults > 60 || info->si_addr || place & tag)
        _exit(4);
    registers[REG_RBX] &= ~tag;
}

__attribute__((visibility("hidden"))) uintptr_t returned;

/* With the pointer in rbx. */
long through(Function function, long number, const void *more);
__asm__(".pushsection .text\n.globl through\n.hidden through\n.type through, @function\nthrough:\n.cfi_startproc\n"
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx, -16\n"
        "mov %rdi, %rbx\nmov %rsi, %rdi\nmov %rdx, %rsi\n"
        "lea 1f(%rip), %rcx\nmov %rcx, returned(%rip)\n"
        "call *%rbx\n"
        "1: pop %rbx\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.size through, . - through\n.popsection");

static long sums[64];

__attribute__((noinline)) static long own(long number, const void *more) {
    for (int i = 0; i < 64; i++)
        sums[i] += number * i + *(const long *)more;
    return sums[number & 63];
}

static volatile uintptr_t refused;

static void on_refused(int signal, siginfo_t *info, void *context) {
    refused = (uintptr_t)info->si_call_addr;
    if (refused != (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP])
        _exit(5);
}

__attribute__((noinline)) static long ask(const volatile long *what) {
    long result = *what;
    __asm__ volatile("syscall\n\t.globl behind_call\n\t.hidden behind_call\nbehind_call:" : "+a"(result)::"rcx", "r11", "memory");
    return result;
}
extern const char behind_call[] __attribute__((visibility("hidden")));

int main(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = handler;
    sigaction(SIGSEGV, &action, 0);
    long more = 5;
    /* (With five levels of page tables bits 47 to 55 are part of addresses.) */
    static const int bits[] = {63, 62, 61, 60, 57};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 5; i++) {
            tag = 1ul << bits[i];
            /* So that what is known of them is known. */
            for (int k = 0; k < 5; k++)
                mix(through(own, k, &more) + through((Function)labs, -k, 0));
            int before = faults;
            mix(through((Function)((uintptr_t)own | tag), 7, &more));
            if (faults != before + 1 || returned - place != 2)
                return 1;
            mix(through((Function)((uintptr_t)labs | tag), -9, 0));
            if (faults != before + 2)
                return 2;
        }
    report("tagged");

    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getppid},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRAP},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {4, filter};
    action.sa_sigaction = on_refused;
    sigaction(SIGSYS, &action, 0);
    volatile long what = SYS_getppid;
    if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        ask(&what);
        if (refused != (uintptr_t)behind_call)
            return 3;
    }
    puts("told");
    return 0;
}
