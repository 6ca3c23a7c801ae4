/* Seven-point stencil on a cube: `cube SIDE`, four steps back and forth between two grids. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 16, layer = n * n;
    double *from = calloc(n * layer, sizeof *from), *to = calloc(n * layer, sizeof *to);
    for (long i = 0; i < n * layer; i++)
        from[i] = to[i] = (double)(i % 17);
    for (int step = 0; step < 4; step++) {
        for (long z = 1; z < n - 1; z++)
            for (long y = 1; y < n - 1; y++)
                for (long x = 1; x < n - 1; x++) {
                    const double *p = from + z * layer + y * n + x;
                    to[p - from] = 0.1 * (p[0] + p[-1] + p[1] + p[-n] + p[n] + p[-layer] + p[layer]);
                }
        double *t = from;
        from = to;
        to = t;
    }
    printf("%.6f\n", from[n * layer / 2]);
    return 0;
}
