// Reads a jump table all the time, and dawdles between reading it and the jump (dispatch.S): signals come there.
#include <stdio.h>

unsigned long dispatch(long steps, const unsigned char *code, unsigned long *memory);

int main(void) {
    static unsigned char code[256];
    static unsigned long memory[256];
    for (int i = 0; i < 256; i++) {
        code[i] = i * 7 % 4;
        memory[i] = i * 2654435761u;
    }
    printf("%lu\n", dispatch(400000, code, memory));
    return 0;
}
