/* Prints its environment as its `main` gets it and as the C library knows it. */
#include <stdio.h>

extern char **environ;

int main(int argc, char **argv, char **envp) {
    for (char **p = envp; *p; p++)
        puts(*p);
    puts("--");
    for (char **p = environ; *p; p++)
        puts(*p);
    return 0;
}
