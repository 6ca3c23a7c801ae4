/* IFUNCs: resolvers that load, called before main and through pointers, and constructors and destructors in their order. */
#include "mix.h"

static int table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
static int order;

static long by_sum(const int *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += p[i];
    return s;
}

static long by_product(const int *p, int n) {
    long s = 1;
    for (int i = 0; i < n; i++)
        s = s * 31 + p[i];
    return s;
}

typedef long kernel(const int *, int);

static kernel *resolve(void) {
    int most = 0;
    for (int i = 0; i < 8; i++)
        if (table[i] > table[most])
            most = i;
    return most == 5 ? by_product : by_sum;
}

long chosen(const int *, int) __attribute__((ifunc("resolve")));

__attribute__((constructor(101))) static void first(void) { mix((uint64_t)(++order * 10 + table[0])); }
__attribute__((constructor(202))) static void second(void) { mix((uint64_t)(++order * 10 + chosen(table, 8))); }
__attribute__((constructor)) static void third(void) { mix((uint64_t)(++order * 10 + table[2])); }
__attribute__((destructor(202))) static void late(void) {
    mix((uint64_t)chosen(table, 9));
    report("late");
}
__attribute__((destructor)) static void early(void) { mix((uint64_t)by_sum(table, 5)); }

static void at_exit(void) { mix((uint64_t)(++order + table[7])); }

int main(void) {
    kernel *pointer = chosen;
    atexit(at_exit);
    for (int i = 0; i < 64; i++)
        table[i] += i;
    for (int i = 0; i < 60; i++)
        mix((uint64_t)(i % 2 ? pointer(table + i % 4, i) : chosen(table, i)));
    mix(pointer == chosen);
    mix((uint64_t)order);
    report("ifuncs");
    return order;
}
