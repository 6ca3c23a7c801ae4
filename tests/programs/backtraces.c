/* backtrace() from the depth of a recursion, from a callback, and from signal handlers; _Unwind_Backtrace with
   the frames' canonical addresses. Prints numbers of frames and whether the stack pointers grow. */
#define _GNU_SOURCE
#include "mix.h"
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <unwind.h>

static int frames;
static uintptr_t last_frame;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data) {
    uintptr_t frame = _Unwind_GetCFA(context);
    (void)data;
    if (frame < last_frame)
        mix(666);
    last_frame = frame;
    frames++;
    return _URC_NO_REASON;
}

__attribute__((noinline)) static int leaf(const int *p) {
    void *addresses[64];
    int n = backtrace(addresses, 64);
    frames = 0;
    last_frame = 0;
    _Unwind_Backtrace(visit, 0);
    printf("%d %d\n", n, frames);
    return p[n & 7] + n;
}

__attribute__((noinline)) static int down(const int *p, int depth) {
    if (depth == 0)
        return leaf(p);
    int r = down(p, depth - 1);
    return r * 3 + p[depth & 7];
}

static int data[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static int compare(const void *a, const void *b) {
    static int calls;
    if (++calls == 5)
        mix((uint64_t)leaf(data));
    return *(const int *)a - *(const int *)b;
}

/* Whatever calls the handler must not be seen: right behind it is the signal's frame, then what was interrupted. */
__attribute__((noinline)) static int behind_handler(void) {
    void *addresses[64];
    int n = backtrace(addresses, 64);
    frames = 0;
    last_frame = 0;
    _Unwind_Backtrace(visit, 0);
    printf("%d %d behind the handler\n", n, frames);
    return n;
}

__attribute__((noinline)) static void from_inside(const int *p, int depth) {
    volatile int here = p[depth & 7];
    if (depth == 0)
        here += *(volatile int *)0;
    else
        from_inside(p, depth - 1);
}

static sigjmp_buf out;

static void fault_handler(int s) {
    (void)s;
    mix((uint64_t)behind_handler());
    siglongjmp(out, 1);
}

static void handler(int s) {
    (void)s;
    mix((uint64_t)behind_handler());
}

int main(void) {
    for (int i = 0; i < 12; i += 4)
        mix((uint64_t)down(data, i));
    int copy[8];
    memcpy(copy, data, sizeof copy);
    qsort(copy, 8, sizeof *copy, compare);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    signal(SIGSEGV, fault_handler);
    if (sigsetjmp(out, 1) == 0)
        from_inside(data, 5);
    report("backtraces");
    return 0;
}
