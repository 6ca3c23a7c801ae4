/* Handlers of faults that others install and hand on: chains of handlers, old actions that are asked for, faults at a function's first instructions, loads that
   are tried again after their page has come (their registers as they were, though they overwrite them), loads that are stepped over (what they would
   have overwritten as it was), values that only the way through a handler reads, instructions that a handler decodes, a stack that grows where it ends, threads that
   fail at one time, breakpoints. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, PAGES = 64 };

static char *area;
static struct sigaction before;
static volatile int wrong, faults, skipped;
extern char mgz_behind_int3[], mgz_at_first[], mgz_at_default[], mgz_behind_default[], mgz_at_ud2[], mgz_at_division[];

/* Each of these is the first instruction of a function, or one of the first. */
long mgz_first(const int *);
long mgz_second(long, const int *);
/* 7 if the load is stepped over. */
long mgz_default(const long *, long);
long mgz_illegal(long);
long mgz_divide(long, long);
long mgz_breaks(const long *);
__asm__(".text\n.p2align 4\n.globl mgz_first, mgz_at_first\n.type mgz_first, @function\n"
        "mgz_first: .cfi_startproc\nmgz_at_first: movl (%rdi), %eax\n addl $1, %eax\n cltq\n ret\n.cfi_endproc\n.size mgz_first, . - mgz_first\n"
        ".p2align 4\n.globl mgz_second\n.type mgz_second, @function\n"
        "mgz_second: .cfi_startproc\n leal 3(%rdi), %eax\n addl (%rsi), %eax\n cltq\n ret\n.cfi_endproc\n.size mgz_second, . - mgz_second\n"
        ".p2align 4\n.globl mgz_default, mgz_at_default, mgz_behind_default\n.type mgz_default, @function\n"
        "mgz_default: .cfi_startproc\n movl $7, %eax\nmgz_at_default: movq (%rdi,%rsi,8), %rax\nmgz_behind_default: addq $100, %rax\n ret\n.cfi_endproc\n"
        ".size mgz_default, . - mgz_default\n"
        ".p2align 4\n.globl mgz_illegal, mgz_at_ud2\n.type mgz_illegal, @function\n"
        "mgz_illegal: .cfi_startproc\n leaq 1(%rdi), %rax\nmgz_at_ud2: ud2\n addq $2, %rax\n ret\n.cfi_endproc\n.size mgz_illegal, . - mgz_illegal\n"
        ".p2align 4\n.globl mgz_breaks, mgz_behind_int3\n.type mgz_breaks, @function\n"
        "mgz_breaks: .cfi_startproc\n movq (%rdi), %rax\n int3\nmgz_behind_int3: imulq $3, %rax\n addq 8(%rdi), %rax\n ret\n.cfi_endproc\n.size mgz_breaks, . - mgz_breaks\n"
        ".p2align 4\n.globl mgz_divide, mgz_at_division\n.type mgz_divide, @function\n"
        "mgz_divide: .cfi_startproc\n movq %rdi, %rax\n cqto\nmgz_at_division: idivq %rsi\n ret\n.cfi_endproc\n.size mgz_divide, . - mgz_divide\n");

/* What a load does not bring: a value that was read before, one that was made several loads ago, what only the code behind a failure reads. The loads have four bytes. */
__attribute__((noinline)) static long kept(long *p, long i, long a, long b) {
    long value = a * b;
    if (value == 3)
        return 1;
    __asm__ volatile(".byte 0x48, 0x8b, 0x04, 0xf7" : "+a"(value) : "D"(p), "S"(i));
    return value;
}

__attribute__((noinline)) static long last_good(long **table, long n) {
    long sum = 0, value = 1;
    for (long i = 0; i < n; i++) {
        long *p = table[i];
        __asm__ volatile(".byte 0x48, 0x8b, 0x04, 0xf7" : "+a"(value) : "D"(p), "S"(i));
        sum = sum * 7 + value;
    }
    return sum;
}

__attribute__((noinline)) static long made_before(long ***table, long i, long j) {
    long value;
    __asm__ volatile("movq $-1, %0" : "=&a"(value));
    long *p = table[i][j];
    __asm__ volatile(".byte 0x48, 0x8b, 0x04, 0xf7" : "+a"(value) : "D"(p), "S"(0l));
    return value;
}

