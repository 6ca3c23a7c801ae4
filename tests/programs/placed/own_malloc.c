// An executable with an allocator of its own for a part of the functions.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[1 << 20];
static size_t used;

void *valloc(size_t bytes) {
    used = (used + 4095) / 4096 * 4096;
    void *block = memory + used;
    used += bytes;
    return block;
}

int main(void) {
    int *state = dlsym(RTLD_DEFAULT, "mgz_fix_state");
    char *a = malloc(40), *b = valloc(40);
    strcpy(a, "a");
    strcpy(b, "b");
    printf("%s %s %d\n", a, b, b >= memory && b < memory + sizeof memory);
    free(a);
    fprintf(stderr, "state %d\n", state ? *state : -1);
    return 0;
}
