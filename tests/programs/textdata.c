/* Calls textdata.S. */
#include "mix.h"

long mgz_lookup(long n);
long mgz_mixed(const long *p, long n);
long mgz_dispatch(long kind, long value);
long mgz_shared_tail(long a, const long *p);
long mgz_shared_other(long a, const long *p);
extern const int mgz_words[8];

int main(void) {
    long data[64];
    for (long i = 0; i < 64; i++)
        data[i] = i * i;
    for (long i = 0; i < 100; i++) {
        mix((uint64_t)mgz_lookup(i));
        mix((uint64_t)mgz_mixed(data, i % 60 + 1));
        mix((uint64_t)mgz_dispatch(i % 6, i));
        mix((uint64_t)mgz_shared_tail(i, data));
        mix((uint64_t)mgz_shared_other(i, data));
        mix((uint64_t)mgz_words[i % 8]);
    }
    report("textdata");
    return 0;
}
