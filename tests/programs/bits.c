/* Bit strings in memory (bt, bts, btr, btc with a register offset, also negative), atomic read-modify-write,
   cmpxchg loops, cmpxchg16b, xlat, xchg, byte and word forms. */
#include "mix.h"

static uint32_t field[32];
static uint64_t wide[16];
static unsigned char bytes[256];
static _Alignas(16) uint64_t pair[2];

__attribute__((noinline)) static int test_set(uint32_t *p, long bit) {
    unsigned char old;
    __asm__ volatile("btsl %k2, %1\n\tsetc %0" : "=q"(old), "+m"(*p) : "r"(bit) : "cc", "memory");
    return old;
}
__attribute__((noinline)) static int test64(const uint64_t *p, long bit) {
    unsigned char old;
    __asm__ volatile("btq %2, %1\n\tsetc %0" : "=q"(old) : "m"(*p), "r"(bit) : "cc", "memory");
    return old;
}
__attribute__((noinline)) static int flip16(uint16_t *p, short bit) {
    unsigned char old;
    __asm__ volatile("lock btcw %w2, %1\n\tsetc %0" : "=q"(old), "+m"(*p) : "r"(bit) : "cc", "memory");
    return old;
}
__attribute__((noinline)) static int translate(const unsigned char *t, int x) {
    __asm__ volatile("xlatb" : "+a"(x) : "b"(t) : "memory");
    return x & 0xff;
}
__attribute__((noinline)) static uint64_t atomics(uint64_t *p, unsigned char *b) {
    uint64_t s = __atomic_fetch_add(p, 5, __ATOMIC_SEQ_CST);
    s += __atomic_exchange_n(p + 1, s, __ATOMIC_SEQ_CST);
    uint64_t expected = *p;
    while (!__atomic_compare_exchange_n(p, &expected, expected * 3, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    s += __atomic_fetch_or(b, 0x40, __ATOMIC_SEQ_CST);
    s += __atomic_fetch_xor(b + 1, 0x11, __ATOMIC_SEQ_CST);
    return s + __atomic_sub_fetch((short *)(b + 2), 3, __ATOMIC_SEQ_CST);
}
__attribute__((noinline)) static int exchange16(uint64_t *p, uint64_t low, uint64_t high) {
    unsigned char done;
    uint64_t a = p[0], d = p[1];
    __asm__ volatile("lock cmpxchg16b %1\n\tsete %0" : "=q"(done), "+m"(*(char(*)[16])p), "+a"(a), "+d"(d) : "b"(low), "c"(high) : "cc", "memory");
    return done;
}

int main(void) {
    uint32_t state = 8;
    for (int i = 0; i < 16; i++)
        wide[i] = (uint64_t)next_random(&state) << 32 | next_random(&state);
    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (int i = -100; i < 300; i += 13)
        mix((uint64_t)test_set(field + 8, i));
    for (int i = -200; i < 500; i += 37)
        mix((uint64_t)test64(wide + 5, i));
    for (int i = -60; i < 100; i += 11)
        mix((uint64_t)flip16((uint16_t *)field + 20, (short)i));
    for (int i = 0; i < 256; i += 19)
        mix((uint64_t)translate(bytes, i));
    mix(atomics(wide, bytes + 10));
    mix((uint64_t)exchange16(pair, 3, 4));
    mix(pair[0] * 10 + pair[1]);
    for (int i = 0; i < 32; i++)
        mix(field[i]);
    report("bits");
    return 0;
}
