/* A timer interrupts loops of loads with one and with two registers in their addresses. The handler loads and stores, too. The output does not depend on the
   number of interruptions. With `p` there is no timer. */
#include "mix.h"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

enum { N = 64, ROUNDS = 1500, MICROSECONDS = 20 };
static uint64_t first[N], second[N];
static volatile uint64_t handled[N];
static volatile int ticks;

static void tick(int s) {
    (void)s;
    ticks++;
    handled[ticks % N] += handled[(ticks * 7) % N] + 1;
}

static void set_timer(int microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, 0);
}

__attribute__((noinline, noipa)) uint64_t walked(const uint64_t *a, const uint64_t *b, int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 3 + a[i] + b[i] + a[b[i] % N] + b[a[i] % N];
    return sum;
}

int main(int argc, char **argv) {
    int has_timer = argc < 2 || argv[1][0] != 'p';
    uint32_t state = 5;
    for (int i = 0; i < N; i++) {
        first[i] = next_random(&state);
        second[i] = next_random(&state);
    }
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = tick;
    sigaction(SIGALRM, &a, 0);
    if (has_timer)
        set_timer(MICROSECONDS);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 1; i <= 4; i++)
            mix(walked(first, second, N / i));
    set_timer(0);
    report("ticking");
    return 0;
}
