/* Looks numbers up by halving. */
#include <stdlib.h>
static int sorted[1 << 16];
int main(int argc, char **argv) {
    unsigned at = 1, found = 0;
    for (int i = 0; i < 1 << 16; i++)
        sorted[i] = i * 3;
    for (int round = argc > 1 ? atoi(argv[1]) * 8 : 0; round > 0; round--)
        for (int i = 0; i < 20000; i++) {
            at = at * 1664525 + 1013904223;
            int wanted = (int)(at >> 14), low = 0, high = 1 << 16;
            while (low + 1 < high) {
                int middle = (low + high) / 2;
                if (sorted[middle] <= wanted)
                    low = middle;
                else
                    high = middle;
            }
            found += (unsigned)low;
        }
    return found == 7;
}
