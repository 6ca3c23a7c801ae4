// Code that is spread over many small functions: called through a table in no order ("table"), and by one another
// ("web"). Same work in every run.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline))

static uint64_t cells[4096];

// Two cells, one of which is changed.
#define ONE(n)                                                                \
    KEEP static uint64_t of_##n(uint64_t x) {                                 \
        x += cells[(x ^ 0x##n * 2654435761u) & 4095] * (2 * 0x##n + 1);       \
        cells[x >> (0x##n & 15) & 4095] += x;                                 \
        return x ^ 0x##n * 40503u;                                            \
    }
#define SIXTEEN(high)                                                            \
    ONE(high##0) ONE(high##1) ONE(high##2) ONE(high##3) ONE(high##4) ONE(high##5) ONE(high##6) ONE(high##7) \
    ONE(high##8) ONE(high##9) ONE(high##a) ONE(high##b) ONE(high##c) ONE(high##d) ONE(high##e) ONE(high##f)
#define NAMES(high)                                                              \
    of_##high##0, of_##high##1, of_##high##2, of_##high##3, of_##high##4, of_##high##5, of_##high##6, of_##high##7, \
    of_##high##8, of_##high##9, of_##high##a, of_##high##b, of_##high##c, of_##high##d, of_##high##e, of_##high##f
SIXTEEN(0) SIXTEEN(1) SIXTEEN(2) SIXTEEN(3) SIXTEEN(4) SIXTEEN(5) SIXTEEN(6) SIXTEEN(7)
SIXTEEN(8) SIXTEEN(9) SIXTEEN(a) SIXTEEN(b) SIXTEEN(c) SIXTEEN(d) SIXTEEN(e) SIXTEEN(f)

static uint64_t (*const all[256])(uint64_t) = {
    NAMES(0), NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7),
    NAMES(8), NAMES(9), NAMES(a), NAMES(b), NAMES(c), NAMES(d), NAMES(e), NAMES(f),
};

// Each calls one of the small functions by itself and the next level twice, or not.
#define LEVEL(n, next)                                                        \
    KEEP static uint64_t level_##n(uint64_t x) {                              \
        x = of_##n##3(x) + of_##n##a(x);                                      \
        if (x & 1) x = next(x);                                               \
        if (x & 6) x += next(of_##n##7(x));                                   \
        return x + cells[x & 4095];                                           \
    }
LEVEL(f, of_ff) LEVEL(e, level_f) LEVEL(d, level_e) LEVEL(c, level_d) LEVEL(b, level_c) LEVEL(a, level_b)
LEVEL(9, level_a) LEVEL(8, level_9) LEVEL(7, level_8) LEVEL(6, level_7)

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 1;
    int is_table = argc < 2 || strcmp(argv[1], "web") != 0;
    uint64_t x = 1, state = 88172645463325252u;
    for (int i = 0; i < 4096; i++) cells[i] = i * 2654435761u;
    for (long round = 0; round < rounds; round++) {
        if (!is_table) {
            x += level_6(x + (uint64_t)round);
            continue;
        }
        for (int i = 0; i < 256; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            x = all[state >> 11 & 255](x);
        }
    }
    printf("%llu\n", (unsigned long long)x);
    return 0;
}
