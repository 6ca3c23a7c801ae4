/* Loops over arrays: forward, backward, strided, nested, with a stencil, with a struct array. */
#include "mix.h"

enum { N = 12 };
struct point {
    double x, y;
    int tag;
};
static double a[N][N], b[N][N], c[N][N];
static struct point points[64];
static int histogram[16];
int global_step = 3;

__attribute__((noinline)) static void multiply(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double s = 0;
            for (int k = 0; k < N; k++)
                s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
}

__attribute__((noinline)) static unsigned long strided(const int *p, int n, int step) {
    unsigned long s = 0;
    for (int i = 0; i < n; i += step)
        s += (unsigned long)p[i];
    for (int i = n - 1; i >= 0; i -= step + 1)
        s = s * 3 + (unsigned long)p[i];
    return s;
}

__attribute__((noinline)) static void stencil(double *out, const double *in, int n) {
    for (int i = 1; i + 1 < n; i++)
        out[i] = (in[i - 1] + 2 * in[i] + in[i + 1]) / 4;
}

__attribute__((noinline)) static double sum_points(const struct point *p, int n) {
    double s = 0;
    for (int i = 0; i < n; i++)
        if (p[i].tag & 1)
            s += p[i].x - p[i].y;
    return s;
}

int main(void) {
    static int data[200];
    static double line[100], smooth[100];
    uint32_t state = 1;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (int)(next_random(&state) % 100);
            b[i][j] = (int)(next_random(&state) % 100);
        }
    multiply();
    for (int i = 0; i < N; i++)
        mix((uint64_t)c[i][N - 1 - i]);
    for (int i = 0; i < 200; i++)
        data[i] = (int)(next_random(&state) & 0xffff);
    mix((uint64_t)strided(data, 200, global_step));
    for (int i = 0; i < 100; i++)
        line[i] = data[i] * 4;
    stencil(smooth, line, 100);
    for (int i = 0; i < 100; i++)
        mix((uint64_t)(smooth[i] * 16));
    for (int i = 0; i < 64; i++)
        points[i] = (struct point){data[i], data[i + 64], data[i + 100]};
    mix((uint64_t)(int64_t)sum_points(points, 64));
    for (int i = 0; i < 200; i++)
        histogram[data[i] & 15]++;
    for (int i = 0; i < 16; i++)
        mix((uint64_t)histogram[i]);
    report("loops");
    return 0;
}
