// Ends by an exception that nobody catches.
#include "mix.h"
#include <stdexcept>

__attribute__((noinline)) static int work(const int *p, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s = s * 3 + p[i];
    if (s != 1)
        throw std::runtime_error("nobody catches this");
    return s;
}

int main() {
    int data[50];
    for (int i = 0; i < 50; i++)
        data[i] = i;
    report("uncaught");
    fflush(stdout);
    return work(data, 50);
}