/* Where a handler goes on: (what fails, where to). */
extern char mgz_may_fail[], mgz_fixup[];
long mgz_fixed(long **table, long i, long other);
__asm__(".text\n.p2align 4\n.globl mgz_fixed, mgz_may_fail, mgz_fixup\n.type mgz_fixed, @function\n"
        "mgz_fixed: .cfi_startproc\n movq %rdx, %rcx\n leaq 5(%rcx), %r8\n movq (%rdi,%rsi,8), %rax\n movq 8(%rdi,%rsi,8), %r9\nmgz_may_fail: movq (%rax), %rax\n"
        " addq %r9, %rax\n subq %r9, %rax\n movl $0, %r8d\n movl $0, %ecx\n ret\n"
        "mgz_fixup: leaq (%r8,%rcx,2), %rax\n ret\n.cfi_endproc\n.size mgz_fixed, . - mgz_fixed\n");

/* 7 bytes, at the very start. */
long mgz_far(const char *);
extern char mgz_at_far[];
__asm__(".text\n.p2align 4\n.globl mgz_far, mgz_at_far\n.type mgz_far, @function\n"
        "mgz_far: .cfi_startproc\nmgz_at_far: movq 0x1000(%rdi), %rax\n addq $1, %rax\n ret\n.cfi_endproc\n.size mgz_far, . - mgz_far\n");

static char *place(void *context) {
    return (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

/* Lets the page come. */
static void pager(int s, siginfo_t *info, void *context) {
    (void)s;
    faults++;
    if (place(context) == mgz_at_default) {
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)mgz_behind_default;
        skipped++;
        return;
    }
    static const unsigned char load[] = {0x48, 0x8b, 0x04, 0xf7}, far_load[] = {0x48, 0x8b, 0x87, 0, 0x10, 0, 0};
    if ((uintptr_t)info->si_addr < 65536) {
        greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
        if (place(context) == mgz_may_fail)
            registers[REG_RIP] = (greg_t)mgz_fixup;
        else if (memcmp(place(context), load, sizeof load) == 0)
            registers[REG_RIP] += sizeof load;
        else if (memcmp(place(context), far_load, sizeof far_load) == 0) {
            registers[REG_RIP] += sizeof far_load;
            registers[REG_RAX] = 41;
        } else
            _Exit(98);
        return;
    }
    if ((char *)info->si_addr < area || (char *)info->si_addr >= area + PAGES * PAGE)
        _Exit(99);
    mprotect((void *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE), PAGE, PROT_READ | PROT_WRITE);
}

/* Looks, and asks who was there before. */
static void looker(int s, siginfo_t *info, void *context) {
    char *at = place(context);
    wrong += at >= area && at < area + PAGES * PAGE;
    before.sa_sigaction(s, info, context);
    wrong += place(context) != at && place(context) != mgz_behind_default && (uintptr_t)info->si_addr >= 65536;
}

static void stepper(int s, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *expected = s == SIGILL ? mgz_at_ud2 : mgz_at_division;
    wrong += place(context) != expected || (char *)info->si_addr != expected;
    faults++;
    registers[REG_RIP] += s == SIGILL ? 2 : 3;
    if (s == SIGFPE)
        registers[REG_RAX] = 77;
}

static volatile long breaks;

/* Behind a breakpoint. */
static void trapped(int s, siginfo_t *info, void *context) {
    (void)s;
    (void)info;
    wrong += place(context) != mgz_behind_int3;
    breaks++;
}

static void install(int s, void (*handler)(int, siginfo_t *, void *), struct sigaction *old) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = handler;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&a.sa_mask);
    wrong += sigaction(s, &a, old) != 0;
}

static void hide(void) {
    mprotect(area, PAGES * PAGE, PROT_NONE);
}

/* The load overwrites its own index. */
__attribute__((noinline)) static long walk(const long *next, long at, int steps) {
    long sum = 0;
    while (steps--) {
        at = next[at];
        sum = sum * 3 + at;
    }
    return sum;
}

__attribute__((noinline)) static long walk_pointers(long **at, int steps) {
    long sum = 0;
    while (steps--) {
        at = (long **)*at;
        sum = sum * 3 + ((char *)at - area);
    }
    return sum;
}

