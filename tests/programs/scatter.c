/* Millions of loads in random order: a trace that does not compress. The argument is their number. */
#include "mix.h"

__attribute__((noinline)) static uint64_t scatter(const uint32_t *p, uint32_t state, long n) {
    uint64_t s = 0;
    for (long i = 0; i < n; i++)
        s = s * 3 + p[next_random(&state) >> 14];
    return s;
}

int main(int argc, char **argv) {
    static uint32_t data[1 << 18];
    uint32_t state = 5;
    for (int i = 0; i < 1 << 18; i++)
        data[i] = next_random(&state);
    mix(scatter(data, state, argc > 1 ? atol(argv[1]) : 6000000));
    report("scatter");
    return 0;
}
