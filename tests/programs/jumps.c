/* setjmp and longjmp: out of nested calls, in a loop, out of a callback. */
#include "mix.h"
#include <setjmp.h>

static jmp_buf where;
static int depth_limit;

__attribute__((noinline)) static int dive(const int *p, int depth) {
    if (depth == depth_limit)
        longjmp(where, p[depth] + 1);
    return dive(p, depth + 1) + p[depth];
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    if (x == 13 || y == 13)
        longjmp(where, 99);
    return x - y;
}

int main(void) {
    int data[16];
    for (int i = 0; i < 16; i++)
        data[i] = i * 3 % 17;
    volatile int round = 0;
    int got = setjmp(where);
    mix((uint64_t)got);
    if (round < 10) {
        round++;
        depth_limit = round;
        mix((uint64_t)dive(data, 0));
    }
    int second[40];
    for (int i = 0; i < 40; i++)
        second[i] = (i * 7 + 13) % 41;
    jmp_buf saved;
    memcpy(&saved, &where, sizeof saved);
    if (setjmp(where) == 0) {
        qsort(second, 40, sizeof *second, compare);
        mix(1);
    } else {
        mix(2);
    }
    report("jumps");
    return 0;
}
