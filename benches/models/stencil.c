/* Five-point stencil on a square grid: `stencil SIDE [STEPS]`, ten steps back and forth between two grids. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 100;
    long steps = argc > 2 ? atol(argv[2]) : 10;
    double *from = calloc(n * n, sizeof *from), *to = calloc(n * n, sizeof *to);
    for (long i = 0; i < n * n; i++)
        from[i] = to[i] = (double)(i % 17);
    for (long step = 0; step < steps; step++) {
        for (long y = 1; y < n - 1; y++)
            for (long x = 1; x < n - 1; x++)
                to[y * n + x] = 0.2 * (from[y * n + x] + from[y * n + x - 1] + from[y * n + x + 1] + from[(y - 1) * n + x] + from[(y + 1) * n + x]);
        double *t = from;
        from = to;
        to = t;
    }
    printf("%.6f\n", from[n * n / 2]);
    return 0;
}
