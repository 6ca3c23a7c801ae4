// Random allocations of several threads, with forks: contents, alignment and sizes are checked.
// Arguments: threads, operations of each thread, largest block.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 700, SHARED = 64 };

typedef struct {
    unsigned char *at;
    size_t bytes;
    uint64_t key;
} Block;

static long operations;
static size_t largest;
static _Atomic(Block *) handed[SHARED];

static uint64_t next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static void fail(const char *what, const Block *b) {
    char text[128];
    int n = snprintf(text, sizeof text, "%s: %p %zu\n", what, (void *)b->at, b->bytes);
    if (write(2, text, n) < 0) {
        _exit(3);
    }
    abort();
}

// The bytes of a block that have a pattern: its ends, and some in between.
static size_t step(size_t bytes) { return bytes < 512 ? 1 : bytes / 256; }

static void fill(Block *b) {
    size_t by = step(b->bytes);
    for (size_t i = 0; i < b->bytes; i += by) {
        b->at[i] = (unsigned char)(b->key + i * 7);
    }
    if (b->bytes) {
        b->at[b->bytes - 1] = (unsigned char)(b->key ^ 0x5a);
    }
}

static void check(const Block *b, size_t bytes) {
    size_t by = step(b->bytes);
    for (size_t i = 0; i < bytes && i + 1 < b->bytes; i += by) {
        if (b->at[i] != (unsigned char)(b->key + i * 7)) {
            fail("content", b);
        }
    }
    if (bytes == b->bytes && bytes && b->at[bytes - 1] != (unsigned char)(b->key ^ 0x5a)) {
        fail("last byte", b);
    }
    if (malloc_usable_size(b->at) < b->bytes) {
        fail("usable size", b);
    }
}

static size_t size(uint64_t *state) {
    uint64_t r = next(state);
    switch (r % 64) {
    case 0: return (r >> 8) % (largest + 1);
    case 1: case 2: case 3: return (r >> 8) % 40000;
    case 4: return 0;
    case 5: case 6: case 7: case 8: return (r >> 8) % 4000;
    default: return (r >> 8) % 260;
    }
}

static void allocate(Block *b, uint64_t *state) {
    uint64_t r = next(state);
    size_t align = 16, bytes = size(state);
    int zero = 0;
    void *at = NULL;
    switch (r % 16) {
    case 0: align = 16u << (r >> 8) % 9; at = aligned_alloc(align, bytes); break;
    case 1:
        align = 8u << (r >> 8) % 11;
        if (posix_memalign(&at, align, bytes)) {
            at = NULL;
        }
        break;
    case 2: align = 32u << (r >> 8) % 6; at = memalign(align, bytes); break;
    case 3: at = (r >> 8) % 32 ? malloc(bytes) : valloc(bytes); break;
    case 4: case 5: case 6: case 7: at = calloc(3, bytes / 3); zero = 1; bytes = bytes / 3 * 3; break;
    case 8: at = reallocarray(NULL, bytes, 1); break;
    case 9: at = realloc(NULL, bytes); break;
    default: at = malloc(bytes);
    }
    *b = (Block){at, bytes, r >> 20};
    if (!at) {
        fail("no memory", b);
    }
    if ((uintptr_t)at % (align < 16 ? 16 : align)) {
        fail("alignment", b);
    }
    for (size_t i = 0; zero && i < bytes; i++) {
        if (b->at[i]) {
            fail("not zero", b);
        }
    }
    fill(b);
}

static void resize(Block *b, uint64_t *state) {
    size_t bytes = size(state) + 1;
    unsigned char *at = next(state) % 4 ? realloc(b->at, bytes) : reallocarray(b->at, bytes, 1);
    if (!at) {
        fail("no memory for more", b);
    }
    b->at = at;
    size_t kept = bytes < b->bytes ? bytes : b->bytes;
    Block old = *b;
    // The new block's own size counts from here on.
    size_t by = step(old.bytes);
    for (size_t i = 0; i < kept && i + 1 < old.bytes; i += by) {
        if (at[i] != (unsigned char)(old.key + i * 7)) {
            fail("content after realloc", b);
        }
    }
    b->bytes = bytes;
    fill(b);
}

static void release(Block *b) {
    check(b, b->bytes);
    int before = errno = 77;
    free(b->at);
    if (errno != before) {
        fail("errno", b);
    }
    b->at = NULL;
}

// Gives a block to another thread, and frees the one that was there.
static void hand_over(Block *b, uint64_t *state) {
    Block *given = malloc(sizeof *given);
    *given = *b;
    b->at = NULL;
    Block *taken = atomic_exchange(&handed[next(state) % SHARED], given);
    if (taken) {
        release(taken);
        free(taken);
    }
}

