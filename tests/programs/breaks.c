/* A signal ends a system call that is under way in one piece of code, as C libraries do to cancel threads: the handler compares the
   place that it finds the thread at, and lets it go on elsewhere. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The system call, unless *left; -125 if a signal has ended it. */
long waits(const atomic_int *left, long number, long a, long b, long c);
extern char waits_begin[], waits_end[], waits_left[];
__asm__(".text\n"
        ".globl waits\n.type waits, @function\n"
        "waits:\n.cfi_startproc\n"
        "waits_begin: mov (%rdi), %eax\n"
        "test %eax, %eax\n"
        "jne waits_left\n"
        "mov %rsi, %rax\n"
        "mov %rdx, %rdi\n"
        "mov %rcx, %rsi\n"
        "mov %r8, %rdx\n"
        "syscall\n"
        "waits_end: ret\n"
        "waits_left: mov $-125, %rax\n"
        "ret\n"
        ".cfi_endproc\n.size waits, . - waits\n");

static atomic_int left, done;
static int pipes[2];
static long given;

static void handler(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal, (void)info;
    left = 1;
    if (registers[REG_RIP] >= (greg_t)waits_begin && registers[REG_RIP] < (greg_t)waits_end) registers[REG_RIP] = (greg_t)waits_left;
}

static void *run(void *nothing) {
    char c;
    given = waits(&left, SYS_read, pipes[0], (long)&c, 1);
    done = 1;
    return nothing;
}

int main(void) {
    struct sigaction action = {0};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        left = done = 0;
        if (pipe(pipes) || pthread_create(&thread, 0, run, 0)) return 2;
        usleep(round * 100);
        for (int tries = 0; !done && tries < 1000; tries++) {
            pthread_kill(thread, SIGUSR1);
            usleep(1000);
        }
        int ended = done;
        /* Who is still waiting gets a byte. */
        if (write(pipes[1], "x", 1) != 1) return 2;
        pthread_join(thread, 0);
        close(pipes[0]);
        close(pipes[1]);
        if (!ended || given != -125) {
            printf("round %d: %s, %ld\n", round, ended ? "ended" : "went on", given);
            return 1;
        }
    }
    puts("ended 20 times");
    return 0;
}
