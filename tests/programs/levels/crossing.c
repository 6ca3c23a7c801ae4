/* Reads words that lie across lines. */
#include <stdlib.h>
#include <string.h>
char bytes[1 << 17];
int main(int argc, char **argv) {
    long sum = 0;
    for (int round = argc > 1 ? atoi(argv[1]) * 16 : 0; round > 0; round--)
        for (int i = 0; i + 8 <= 1 << 17; i += 12) {
            long word;
            memcpy(&word, bytes + i, 8);
            sum += word;
        }
    return sum == 7;
}
