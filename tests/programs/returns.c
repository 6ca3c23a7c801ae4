// Functions that call each other while somebody looks at return addresses: the profiler of -pg, the functions of -finstrument-functions (ENDS), a function that is told
// who has called it (ASKED), or backtrace (WALKED). What they see is printed, relative to where the program begins.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define QUIET __attribute__((no_instrument_function))
#define APART __attribute__((noinline))
extern char __executable_start;
static uint64_t seen, times;
static int table[1024];

// Addresses of other files differ from run to run.
QUIET static uint64_t relative(void *address) {
    uint64_t at = (char *)address - &__executable_start;
    return at < 1 << 20 ? at : 1;
}
QUIET static void add(void *address) { seen = seen * 31 + relative(address), times++; }

#ifdef ENDS
QUIET void __cyg_profile_func_enter(void *function, void *caller) { add(function), add(caller); }
QUIET void __cyg_profile_func_exit(void *function, void *caller) { add(caller), add(function); }
#endif

#ifdef ASKED
static int is_asked;
APART void note(const char *what, int value) {
    if (!is_asked) return;
    add(__builtin_return_address(0));
    if (times < 3) printf("%s %d %llx\n", what, value, (unsigned long long)relative(__builtin_return_address(0)));
}
#elif defined(WALKED)
#include <execinfo.h>
APART void note(const char *what, int value) {
    void *callers[16];
    int count = backtrace(callers, 16);
    for (int i = 0; i < count; i++)
        if (relative(callers[i]) > 1) add(callers[i]);
    table[value & 1023] += what[0] & 1;
}
#else
#define note(what, value) ((void)(what))
#endif

APART int leaf(int i) { int sum = table[i & 1023] + (i & 1 ? table[i * 3 & 1023] : 0); note("leaf", i); return sum; }
APART int many(int i) { int sum = 0; for (int k = 0; k < 8; k++) sum += leaf(i + k) ^ table[k]; return sum; }
APART int down(int depth) { return depth ? down(depth - 1) + leaf(depth) : many(3); }
static int order(const void *a, const void *b) { return leaf(*(const int *)a) - leaf(*(const int *)b); }
int (*volatile chosen[3])(int) = {leaf, many, down};

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000, sum = 0, sorted[100];
    for (int i = 0; i < 1024; i++) table[i] = i * 77777 & 1023;
#ifdef ASKED
    is_asked = 1;
#endif
    for (int i = 0; i < rounds; i++) sum += many(i) + down(i & 7) + chosen[i % 3](i & 7);
    for (int i = 0; i < 100; i++) sorted[i] = i * 37 % 101;
    qsort(sorted, 100, sizeof *sorted, order);
    printf("%d %d %llx %llu\n", sum, sorted[7], (unsigned long long)seen, (unsigned long long)times);
    return 3;
}
