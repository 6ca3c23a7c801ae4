/* A few thousand loads of several kinds: the seed of damaged traces. */
#include <stdio.h>

static int table[256];

__attribute__((noinline)) static int strided(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s += a[i];
    return s;
}

__attribute__((noinline)) static int irregular(const int *a, int n) {
    int at = 0;
    for (int i = 0; i < n; i++)
        at = a[at] & 255;
    return at;
}

int main(void) {
    for (int i = 0; i < 256; i++)
        table[i] = i * 37 + 11;
    int s = 0;
    for (int r = 0; r < 8; r++)
        s += strided(table, 256) + irregular(table, 100);
    printf("%d\n", s);
    return 0;
}
