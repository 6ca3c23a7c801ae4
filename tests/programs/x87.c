/* long double arithmetic on the x87 stack, and integer conversions through memory. */
#include "mix.h"

static long double v[64];
static double d[64];
static int n[64];
static short h[64];

__attribute__((noinline)) static long double dot(const long double *p, const double *q, int count) {
    long double s = 0;
    for (int i = 0; i < count; i++)
        s += p[i] * q[i];
    return s;
}

__attribute__((noinline)) static long double horner(const long double *p, int count, long double x) {
    long double s = 0;
    while (count--)
        s = s * x + p[count];
    return s;
}

__attribute__((noinline)) static int through_memory(const int *i, const short *s, const double *x) {
    int out;
    unsigned short control = 0;
    __asm__ volatile("fnstcw %1\n\tfildl %2\n\tfiadds %3\n\tfmull %4\n\tfistpl %0\n\tfldcw %1"
                     : "=m"(out), "+m"(control)
                     : "m"(*i), "m"(*s), "m"(*x)
                     : "memory");
    return out;
}

int main(void) {
    uint32_t state = 55;
    for (int i = 0; i < 64; i++) {
        n[i] = (int)(next_random(&state) % 1000);
        h[i] = (short)(next_random(&state) % 100);
        v[i] = (long double)n[i] / 8;
        d[i] = h[i];
    }
    mix((uint64_t)dot(v, d, 64));
    mix((uint64_t)(int64_t)(horner(v, 20, 0.5L) * 1000));
    for (int i = 0; i < 64; i += 5)
        mix((uint64_t)through_memory(&n[i], &h[i], &d[i]));
    report("x87");
    return 0;
}
