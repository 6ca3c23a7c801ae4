/* Accesses whose reuse is known: after a round over a table, in the order asked for.
 *
 * loads:  a table is read again and again, in the same order.
 * stores: a table is read once and from then on written, by code that reads another.
 * never:  no word is accessed twice. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 17 };

/* One word of each line, so that a word's reuse is its line's. */
__attribute__((noipa)) static uint64_t read_all(const uint64_t *table) {
    uint64_t sum = 0;
    for (int i = 0; i < WORDS; i += 8)
        sum += table[i];
    return sum;
}

__attribute__((noipa)) static void write_all(uint64_t *table, const uint64_t *from) {
    for (int i = 0; i < WORDS; i += 8)
        table[i] = from[i & 63];
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "loads";
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    uint64_t *table = calloc(WORDS, 8), *small = calloc(64, 8), sum = 0;
    uint64_t *fresh = calloc(rounds, WORDS * 8);
    if (!strcmp(what, "loads"))
        for (int i = 0; i < rounds; i++)
            sum += read_all(table);
    if (!strcmp(what, "stores"))
        for (int i = 0; i < rounds; i++) {
            sum += read_all(table);
            write_all(table, small);
        }
    if (!strcmp(what, "never"))
        for (int i = 0; i < rounds; i++)
            sum += read_all(fresh + (size_t)i * WORDS);
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
