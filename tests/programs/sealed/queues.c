/* Priority queues, caches and ordered sets. */
#include "sealed.h"

/* Binary heap, hold model: the earliest event leaves and a later one comes. */
struct event {
    double time;
    uint64_t payload;
};
enum { EVENTS = 120000 };
static struct event *events;

static void heap_set_up(void) {
    events = need((EVENTS + 1) * sizeof *events);
    for (int i = 0; i < EVENTS; i++) {
        struct event e = {uniform(), i};
        int at = i;
        for (; at && events[(at - 1) / 2].time > e.time; at = (at - 1) / 2)
            events[at] = events[(at - 1) / 2];
        events[at] = e;
    }
}

static void sift_down(struct event e) {
    int at = 0;
    for (int child; (child = 2 * at + 1) < EVENTS; at = child) {
        if (child + 1 < EVENTS && events[child + 1].time < events[child].time)
            child++;
        if (events[child].time >= e.time)
            break;
        events[at] = events[child];
    }
    events[at] = e;
}

static double heap_round(void) {
    double sum = 0;
    for (int i = 0; i < 60000; i++) {
        struct event e = events[0];
        sum += e.time;
        e.time += 2 * uniform();
        sift_down(e);
    }
    return sum;
}

/* Pairing heap of allocated nodes. */
struct pair {
    double key;
    struct pair *child, *sibling;
};
static struct pair *root;

static struct pair *meld(struct pair *a, struct pair *b) {
    if (!a || !b)
        return a ? a : b;
    if (b->key < a->key) {
        struct pair *t = a;
        a = b;
        b = t;
    }
    b->sibling = a->child;
    a->child = b;
    return a;
}

static struct pair *meld_children(struct pair *first) {
    struct pair *pairs = NULL;
    while (first) {
        struct pair *a = first, *b = first->sibling;
        first = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b)
            b->sibling = NULL;
        a = meld(a, b);
        a->sibling = pairs;
        pairs = a;
    }
    struct pair *all = NULL;
    while (pairs) {
        struct pair *next = pairs->sibling;
        pairs->sibling = NULL;
        all = meld(all, pairs);
        pairs = next;
    }
    return all;
}

static void pairing_set_up(void) {
    for (int i = 0; i < 50000; i++) {
        struct pair *p = need(sizeof *p);
        *p = (struct pair){uniform(), NULL, NULL};
        root = meld(root, p);
    }
}

static double pairing_round(void) {
    double sum = 0;
    for (int i = 0; i < 40000; i++) {
        struct pair *first = root;
        root = meld_children(first->child);
        sum += first->key;
        double key = first->key + 2 * uniform();
        free(first);
        first = need(sizeof *first);
        *first = (struct pair){key, NULL, NULL};
        root = meld(root, first);
    }
    return sum;
}

/* Skip list with towers of random height. */
struct tower {
    uint32_t key, height;
    struct tower *next[];
};
enum { LEVELS = 18, KEYS = 1 << 20 };
static struct tower *first_tower;

static struct tower *new_tower(uint32_t key, uint32_t height) {
    struct tower *t = need(sizeof *t + height * sizeof t->next[0]);
    t->key = key;
    t->height = height;
    return t;
}

static void skip_find(uint32_t key, struct tower **before) {
    struct tower *at = first_tower;
    for (int level = LEVELS - 1; level >= 0; level--) {
        while (at->next[level] && at->next[level]->key < key)
            at = at->next[level];
        before[level] = at;
    }
}

static void skip_insert(uint32_t key) {
    struct tower *before[LEVELS];
    skip_find(key, before);
    struct tower *next = before[0]->next[0];
    if (next && next->key == key)
        return;
    uint32_t height = 1;
    while (height < LEVELS && next_random() >> 63)
        height++;
    struct tower *t = new_tower(key, height);
    for (uint32_t i = 0; i < height; i++) {
        t->next[i] = before[i]->next[i];
        before[i]->next[i] = t;
    }
}

static int skip_remove(uint32_t key) {
    struct tower *before[LEVELS];
    skip_find(key, before);
    struct tower *found = before[0]->next[0];
    if (!found || found->key != key)
        return 0;
    for (uint32_t i = 0; i < found->height; i++)
        before[i]->next[i] = found->next[i];
    free(found);
    return 1;
}

static void skip_set_up(void) {
    first_tower = new_tower(0, LEVELS);
    memset(first_tower->next, 0, LEVELS * sizeof first_tower->next[0]);
    for (int i = 0; i < 40000; i++)
        skip_insert(1 + below(KEYS));
}

static double skip_round(void) {
    double found = 0;
    struct tower *before[LEVELS];
    for (int i = 0; i < 20000; i++) {
        skip_find(1 + below(KEYS), before);
        found += before[0]->next[0] != NULL;
        if (i % 16 == 0) {
            int gone = 0;
            while (!gone) {
                skip_find(1 + below(KEYS), before);
                gone = before[0]->next[0] && skip_remove(before[0]->next[0]->key);
            }
            skip_insert(1 + below(KEYS));
        }
    }
    return found;
}

/* LRU cache: a hash table with chains, and a list by time of use. */
struct entry {
    uint32_t key;
    struct entry *chain, *newer, *older;
    char value[64];
};
enum { BUCKETS = 16384, CAPACITY = 12000 };
static struct entry **buckets, ends;
static int cached;

static void unlink_entry(struct entry *e) {
    e->newer->older = e->older;
    e->older->newer = e->newer;
}

static void link_newest(struct entry *e) {
    e->newer = &ends;
    e->older = ends.older;
    ends.older->newer = e;
    ends.older = e;
}

static uint32_t bucket_of(uint32_t key) { return key * 2654435761u >> 18; }

static struct entry *evict(void) {
    struct entry *old = ends.newer;
    unlink_entry(old);
    struct entry **at = &buckets[bucket_of(old->key)];
    while (*at != old)
        at = &(*at)->chain;
    *at = old->chain;
    return old;
}

static int cache_get(uint32_t key) {
    struct entry *e = buckets[bucket_of(key)];
    while (e && e->key != key)
        e = e->chain;
    if (e) {
        unlink_entry(e);
        link_newest(e);
        return e->value[key % 64];
    }
    if (cached < CAPACITY) {
        e = need(sizeof *e);
        cached++;
    } else {
        e = evict();
    }
    e->key = key;
    memset(e->value, (int)key, sizeof e->value);
    e->chain = buckets[bucket_of(key)];
    buckets[bucket_of(key)] = e;
    link_newest(e);
    return 0;
}

static void cache_set_up(void) {
    buckets = calloc(BUCKETS, sizeof *buckets);
    ends.newer = ends.older = &ends;
    for (int i = 0; i < 100000; i++)
        cache_get(skewed(100000));
}

static double cache_round(void) {
    double sum = 0;
    for (int i = 0; i < 100000; i++)
        sum += cache_get(skewed(100000));
    return sum;
}

static const struct kind kinds[] = {
    {"binary-heap", heap_set_up, heap_round},
    {"pairing-heap", pairing_set_up, pairing_round},
    {"skip-list", skip_set_up, skip_round},
    {"lru-cache", cache_set_up, cache_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
