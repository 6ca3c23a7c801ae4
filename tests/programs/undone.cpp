/* Threads that are cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS) in a loop without calls: what their callers do on the way out finds its registers, and what
   was loaded has been loaded. The loop uses every register that a function need not keep, so that probes borrow others. */
#include "mix.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

typedef void (*loop)(const int *, volatile uint64_t *);

extern "C" void counted(const int *data, volatile uint64_t *passes);

/* One load in each pass, and so slow that a recorder keeps up. */
__asm__(R"(
    .text
    .globl counted
    .type counted, @function
counted:
    .cfi_startproc
    xorl %eax, %eax
    movl $1, %ecx
    movl $2, %edx
    movl $3, %r8d
    movl $4, %r9d
    movl $5, %r10d
    xorl %r11d, %r11d
1:  addq (%rdi,%r11,8), %rax
    addq %rax, %rcx
    addq %rcx, %rdx
    addq %rdx, %r8
    addq %r8, %r9
    addq %r9, %r10
    xorq %r10, %rax
    pause
    pause
    pause
    pause
    incl %r11d
    andl $63, %r11d
    incq (%rsi)
    jmp 1b
    .cfi_endproc
    .size counted, . - counted
)");

static int data[128];
static volatile uint64_t passes;
static int kept, lost;
static sem_t ready;
static volatile loop work = counted;

__attribute__((noinline)) static void caller(int *a, int *b, int *c) {
    try {
        work(data, &passes);
    } catch (...) {
        /* Forced unwinding; the pointers were in registers. */
        (*a == 1 && *b == 2 && *c == 3 ? kept : lost)++;
        throw;
    }
    __asm__ volatile("" ::"r"(a), "r"(b), "r"(c));
}

static void *cancelled(void *) {
    int a = 1, b = 2, c = 3, old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    mix((uint64_t)old);
    sem_post(&ready);
    caller(&a, &b, &c);
    return 0;
}

int main() {
    sem_init(&ready, 0, 0);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *result = 0;
        pthread_create(&thread, 0, cancelled, 0);
        sem_wait(&ready);
        /* On a busy machine the thread may not have come to its loop yet. */
        for (uint64_t before = passes; passes == before;)
            usleep(100);
        usleep(2000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        mix(result == PTHREAD_CANCELED);
    }
    report("undone");
    printf("%d %d\n", kept, lost);
    fprintf(stderr, "passes %llu\n", (unsigned long long)passes);
    return 0;
}
