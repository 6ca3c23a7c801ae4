/* The auxiliary vector behind the environment, as a constructor and main find it there. */
#include <elf.h>
#include <stdio.h>
#include <string.h>

static int look(char **environment) {
    char **end = environment;
    while (*end)
        end++;
    int page = 0, entries = 0, random = 0;
    for (Elf64_auxv_t *a = (Elf64_auxv_t *)(end + 1); a->a_type != AT_NULL; a++) {
        entries++;
        if (a->a_type == AT_PAGESZ)
            page = (int)a->a_un.a_val;
        random |= a->a_type == AT_RANDOM && a->a_un.a_val;
    }
    return page == 4096 && entries > 10 && random;
}

static int early;

__attribute__((constructor)) static void begin(int argc, char **argv, char **environment) {
    early = look(environment);
}

int main(int argc, char **argv, char **environment) {
    int ours = 0;
    for (char **e = environment; *e; e++)
        ours += strncmp(*e, "MGZ_", 4) == 0;
    printf("%d %d, of ours %d\n", early, look(environment), ours);
    return early && look(environment) ? 0 : 1;
}
