/* Calls: tail calls, function pointers in tables and on the stack, callbacks by the C library, memory operands of
   call, constructors and destructors, atexit, weak and comparing function addresses. */
#include "mix.h"
#include <search.h>

typedef long (*step)(long, const long *);
static long values[32];

__attribute__((noinline)) static long up(long x, const long *p) { return x + p[0]; }
__attribute__((noinline)) static long twice(long x, const long *p) { return x * 2 + p[1]; }
__attribute__((noinline)) static long flip(long x, const long *p) { return x ^ p[2]; }
__attribute__((noinline)) static long chain(long x, const long *p) { return x & 1 ? twice(x, p + 1) : flip(x, p + 2); }
static const step table[] = {up, twice, flip, chain};
static step writable[4];

__attribute__((noinline)) static long loop(long n, long acc, const step *s) {
    if (n == 0)
        return acc;
    return loop(n - 1, s[n & 3](acc, values + (n & 15)) & 0xffffff, s);
}

static int by_value(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

extern int absent(void) __attribute__((weak));
static int started;
__attribute__((constructor)) static void before(void) {
    for (int i = 0; i < 32; i++)
        values[i] = (i * 37) % 64;
    started = 1;
}
static void last(void) { printf("last %ld\n", values[3]); }

int main(void) {
    atexit(last);
    mix((uint64_t)started);
    mix((uint64_t)loop(200, 1, table));
    memcpy(writable, table, sizeof table);
    step t = writable[1];
    writable[1] = writable[2];
    writable[2] = t;
    mix((uint64_t)loop(100, 1, writable));
    mix(writable[2] == twice);
    mix(table[0] == up);
    qsort(values, 32, sizeof *values, by_value);
    long key = values[9];
    long *found = bsearch(&key, values, 32, sizeof key, by_value);
    mix((uint64_t)(*found));
    mix(absent ? 1 : 0);
    for (int i = 0; i < 32; i++)
        mix((uint64_t)values[i]);
    report("calls");
    return 0;
}
