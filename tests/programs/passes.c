/* Loads whose next access is a store: `passes ROUNDS`. Each round loads every word of an array, in one function, and then stores to every
 * word, in another. So a word is stored to some time after its load, and loaded again after a whole round. */
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 100000 };
static long words[WORDS];

__attribute__((noinline, noclone)) static long take(const long *from) {
    long sum = 0;
    for (int i = 0; i < WORDS; i++)
        sum = (sum ^ from[i]) * 3;
    return sum;
}

__attribute__((noinline, noclone)) static void put(volatile long *to, long value) {
    for (int i = 0; i < WORDS; i++)
        to[i] = value + i;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, sum = 0;
    for (long k = 0; k < rounds; k++) {
        sum += take(words);
        put(words, k);
    }
    printf("%ld\n", sum);
    return 0;
}
