/* Switches: dense, sparse, nested, on characters, with fall-through; a small interpreter. */
#include "mix.h"

__attribute__((noinline)) static int dense(int x, const int *p) {
    switch (x) {
    case 0: return p[3];
    case 1: return p[1] + 1;
    case 2: return p[x] * 2;
    case 3: return p[0] - 4;
    case 4: return p[7] ^ 1;
    case 5: return p[6] | 8;
    case 6: return p[5] & 3;
    case 7: return p[4] + p[2];
    case 9: return p[9] * p[8];
    default: return -1;
    }
}

__attribute__((noinline)) static int sparse(unsigned x) {
    switch (x) {
    case 1: return 3;
    case 100: return 5;
    case 1000: return 7;
    case 1001: return 11;
    case 1002: return 13;
    case 1003: return 17;
    case 1004: return 19;
    case 1005: return 23;
    case 77777: return 29;
    case 0xfffffff0u: return 31;
    default: return 37;
    }
}

__attribute__((noinline)) static long nested(int a, int b, long s) {
    switch (a) {
    case 10:
        switch (b) {
        case 0: return s + 1;
        case 1: return s * 2;
        case 2: return s - 3;
        case 3: return s ^ 4;
        case 4: return s | 5;
        case 5: return s & 6;
        }
        return s + 7;
    case 11: s += b; /* fall through */
    case 12: s *= 3; /* fall through */
    case 13: s -= 1; break;
    case 14: return -s;
    case 15: return s >> 1;
    case 16: return s << 1;
    default: s ^= 0x55;
    }
    return s + b;
}

__attribute__((noinline)) static int scan(const char *s, long *out) {
    int n = 0;
    for (;; s++) {
        switch (*s) {
        case 0: return n;
        case ' ': case '\t': case '\n': n++; break;
        case '0': case '1': case '2': case '3': case '4':
        case '5': case '6': case '7': case '8': case '9': *out = *out * 10 + (*s - '0'); break;
        case '+': *out += 3; break;
        case '-': *out -= 3; break;
        case '(': n += 10; break;
        case ')': n -= 10; break;
        default: *out ^= *s;
        }
    }
}

__attribute__((noinline)) static long interpret(const unsigned char *code) {
    long stack[32], *sp = stack, guard = 0;
    for (;;) {
        if (++guard > 3000)
            return -1;
        switch (*code++) {
        case 0: return sp[-1];
        case 1: *sp++ = *code++; break;
        case 2: sp--; sp[-1] += *sp; break;
        case 3: sp--; sp[-1] *= *sp; break;
        case 4: *sp = sp[-1]; sp++; break;
        case 5: sp--; break;
        case 6: sp[-1]--; break;
        case 7: if (sp[-1] > 0) code -= *code; else code++; break;
        case 8: { long t = sp[-1]; sp[-1] = sp[-2]; sp[-2] = t; break; }
        case 9: sp[-1] ^= 0x5a5a; break;
        case 10: *sp = sp[-2]; sp++; break;
        default: return -2;
        }
    }
}

int main(void) {
    int p[10];
    for (int i = 0; i < 10; i++)
        p[i] = i * i + 3;
    for (int i = -2; i < 12; i++)
        mix((uint64_t)dense(i, p));
    static const unsigned probes[] = {0, 1, 99, 100, 1000, 1003, 1005, 1006, 77777, 0xfffffff0u, 0xffffffffu};
    for (unsigned i = 0; i < sizeof probes / sizeof *probes; i++)
        mix((uint64_t)sparse(probes[i]));
    long s = 1;
    for (int a = 8; a < 19; a++)
        for (int b = -1; b < 8; b++)
            mix((uint64_t)(s = nested(a, b, s) & 0xffffff));
    long value = 0;
    mix((uint64_t)scan("12 + (34 - x7)\t(abc)\n 99", &value));
    mix((uint64_t)value);
    /* acc = 1; n = 20; do { acc = acc * 3 + 1 (xor) ; n-- } while (n > 0) */
    static const unsigned char program[] = {1, 1, 1, 20, 8, 1, 3, 3, 9, 1, 1, 2, 8, 6, 7, 10, 5, 0};
    mix((uint64_t)interpret(program));
    report("switches");
    return 0;
}
