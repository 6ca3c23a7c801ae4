/* Computed goto: a threaded interpreter, with its table in static data. */
#include "mix.h"

__attribute__((noinline)) static long run(const unsigned char *code, long *memory) {
    static const void *const table[] = {&&halt, &&push, &&add, &&mul, &&load, &&store, &&dec, &&loop};
    long stack[16], *sp = stack;
#define NEXT goto *table[*code++]
    NEXT;
push:
    *sp++ = (signed char)*code++;
    NEXT;
add:
    sp--;
    sp[-1] += *sp;
    NEXT;
mul:
    sp--;
    sp[-1] *= *sp;
    NEXT;
load:
    *sp++ = memory[*code++];
    NEXT;
store:
    memory[*code++] = *--sp;
    NEXT;
dec:
    memory[*code++]--;
    NEXT;
loop:
    if (memory[code[0]] > 0)
        code -= code[1];
    else
        code += 2;
    NEXT;
halt:
    return memory[0];
}

/* Targets that are computed from one label, behind instructions that are shorter than a jump. */
__attribute__((noinline)) static long enter(long n, long x) {
    static const int off[] = {0, &&b - &&a, &&c - &&a, &&d - &&a};
    long y = x;
    char *p = &&a;
    p += off[n];
    goto *p;
a:
    y++;
b:
    y++;
c:
    y += 2;
d:
    y++;
    return y;
}

int main(void) {
    for (long i = 0; i < 16; i++)
        mix((uint64_t)enter(i % 4, i));
    long memory[4] = {1, 40, 7, 0};
    static const unsigned char program[] = {4, 0, 1, 3, 3, 4, 2, 2, 5, 0, 6, 1, 7, 1, 13, 0};
    mix((uint64_t)run(program, memory));
    for (int i = 0; i < 4; i++)
        mix((uint64_t)memory[i]);
    report("goto");
    return 0;
}
