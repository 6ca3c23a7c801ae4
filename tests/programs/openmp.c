/* OpenMP: loops with every schedule, reductions, tasks, sections, critical sections, thread-private data. */
#include "mix.h"
#include <omp.h>

enum { N = 20000 };
static int data[N];
static long kept;
#pragma omp threadprivate(kept)

static long fib(int n) {
    long a, b;
    if (n < 2)
        return n;
    if (n < 9)
        return fib(n - 1) + fib(n - 2);
#pragma omp task shared(a)
    a = fib(n - 1);
#pragma omp task shared(b)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(void) {
    uint32_t state = 8;
    long sum = 0, most = 0, count = 0, total = 0, f = 0;
    double product = 0;
    omp_set_num_threads(4);
    for (int i = 0; i < N; i++)
        data[i] = (int)(next_random(&state) % 10000);
#pragma omp parallel for reduction(+ : sum) schedule(static)
    for (int i = 0; i < N; i++)
        sum += data[i];
#pragma omp parallel for reduction(max : most) schedule(dynamic, 64)
    for (int i = 0; i < N; i++)
        most = data[i] > most ? data[i] : most;
#pragma omp parallel for reduction(+ : count) schedule(guided)
    for (int i = 1; i < N; i++)
        count += data[i] > data[i - 1];
#pragma omp parallel for simd reduction(+ : product)
    for (int i = 0; i < N; i++)
        product += (double)(data[i] % 16);
#pragma omp parallel
    {
        kept = 0;
#pragma omp for nowait
        for (int i = 0; i < N; i++)
            kept += data[i] & 255;
#pragma omp critical
        total += kept;
#pragma omp single
        f = fib(17);
    }
#pragma omp parallel sections
    {
#pragma omp section
#pragma omp atomic
        total += 1;
#pragma omp section
#pragma omp atomic
        total += 2;
    }
    mix((uint64_t)sum);
    mix((uint64_t)most);
    mix((uint64_t)count);
    mix((uint64_t)product);
    mix((uint64_t)total);
    mix((uint64_t)f);
    report("openmp");
    return 0;
}
