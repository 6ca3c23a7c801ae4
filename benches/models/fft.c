/* Radix-2 fast Fourier transform, in place: `fft LOG2` transforms 2^LOG2 complex numbers forth and back, twice. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void transform(double *re, double *im, const double *cosine, const double *sine, long n, int sign) {
    for (long i = 1, j = 0; i < n; i++) {
        long bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double t = re[i];
            re[i] = re[j];
            re[j] = t;
            t = im[i];
            im[i] = im[j];
            im[j] = t;
        }
    }
    for (long len = 2; len <= n; len <<= 1)
        for (long i = 0; i < n; i += len)
            for (long k = 0; k < len / 2; k++) {
                double c = cosine[k * (n / len)], s = sign * sine[k * (n / len)];
                long a = i + k, b = a + len / 2;
                double x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
                re[b] = re[a] - x;
                im[b] = im[a] - y;
                re[a] += x;
                im[a] += y;
            }
}

int main(int argc, char **argv) {
    long n = 1l << (argc > 1 ? atoi(argv[1]) : 12);
    double *re = malloc(n * sizeof *re), *im = malloc(n * sizeof *im), *cosine = malloc(n * sizeof *cosine), *sine = malloc(n * sizeof *sine);
    for (long i = 0; i < n; i++) {
        re[i] = (double)(i * 2654435761u % 1000) / 1000;
        im[i] = 0;
        cosine[i] = cos(2 * 3.14159265358979323846 * i / n);
        sine[i] = sin(2 * 3.14159265358979323846 * i / n);
    }
    for (int round = 0; round < 2; round++) {
        transform(re, im, cosine, sine, n, 1);
        transform(re, im, cosine, sine, n, -1);
        for (long i = 0; i < n; i++) {
            re[i] /= n;
            im[i] /= n;
        }
    }
    printf("%.6f\n", re[n / 3]);
    return 0;
}
