/* What the programs of this folder have in common: `PROGRAM CASE SECONDS` does one thing for so long (CPU
 * time, so that what sets it up takes the same part of the run on a busy machine). Lines with the planted problem
 * have a comment `planted: CASE`. */
#ifndef PLANTED_H
#define PLANTED_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noipa))

static double planted_end;
static volatile uint64_t planted_sink;

static double planted_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether there is time left; the clock starts at the first call, when everything has been set up. */
static int planted_goes_on(double seconds) {
    double now = planted_now();
    if (planted_end == 0)
        planted_end = now + seconds;
    return now < planted_end;
}

static uint64_t planted_state = 88172645463325252u;

static uint64_t planted_random(void) {
    planted_state ^= planted_state << 13;
    planted_state ^= planted_state >> 7;
    planted_state ^= planted_state << 17;
    return planted_state;
}

/* A random order of 0 to n - 1. */
__attribute__((unused)) static uint32_t *planted_order(uint32_t n) {
    uint32_t *order = (uint32_t *)malloc(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(planted_random() % (i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    return order;
}
#endif
