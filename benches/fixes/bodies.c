/* Bodies that attract each other: computation on a few kilobytes. */
#include "common.h"
#include <math.h>

enum { BODIES = 256 };

static double place[3][BODIES], speed[3][BODIES];

__attribute__((noinline)) static void step(void) {
    for (int i = 0; i < BODIES; i++) {
        double pull[3] = {0, 0, 0};
        for (int j = 0; j < BODIES; j++) {
            double d[3], square = 1e-3;
            for (int k = 0; k < 3; k++) {
                d[k] = place[k][j] - place[k][i];
                square += d[k] * d[k];
            }
            double part = 1 / (square * sqrt(square));
            for (int k = 0; k < 3; k++)
                pull[k] += d[k] * part;
        }
        for (int k = 0; k < 3; k++)
            speed[k][i] += 1e-6 * pull[k];
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < BODIES; i++)
            place[k][i] += speed[k][i];
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 4000);
    uint64_t seed = 346410161ull;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < BODIES; i++)
            place[k][i] = below(&seed, 1000) / 1000.0;
    for (long r = 0; r < rounds; r++)
        step();
    return finish((uint64_t)(place[0][7] * 1e9));
}
