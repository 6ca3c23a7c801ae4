// Two sites of small blocks: 200,000 of 32 bytes, walked three times in an order of their own, and
// 50,000 of 48, walked once. Blocks are resized, zeroed, aligned and freed by another thread and by a
// child on the way, and what they hold is checked.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct often {
    struct often *next;
    uint64_t value[3];
};
struct seldom {
    struct seldom *next;
    uint64_t value[5];
};
enum { OFTEN = 200000, SELDOM = 50000, OTHERS = 2000 };

__attribute__((noinline, noipa)) static struct often *often_site(void) {
    return malloc(sizeof(struct often));
}

__attribute__((noinline, noipa)) static struct seldom *seldom_site(void) {
    return calloc(1, sizeof(struct seldom));
}

__attribute__((noinline, noipa)) static uint64_t walk_often(const struct often *at) {
    uint64_t total = 0;
    for (; at; at = at->next)
        total += at->value[0];
    return total;
}

__attribute__((noinline, noipa)) static uint64_t walk_seldom(const struct seldom *at) {
    uint64_t total = 0;
    for (; at; at = at->next)
        total += at->value[0];
    return total;
}

static void *free_all(void *blocks) {
    for (int i = 0; i < OTHERS; i++)
        free(((void **)blocks)[i]);
    return 0;
}

/// Blocks of all kinds, whose content must stay.
static int others(void) {
    unsigned char *blocks[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        size_t bytes = 1 + i % 300;
        blocks[i] = i % 3 == 0 ? aligned_alloc(64, (bytes + 63) & ~63ul) : malloc(bytes);
        if (!blocks[i] || (i % 3 == 0 && (uintptr_t)blocks[i] % 64))
            return 1;
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < OTHERS; i++) {
        size_t bytes = 1 + i % 300;
        blocks[i] = realloc(blocks[i], bytes + i % 5000);
        for (size_t k = 0; k < bytes; k++)
            if (blocks[i][k] != (unsigned char)i)
                return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        free_all(blocks);
        free(malloc(100));
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
        return 3;
    pthread_t thread;
    pthread_create(&thread, 0, free_all, blocks);
    pthread_join(thread, 0);
    return 0;
}

int main(void) {
    struct often *first = 0;
    struct seldom *second = 0;
    for (int i = 0; i < OFTEN; i++) {
        struct often *node = often_site();
        node->next = first;
        node->value[0] = i;
        first = node;
        if (i % (OFTEN / SELDOM) == 0) {
            struct seldom *other = seldom_site();
            other->next = second;
            other->value[0] += i;
            second = other;
        }
    }
    int wrong = others();
    uint64_t total = 0;
    for (int walk = 0; walk < 3; walk++)
        total += walk_often(first);
    total += walk_seldom(second);
    printf("%d %lu\n", wrong, (unsigned long)total);
    return wrong;
}
