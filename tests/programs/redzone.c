/* Leaf functions that keep locals below the stack pointer, interrupted many times by a timer whose handler uses the stack. */
#include "mix.h"
#include <signal.h>
#include <sys/time.h>

static int table[1024];
static volatile int ticks;

static __attribute__((noinline)) int dirty(int n) {
    volatile char block[600];
    for (int i = 0; i < 600; i++)
        block[i] = (char)(i ^ n);
    return block[n % 600];
}

static void tick(int s) {
    ticks += 1 + 0 * dirty(s + ticks);
}

/* No calls and few locals: what does not fit into registers lies in the red zone. */
static __attribute__((noinline)) uint64_t leaf(const int *p, uint64_t seed) {
    volatile uint64_t a = seed, b = seed * 3, c = seed ^ 0x55, d = seed + 9, e = 1, f = 2;
    for (int i = 0; i < 64; i++) {
        a += (uint64_t)p[(b + (uint64_t)i) & 1023];
        b ^= a << 3 ^ (uint64_t)p[c & 1023];
        c += b >> 5 ^ d;
        d = d * 5 + (uint64_t)p[(e + d) & 1023];
        e += f * (uint64_t)p[i];
        f ^= e + a;
    }
    return a ^ b ^ c ^ d ^ e ^ f;
}

static __attribute__((noinline)) uint64_t scratch(const int *p, int n) {
    uint64_t kept[12];
    for (int i = 0; i < 12; i++)
        kept[i] = (uint64_t)p[(n + i * 7) & 1023];
    for (int i = 0; i < 200; i++)
        kept[i % 12] += kept[(i * 5 + 1) % 12] ^ (uint64_t)p[i];
    return kept[n % 12] + kept[(n + 5) % 12];
}

int main(void) {
    struct itimerval timer = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    uint32_t state = 3;
    for (int i = 0; i < 1024; i++)
        table[i] = (int)(next_random(&state) & 0xffff);
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 6000; i++) {
        mix(leaf(table, (uint64_t)i));
        mix(scratch(table, i));
    }
    while (ticks < 20)
        scratch(table, ticks);
    setitimer(ITIMER_REAL, &off, NULL);
    report("redzone");
    return 0;
}
