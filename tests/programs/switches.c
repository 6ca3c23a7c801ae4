/* Switches: dense, sparse, nested, on characters, with fall-through, on what a table says of characters, without a check; small interpreters. */
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

/* What a character is, as scanners and parsers have it: the compiler's table of places follows a table of the program's. */
static const unsigned char kinds[256] = {
    [0] = 7, [9] = 1, [10] = 1, [32] = 1, ['0'] = 2, ['1'] = 2, ['2'] = 2, ['3'] = 2, ['4'] = 2, ['5'] = 2, ['6'] = 2, ['7'] = 2, ['8'] = 2, ['9'] = 2,
    ['('] = 3, [')'] = 4, ['+'] = 5, ['-'] = 5, ['a'] = 6, ['b'] = 6, ['x'] = 6, ['y'] = 6,
};

__attribute__((noinline)) static long classify(const unsigned char *s, const long *t) {
    long sum = 0;
    for (;; s++)
        switch (kinds[*s]) {
        case 0: sum ^= t[0]; break;
        case 1: sum += t[1] << 3; break;
        case 2: sum = sum * 10 + t[*s - '0']; break;
        case 3: sum += t[3] * 5; break;
        case 4: sum -= t[4]; break;
        case 5: sum = -sum + t[5]; break;
        case 6: sum ^= t[*s & 7] << 7; break;
        case 7: return sum + t[7];
        default: return -t[2];
        }
}

/* The same, of which the compiler is told that nothing else can be. */
__attribute__((noinline)) static long classify_all(const unsigned char *s, const long *t) {
    long sum = 1;
    for (;; s++)
        switch (kinds[*s]) {
        case 0: sum ^= t[7]; break;
        case 1: sum += t[6] << 2; break;
        case 2: sum = sum * 7 + t[*s - '0']; break;
        case 3: sum += t[5] * 3; break;
        case 4: sum -= t[3]; break;
        case 5: sum = -sum - t[2]; break;
        case 6: sum ^= t[*s & 3] << 5; break;
        case 7: return sum + t[1];
        default: __builtin_unreachable();
        }
}

__attribute__((noinline)) static long masked(unsigned x, const long *t) {
    switch (x & 7) {
    case 0: return t[3] * 2;
    case 1: return t[2] + 9;
    case 2: return t[1] - x;
    case 3: return t[0] ^ 5;
    case 4: return t[7] | 6;
    case 5: return t[6] * t[5];
    case 6: return t[4] >> 1;
    case 7: return t[5] - t[3];
    }
    return 0;
}

__attribute__((noinline)) static long unreachable(unsigned long x, long a, const long *t) {
    switch (x) {
    case 3: return t[1] * a;
    case 4: return t[2] + a;
    case 5: return t[3] - a;
    case 6: return t[4] ^ a;
    case 7: return t[5] | a;
    case 8: return t[6] * 3 + a;
    case 9: return t[7] - a * 2;
    case 10: return (t[0] & a) * 5 + 9;
    default: __builtin_unreachable();
    }
}

enum __attribute__((packed)) small { ADD, SUBTRACT, TIMES, XOR, SWAP, SHIFT, SKIP, LAST };

/* Two fields of one word decide, the second without a check. */
__attribute__((noinline)) static uint64_t fields(const unsigned short *code, const long *t) {
    uint64_t a = 1, b = 2;
    for (;; code++) {
        switch ((enum small)(*code >> 4 & 7)) {
        case ADD: a += b; break;
        case SUBTRACT: a -= t[*code & 7]; break;
        case TIMES: a *= t[1]; break;
        case XOR: a ^= b << 2; break;
        case SWAP: { uint64_t c = a; a = b; b = c; break; }
        case SHIFT: a >>= 3; break;
        case SKIP: code += *code & 1; break;
        case LAST: return a * 5 + b;
        }
        switch (*code >> 8 & 3) {
        case 0: b += t[0]; break;
        case 1: b ^= t[4] + a; break;
        case 2: b = b * 3 - t[2]; break;
        case 3: b -= a; break;
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
    static const unsigned char texts[][24] = {"12+(3-x)", "a\t9 9 (b)-y5-", "~~0!", "x(y(a(b()7)))"};
    static const unsigned short words[] = {0x100, 0x213, 0x327, 0x131, 0x042, 0x161, 0xfff, 0x255, 0x311, 0x124, 0x060, 0x233, 0x351, 0x070};
    const long t[10] = {17, 29, 31, 43, 57, 61, 73, 89, 97, 101};
    for (int i = 0; i < 4; i++) {
        mix((uint64_t)classify(texts[i], t));
        mix((uint64_t)classify_all(texts[i], t));
    }
    for (unsigned i = 0; i < 40; i++) {
        mix((uint64_t)masked(i * 5, t));
        mix((uint64_t)unreachable(3 + i * 3 % 8, i, t));
    }
    for (int i = 0; i < 6; i++)
        mix(fields(words + i, t));
    report("switches");
    return 0;
}
