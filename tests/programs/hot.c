/* Reuses at known distances: `hot ROUNDS`. In each round over an array of 50,000 words, a counter is read and written beside
 * each word. In loads: the counter's write comes 1 after its read (counting from the read, none in between), its read 2 after its write, and
 * each word after the whole round. */
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 50000 };
static long words[WORDS];
static volatile long counter;

__attribute__((noinline, noclone)) static long pass(const long *from) {
    long sum = 0;
    for (int i = 0; i < WORDS; i++) {
        sum += from[i];
        counter = counter + 1;
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, sum = 0;
    for (int i = 0; i < WORDS; i++)
        words[i] = i;
    for (long k = 0; k < rounds; k++) {
        words[k % WORDS] ^= k;
        sum += pass(words);
    }
    printf("%ld %ld\n", sum, counter);
    return 3;
}
