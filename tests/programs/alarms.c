/* Asynchronous signals: a timer interrupts loops many times; the handler loads and stores. Its checksum does
   not depend on when the signals come. */
#include "mix.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static int private_table[256];

static void tick(int s) {
    for (int i = 0; i < 256; i++)
        private_table[i] += private_table[(i * 7 + s) & 255] + 1;
    ticks++;
}

__attribute__((noinline)) static uint64_t work(const uint32_t *p, int n) {
    uint64_t s = 0;
    for (int i = 0; i < n; i++)
        s = s * 3 + p[i] + p[(i * 17) % n] + p[(i * 29) % n];
    return s;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 400;
    static uint32_t data[1000];
    uint32_t state = 3;
    for (int i = 0; i < 1000; i++)
        data[i] = next_random(&state);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = tick;
    a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    struct itimerval every = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &every, 0);
    for (int i = 0; i < rounds || ticks < 50; i++) {
        uint64_t r = work(data, 1000);
        if (i < rounds)
            mix(r);
    }
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, 0);
    report("alarms");
    return 0;
}
