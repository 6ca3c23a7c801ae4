/* String instructions by inline assembly, repeated and single; also with a count of zero. */
#include "mix.h"

static unsigned char a[300], b[300];

__attribute__((noinline)) static void copy(void *to, const void *from, size_t n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
__attribute__((noinline)) static void copy8(void *to, const void *from, size_t n) {
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
__attribute__((noinline)) static void fill(void *to, int value, size_t n) {
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
}
__attribute__((noinline)) static size_t length(const unsigned char *s) {
    size_t n = (size_t)-1;
    __asm__ volatile("repne scasb" : "+D"(s), "+c"(n) : "a"(0) : "cc", "memory");
    return ~n - 1;
}
__attribute__((noinline)) static size_t same(const void *x, const void *y, size_t n) {
    size_t left = n;
    __asm__ volatile("cmp %0, %0\n\trepe cmpsb" : "+c"(left), "+S"(x), "+D"(y) : : "cc", "memory");
    return n - left;
}
__attribute__((noinline)) static uint64_t pick(const unsigned char *s, int n) {
    uint64_t sum = 0;
    while (n--) {
        uint32_t value;
        __asm__ volatile("lodsl" : "=a"(value), "+S"(s) : : "memory");
        sum = sum * 7 + value;
    }
    return sum;
}
__attribute__((noinline)) static int one_each(unsigned char *to, const unsigned char *from) {
    const unsigned char *f = from;
    int equal;
    __asm__ volatile("movsw\n\tmovsb" : "+D"(to), "+S"(f) : : "memory");
    f = from;
    to -= 3;
    __asm__ volatile("cmpsb\n\tsete %b0\n\tmovzbl %b0, %0" : "=&q"(equal), "+S"(f), "+D"(to) : : "cc", "memory");
    return equal;
}

int main(void) {
    uint32_t state = 41;
    for (int i = 0; i < 300; i++)
        a[i] = (unsigned char)(next_random(&state) | 1);
    a[211] = 0;
    copy(b, a, 200);
    copy(b + 200, a + 200, 0);
    copy8(b + 16, a + 8, 13);
    fill(b + 250, 9, 20);
    mix(length(a));
    mix(same(a, b, 200));
    mix(same(a, b, 0));
    mix(same(a, a, 30));
    mix(pick(a + 3, 12));
    mix((uint64_t)one_each(b + 280, a + 17));
    for (int i = 0; i < 300; i++)
        mix(b[i]);
    report("strings");
    return 0;
}
