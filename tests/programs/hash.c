/* Hash tables: open addressing, and chains with strings and growth. */
#include "mix.h"

struct entry {
    struct entry *next;
    char *key;
    long count;
};
static struct entry **buckets;
static size_t bucket_count, entries;

__attribute__((noinline)) static uint32_t hash(const char *s) {
    uint32_t h = 5381;
    while (*s)
        h = h * 33 + (unsigned char)*s++;
    return h;
}

static void grow(void) {
    size_t n = bucket_count ? bucket_count * 2 : 8;
    struct entry **fresh = calloc(n, sizeof *fresh);
    for (size_t i = 0; i < bucket_count; i++)
        for (struct entry *e = buckets[i], *next; e; e = next) {
            next = e->next;
            size_t at = hash(e->key) % n;
            e->next = fresh[at];
            fresh[at] = e;
        }
    free(buckets);
    buckets = fresh;
    bucket_count = n;
}

__attribute__((noinline)) static struct entry *find(const char *key) {
    if (entries >= bucket_count)
        grow();
    struct entry **slot = &buckets[hash(key) % bucket_count];
    for (struct entry *e = *slot; e; e = e->next)
        if (!strcmp(e->key, key))
            return e;
    struct entry *e = malloc(sizeof *e);
    e->key = strdup(key);
    e->count = 0;
    e->next = *slot;
    *slot = e;
    entries++;
    return e;
}

static uint64_t table[512];

__attribute__((noinline)) static int add(uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 55);
    int probes = 1;
    while (table[i] && table[i] != key) {
        i = (i + 1) & 511;
        probes++;
    }
    table[i] = key;
    return probes;
}

int main(void) {
    uint32_t state = 99;
    char word[16];
    for (int i = 0; i < 250; i++) {
        snprintf(word, sizeof word, "w%u", next_random(&state) % 90);
        find(word)->count += i;
    }
    for (size_t i = 0; i < bucket_count; i++)
        for (struct entry *e = buckets[i]; e; e = e->next)
            mix(hash(e->key) + (uint64_t)e->count);
    long probes = 0;
    for (int i = 0; i < 400; i++)
        probes += add(next_random(&state) | 1);
    mix((uint64_t)probes);
    for (int i = 0; i < 512; i++)
        mix(table[i]);
    report("hash");
    return 0;
}
