/* Branches behind a prefix, as hand-written atomics and the C library's locks have them: `lock` is skipped while there is one thread,
   `rep` where one step is enough. With and without the prefix it is two instructions at two addresses. A timer interrupts them; its
   handler changes a register that nobody needs, so that it matters where the interrupted code goes on: an update that is done twice
   is seen in the sums. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

struct cell {
    uint32_t added, swapped;
    uint64_t counted, summed;
};

enum { CELLS = 97, STEPS = 200 };

static volatile sig_atomic_t ticks;
static __thread volatile int inside;

static void tick(int s, siginfo_t *info, void *context) {
    (void)s;
    (void)info;
    if (inside)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_R15]++;
    ticks++;
}

#define ONCE "cmpl $0, %[many]\n\tje 1f\n\tlock\n1:\t"

/* One update of each kind on each cell of a list. */
__attribute__((noinline)) static uint32_t update(struct cell **list, long n, int many) {
    uint32_t sum = 0;
    inside = 1;
    __asm__ volatile("2:\tmovq (%[list]), %%rdx\n\t"
                     "movl $1, %%ecx\n\t" ONCE "xaddl %%ecx, (%%rdx)\n\t"
                     "addl %%ecx, %[sum]\n"
                     "3:\tmovl 4(%%rdx), %%eax\n\t"
                     "leal 3(%%rax), %%ecx\n\t" ONCE "cmpxchgl %%ecx, 4(%%rdx)\n\t"
                     "jne 3b\n\t" ONCE "incq 8(%%rdx)\n\t" ONCE "addq $5, 16(%%rdx)\n\t"
                     "addq $8, %[list]\n\t"
                     "decq %[n]\n\t"
                     "jnz 2b\n\t"
                     : [list] "+r"(list), [n] "+r"(n), [sum] "+r"(sum)
                     : [many] "r"(many)
                     : "rax", "rcx", "rdx", "r15", "memory", "cc");
    inside = 0;
    return sum;
}

/* Copies n bytes, or one. */
__attribute__((noinline)) static long copy(char *to, const char *from, long n, int many) {
    char *start = to;
    inside = 1;
    __asm__ volatile("cmpl $0, %[many]\n\tje 1f\n\trep\n1:\tmovsb\n\t" : "+D"(to), "+S"(from), "+c"(n) : [many] "r"(many) : "r15", "memory", "cc");
    inside = 0;
    return to - start;
}

static struct cell cells[CELLS], others[CELLS], shared[4];

static void pick(struct cell **list, struct cell *from, uint32_t *state) {
    for (int i = 0; i < STEPS; i++)
        list[i] = &from[next_random(state) % CELLS];
}

/* Whether the cells have seen this many updates of each kind. */
static int agree(const struct cell *from, int n, uint64_t updates) {
    uint64_t added = 0, swapped = 0, counted = 0, summed = 0;
    for (int i = 0; i < n; i++) {
        added += from[i].added;
        swapped += from[i].swapped;
        counted += from[i].counted;
        summed += from[i].summed;
    }
    return added == updates && swapped == 3 * updates && counted == updates && summed == 5 * updates;
}

static void *sharer(void *argument) {
    struct cell *list[STEPS];
    for (int i = 0; i < STEPS; i++)
        list[i] = &shared[(i * 7 + (int)(intptr_t)argument) % 4];
    for (int i = 0; i < 300; i++)
        update(list, STEPS, 1);
    return 0;
}

int main(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = tick;
    a.sa_flags = SA_RESTART | SA_SIGINFO;
    sigaction(SIGALRM, &a, 0);
    struct itimerval every = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &every, 0);

    struct cell *list[STEPS];
    uint32_t state = 11;
    char text[300], out[300];
    for (int i = 0; i < 300; i++)
        text[i] = (char)next_random(&state);
    for (int round = 0; round < 200; round++) {
        pick(list, cells, &state);
        mix(update(list, STEPS, round & 1));
        memset(out, 0, sizeof out);
        mix((uint64_t)copy(out, text + round, 1 + round % 90, round >> 1 & 1));
        for (int i = 0; i < 100; i++)
            mix((uint64_t)out[i]);
    }
    mix((uint64_t)agree(cells, CELLS, 200 * STEPS));
    for (int i = 0; i < CELLS; i++)
        mix(cells[i].added ^ cells[i].summed << 20);

    uint64_t more = 0;
    for (int round = 0; ticks < 120 || round < 10; round++, more += STEPS) {
        pick(list, others, &state);
        update(list, STEPS, round & 1);
    }
    mix((uint64_t)agree(others, CELLS, more));

    pthread_t thread[2];
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&thread[i], 0, sharer, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], 0);
    mix((uint64_t)agree(shared, 4, 2 * 300 * STEPS));
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, 0);
    report("locks");
    return 0;
}
