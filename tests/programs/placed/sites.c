// Allocation sites with names, and the places of their blocks. Arguments: names of sites; each makes
// blocks in turn with the others, and prints their addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A function that calls another one with its argument; a label has the return address.
#define CALLER(function, site, callee)                                                             \
    __asm__(".text\n.globl " #function "\n.type " #function                                        \
            ", @function\n" #function ": sub $8, %rsp\n call " #callee                             \
            "\n.globl " #site "\n" #site ": add $8, %rsp\n ret\n");                                \
    void *function(size_t bytes);

CALLER(make_a, site_a, malloc@PLT)
CALLER(make_b, site_b, malloc@PLT)
CALLER(wrapped, site_wrapped, malloc@PLT)
CALLER(make_c, site_c, wrapped)
CALLER(make_d, site_d, wrapped)

int main(int argc, char **argv) {
    int *state = dlsym(RTLD_DEFAULT, "mgz_fix_state");
    printf("state %d\n", state ? *state : -1);
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 48;
    const char *plugin = argc > 2 ? argv[2] : NULL;
    void *(*late)(size_t) = NULL;
    if (plugin) {
        void *module = dlopen(plugin, RTLD_NOW);
        late = module ? (void *(*)(size_t))dlsym(module, "make_late") : NULL;
    }
    for (int i = 0; i < 8; i++) {
        void *blocks[] = {make_a(bytes), make_b(bytes), make_c(bytes), make_d(bytes), late ? late(bytes) : NULL};
        printf("%p %p %p %p %p\n", blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]);
        memset(blocks[0], 1, bytes);
    }
    return 0;
}
