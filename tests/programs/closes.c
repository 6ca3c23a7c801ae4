/* Opens and closes a library (its argument) again and again while another thread calls and returns. What calls through a null pointer then, or in a thread
   that comes after another one, must fault there, and must not run what was called before. */
#define _GNU_SOURCE
#include "mix.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

static unsigned long runs;
#define ONE(a, b, c) __attribute__((noinline)) static void f##a##b##c(void) { runs += a * 64 + b * 8 + c; }
#define EIGHT(a, b) ONE(a, b, 0) ONE(a, b, 1) ONE(a, b, 2) ONE(a, b, 3) ONE(a, b, 4) ONE(a, b, 5) ONE(a, b, 6) ONE(a, b, 7)
#define MANY(a) EIGHT(a, 0) EIGHT(a, 1) EIGHT(a, 2) EIGHT(a, 3) EIGHT(a, 4) EIGHT(a, 5) EIGHT(a, 6) EIGHT(a, 7)
MANY(0) MANY(1) MANY(2) MANY(3) MANY(4) MANY(5) MANY(6) MANY(7)
#undef ONE
#define ONE(a, b, c) f##a##b##c,
static void (*volatile functions[])(void) = {MANY(0) MANY(1) MANY(2) MANY(3) MANY(4) MANY(5) MANY(6) MANY(7)};
static void (*volatile null)(void);

static __thread sigjmp_buf back;
static __thread uintptr_t place;

static void handler(int signal, siginfo_t *info, void *context) {
    place = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] | (uintptr_t)info->si_addr;
    siglongjmp(back, signal);
}

/* Far more functions than a table of calls has room for. */
static void call_all(void) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        functions[i]();
}

static void call_nothing(void) {
    unsigned long before = runs;
    place = 1;
    int signal = sigsetjmp(back, 1);
    if (!signal)
        null();
    if (signal != SIGSEGV || place || runs != before) {
        printf("a call of nothing: signal %d at %#lx, functions ran: %d\n", signal, (long)place, runs != before);
        exit(1);
    }
}

static void *calls(void *unused) {
    call_nothing();
    call_all();
    return unused;
}

static volatile int stop;

__attribute__((noinline)) static uint32_t step(uint32_t *state, int depth) {
    uint32_t x = next_random(state);
    return depth ? x ^ step(state, depth - 1) : x;
}

static void *run(void *p) {
    uint32_t state = 1;
    while (!stop)
        *(uint32_t *)p += step(&state, 20);
    return 0;
}

int main(int argc, char **argv) {
    static int numbers[50];
    uint32_t value = 0;
    pthread_t thread, others;
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGSEGV, &action, 0);
    pthread_create(&thread, 0, run, &value);
    for (int round = 0; round < 300; round++) {
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        long (*sum)(const int *, int, long (*)(long)) = (long (*)(const int *, int, long (*)(long)))dlsym(library, "plugin_sum");
        mix((uint64_t)sum(numbers, 0, 0));
        if (round % 50 == 0)
            call_all();
        dlclose(library);
        if (round % 50 == 0)
            call_nothing();
    }
    for (int i = 0; i < 20; i++) {
        pthread_create(&others, 0, calls, 0);
        pthread_join(others, 0);
    }
    mix(runs);
    stop = 1;
    pthread_join(thread, 0);
    report("closes");
    return 0;
}
