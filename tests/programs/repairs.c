/* Functions that begin with loads, and a handler that carries out the load which has failed: it knows it by its bytes, sets the register and goes on behind it, inside of what
   an entry jump would cover. The functions are called directly, through pointers and by the C library, by several threads while another one meets a fault in them or is sent
   signals whose handler looks at the code as well.
   The argument: "fork" (a child goes first), "borrow" (a child that shares memory), "filter" (mprotect that makes memory executable ends the process from then on), "sealed" (no memory becomes executable from
   then on). */
#define _GNU_SOURCE
#include "mix.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { MANY = 48, LONG = 32, THREADS = 3, INSTEAD = 50 };

/* Each is 21 bytes and filler up to 32: loads both, compares. */
#define BODY                                                                                                                                     \
    "mov (%rdi), %rdi\n\tmov (%rsi), %rsi\n\tcmp %rsi, %rdi\n\tseta %al\n\tsetb %dl\n\tsub %dl, %al\n\tmovsbl %al, %eax\n\tret\n\t"
__asm__(".text\n\t.balign 32\n\t.globl compares\ncompares:\n\t"
        ".rept 48\n\t.cfi_startproc\n\t" BODY ".balign 32\n\t.cfi_endproc\n\t.endr\n"
        ".globl compares_end\ncompares_end:\n\t"
        ".section .rodata\n\t.balign 32\nexpected:\n\t" BODY ".balign 32\n\t.text\n");
extern const unsigned char compares[], compares_end[];
__asm__(".globl expected");
extern const unsigned char expected[];

typedef int comparison(const void *, const void *);

static comparison *number(int i) {
    return (comparison *)(uintptr_t)(compares + LONG * i);
}

static atomic_int repaired, looked, turn, ready, strange;

/* The instruction at a place, if it is one of the loads: the others cannot fail, and may have a jump over them that stays. */
static int is_as_written(const unsigned char *at) {
    if (at < compares || at >= compares_end)
        return 1;
    unsigned offset = (unsigned)(at - compares) % LONG;
    return offset >= 6 || !memcmp(at, expected + offset, 3);
}

static void failed(int s, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)registers[REG_RIP];
    static const uint64_t instead = INSTEAD;
    (void)info;
    if (s != SIGSEGV) {
        looked++;
        strange += !is_as_written(at);
        return;
    }
    if (at[0] != 0x48 || at[1] != 0x8b || (at[2] != 0x3f && at[2] != 0x36)) {
        static const char said[] = "no such load\n";
        _exit(write(1, said, sizeof said - 1) > 0 ? 3 : 4);
    }
    registers[at[2] == 0x3f ? REG_RDI : REG_RSI] = (greg_t)instead;
    registers[REG_RIP] += 3;
    repaired++;
}

static int called(int i, const uint64_t *a, const uint64_t *b) {
    comparison *volatile f = number(i);
    return f(a, b);
}

static const uint64_t *const bad = (const uint64_t *)16;

static void *others(void *wrong) {
    static const uint64_t values[4] = {9, 4, 77, 4};
    for (int i = 0; i < MANY; i++) {
        ready++;
        while (turn < i)
            ;
        for (int k = 0; turn == i || k < 200; k++)
            *(int *)wrong += called(i, values + k % 3, values + 1) != (k % 3 == 1 ? 0 : 1);
    }
    return 0;
}

static int by_pointer(const void *a, const void *b) {
    return number(MANY - 1)(*(const uint64_t *const *)a, *(const uint64_t *const *)b);
}

/* For what can be executed. */
static int mprotect_is_refused(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 10, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 32),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {6, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A few faults, in functions of their own. */
static void faults(int from, int to) {
    static const uint64_t values[2] = {INSTEAD - 1, INSTEAD + 1};
    for (int i = from; i < to; i++) {
        mix((uint64_t)called(i, bad, values));
        mix((uint64_t)called(i, values + 1, bad));
        mix((uint64_t)called(i, bad, bad));
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = failed;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    if (!strcmp(how, "filter") && mprotect_is_refused())
        return 5;
    if (!strcmp(how, "sealed"))
        prctl(65, 1, 0, 0, 0);
    if (!strcmp(how, "fork") || !strcmp(how, "borrow")) {
        int status = 0;
        pid_t pid = how[0] == 'f' ? fork() : vfork();
        if (pid == 0) {
            int result = called(1, bad, bad) != 0 || called(2, bad, (uint64_t[]){1}) != 1;
            _exit(result);
        }
        waitpid(pid, &status, 0);
        mix((uint64_t)status);
    }

    /* Directly, through a pointer, by the C library. */
    faults(0, 4);
    uint64_t values[6] = {70, 20, 60, 30, 51, 49};
    const uint64_t *list[7] = {values, values + 1, bad, values + 2, values + 3, values + 4, values + 5};
    qsort(list, 7, sizeof *list, by_pointer);
    for (int i = 0; i < 7; i++)
        mix(list[i] == bad ? INSTEAD : *list[i]);
    uint64_t words[5] = {5, 1, 4, 2, 3}, one = 4;
    qsort(words, 5, sizeof *words, number(5));
    for (int i = 0; i < 5; i++)
        mix(words[i]);
    /* (It compares with what it looks for, first.) */
    mix(bsearch(&one, words, 5, sizeof *words, number(5)) == words + 3);
    mix(bsearch(bad, words, 5, sizeof *words, number(6)) == 0);

    /* By others at the same time. */
    pthread_t threads[THREADS];
    int wrong[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, others, &wrong[i]);
    for (int i = 0; i < MANY; i++) {
        while (ready < THREADS * (i + 1))
            usleep(50);
        usleep(200);
        for (int k = 0; k < 4; k++)
            pthread_kill(threads[k % THREADS], SIGUSR1);
        faults(i, i + 1);
        turn = i + 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], 0);
        mix((uint64_t)wrong[i]);
    }
    mix((uint64_t)repaired);
    printf("%d repaired, %d strange, %d wrong\n", repaired, strange, wrong[0] + wrong[1] + wrong[2]);
    report("repairs");
    return 0;
}
