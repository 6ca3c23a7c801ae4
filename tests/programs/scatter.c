/* Millions of loads in random order: a trace that does not compress. */
#include "mix.h"

int main(void) {
    static uint32_t data[1 << 18];
    uint32_t state = 5;
    for (int i = 0; i < 1 << 18; i++)
        data[i] = next_random(&state);
    uint64_t s = 0;
    for (int i = 0; i < 6000000; i++)
        s = s * 3 + data[next_random(&state) >> 14];
    mix(s);
    report("scatter");
    return 0;
}
