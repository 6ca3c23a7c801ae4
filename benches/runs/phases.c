/* Phases of a microsecond to seconds, of unlike speed and footprint. */
#include "runs.h"

enum { WORDS = 1 << 20, SMALL = 624, TABLE = 1 << 16 };
static uint64_t *stream, *table, state[SMALL];
static uint32_t *picks;

ROW static uint64_t scan(long from, long words) {
    uint64_t sum = 0;
    for (long i = 0; i < words; i++)
        sum += stream[(from + i) & (WORDS - 1)] ^ (sum << 1);
    return sum;
}

ROW static uint64_t pick(long from, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += table[picks[(from + i) & (TABLE - 1)]];
    return sum;
}

/* A small table that is read and rewritten all the time. */
ROW static uint64_t twist(long times) {
    uint64_t sum = 0;
    for (long t = 0; t < times; t++)
        for (int i = 0; i < SMALL; i++) {
            uint64_t y = (state[i] & 0x80000000u) | (state[(i + 1) % SMALL] & 0x7fffffffu);
            state[i] = state[(i + 397) % SMALL] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
            sum += state[i];
        }
    return sum;
}

static void set_up(void) {
    uint32_t seed = 5;
    stream = take(WORDS * 8);
    table = take(TABLE * 8);
    picks = take(TABLE * 4);
    for (long i = 0; i < WORDS; i++)
        stream[i] = i * 7;
    for (long i = 0; i < TABLE; i++) {
        table[i] = i;
        picks[i] = next_random(&seed) % TABLE;
    }
    for (int i = 0; i < SMALL; i++)
        state[i] = next_random(&seed);
}

static uint64_t micro(long k) {
    uint64_t sum = k;
    for (long i = 0; i < 2000; i++) {
        sum += scan(i * 512, 512);
        sum += pick(i * 256, 256);
    }
    return sum;
}

static uint64_t milli(long k) {
    return k + scan(0, WORDS) + pick(0, 700000) + twist(300);
}

/* Many rounds of one thing, then many of another: BLOCK of each, 1 to count them. */
static uint64_t seconds(long k) {
    static long block;
    if (!block)
        block = getenv("BLOCK") ? strtol(getenv("BLOCK"), NULL, 10) : 200;
    if (k / block % 2)
        return pick(k * 1000, 1500000);
    return scan(0, WORDS);
}

/* A fiftieth of the time is spent on something that touches much. */
static uint64_t rare(long k) {
    uint64_t sum = k;
    for (long i = 0; i < 49; i++)
        sum += twist(40);
    return sum + scan(0, 30000 * 2) + pick(0, 1);
}

static uint64_t twister(long k) {
    uint64_t sum = k;
    for (long i = 0; i < 256; i++) {
        sum += twist(4);
        sum += scan(i * 4096, 4096);
    }
    return sum;
}

PROGRAMS({"micro", set_up, micro}, {"milli", set_up, milli}, {"seconds", set_up, seconds},
         {"rare", set_up, rare}, {"twister", set_up, twister})
