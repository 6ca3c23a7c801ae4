/* Code that is made at run time: small functions in memory that call the program back, one of them by a jump at its end. */
#define _GNU_SOURCE
#include "mix.h"
#include <sys/mman.h>

static int table[64];

static __attribute__((noinline)) int callback(int n) {
    int sum = 0;
    for (int i = 0; i < n % 64; i++)
        sum += table[i];
    return sum;
}

typedef int made(int (*)(int), int);

int main(void) {
    /* push rbx; mov ebx, esi; mov rax, rdi; mov edi, ebx; call rax; add eax, ebx; pop rbx; ret */
    static const unsigned char code[] = {0x53, 0x89, 0xf3, 0x48, 0x89, 0xf8, 0x89, 0xdf, 0xff, 0xd0, 0x01, 0xd8, 0x5b, 0xc3};
    /* jmp rdi with the argument moved: a tail call into the program */
    static const unsigned char tail[] = {0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xe0};
    unsigned char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, code, sizeof code);
    memcpy(memory + 64, tail, sizeof tail);
    mprotect(memory, 4096, PROT_READ | PROT_EXEC);
    for (int i = 0; i < 64; i++)
        table[i] = i * 7;
    made *f = (made *)memory, *g = (made *)(memory + 64);
    for (int i = 0; i < 200; i++)
        mix((uint64_t)(f(callback, i) ^ g(callback, i + 1)));
    report("made");
    return 0;
}
