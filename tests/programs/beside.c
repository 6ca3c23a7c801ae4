/* Stacks of threads that lie beside each other and beside memory of the program, so that the kernel or who reads its
 * list of mappings takes several for one; of several sizes; used again by later threads; given by the program; and what
 * lies in threads' hands without being their stacks: stacks of coroutines and of signal handlers.
 *
 * Each kind of memory is read by a function of its own. Prints for each thread: name of its function, thread id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { WORDS = 4096, WALKS = 20, LARGE = 8 << 20 };

#define WALK(name)                                                            \
    __attribute__((noinline)) static uint64_t name(const volatile uint64_t *words) { \
        uint64_t sum = 0;                                                     \
        for (int w = 0; w < WALKS; w++)                                       \
            for (int i = 0; i < WORDS; i++)                                   \
                sum += words[i];                                              \
        return sum;                                                           \
    }
WALK(read_main)
WALK(read_mapping)
WALK(read_first)
WALK(read_small)
WALK(read_large)
WALK(read_given)
WALK(read_later)
WALK(read_coroutine)
WALK(read_handler)

static pthread_barrier_t all_there;
static ucontext_t outside, inside;
static uint64_t sums[16];

static uint64_t on_stack(uint64_t (*walk)(const volatile uint64_t *)) {
    volatile uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = (uint64_t)i;
    return walk(words);
}

static void tell(const char *name) {
    char line[64];
    int length = snprintf(line, sizeof line, "%s %ld\n", name, (long)syscall(SYS_gettid));
    if (write(1, line, (size_t)length) != length)
        _exit(1);
}

struct work {
    const char *name;
    uint64_t (*walk)(const volatile uint64_t *);
    int together;
};

static void *start(void *argument) {
    struct work *work = argument;
    tell(work->name);
    if (work->together)
        pthread_barrier_wait(&all_there);
    sums[0] += on_stack(work->walk);
    if (work->together)
        pthread_barrier_wait(&all_there);
    return 0;
}

static void coroutine(void) {
    sums[1] = on_stack(read_coroutine);
    swapcontext(&inside, &outside);
}

static void *on_other_stacks(void *argument) {
    static char memory[4 * WORDS * sizeof(uint64_t)];
    (void)argument;
    tell("read_nothing");
    getcontext(&inside);
    inside.uc_stack.ss_sp = memory;
    inside.uc_stack.ss_size = sizeof memory;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    return 0;
}

static void handler(int number) {
    (void)number;
    sums[2] = on_stack(read_handler);
}

int main(void) {
    pthread_t threads[4];
    pthread_attr_t small, large, given;
    /* The first thread's stack comes to lie right below this. */
    volatile uint64_t *mapping = mmap(0, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = malloc(1 << 20);
    if (mapping == MAP_FAILED || !block || pthread_barrier_init(&all_there, 0, 4))
        return 1;
    for (int i = 0; i < WORDS; i++)
        mapping[i] = (uint64_t)i;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    /* Without a guard nothing tells where one ends and another begins. */
    pthread_attr_setguardsize(&small, 0);
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 2 << 20);
    pthread_attr_setguardsize(&large, 0);
    pthread_attr_init(&given);
    pthread_attr_setstack(&given, block + 4096 - ((uintptr_t)block & 4095), 512 << 10);
    struct work works[] = {
        {"read_first", read_first, 1}, {"read_small", read_small, 1}, {"read_large", read_large, 1}, {"read_given", read_given, 1},
    };
    const pthread_attr_t *attributes[] = {0, &small, &large, &given};
    for (int t = 0; t < 4; t++)
        if (pthread_create(&threads[t], attributes[t], start, &works[t]))
            return 1;
    sums[3] = on_stack(read_main) + read_mapping(mapping);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], 0);
    /* On the first one's stack, one after the other, some of them for very short. */
    for (int t = 0; t < 5; t++) {
        struct work later = {"read_later", read_later, 0};
        if (pthread_create(&threads[0], 0, start, &later))
            return 1;
        pthread_join(threads[0], 0);
    }
    if (pthread_create(&threads[0], 0, on_other_stacks, 0))
        return 1;
    pthread_join(threads[0], 0);
    stack_t alternate = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, 0) || sigaction(SIGUSR1, &action, 0) || raise(SIGUSR1))
        return 1;
    return 0;
}
