/* Lookups in an open-addressing hash table, linear probing: irregular, short chains. */
#include "kernel.h"

enum { SLOTS = 32768, KEYS = 16384, LOOKUPS = 4096 };

struct slot {
    uint64_t key;
    uint64_t value;
};

__attribute__((noinline)) static uint64_t lookups(const struct slot *table, const uint64_t *keys, int n) {
    uint64_t found = 0;
    for (int i = 0; i < n; i++) {
        uint64_t key = keys[i];
        uint64_t at = (key * 0x9e3779b97f4a7c15ull) >> 49;
        while (table[at].key) {
            if (table[at].key == key) {
                found += table[at].value;
                break;
            }
            at = (at + 1) & (SLOTS - 1);
        }
    }
    return found;
}

int main(int argc, char **argv) {
    long rounds = rounds_or(argc, argv, 80000);
    uint64_t seed = 521288629ull;
    struct slot *table = take(SLOTS * sizeof *table);
    uint64_t *keys = take(LOOKUPS * sizeof *keys);
    memset(table, 0, SLOTS * sizeof *table);
    for (int i = 0; i < KEYS; i++) {
        uint64_t key = next_random(&seed) | 1;
        uint64_t at = (key * 0x9e3779b97f4a7c15ull) >> 49;
        while (table[at].key)
            at = (at + 1) & (SLOTS - 1);
        table[at] = (struct slot){key, i};
        if (i % 4 == 0)
            keys[i / 4] = i % 16 ? key : key ^ 2;
    }
    uint64_t total = 0;
    for (long r = 0; r < rounds; r++) {
        uint64_t t = keys[r % LOOKUPS];
        keys[r % LOOKUPS] = keys[(r * 7) % LOOKUPS];
        keys[(r * 7) % LOOKUPS] = t;
        total += lookups(table, keys, LOOKUPS);
    }
    return finish(total);
}
