/* A library that a sanitizer watches (without USER), and a program that calls it (with USER): argument `wrong` lets the library read behind a block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sum_up(const int *a, int n, int rounds);

#ifdef USER
int main(int argc, char **argv) {
    int wrong = argc > 1 && !strcmp(argv[1], "wrong"), n = 500;
    int *a = malloc(n * sizeof *a);
    for (int i = 0; i < n; i++)
        a[i] = i;
    printf("%d\n", sum_up(a, n, 300));
    fflush(stdout);
    printf("%d\n", sum_up(a, n + wrong, 1) > 0);
    free(a);
    return 0;
}
#else
int sum_up(const int *a, int n, int rounds) {
    int sum = 0;
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < n; i++)
            sum += a[i] ^ k;
    return sum;
}
#endif
