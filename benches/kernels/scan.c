/* A text scanner: a byte at a time through a table-driven state machine, plus a substring count. */
#include "kernel.h"

enum { BYTES = 1 << 17, STATES = 4, KINDS = 4 };

struct machine {
    uint8_t kind[256];
    uint8_t next[STATES][KINDS];
};

__attribute__((noinline)) static uint64_t words(const struct machine *m, const uint8_t *text, long n) {
    uint64_t count = 0;
    unsigned state = 0;
    for (long i = 0; i < n; i++) {
        state = m->next[state][m->kind[text[i]]];
        count += state == 1;
    }
    return count;
}

__attribute__((noinline)) static uint64_t occurrences(const uint8_t *text, long n, uint8_t x, uint8_t y) {
    uint64_t count = 0;
    for (long i = 0; i + 1 < n; i++)
        if (text[i] == x && text[i + 1] == y)
            count++;
    return count;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 2000);
    uint64_t seed = 314159265ull;
    struct machine *m = take(sizeof *m);
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 256; i++)
        m->kind[i] = (uint8_t)(i == ' ' ? 0 : i >= 'a' && i <= 'z' ? 1 : i >= '0' && i <= '9' ? 2 : 3);
    for (int s = 0; s < STATES; s++)
        for (int k = 0; k < KINDS; k++)
            m->next[s][k] = (uint8_t)(k == 0 ? 0 : s == 0 ? k : s == k ? 3 : (s + k) % STATES);
    uint8_t *text = take(BYTES);
    for (int i = 0; i < BYTES; i++)
        text[i] = (uint8_t)"abcdefgh  mn0z.t"[next_random(&seed) >> 60];
    uint64_t total = 0;
    for (long r = 0; r < rounds; r++) {
        text[r % BYTES] ^= 1;
        total += words(m, text, BYTES);
        total += occurrences(text, BYTES, 'a', (uint8_t)('b' + r % 8));
    }
    return finish(total);
}
