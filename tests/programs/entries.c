// Ways into the middle of functions and into functions without room for a jump at their start:
// computed gotos by a constant table, by one that is filled in, by distances, jumps back by longjmp,
// switches with and without tables, Duff's device, contexts, and pointers to functions of four
// bytes. Built with -falign-functions=1, so that nothing lies between functions.
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define N 64
static unsigned memory[N];
static const unsigned char program[] = {0, 1, 2, 1, 0, 2, 2, 1, 3};

__attribute__((noinline)) static unsigned by_constant_table(const unsigned char *code) {
    static const void *const table[] = {&&add, &&mix, &&load, &&end};
    unsigned a = 1;
    goto *table[*code++];
add:
    a += memory[a % N];
    goto *table[*code++];
mix:
    a = a * 31 ^ memory[(a >> 3) % N];
    goto *table[*code++];
load:
    a = memory[a % N] + 7;
    goto *table[*code++];
end:
    return a;
}

// Threaded code: each word is the address of what it does.
__attribute__((noinline)) static unsigned by_threads(void **code, void ***labels) {
    static void *table[4];
    if (!code) {
        table[0] = &&add, table[1] = &&mix, table[2] = &&load, table[3] = &&end;
        *labels = table;
        return 0;
    }
    unsigned a = 1;
    goto **code++;
add:
    a += memory[a % N];
    goto **code++;
mix:
    a = a * 31 ^ memory[(a >> 3) % N];
    goto **code++;
load:
    a = memory[a % N] + 7;
    goto **code++;
end:
    return a;
}

__attribute__((noinline)) static unsigned by_distances(const unsigned char *code) {
    static const int table[] = {&&add - &&add, &&mix - &&add, &&load - &&add, &&end - &&add};
    unsigned a = 1;
next:
    goto *(&&add + table[*code++]);
add:
    a += memory[a % N];
    goto next;
mix:
    a = a * 31 ^ memory[(a >> 3) % N];
    goto next;
load:
    a = memory[a % N] + 7;
    goto next;
end:
    return a;
}

__attribute__((noinline)) static unsigned by_switch(unsigned a, unsigned char op) {
    switch (op) {
    case 0: return a + memory[a % N];
    case 1: return a * 31 ^ memory[(a >> 3) % N];
    case 2: return memory[a % N] + 7;
    case 3: return memory[0];
    case 4: return memory[1] * 3;
    case 7: return memory[2] - a;
    case 8: return memory[3] ^ a;
    default: return a;
    }
}

__attribute__((noinline, optimize("no-jump-tables"))) static unsigned by_compares(unsigned a, unsigned char op) {
    switch (op) {
    case 0: return a + memory[a % N];
    case 1: return a * 31 ^ memory[(a >> 3) % N];
    case 2: return memory[a % N] + 7;
    case 3: return memory[0];
    case 4: return memory[1] * 3;
    case 7: return memory[2] - a;
    default: return a;
    }
}

__attribute__((noinline)) static void duff(volatile unsigned *to, const volatile unsigned *from, int n) {
    int rounds = (n + 7) / 8;
    switch (n % 8) {
    case 0: do { *to++ = *from++;
    case 7: *to++ = *from++;
    case 6: *to++ = *from++;
    case 5: *to++ = *from++;
    case 4: *to++ = *from++;
    case 3: *to++ = *from++;
    case 2: *to++ = *from++;
    case 1: *to++ = *from++;
            } while (--rounds > 0);
    }
}

static jmp_buf back;
__attribute__((noinline)) static void thrower(unsigned n) {
    if (memory[n % N] % 2 || n > 10)
        longjmp(back, (int)n + 1);
    thrower(n + 1);
}

__attribute__((noinline)) static unsigned catcher(unsigned n) {
    volatile unsigned a = n;
    int how = setjmp(back);
    if (!how)
        thrower(n);
    return a + (unsigned)how + memory[(unsigned)how % N];
}

// Four bytes and less: no jump fits.
__attribute__((noinline)) static unsigned first(const unsigned *p) { return *p; }
__attribute__((noinline)) static unsigned second(const unsigned *p) { return p[1]; }
static unsigned (*volatile readers[2])(const unsigned *) = {first, second};

struct node {
    unsigned (*read)(const unsigned *);
    unsigned at;
};
__attribute__((noinline)) static unsigned last(const struct node *n) { return n->read(memory + n->at); }

static ucontext_t here, there;
static volatile unsigned passed;
__attribute__((noinline)) static void other(void) {
    for (;;) {
        passed = passed * 3 + memory[passed % N];
        swapcontext(&there, &here);
    }
}

#ifdef FROM_OUTSIDE
// The C library calls it, and it begins with a load.
static void at_exit(int status, void *p) { (void)*(volatile unsigned *)p; }
#endif

int main(void) {
    unsigned h = 0;
    void **labels, *code[sizeof program];
    for (unsigned i = 0; i < N; i++)
        memory[i] = (i + 1) * 2654435761u >> 7;
    by_threads(NULL, (void ***)&labels);
    for (unsigned i = 0; i < sizeof program; i++)
        code[i] = labels[program[i]];
    static char stack[64 << 10];
    getcontext(&there);
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = sizeof stack;
    makecontext(&there, other, 0);
    for (unsigned i = 0; i < 50; i++) {
        h = h * 5 + by_constant_table(program) + by_threads(code, NULL) + by_distances(program);
        for (unsigned char op = 0; op < 10; op++)
            h = by_switch(h, op) ^ by_compares(h, op);
        unsigned copy[N];
        duff(copy, memory, 8 + (int)i);
        h += copy[i] + catcher(i);
        h = h * 3 + readers[i % 2](memory + i) + last(&(struct node){readers[(i + 1) % 2], i});
        swapcontext(&here, &there);
    }
#ifdef FROM_OUTSIDE
    on_exit(at_exit, memory);
#endif
    printf("%u %u\n", h, passed);
}
