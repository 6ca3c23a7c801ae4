/* Micro-benchmarks of access patterns: strided, irregular, and both in series (|) or by condition (/).
 *
 *   str1        every element of an array of words
 *   strN        every Nth element, N = 2, 4, 8
 *   irr         elements in an order that a second array tells
 *   a|b         a loop of the one kind, then a loop of the other
 *   a/b         one loop that does the one or the other, by the data
 *
 * Each pattern is a hot spot for a short time: it is repeated many times over the same, small data. */
#include "cases.h"

enum { WORDS = 4096, REPEATS = 100 };

static uint64_t values[WORDS];
static uint32_t order[WORDS];
static uint8_t choice[WORDS];

NOINLINE static uint64_t strided(uint32_t step) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i += step)
        sum += values[i] ^ i;
    return sum;
}

/* Steps that the compiler knows, as most loops have them. */
#define STRIDED(step)                                                                                                                                          \
    NOINLINE static uint64_t str##step(void) {                                                                                                                 \
        uint64_t sum = 0;                                                                                                                                      \
        for (uint32_t i = 0; i < WORDS; i += step)                                                                                                             \
            sum += values[i] ^ i;                                                                                                                              \
        return sum;                                                                                                                                            \
    }
STRIDED(1)
STRIDED(2)
STRIDED(4)
STRIDED(8)

NOINLINE static uint64_t irr(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        sum += values[order[i]];
    return sum;
}

NOINLINE static uint64_t either(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        if (choice[i])
            sum += values[i];
        else
            sum ^= values[order[i]];
    return sum;
}

NOINLINE static uint64_t either8(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        if (choice[i])
            sum += values[(i * 8) % WORDS];
        else
            sum ^= values[order[i]];
    return sum;
}

int main(int argc, char **argv) {
    static const char text[] = "micro str1|str2|str4|str8|stride|irr|str1+irr|str8+irr|str1/irr|str8/irr [REPEATS]   ('+' is the paper's '|')";
    if (argc < 2)
        return usage(text);
    const char *kind = argv[1];
    long repeats = argc > 2 ? strtol(argv[2], NULL, 10) : REPEATS;
    uint64_t seed = 521288629, sum = 0;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t value = next_random(&seed);
        values[i] = value;
        choice[i] = value >> 63;
    }
    /* Strided patterns have no use for an order, and shuffling is irregular. */
    int is_ordered = strstr(kind, "irr") != NULL;
    for (uint32_t i = 0; is_ordered && i < WORDS; i++)
        order[i] = i;
    for (uint32_t i = WORDS - 1; is_ordered && i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(&seed) % (i + 1)), t = order[j];
        order[j] = order[i];
        order[i] = t;
    }
    for (long r = 0; r < repeats; r++) {
        if (!strcmp(kind, "str1"))
            sum += str1();
        else if (!strcmp(kind, "str2"))
            sum += str2();
        else if (!strcmp(kind, "str4"))
            sum += str4();
        else if (!strcmp(kind, "str8"))
            sum += str8();
        else if (!strcmp(kind, "stride"))
            sum += strided((uint32_t)(r % 7) + 1);
        else if (!strcmp(kind, "irr"))
            sum += irr();
        else if (!strcmp(kind, "str1+irr"))
            sum += str1() + irr();
        else if (!strcmp(kind, "str8+irr"))
            sum += str8() + irr();
        else if (!strcmp(kind, "str1/irr"))
            sum += either();
        else if (!strcmp(kind, "str8/irr"))
            sum += either8();
        else
            return usage(text);
        values[r % WORDS] ^= sum;
    }
    printf("micro %s %016llx\n", kind, (unsigned long long)sum);
    return 0;
}
