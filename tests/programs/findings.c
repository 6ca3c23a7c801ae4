/* What mgz-analyze finds, each in a form in which it must and in one in which it must not: findings KIND good|bad */
#include "mix.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 512, MANY = 1 << 20, PAGES = 1024, WORDS = 512, PAIRS = 1 << 16, PICKS = 6000 };
static _Alignas(4096) double matrix[SIDE][SIDE];
static _Alignas(4096) uint64_t data[MANY];
static _Alignas(4096) uint64_t left[PAIRS], right[PAIRS];
static _Alignas(4096) struct { uint64_t left, right; } both[PAIRS];

__attribute__((noinline)) static double columns(void) {
    double sum = 0;
    for (int j = 0; j < SIDE; j += 16)
        for (int i = 0; i < SIDE; i++)
            sum += matrix[i][j];
    return sum;
}

__attribute__((noinline)) static double rows(void) {
    double sum = 0;
    for (int i = 0; i < SIDE; i += 16)
        for (int j = 0; j < SIDE; j++)
            sum += matrix[i][j];
    return sum;
}

__attribute__((noinline)) static uint64_t chain(uint64_t at, long steps) {
    for (long i = 0; i < steps; i++)
        at = data[at];
    return at;
}

__attribute__((noinline)) static uint64_t sweep(long words, long step, int times) {
    uint64_t sum = 0;
    for (int t = 0; t < times; t++)
        for (long i = 0; i < words; i += step)
            sum += data[i];
    return sum;
}

__attribute__((noinline)) static uint64_t apart(int times) {
    uint64_t sum = 0;
    for (int t = 0; t < times; t++)
        for (int i = 0; i < PICKS; i++) {
            uint32_t at = (uint32_t)i * 2654435761u >> 16;
            sum += left[at];
            sum ^= right[at];
        }
    return sum;
}

__attribute__((noinline)) static uint64_t together(int times) {
    uint64_t sum = 0;
    for (int t = 0; t < times; t++)
        for (int i = 0; i < PICKS; i++) {
            uint32_t at = (uint32_t)i * 2654435761u >> 16;
            sum += both[at].left;
            sum ^= both[at].right;
        }
    return sum;
}

int main(int argc, char **argv) {
    /* Nothing is stored there, but the compiler shall not know. */
    __asm__ volatile("" : : "r"(matrix), "r"(left), "r"(right), "r"(both) : "memory");
    const char *kind = argc > 1 ? argv[1] : "";
    int bad = argc > 2 && !strcmp(argv[2], "bad");
    uint64_t result = 0;
    if (!strcmp(kind, "stride")) {
        result = (uint64_t)(bad ? columns() : rows());
    } else if (!strcmp(kind, "irregular")) {
        /* A walk that steps by a number without a common divisor reaches all; the good one steps to the next word. */
        for (long i = 0; i < MANY; i++)
            data[i] = bad ? ((uint64_t)i * 715829 + 12345) % MANY : (uint64_t)(i + 1) % MANY;
        result = chain(1, 200000);
    } else if (!strcmp(kind, "streaming")) {
        result = bad ? sweep(MANY, 1, 1) : sweep(MANY / 16, 1, 16);
    } else if (!strcmp(kind, "sparse_pages")) {
        result = bad ? sweep((long)PAGES * WORDS, WORDS, 64) : sweep((long)PAGES * 64, 1, 1);
    } else if (!strcmp(kind, "capacity")) {
        result = sweep(bad ? 5000 : 2000, 1, 50);
    } else if (!strcmp(kind, "interleave")) {
        result = bad ? apart(20) : together(20);
    } else {
        return 1;
    }
    mix(result);
    report("findings");
    return 0;
}