__attribute__((noinline)) static long deep(long n, long a, long b, long c) {
    volatile long room[20];
    room[n % 20] = a;
    return n == 0 ? a + b + c : deep(n - 1, b * 3, c ^ n, a + room[n % 20]) + room[n % 20];
}

static ucontext_t outside, inside;
static volatile long result;

static void on_small_stack(void) {
    result = deep(200, 1, 2, 3);
}

static void *thread(void *arg) {
    long sum = 0, n = (long)arg;
    static __thread char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    for (long i = 0; i < 200; i++) {
        long *page = (long *)(area + (i * 7 + n * 13) % PAGES * PAGE);
        sum += walk(page, 5, 1) & 1;
        sum += mgz_default((long *)16, i) == 107;
        sum += mgz_divide(i, 0) == 77;
    }
    return (void *)sum;
}

int main(void) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction old;
    long (*volatile first)(const int *) = mgz_first;
    long (*volatile second)(long, const int *) = mgz_second;
    sigaltstack(&stack, NULL);
    area = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGSEGV, pager, NULL);
    install(SIGSEGV, looker, &before);
    wrong += before.sa_sigaction != pager;
    install(SIGILL, stepper, NULL);
    install(SIGFPE, stepper, &old);
    wrong += old.sa_handler != SIG_DFL;
    wrong += sigaction(SIGSEGV, NULL, &old) != 0 || old.sa_sigaction != looker;

    long *words = (long *)area;
    long count = PAGES * PAGE / 8;
    for (long i = 0; i < count; i++)
        words[i] = (i * 2654435761u + 12345) % (unsigned long)count;
    hide();
    mix((uint64_t)walk(words, 3, 5000));
    for (long i = 0; i < count; i++)
        words[i] = (long)(words + (i * 2654435761u + 12345) % (unsigned long)count);
    hide();
    mix((uint64_t)walk_pointers((long **)words, 5000));

    for (int i = 0; i < 20; i++) {
        hide();
        mix((uint64_t)(first((int *)(area + i * PAGE)) == *(int *)(area + i * PAGE) + 1));
        hide();
        mix((uint64_t)(second(i, (int *)(area + i * PAGE)) == (int)(i + 3 + *(int *)(area + i * PAGE))));
        mix((uint64_t)mgz_default((long *)16, i));
        mix((uint64_t)mgz_illegal(i));
        mix((uint64_t)mgz_divide(i, i % 3));
    }

    long (*volatile far)(const char *) = mgz_far;
    long four[4] = {11, 22, 33, 44}, *missing = (long *)8, *table[4] = {four, missing, four, missing};
    long **rows[2] = {table, table};
    for (int i = 0; i < 3; i++) {
        mix((uint64_t)kept(i ? missing : four, i, i + 2, 5));
        mix((uint64_t)last_good(table, 4));
        mix((uint64_t)made_before(rows, 1, i));
        mix((uint64_t)mgz_fixed(table, i, i * 1000));
        mix((uint64_t)far((char *)(uintptr_t)(i + 1)));
    }

    install(SIGTRAP, trapped, NULL);
    for (int i = 0; i < 3; i++)
        mix((uint64_t)mgz_breaks(four));
    mix((uint64_t)breaks);

    /* A stack of which only the top is there. */
    hide();
    mprotect(area + (PAGES - 4) * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE);
    getcontext(&inside);
    inside.uc_stack.ss_sp = area;
    inside.uc_stack.ss_size = PAGES * PAGE;
    inside.uc_link = &outside;
    makecontext(&inside, on_small_stack, 0);
    swapcontext(&outside, &inside);
    mix((uint64_t)result);

    mix((uint64_t)(faults > 100));
    mix((uint64_t)skipped);
    for (long i = 0; i < count; i++)
        words[i] = i % 97;
    hide();
    pthread_t threads[4];
    long total = 0;
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, thread, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        total += (long)sum;
    }
    mix((uint64_t)total);

    /* Sent, not raised by an instruction: nothing is there to be shown. */
    install(SIGFPE, looker, &old);
    wrong += old.sa_sigaction != stepper;
    wrong += sigaction(SIGFPE, &old, NULL) != 0;
    wrong += sigaction(SIGFPE, NULL, &old) != 0 || old.sa_sigaction != stepper;
    wrong += mgz_divide(5, 0) != 77;
    wrong += sigaction(SIGKILL, &old, NULL) != -1;
    report("handlers");
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
