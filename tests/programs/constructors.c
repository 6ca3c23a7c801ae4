/* Functions that the loader calls before and after main, and one that no backend instruments. */
#include <stdio.h>

static volatile int numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static int sum;

__attribute__((constructor(101))) static void first(void) {
    for (int i = 0; i < 8; i++)
        sum += numbers[i];
}

__attribute__((constructor)) static void second(int argc, char **argv) {
    sum += numbers[argc & 7] + (argv[0] != 0);
}

__attribute__((destructor)) static void last(void) {
    printf("%d\n", sum + numbers[3]);
}

#ifdef ALONE
/* A jump into the middle of an instruction that is executed as well. */
__asm__(".globl alone\n.type alone, @function\nalone:\n mov numbers_again(%rip), %eax\n test %edi, %edi\n jz 1f\n .byte 0xb8\n1: inc %eax\n .byte 0x90, 0x90, 0x90\n ret\n"
        ".size alone, . - alone\n");
volatile int numbers_again = 5;
int alone(int);
#else
static int alone(int n) { return n; }
#endif

int main(int argc, char **argv) {
    (void)argv;
    return numbers[1] == 2 && alone(argc - 1) > 100;
}
