/* A program that takes its own code's page away, and a handler that gives it back ("open") or carries out what was called there and leaves the page as it is ("closed": not to be
   executed; "none": not to be read either). The C library calls into the page. */
#define _GNU_SOURCE
#include "mix.h"
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* Begins with loads, at the start of a page of its own. */
__asm__(".text\n\t.balign 4096\n\t.globl difference\n\t.type difference, @function\ndifference:\n\t.cfi_startproc\n\t"
        "mov (%rdi), %rax\n\tmov (%rsi), %rdx\n\tsub %rdx, %rax\n\tret\n\t.cfi_endproc\n\t.size difference, . - difference\n\t.balign 4096\n");
extern int difference(const void *, const void *);

static volatile int traps;
static int opens;

static void handler(int s, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)s;
    traps++;
    if (info->si_addr != (void *)registers[REG_RIP])
        _exit(7);
    if (opens) {
        if (mprotect((void *)difference, 4096, PROT_READ | PROT_EXEC))
            _exit(8);
        return;
    }
    registers[REG_RAX] = (greg_t)(*(uint64_t *)registers[REG_RDI] - *(uint64_t *)registers[REG_RSI]);
    registers[REG_RIP] = *(greg_t *)registers[REG_RSP];
    registers[REG_RSP] += 8;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "open";
    opens = !strcmp(how, "open");
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    if (mprotect((void *)difference, 4096, strcmp(how, "closed") ? PROT_NONE : PROT_READ))
        return 5;
    for (int i = 0; i < 3; i++) {
        uint64_t words[2] = {7, 4};
        qsort(words, 2, sizeof *words, difference);
        mix(words[0]);
        mix(words[1]);
        printf("%d traps\n", traps);
    }
    report("guarded");
    return 0;
}
