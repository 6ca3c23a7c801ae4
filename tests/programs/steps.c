/* A signal at every instruction in turn: a parent steps its child through code that a rewriter makes more instructions of than there were, one step
   further each round, and sends a signal there. The handler looks at where it came and changes a register that nobody needs, so that it matters where the child goes on: what
   is done twice, or never, is seen in the sums. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROUNDS = 700 };

/* Shared: the round at hand ended before its step came. */
static volatile int *ended;

static volatile sig_atomic_t inside;
static volatile uintptr_t found;

static void handler(int s, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)s;
    (void)info;
    found = (uintptr_t)registers[REG_RIP];
    if (inside)
        registers[REG_R15]++;
}

#define STOP "mov $62, %%eax\n\tmov %[pid], %%rdi\n\tmov $19, %%esi\n\tsyscall\n\t"
/* `lock` is skipped if there is one thread. */
#define ONCE "cmpl $0, %[many]\n\tje 1f\n\tlock\n1:\t"
/* 119 bytes that load through eight registers. */
#define BODY                                                                                                                     \
    "2:\taddq (%%rbx), %%rax\n\taddq (%%rdx), %%rax\n\taddq (%%rsi), %%rax\n\taddq (%%rdi), %%rax\n\taddq (%%r8), %%rax\n\t"     \
    "addq (%%r9), %%rax\n\taddq (%%r10), %%rax\n\taddq (%%r11), %%rax\n\t.rept 23\n\tlea 3(%%rax), %%rax\n\t.endr\n\t"

/* Stops, then does what the handler must not spoil. */
__attribute__((noinline)) static uint64_t locks(int *cells, int many) {
    uint64_t sum = 0;
    inside = 1;
    __asm__ volatile(STOP "mov $1, %%ecx\n\t" ONCE "xaddl %%ecx, (%[cells])\n\t"
                     "add %%rcx, %[sum]\n\t" ONCE "incl 4(%[cells])\n\t" ONCE "addl $5, 8(%[cells])\n\t"
                     : [sum] "+r"(sum)
                     : [cells] "r"(cells), [many] "r"(many), [pid] "r"((long)getpid())
                     : "rax", "rcx", "rsi", "rdi", "r11", "r15", "memory", "cc");
    inside = 0;
    return sum;
}

__attribute__((noinline)) static uint64_t counts(const uint64_t **words) {
    uint64_t sum = 0, left;
    inside = 1;
    __asm__ volatile(STOP "xor %%eax, %%eax\n\t"
                     "mov %[words], %%rbx\n\tmov 8(%%rbx), %%rdx\n\tmov 16(%%rbx), %%rsi\n\tmov 24(%%rbx), %%rdi\n\tmov 32(%%rbx), %%r8\n\t"
                     "mov 40(%%rbx), %%r9\n\tmov 48(%%rbx), %%r10\n\tmov 56(%%rbx), %%r11\n\tmov (%%rbx), %%rbx\n\t"
                     "mov $2, %%ecx\n\t" BODY "loop 2b\n\t"
                     "mov $2, %%ecx\n\t" BODY "testl %%eax, %%eax\n\tloopne 2b\n\t"
                     : "=a"(sum), "=c"(left)
                     : [words] "r"(words), [pid] "r"((long)getpid())
                     : "rbx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r15", "memory", "cc");
    inside = 0;
    return sum + (left << 32);
}

/* Each round begins with a stop and ends at the next one. */
static int child(void) {
    static const uint64_t words[8] = {1, 20, 300, 4000, 50000, 600000, 7000000, 80000000};
    const uint64_t *pointers[8];
    struct sigaction action;
    for (int i = 0; i < 8; i++)
        pointers[i] = &words[i];
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, 0);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        return 2;
    for (int kind = 0; kind < 3; kind++) {
        *ended = 0;
        for (int round = 0; !*ended && round < ROUNDS; round++) {
            int cells[3] = {7, 8, 9};
            int wrong = kind == 2 ? counts(pointers) != 4 * 87654321ull + 4 * 69 : locks(cells, kind) != 7 || cells[0] != 8 || cells[1] != 9 || cells[2] != 14;
            if (wrong) {
                printf("kind %d, step %d: %d %d %d\n", kind, round, cells[0], cells[1], cells[2]);
                return 1;
            }
        }
    }
    return 0;
}

/* Waits; what stops the child on the way goes on to it. */
static int next(pid_t pid, int *status) {
    while (waitpid(pid, status, 0) == pid && WIFSTOPPED(*status) && WSTOPSIG(*status) != SIGSTOP)
        ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(*status));
    return WIFSTOPPED(*status);
}

int main(void) {
    ended = mmap(0, sizeof *ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        int result = child();
        fflush(stdout);
        _exit(result);
    }
    int status, stops = next(pid, &status);
    for (int step = 0; stops; step++) {
        int signal = 0;
        for (int left = step; left > 0 && WIFSTOPPED(status) && signal != SIGSTOP; left--) {
            ptrace(PTRACE_SINGLESTEP, pid, 0, (long)signal);
            waitpid(pid, &status, 0);
            signal = WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
        }
        if (signal == SIGSTOP || step + 1 == ROUNDS) {
            *ended = 1;
            step = -1;
        }
        if (signal == SIGSTOP)
            continue;
        ptrace(PTRACE_CONT, pid, 0, (long)SIGUSR1);
        stops = next(pid, &status);
    }
    printf("status %x\n", status);
    return 0;
}
