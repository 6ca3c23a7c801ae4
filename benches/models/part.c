/* The amount of data misleads: `part N` reads 400,000 numbers once, and computes on the first N of them,
 * again and again (as Apsi of SPEC CPU2000 does). */
#include <stdio.h>
#include <stdlib.h>

enum { ALL = 400000 };
static double from[ALL], to[ALL];

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 1000;
    if (n < 3 || n > ALL)
        return 2;
    double sum = 0;
    for (long i = 0; i < ALL; i++)
        sum += from[i] + to[i];
    for (int step = 0; step < 10; step++) {
        for (long i = 1; i < n - 1; i++)
            to[i] = 0.3 * (from[i - 1] + from[i] + from[i + 1]);
        for (long i = 1; i < n - 1; i++)
            from[i] = 0.5 * to[i];
        for (long i = 0; i < n; i++)
            sum += from[i] * from[i];
    }
    printf("%.6f\n", sum);
    return 0;
}
