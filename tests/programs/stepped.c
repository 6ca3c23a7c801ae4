/* A handler for each single instruction: the trap flag is set around loops of loads with one and with two registers in their addresses. The handler loads and
   stores, too. What is printed does not depend on how many steps there are. With `p` the flag is not set. */
#include "mix.h"
#include <signal.h>
#include <stdio.h>

enum { N = 64 };
static uint64_t first[N], second[N];
static volatile uint64_t handled[N];
static volatile int steps;

static void trap(int s) {
    (void)s;
    steps++;
    handled[steps % N] += handled[(steps * 7) % N] + 1;
}

static void set_trap_flag(void) {
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
}

static void clear_trap_flag(void) {
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
}

__attribute__((noinline)) uint64_t walked(const uint64_t *a, const uint64_t *b, int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 3 + a[i] + b[i] + a[b[i] % N] + b[a[i] % N];
    return sum;
}

int main(int argc, char **argv) {
    int steps_on = argc < 2 || argv[1][0] != 'p';
    uint32_t state = 5;
    for (int i = 0; i < N; i++) {
        first[i] = next_random(&state);
        second[i] = next_random(&state);
    }
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = trap;
    sigaction(SIGTRAP, &a, 0);
    for (int i = 1; i <= 4; i++) {
        if (steps_on)
            set_trap_flag();
        uint64_t sum = walked(first, second, N / i);
        if (steps_on)
            clear_trap_flag();
        mix(sum);
    }
    if (steps_on && steps < 1000)
        printf("only %d steps\n", steps);
    report("stepped");
    return 0;
}
