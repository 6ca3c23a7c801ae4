/* Stack use: variable arrays, alloca, variable arguments, large frames, over-aligned locals. */
#include "mix.h"
#include <alloca.h>
#include <stdarg.h>

__attribute__((noinline)) static long variable(int n) {
    int v[n];
    for (int i = 0; i < n; i++)
        v[i] = i * n;
    long s = 0;
    for (int i = n - 1; i >= 0; i--)
        s = s * 2 + v[(i * 3) % n];
    return s;
}

__attribute__((noinline)) static int with_alloca(int n) {
    char *p = alloca((size_t)n + 1);
    for (int i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    p[n] = 0;
    int s = 0;
    for (char *q = p; *q; q++)
        s = s * 3 + *q;
    return s;
}

__attribute__((noinline)) static long arguments(const char *kinds, ...) {
    va_list list;
    va_start(list, kinds);
    long s = 0;
    for (; *kinds; kinds++)
        switch (*kinds) {
        case 'i': s = s * 3 + va_arg(list, int); break;
        case 'l': s = s * 5 + va_arg(list, long); break;
        case 'd': s = s * 7 + (long)va_arg(list, double); break;
        case 's': s = s * 11 + (long)strlen(va_arg(list, char *)); break;
        }
    va_end(list);
    return s;
}

__attribute__((noinline)) static int large(int k) {
    volatile int room[6000];
    for (int i = 0; i < 6000; i += 500)
        room[i] = i + k;
    int s = 0;
    for (int i = 0; i < 6000; i += 1000)
        s += room[i];
    return s;
}

__attribute__((noinline)) static double aligned(double x) {
    _Alignas(64) double v[8];
    for (int i = 0; i < 8; i++)
        v[i] = x * i;
    mix((uintptr_t)v % 64);
    double s = 0;
    for (int i = 0; i < 8; i++)
        s += v[7 - i] * (i + 1);
    return s;
}

__attribute__((noinline)) static long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

int main(void) {
    for (int i = 1; i < 40; i += 3) {
        mix((uint64_t)variable(i));
        mix((uint64_t)with_alloca(i));
    }
    mix((uint64_t)arguments("ildsiiiiiidddddddddd", 1, 2L, 3.0, "four", 5, 6, 7, 8, 9, 10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.));
    mix((uint64_t)large(3));
    mix((uint64_t)aligned(3));
    mix((uint64_t)many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    report("stack");
    return 0;
}
