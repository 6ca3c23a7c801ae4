/* Handlers that inspect and change RIP: they skip an instruction after SIGILL, SIGFPE and SIGSEGV, go on elsewhere, set the result register,
   and check that the address they see is that of the instruction that raised the signal (rewind.S). */
#define _GNU_SOURCE
#include "mix.h"
#include <signal.h>
#include <ucontext.h>

int mgz_divide(const int *), mgz_illegal(const int *), mgz_trap(const int *), mgz_skip(const int *, long), mgz_go(const int *, long);
long mgz_loop(const int *, long);
extern char mgz_at_division[], mgz_at_ud2[], mgz_after_trap[], mgz_at_load[], mgz_elsewhere[], mgz_in_loop[];

static int table[128], wrong, seen[32];
static char *fault;

static void handler(int s, siginfo_t *info, void *p) {
    ucontext_t *c = p;
    char *rip = (char *)c->uc_mcontext.gregs[REG_RIP];
    char *expected = s == SIGFPE ? mgz_at_division : s == SIGILL ? mgz_at_ud2 : s == SIGTRAP ? mgz_after_trap : fault;
    (void)info;
    wrong += rip != expected;
    seen[s]++;
    if (s == SIGFPE) {
        c->uc_mcontext.gregs[REG_RIP] += 2;
        c->uc_mcontext.gregs[REG_RAX] = 1234;
    } else if (s == SIGILL) {
        c->uc_mcontext.gregs[REG_RIP] += 2;
    } else if (s == SIGSEGV && rip == mgz_at_load) {
        c->uc_mcontext.gregs[REG_RIP] = (greg_t)mgz_elsewhere;
    } else if (s == SIGSEGV) {
        c->uc_mcontext.gregs[REG_RIP] += 3;
        c->uc_mcontext.gregs[REG_RAX] += 55;
    }
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    int signals[] = {SIGFPE, SIGILL, SIGTRAP, SIGSEGV};
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &action, NULL);
    for (int i = 1; i < 128; i++)
        table[i] = i * 3;
    for (int i = 0; i < 10; i++) {
        // (The second one lies between where executables and where mappings and stacks are put, at random: nothing is there.)
        for (long bad = 16; bad != 0; bad = bad == 16 ? 0x600000000000 : 0) {
            fault = mgz_at_load;
            mix((uint64_t)mgz_go(table + i, bad));
            fault = (char *)mgz_skip;
            mix((uint64_t)(mgz_skip(table + i, bad) != 0));
            fault = mgz_in_loop;
            mix((uint64_t)mgz_loop(table + i, bad));
        }
        mix((uint64_t)mgz_divide(table + (i % 2 ? 0 : i)));
        mix((uint64_t)mgz_illegal(table + i));
        mix((uint64_t)mgz_trap(table + i));
    }
    for (int i = 0; i < 4; i++)
        mix((uint64_t)seen[signals[i]]);
    report("rewind");
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
