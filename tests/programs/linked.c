/* Uses plugin.c as a library that it is linked to. */
#include "mix.h"

long plugin_sum(const int *p, int n, long (*callback)(long));

static long add(long x) {
    return x * 2;
}

int main(void) {
    int numbers[40];
    for (int i = 0; i < 40; i++)
        numbers[i] = i * 7;
    mix((uint64_t)plugin_sum(numbers, 40, add));
    report("linked");
    return 0;
}
