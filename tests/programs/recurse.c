/* Recursion: simple, mutual, quick sort, eight queens, and structures passed by value. */
#include "mix.h"

__attribute__((noinline)) static int fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static int odd(unsigned n);
__attribute__((noinline)) static int even(unsigned n) {
    return n == 0 ? 1 : odd(n - 1);
}
__attribute__((noinline)) static int odd(unsigned n) {
    return n == 0 ? 0 : even(n - 1);
}

__attribute__((noinline)) static void quick(int *p, int lo, int hi) {
    if (lo >= hi)
        return;
    int pivot = p[(lo + hi) / 2], i = lo, j = hi;
    while (i <= j) {
        while (p[i] < pivot)
            i++;
        while (p[j] > pivot)
            j--;
        if (i <= j) {
            int t = p[i];
            p[i++] = p[j];
            p[j--] = t;
        }
    }
    quick(p, lo, j);
    quick(p, i, hi);
}

static int column[8];
__attribute__((noinline)) static int queens(int row) {
    if (row == 6)
        return 1;
    int found = 0;
    for (int c = 0; c < 6; c++) {
        int ok = 1;
        for (int r = 0; r < row; r++)
            if (column[r] == c || abs(column[r] - c) == row - r)
                ok = 0;
        if (ok) {
            column[row] = c;
            found += queens(row + 1);
        }
    }
    return found;
}

struct big {
    long v[12];
};
__attribute__((noinline)) static struct big fold(struct big x, int depth) {
    if (depth == 0)
        return x;
    for (int i = 0; i < 12; i++)
        x.v[i] = x.v[i] * 3 + x.v[(i + 5) % 12];
    struct big y = fold(x, depth - 1);
    y.v[depth % 12] += x.v[0];
    return y;
}

int main(void) {
    static int numbers[300];
    uint32_t state = 5;
    mix((uint64_t)fib(15));
    mix((uint64_t)even(101));
    for (int i = 0; i < 300; i++)
        numbers[i] = (int)(next_random(&state) % 10000);
    quick(numbers, 0, 299);
    for (int i = 0; i < 300; i++)
        mix((uint64_t)numbers[i]);
    mix((uint64_t)queens(0));
    struct big start;
    for (int i = 0; i < 12; i++)
        start.v[i] = i;
    struct big end = fold(start, 20);
    for (int i = 0; i < 12; i++)
        mix((uint64_t)end.v[i]);
    report("recurse");
    return 0;
}
