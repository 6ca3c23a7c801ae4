/* Large data of which all or little is used: `giant KIND MIB PASSES PAGES [STEPS]`.
 *
 * KIND: `stream` reads two arrays and writes a third, a word of each line; `chase` follows pointers
 * from line to line in random order and writes to each; `both` does one after the other, over as much
 * memory each; `sparse` chases over one line of each 4 KiB; `quarter` of each 16 KiB; `scattered` of
 * each 2 MiB; `local` over all lines of 256 KiB; `columns` reads a matrix by columns; `gather` reads at
 * random places; `blocks` reads whole pages of 4 KiB in random order; `window` reads the first 8 MiB
 * again and again.
 * MIB is a power of two; STEPS bounds a chase. PAGES: `small`, `huge` (madvise), `any`. Prints nanoseconds a step and seconds with the first touches, of processor time,
 * resident MiB, and MiB in huge pages. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct node {
    struct node *next;
    long visits;
};

/* Seconds of processor time: others may use the processors meanwhile. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static const char *pages;

static void *advised(void *memory, size_t bytes) {
    if (strcmp(pages, "any"))
        madvise(memory, bytes, strcmp(pages, "huge") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return memory;
}

static size_t whole(size_t bytes) {
    return (bytes + (2 << 20) - 1) >> 21 << 21;
}

__attribute__((noinline)) double stream_pass(double *to, const double *one, const double *two, long n) {
    for (long i = 0; i < n; i += 8)
        to[i] = one[i] + 3 * two[i];
    return to[0];
}

__attribute__((noinline)) struct node *chase_pass(struct node *at, long steps) {
    for (long i = 0; i < steps; i++) {
        at->visits = i;
        at = at->next;
    }
    return at;
}

/* A row of the matrix has a page and a line, so that a column is not in one set of the caches. */
enum { ROW = 4096 + 64 };

__attribute__((noinline)) double columns_pass(const char *data, long bytes, long steps) {
    double sum = 0;
    long rows = bytes / ROW;
    for (long i = 0; i < steps; i++)
        sum += *(const double *)(data + i % rows * ROW + i / rows % (ROW / 8) * 8);
    return sum;
}

static unsigned long next(unsigned long state) {
    return state * 6364136223846793005ul + 1442695040888963407ul;
}

__attribute__((noinline)) double gather_pass(const char *data, long bytes, long steps) {
    double sum = 0;
    unsigned long state = 42;
    for (long i = 0; i < steps; i++) {
        state = next(state);
        sum += *(const double *)(data + (state >> 20) % (unsigned long)(bytes / 64) * 64);
    }
    return sum;
}

__attribute__((noinline)) double blocks_pass(const char *data, long bytes, long steps) {
    double sum = 0;
    unsigned long state = 42;
    for (long i = 0; i < steps; i += 64) {
        state = next(state);
        const char *page = data + (state >> 20) % (unsigned long)(bytes / 4096) * 4096;
        for (long line = 0; line < 64; line++)
            sum += *(const double *)(page + line * 64);
    }
    return sum;
}

__attribute__((noinline)) double window_pass(const char *data, long bytes, long steps) {
    double sum = 0;
    long window = bytes < 8 << 20 ? bytes : 8 << 20;
    for (long i = 0; i < steps; i++)
        sum += *(const double *)(data + i * 64 % window);
    return sum;
}

static const struct {
    const char *name;
    double (*pass)(const char *, long, long);
} reads[] = {{"columns", columns_pass}, {"gather", gather_pass}, {"blocks", blocks_pass}, {"window", window_pass}};

/* One cycle over places that are `apart` bytes apart, in the order of a congruential generator with the whole period: the bits
 * that tell the page are the random ones, and nothing is written at random. `n` is a power of two. */
__attribute__((noinline)) static struct node *build(char *memory, long n, size_t apart) {
    /* Where places are far apart they are not all in one set of the caches. */
    size_t turn = apart > 64 ? 64 : 0;
#define PLACE(i) ((struct node *)(memory + (i) * apart + (i) % 61 * turn))
    for (long i = 0; i < n; i++)
        PLACE(i)->next = PLACE((i * 2891336453ul + 12345679) & (n - 1));
    return PLACE(0);
}

static long field(const char *file, const char *name) {
    char line[256];
    long kib = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)))
            kib = atol(line + strlen(name));
    if (f)
        fclose(f);
    return kib;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "both";
    size_t bytes = (argc > 2 ? atol(argv[2]) : 64) << 20;
    int passes = argc > 3 ? atoi(argv[3]) : 2;
    pages = argc > 4 ? argv[4] : "any";
    double begin = now(), busy = 0, sum = 0;
    long steps = 0;
    if (!strcmp(kind, "stream") || !strcmp(kind, "both")) {
        size_t each = whole(bytes / 3);
        double *to = advised(aligned_alloc(2 << 20, each), each);
        double *one = advised(aligned_alloc(2 << 20, each), each);
        double *two = advised(aligned_alloc(2 << 20, each), each);
        memset(to, 0, each);
        memset(one, 1, each);
        memset(two, 1, each);
        double from = now();
        for (int pass = 0; pass < passes; pass++)
            sum += stream_pass(to, one, two, each / sizeof *to);
        busy += now() - from;
        steps += passes * (long)(each / 64);
    }
    int is_read = 0;
    for (unsigned i = 0; i < sizeof reads / sizeof *reads; i++)
        if (!strcmp(kind, reads[i].name)) {
            is_read = 1;
            char *data = advised(aligned_alloc(2 << 20, whole(bytes)), whole(bytes));
            memset(data, 1, bytes);
            steps = passes * (long)(bytes / 64);
            if (argc > 5 && atol(argv[5]) < steps)
                steps = atol(argv[5]);
            double from = now();
            sum += reads[i].pass(data, bytes, steps);
            busy += now() - from;
        }
    if (strcmp(kind, "stream") && !is_read) {
        size_t apart = !strcmp(kind, "sparse") ? 4096 : !strcmp(kind, "quarter") ? 16384 : !strcmp(kind, "scattered") ? 2 << 20 : 64;
        char *nodes = advised(aligned_alloc(2 << 20, whole(bytes)), whole(bytes));
        long n = (!strcmp(kind, "local") ? 256 << 10 : bytes) / apart;
        struct node *at = build(nodes, n, apart);
        long all = passes * n;
        if (argc > 5 && atol(argv[5]) < all)
            all = atol(argv[5]);
        double from = now();
        at = chase_pass(at, all);
        busy += now() - from;
        steps += all;
        sum += at->visits;
    }
    printf("%.3f %.3f %ld %ld\n", busy * 1e9 / steps, now() - begin, field("/proc/self/status", "VmRSS:") >> 10,
           field("/proc/self/smaps_rollup", "AnonHugePages:") >> 10);
    return sum == 0.5;
}
