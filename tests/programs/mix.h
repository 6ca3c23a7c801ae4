/* Shared by the test programs: a checksum that depends on order, and a generator without state outside. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mgz_sum = 1469598103934665603u;

__attribute__((unused)) static void mix(uint64_t value) {
    mgz_sum = (mgz_sum ^ value) * 1099511628211u;
}

__attribute__((unused)) static uint32_t next_random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static void report(const char *name) {
    printf("%s %016llx\n", name, (unsigned long long)mgz_sum);
}
