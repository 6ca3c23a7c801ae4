/* Interpreters, automata and byte-wise work. */
#include "runs.h"

enum { CODE = 4096, CELLS = 1 << 14, TEXT = 1 << 20, STATES = 256 };
static uint8_t *code, *text;
static int64_t *cells;
static uint16_t (*moves)[256];
static uint32_t *heads, counts[256], *sieve;

static void machine(void) {
    uint32_t seed = 21;
    code = take(CODE), cells = take(CELLS * 8);
    for (int i = 0; i < CODE; i++)
        code[i] = next_random(&seed) % 7;
}

static void texts(void) {
    uint32_t seed = 22;
    text = take(TEXT), moves = take(STATES * sizeof *moves), heads = take(65536 * 4);
    sieve = take((TEXT / 32) * 4);
    for (int i = 0; i < TEXT; i++)
        text[i] = "etaoin shrdlu"[next_random(&seed) % 13];
    for (int s = 0; s < STATES; s++)
        for (int c = 0; c < 256; c++)
            moves[s][c] = next_random(&seed) % STATES;
}

ROW static int64_t interpret(long steps) {
    int64_t acc = 1;
    uint32_t at = 0, pc = 0;
    for (long i = 0; i < steps; i++) {
        switch (code[pc]) {
        case 0: acc += cells[at]; break;
        case 1: cells[at] = acc; break;
        case 2: at = (at + 1) % CELLS; break;
        case 3: at = (at * 5 + 3) % CELLS; break;
        case 4: acc ^= cells[at] >> 3; break;
        case 5: acc = acc * 3 + cells[(at + 7) % CELLS]; break;
        default: acc -= pc; break;
        }
        pc = (pc + 1) % CODE;
    }
    return acc;
}

ROW static int64_t tidy(void) {
    int64_t sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += cells[i];
    return sum;
}

ROW static uint32_t match(void) {
    uint32_t state = 0, hits = 0;
    for (int i = 0; i < TEXT; i++) {
        state = moves[state][text[i]];
        hits += state == 7;
    }
    return hits;
}

ROW static uint32_t count_bytes(void) {
    for (int i = 0; i < TEXT; i++)
        counts[text[i]]++;
    return counts['e'];
}

ROW static uint32_t find_repeats(void) {
    uint32_t total = 0;
    for (int i = 0; i + 4 < TEXT; i++) {
        uint32_t word = text[i] | text[i + 1] << 8 | text[i + 2] << 16;
        uint32_t *head = heads + (word * 2654435761u >> 16);
        uint32_t before = *head, n = 0;
        while (n < 32 && i + n < TEXT && text[before + n] == text[i + n] && before < (uint32_t)i)
            n++;
        total += n;
        *head = i;
    }
    return total;
}

ROW static uint32_t cross_out(void) {
    uint32_t left = 0;
    memset(sieve, 0, TEXT / 8);
    for (uint32_t p = 3; p < 1024; p += 2)
        for (uint32_t m = p * p; m < TEXT; m += 2 * p)
            sieve[m / 32] |= 1u << m % 32;
    for (uint32_t i = 0; i < TEXT / 32; i++)
        left += __builtin_popcount(sieve[i]);
    return left;
}

static uint64_t bytecode(long k) { return k + interpret(3000000) + tidy(); }
static uint64_t automaton(long k) { return k + match() + count_bytes(); }
static uint64_t repeats(long k) { return k + find_repeats() + count_bytes(); }
static uint64_t primes(long k) { return k + cross_out() + count_bytes(); }

PROGRAMS({"bytecode", machine, bytecode}, {"automaton", texts, automaton}, {"repeats", texts, repeats},
         {"primes", texts, primes})
