/* Programs of `benches/run validate`: each does `rounds` equal rounds of its work after a set-up.
 *
 * The loads of a function grow linearly with the number of rounds, and what it touches is the same in
 * each, so that full traces of one and of two rounds tell the truth of a run of any length. A round is
 * some million loads. Functions that are rows of the comparison are marked ROW. */
#ifndef MGZ_RUNS_H
#define MGZ_RUNS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW __attribute__((noinline, noclone))

typedef struct {
    const char *name;
    void (*set_up)(void);
    uint64_t (*round)(long number);
} Program;

static inline uint32_t next_random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static inline void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static inline int run_program(const Program *programs, int n, int argc, char **argv) {
    for (int i = 0; argc == 3 && i < n; i++)
        if (strcmp(programs[i].name, argv[1]) == 0) {
            uint64_t sum = 0;
            programs[i].set_up();
            for (long k = 0, rounds = strtol(argv[2], NULL, 10); k < rounds; k++)
                sum = sum * 31 + programs[i].round(k);
            printf("%016llx\n", (unsigned long long)sum);
            return 0;
        }
    fprintf(stderr, "usage: %s PROGRAM ROUNDS\n", argv[0]);
    return 2;
}

#define PROGRAMS(...)                                                                  \
    int main(int argc, char **argv) {                                                  \
        static const Program all[] = {__VA_ARGS__};                                    \
        return run_program(all, sizeof all / sizeof *all, argc, argv);                 \
    }
#endif
