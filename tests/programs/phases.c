// Three ways to load, in turns, as often as the argument says: 25,000 and some loads, 327,680, and 30,000 in a round; says on standard error how much of its thread's CPU time each took, in nanoseconds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NODES = 1 << 16, WORDS = 1 << 13 };
static uint32_t next[NODES];
static uint64_t words[WORDS];

__attribute__((noinline, noipa)) static uint64_t chase(long n) {
    uint32_t at = 0;
    while (n-- > 0)
        at = next[at];
    return at;
}

__attribute__((noinline, noipa)) static uint64_t sum(long n) {
    uint64_t total = 0;
    while (n-- > 0)
        for (int i = 0; i < WORDS; i++)
            total += words[i] ^ total >> 3;
    return total;
}

__attribute__((noinline, noipa)) static uint64_t mix(long n) {
    uint64_t x = 88172645463325252ull;
    while (n-- > 0) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x += words[x % WORDS] / 3;
    }
    return x;
}

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 250;
    for (uint32_t i = 0; i < NODES; i++)
        next[i] = (i * 40503u + 12345) % NODES;
    for (int i = 0; i < WORDS; i++)
        words[i] = i * 2654435761u;
    long spent[3] = {0};
    uint64_t result = 0;
    for (int round = 0; round < rounds; round++) {
        long a = now();
        result += chase(25000 + round % 250);
        long b = now();
        result += sum(40);
        long c = now();
        result += mix(30000);
        long d = now();
        spent[0] += b - a;
        spent[1] += c - b;
        spent[2] += d - c;
    }
    fprintf(stderr, "phases %ld %ld %ld\n", spent[0], spent[1], spent[2]);
    printf("%llu\n", (unsigned long long)result);
    return 0;
}
