/* Shared by the test programs that need something to be recorded. */
static volatile unsigned table[4096];

/* More loads than a ring has room for. */
__attribute__((noinline)) static unsigned work(int rounds) {
    unsigned s = 0;
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < 4096; i++)
            s += table[(i * 7 + k) & 4095] ^ s << 1;
    return s;
}
