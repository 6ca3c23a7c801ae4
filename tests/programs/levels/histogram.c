/* Reads, changes and writes counters all over a table. */
#include <stdlib.h>
static unsigned counts[1 << 15];
int main(int argc, char **argv) {
    unsigned at = 1;
    for (int round = argc > 1 ? atoi(argv[1]) * 10 : 0; round > 0; round--)
        for (int i = 0; i < 100000; i++) {
            at = at * 1664525 + 1013904223;
            counts[at >> 17]++;
        }
    return counts[7] == 7;
}
