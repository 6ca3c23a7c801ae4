/* What is blocked when: in handlers and behind them, in calls that wait, through functions of older systems and contexts. `masks CASE`. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "work.h"

static void fault(void) {
    *(volatile int *)0 = 1;
}

static void show(const char *where) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    char line[512];
    int n = sprintf(line, "%s:", where);
    for (int i = 1; i < 32; i++)
        if (sigismember(&set, i))
            n += sprintf(line + n, " %d", i);
    line[n++] = '\n';
    if (write(1, line, n) != n)
        _exit(99);
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void showing(int signal) {
    show(signal == SIGUSR1 ? "first" : signal == SIGUSR2 ? "second" : "handler");
}

static void nothing(int signal) {
    (void)signal;
}

static void faulty(int signal) {
    static int times;
    showing(signal);
    work(20);
    if (++times < 5)
        fault();
    _exit(9);
}

/* A handler of faults that fails itself ends the process. */
static int nested(void) {
    install(SIGSEGV, faulty, 0);
    work(20);
    fault();
    return 1;
}

static int nested_on_a_stack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    install(SIGSEGV, faulty, SA_ONSTACK);
    fault();
    return 1;
}

static int nested_allowed(void) {
    install(SIGSEGV, faulty, SA_NODEFER);
    fault();
    return 1;
}

static int fault_in_another(void) {
    struct sigaction action = {.sa_handler = faulty};
    sigfillset(&action.sa_mask);
    install(SIGSEGV, showing, 0);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return 1;
}

static sigjmp_buf way_out;

static void leaves(int signal) {
    show("leaves");
    siglongjmp(way_out, signal);
}

__attribute__((noinline)) static void fault_deeper(int i) {
    volatile char room[20000];
    room[i] = 1;
    fault();
}

/* Handlers that are left by a jump can be entered again, from wherever. */
static int jumps(void) {
    for (int flags = 0; flags < 2; flags++) {
        stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
        sigaltstack(&stack, NULL);
        install(SIGSEGV, leaves, flags ? SA_ONSTACK : 0);
        for (volatile int i = 0; i < 6; i++) {
            if (sigsetjmp(way_out, 1) == 0) {
                work(5);
                if (i & 1)
                    fault_deeper(i);
                fault();
            }
            show("behind");
        }
    }
    return 0;
}

static void jumps_plainly(int signal) {
    show("leaves");
    siglongjmp(way_out, signal);
}

/* One that restores no mask leaves the signal blocked: the second fault ends the process. */
static int jump_without_a_mask(void) {
    install(SIGSEGV, jumps_plainly, 0);
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(way_out, 0) == 0)
            fault();
        show("behind");
    }
    return 0;
}

static ucontext_t outside;
static volatile int times;

static void to_a_context(int signal) {
    (void)signal;
    times++;
    setcontext(&outside);
}

static int context(void) {
    install(SIGSEGV, to_a_context, 0);
    getcontext(&outside);
    show("outside");
    work(20);
    if (times < 4)
        fault();
    return 0;
}

static ucontext_t back;

static void in_context(void) {
    work(100);
    printf("in the context\n");
}

/* A context that blocks everything. */
static int full_context(void) {
    static char stack[65536];
    ucontext_t there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &back;
    sigfillset(&there.uc_sigmask);
    makecontext(&there, in_context, 0);
    swapcontext(&back, &there);
    work(100);
    printf("back\n");
    return 0;
}

/* Both signals come in the one call, and the handlers run with its mask. */
static int waits(void) {
    sigset_t blocked, waiting, pending;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    install(SIGUSR1, showing, 0);
    install(SIGUSR2, showing, 0);
    sigemptyset(&waiting);
    sigaddset(&waiting, SIGHUP);
    struct timespec second = {1, 0};
    for (int way = 0; way < 3; way++) {
        raise(SIGUSR2);
        raise(SIGUSR1);
        errno = 0;
        int r = way == 0 ? sigsuspend(&waiting) : way == 1 ? ppoll(NULL, 0, &second, &waiting) : pselect(0, NULL, NULL, NULL, &second, &waiting);
        int error = errno;
        sigpending(&pending);
        printf("%d %d, pending %d %d\n", r, error, sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2));
        fflush(stdout);
        show("behind");
    }
    return 0;
}

/* One that comes while it is blocked comes later. */
static int later(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    install(SIGSEGV, showing, 0);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGSEGV);
    work(100);
    show("blocked");
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    show("unblocked");
    return 0;
}

static int interrupts(void) {
    struct sigaction now;
    int ends[2];
    char byte;
    siginterrupt(SIGALRM, 1);
    signal(SIGALRM, nothing);
    if (pipe(ends))
        return 2;
    alarm(1);
    ssize_t r = read(ends[0], &byte, 1);
    int error = errno;
    printf("%zd %d\n", r, error);
    for (int on = 0; on < 2; on++) {
        signal(SIGUSR1, nothing);
        siginterrupt(SIGUSR1, on);
        sigaction(SIGUSR1, NULL, &now);
        printf("restarts: %d\n", (now.sa_flags & SA_RESTART) != 0);
    }
    return 0;
}

static int old_functions(void) {
    struct sigaction now;
    printf("%x\n", sigblock(sigmask(SIGSEGV) | sigmask(SIGUSR1)));
    work(100);
    printf("%x\n", sigsetmask(0));
    printf("%x\n", sigsetmask(~0));
    work(100);
    printf("%x\n", siggetmask());
    printf("%x\n", sigsetmask(0));
    sighold(SIGSEGV);
    work(100);
    printf("%x\n", siggetmask());
    sigrelse(SIGSEGV);
    sigignore(SIGSEGV);
    work(100);
    sigaction(SIGSEGV, NULL, &now);
    printf("%x, ignored: %d\n", siggetmask(), now.sa_handler == SIG_IGN);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"nested", nested}, {"nested-on-a-stack", nested_on_a_stack}, {"nested-allowed", nested_allowed}, {"fault-in-another", fault_in_another},
    {"jumps", jumps}, {"jump-without-a-mask", jump_without_a_mask}, {"context", context}, {"full-context", full_context}, {"waits", waits}, {"later", later},
    {"interrupts", interrupts}, {"old-functions", old_functions},
};

int main(int argc, char **argv) {
    for (int i = 0; i < 4096; i++)
        table[i] = i * 2654435761u;
    work(1);
    for (unsigned i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1]))
            return cases[i].run();
    return 77;
}
