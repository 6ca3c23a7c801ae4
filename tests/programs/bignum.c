/* Big integers with the carry flag live across loads: adc chains by inline assembly and by __int128. */
#include "mix.h"

enum { WORDS = 24 };
static uint64_t a[WORDS], b[WORDS], c[2 * WORDS];

__attribute__((noinline)) static unsigned add(uint64_t *r, const uint64_t *x, const uint64_t *y, long n) {
    unsigned char carry;
    long i = 0;
    uint64_t t;
    __asm__ volatile("clc\n"
                     "1:\n\t"
                     "movq (%[x],%[i],8), %[t]\n\t"
                     "adcq (%[y],%[i],8), %[t]\n\t"
                     "movq %[t], (%[r],%[i],8)\n\t"
                     "leaq 1(%[i]), %[i]\n\t"
                     "decq %[n]\n\t"
                     "jnz 1b\n\t"
                     "setc %[carry]"
                     : [i] "+r"(i), [n] "+r"(n), [t] "=&r"(t), [carry] "=q"(carry)
                     : [x] "r"(x), [y] "r"(y), [r] "r"(r)
                     : "cc", "memory");
    return carry;
}

__attribute__((noinline)) static void multiply(uint64_t *r, const uint64_t *x, const uint64_t *y) {
    memset(r, 0, 2 * WORDS * sizeof *r);
    for (int i = 0; i < WORDS; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < WORDS; j++) {
            unsigned __int128 t = (unsigned __int128)x[i] * y[j] + r[i + j] + carry;
            r[i + j] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
        }
        r[i + WORDS] = carry;
    }
}

__attribute__((noinline)) static unsigned long long builtin_add(unsigned long long *r, const unsigned long long *x) {
    unsigned long long carry = 0;
    for (int i = 0; i < WORDS; i++) {
        unsigned long long s = r[i] + x[i];
        unsigned long long c1 = s < x[i];
        r[i] = s + carry;
        carry = c1 | (r[i] < s);
    }
    return carry;
}

int main(void) {
    uint32_t state = 1234;
    for (int i = 0; i < WORDS; i++) {
        a[i] = (uint64_t)next_random(&state) << 32 | next_random(&state);
        b[i] = ~a[i] - (i % 3 == 0);
    }
    for (int i = 0; i < 10; i++) {
        mix(add(a, a, b, WORDS));
        mix(add(b, b, a, WORDS / 2));
    }
    multiply(c, a, b);
    mix(builtin_add((unsigned long long *)a, (unsigned long long *)c));
    for (int i = 0; i < WORDS; i++)
        mix(a[i] ^ b[i] ^ c[i] ^ c[i + WORDS]);
    report("bignum");
    return 0;
}