static void work(Block *slots, uint64_t *state, long count) {
    for (long n = 0; n < count; n++) {
        Block *b = &slots[next(state) % SLOTS];
        uint64_t r = next(state) % 16;
        if (!b->at) {
            allocate(b, state);
        } else if (r < 4) {
            check(b, b->bytes);
            resize(b, state);
        } else if (r == 4) {
            hand_over(b, state);
        } else {
            release(b);
        }
        // All are freed now and then, so that memory is given back.
        if (next(state) % 20000 == 0) {
            for (int i = 0; i < SLOTS; i++) {
                if (slots[i].at) {
                    release(&slots[i]);
                }
            }
        }
    }
}

static void fork_once(Block *slots, uint64_t *state) {
    pid_t child = fork();
    if (child == 0) {
        uint64_t own = *state | 1;
        work(slots, &own, 3000);
        _exit(0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "child %d: %x\n", (int)child, status);
        abort();
    }
}

static void *run(void *argument) {
    long number = (long)argument;
    Block *slots = calloc(SLOTS, sizeof *slots);
    uint64_t state = 0x9e3779b97f4a7c15 * (uint64_t)(number + 1);
    for (int part = 0; part < 20; part++) {
        work(slots, &state, operations / 20);
        if (number < 2) {
            fork_once(slots, &state);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].at) {
            release(&slots[i]);
        }
    }
    free(slots);
    return NULL;
}

// Handlers of forks may allocate.
static void around_fork(void) {
    static _Thread_local void *kept[8];
    for (int i = 0; i < 8; i++) {
        free(kept[i]);
        kept[i] = malloc(40 * i);
    }
}

// Alignments up to those that no pool has, and a block that grows and shrinks from a few bytes to many
// megabytes and back.
static void extremes(void) {
    for (size_t align = 16; align <= 8u << 20; align *= 2) {
        void *kept[16];
        for (int i = 0; i < 16; i++) {
            size_t bytes = i % 4 ? (size_t)i * 1000 : (size_t)1 << i;
            Block b = {NULL, bytes, align + i};
            void *at = NULL;
            b.at = i % 2 ? aligned_alloc(align, bytes) : posix_memalign(&at, align, bytes) ? NULL : at;
            if (!b.at || (uintptr_t)b.at % align) {
                fail("large alignment", &b);
            }
            fill(&b);
            check(&b, bytes);
            kept[i] = b.at;
        }
        for (int i = 0; i < 16; i++) {
            free(kept[(i * 5) % 16]);
        }
    }
    Block b = {malloc(24), 24, 99};
    fill(&b);
    for (int turn = 0; turn < 40; turn++) {
        size_t bytes = turn < 20 ? (size_t)24 << turn : (size_t)24 << (39 - turn);
        size_t kept = bytes < b.bytes ? bytes : b.bytes;
        unsigned char *at = realloc(b.at, bytes);
        for (size_t i = 0, by = step(b.bytes); at && i < kept && i + 1 < b.bytes; i += by) {
            if (at[i] != (unsigned char)(b.key + i * 7)) {
                fail("content of a growing block", &b);
            }
        }
        if (!at) {
            fail("no memory to grow", &b);
        }
        b = (Block){at, bytes, b.key + 1};
        fill(&b);
    }
    release(&b);
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 4;
    operations = argc > 2 ? atol(argv[2]) : 1000000;
    largest = argc > 3 ? (size_t)atol(argv[3]) : 200000;
    pthread_atfork(around_fork, around_fork, around_fork);
    pthread_t all[64];
    run((void *)1000);
    for (long i = 0; i < threads && i < 64; i++) {
        if (pthread_create(&all[i], NULL, run, (void *)i)) {
            return 2;
        }
    }
    for (long i = 0; i < threads && i < 64; i++) {
        pthread_join(all[i], NULL);
    }
    for (int i = 0; i < SHARED; i++) {
        if (handed[i]) {
            release(handed[i]);
            free(handed[i]);
        }
    }
    extremes();
    // Requests that cannot be met fail as the C library's.
    volatile size_t huge = (size_t)-1;
    errno = 0;
    if (malloc(huge / 2) || errno != ENOMEM || calloc(huge, 2) || realloc(NULL, huge / 2)) {
        return 4;
    }
    void *block = malloc(100), *out = NULL;
    errno = 0;
    if (reallocarray(block, huge, 2) || errno != ENOMEM || realloc(block, huge / 2)) {
        return 5;
    }
    if (posix_memalign(&out, 3, 10) != EINVAL || posix_memalign(&out, 64, huge / 2) != ENOMEM) {
        return 6;
    }
    block = realloc(block, 0);
    if (block) {
        return 7;
    }
    puts("ok");
    return 0;
}
