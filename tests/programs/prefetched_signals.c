// A timer's signal whose handler walks the stack interrupts a loop whose loads are prefetched. Every walk
// must come to main.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unwind.h>

static volatile sig_atomic_t samples, cut;
static uintptr_t outermost;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *reached) {
    if (_Unwind_GetCFA(context) >= outermost)
        *(int *)reached = 1;
    return _URC_NO_REASON;
}

static void tick(int signal) {
    int reached = 0;
    (void)signal;
    _Unwind_Backtrace(visit, &reached);
    samples++;
    cut += !reached;
}

__attribute__((noinline)) static uint64_t gather(const int32_t *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= data[index[i]] + (sum << 1);
    return sum;
}

int main(void) {
    enum { LENGTH = 1 << 20 };
    uint64_t *data = malloc(LENGTH * sizeof *data), sum = 0, state = 88172645463325252u;
    int32_t *index = malloc(LENGTH * sizeof *index);
    for (long i = 0; i < LENGTH; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data[i] = state;
        index[i] = state >> 20 & (LENGTH - 1);
    }
    outermost = (uintptr_t)__builtin_frame_address(0);
    signal(SIGPROF, tick);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, 0);
    int turns = 0;
    for (; turns < 2000 && samples < 40; turns++)
        sum = gather(index, LENGTH, data);
    struct itimerval never = {0};
    setitimer(ITIMER_PROF, &never, 0);
    printf("%016lx %s %d\n", sum, samples >= 40 ? "interrupted" : "never interrupted", (int)cut);
    return 0;
}
