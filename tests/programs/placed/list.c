// A list whose nodes were allocated in turn with other blocks, or an array read at random places.
// Prints the nanoseconds of CPU time of a step. Arguments: list or array, and a number of megabytes.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct node {
    struct node *next;
    uint64_t value, more[2];
};

static struct node *volatile made;
// The array and the nodes have a site each.
__attribute__((noinline)) static void *make_node(void) { return made = malloc(sizeof(struct node)); }

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double list(size_t megabytes) {
    size_t nodes = megabytes * 1024 * 1024 / sizeof(struct node);
    struct node *first = NULL, **end = &first;
    uint64_t r = 88172645463325252u;
    for (size_t i = 0; i < nodes; i++) {
        struct node *n = make_node();
        *n = (struct node){NULL, i, {0}};
        *end = n;
        end = &n->next;
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        for (unsigned k = 0; k < 1 + r % 4; k++) {
            *(volatile char *)malloc(40 + 16 * (r >> 8) % 100) = 1;
        }
    }
    uint64_t sum = 0;
    double start = seconds();
    for (int pass = 0; pass < 8; pass++) {
        for (struct node *n = first; n; n = n->next) {
            sum += n->value;
        }
    }
    double took = seconds() - start;
    fprintf(stderr, "%llu\n", (unsigned long long)sum);
    return took / nodes / 8;
}

static double array(size_t megabytes) {
    size_t words = megabytes * 1024 * 1024 / 8;
    uint64_t *a = malloc(words * 8), r = 88172645463325252u, sum = 0;
    for (size_t i = 0; i < words; i++) {
        a[i] = i;
    }
    const long steps = 4000000;
    double start = seconds();
    for (long i = 0; i < steps; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        // Each place depends on the value before.
        sum += a[(r + sum % 2) % words];
    }
    double took = seconds() - start;
    fprintf(stderr, "%llu\n", (unsigned long long)sum);
    return took / steps;
}

int main(int argc, char **argv) {
    size_t megabytes = argc > 2 ? strtoul(argv[2], NULL, 0) : 16;
    double took = argc > 1 && !strcmp(argv[1], "array") ? array(megabytes) : list(megabytes);
    printf("%.3f\n", took * 1e9);
    return 0;
}
