/* A sequence of instructions that begins anew when a signal interrupts it: the timer's handler sends control back to where no way of the code's own leads, so that registers which
   the code goes on to set are read there. */
#define _GNU_SOURCE
#include "mix.h"
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

long sequence(const volatile long *words, const volatile int *over);
extern const char sequence_begins[] __attribute__((visibility("hidden"))), sequence_ends[] __attribute__((visibility("hidden")));
__asm__(".pushsection .text\n.globl sequence\n.hidden sequence\n.type sequence, @function\nsequence:\n.cfi_startproc\n"
        "mov $5, %r8d\nmov $6, %r9d\nmov $7, %r10d\nmov $8, %r11d\nmov $9, %ecx\nmov $10, %edx\n"
        ".globl sequence_begins\n.hidden sequence_begins\nsequence_begins:\n"
        "lea (%r8, %r9), %rax\nadd %r10, %rax\nadd %r11, %rax\nadd %rcx, %rax\nadd %rdx, %rax\n"
        "1: add (%rdi), %rax\nadd 8(%rdi), %rax\nadd 16(%rdi), %rax\ncmpl $0, (%rsi)\nje 1b\n"
        ".globl sequence_ends\n.hidden sequence_ends\nsequence_ends:\n"
        "xor %r8d, %r8d\nxor %r9d, %r9d\nxor %r10d, %r10d\nxor %r11d, %r11d\nxor %ecx, %ecx\nxor %edx, %edx\nret\n"
        ".cfi_endproc\n.size sequence, . - sequence\n.popsection");

static volatile int over, sent_back;
static const volatile long words[3];

static void handler(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t place = registers[REG_RIP];
    if (place >= (uintptr_t)sequence_begins && place < (uintptr_t)sequence_ends) {
        registers[REG_RIP] = (greg_t)sequence_begins;
        sent_back = 1;
        over = 1;
    }
}

int main(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = handler;
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, 0);
    for (int i = 0; i < 20; i++) {
        over = sent_back = 0;
        mix(sequence(words, &over));
        if (!sent_back)
            return 1;
    }
    report("again");
    return 0;
}
