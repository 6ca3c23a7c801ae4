/* Walks over an array that fits into no level; the argument is the number of rounds. */
#include <stdlib.h>
int a[1 << 18];
int main(int argc, char **argv) {
    long sum = 0;
    for (int round = argc > 1 ? atoi(argv[1]) : 0; round > 0; round--)
        for (int i = 0; i < 1 << 18; i++)
            sum += a[i];
    return sum == 7;
}
