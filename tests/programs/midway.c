/* A function that has no clone, since it jumps into the middle of one of its instructions, called in a loop that loads. */
#include "mix.h"

uint64_t midway(uint64_t x);

/* The bytes of the constant are the second way: `inc %rax; ret`. */
__asm__(".text\n"
        ".globl midway\n"
        ".type midway, @function\n"
        "midway:\n"
        "    mov %rdi, %rax\n"
        "    test $1, %dil\n"
        "    jne 1f + 2\n"
        "1:  movabs $0x90909090c3c0ff48, %rdx\n"
        "    add %rdx, %rax\n"
        "    ret\n"
        ".size midway, . - midway\n");

static uint64_t table[1024];

static __attribute__((noinline)) uint64_t sum(unsigned from) {
    uint64_t all = 0;
    for (unsigned i = 0; i < 16; i++)
        all = all * 3 + table[(from * 7 + i * i) & 1023];
    return all;
}

int main(void) {
    for (unsigned i = 0; i < 1024; i++)
        table[i] = i * 0x9E3779B97F4A7C15u;
    for (unsigned i = 0; i < 2000; i++)
        mix(midway(sum(i)));
    report("midway");
    return 0;
}
