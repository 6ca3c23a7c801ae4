/* Five-point stencil on a square grid, two buffers: strided with several streams. */
#include "kernel.h"

enum { N = 192 };

__attribute__((noinline)) static void step(double *restrict to, const double *restrict from) {
    for (int y = 1; y < N - 1; y++)
        for (int x = 1; x < N - 1; x++) {
            const double *p = from + y * N + x;
            to[y * N + x] = 0.2 * (p[0] + p[-1] + p[1] + p[-N] + p[N]);
        }
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 40000);
    double *a = take(N * N * sizeof *a), *b = take(N * N * sizeof *b);
    for (int i = 0; i < N * N; i++)
        a[i] = b[i] = (i * 37) % 1001;
    for (long r = 0; r < rounds; r++) {
        step(b, a);
        double *t = a;
        a = b;
        b = t;
    }
    double total = 0;
    for (int i = 0; i < N * N; i++)
        total += a[i];
    return finish((uint64_t)(total * 1024));
}
