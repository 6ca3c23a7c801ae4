/* Goes down the columns of a matrix whose rows are as long as a way. */
#include <stdlib.h>
double m[64][512];
int main(int argc, char **argv) {
    double sum = 0;
    for (int round = argc > 1 ? atoi(argv[1]) * 8 : 0; round > 0; round--)
        for (int x = 0; x < 512; x++)
            for (int y = 0; y < 64; y++)
                sum += m[y][x];
    return sum == 7;
}
