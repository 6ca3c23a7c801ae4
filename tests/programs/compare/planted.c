/* Three kernels by turns. The second argument makes one thing larger by that many percent: the table that `walk` reads in order (footprint), the table
 * that `gather` reads at random (misses), or the rounds of `count` (its share of the time). The third
 * is how long it goes on, CPU seconds; the fourth how often instead. benches/run compare runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static long walk(const long *table, size_t words) {
    long sum = 0;
    for (size_t i = 0; i < words; i++)
        sum += table[i];
    return sum;
}

__attribute__((noinline)) static long gather(const long *table, size_t words, long times, unsigned long *seed) {
    long sum = 0;
    unsigned long x = *seed;
    for (long i = 0; i < times; i++) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        sum += table[(x >> 33) % words];
    }
    *seed = x;
    return sum;
}

__attribute__((noinline)) static long count(const int *small, long rounds) {
    long sum = 0;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < 1024; i++)
            sum += small[i] ^ r;
    return sum;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "none";
    double more = 1 + (argc > 2 ? atof(argv[2]) : 0) / 100;
    double seconds = argc > 3 ? atof(argv[3]) : 2;
    long times = argc > 4 ? atol(argv[4]) : 0;
    size_t walked = 1 << 18, gathered = 1 << 20;
    long rounds = 700;
    if (!strcmp(what, "footprint"))
        walked *= more;
    if (!strcmp(what, "misses"))
        gathered *= more;
    if (!strcmp(what, "line"))
        rounds *= more;
    long *first = calloc(walked, sizeof *first), *second = calloc(gathered, sizeof *second);
    static int small[1024];
    unsigned long seed = 1;
    long sum = 0;
    memset(first, 1, walked * sizeof *first);
    memset(second, 1, gathered * sizeof *second);
    double end = now() + seconds;
    for (long turn = 0; times ? turn < times : now() < end; turn++)
        sum += walk(first, walked) + gather(second, gathered, 60000, &seed) + count(small, rounds);
    printf("%ld\n", sum);
    return 0;
}
