// Goes through the list of its own mappings: sums up what can be written to, or fills it and puts back what was there, as crash reporters,
// collectors and checkpoints do. First argument: how the list is opened. f: fopen. o: open, by the number of the process. a: openat, relative
// to the folder. n: syscall. i: inline assembly. s: fopen of smaps. Second: r reads, w writes. Third: h in a handler of SIGSEGV, t with
// threads that go on, m in the first thread.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 2048
static uint64_t table[4096], *heap;
static struct { unsigned long start, end; int shared; } ranges[MOST];
static int found, threads_run = 1;
static volatile uint64_t sum;
static char how, what;
static int crashes;

__attribute__((noinline)) static uint64_t work(uint64_t s, long n) {
    uint64_t h = 0;
    for (long i = 0; i < n; i++) { s = s * 6364136223846793005u + 1442695040888963407u; h += table[s >> 52] + heap[s >> 52]; }
    return h;
}

static int open_list(void) {
    char path[64];
    switch (how) {
    case 'o': snprintf(path, sizeof path, "/proc/%d/maps", getpid()); return open(path, O_RDONLY);
    case 'a': { int folder = open("/proc/self", O_RDONLY | O_DIRECTORY), fd = openat(folder, "maps", O_RDONLY); close(folder); return fd; }
    case 'n': return syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/maps", O_RDONLY);
    case 'i': {
        long fd, path = (long)"/proc/self/maps";
        __asm__ volatile("movl $2, %%eax\n syscall" : "=a"(fd) : "D"(path), "S"(0L), "d"(0L) : "rcx", "r11", "memory");
        return fd;
    }
    default: return fileno(fopen(how == 's' ? "/proc/self/smaps" : "/proc/self/maps", "r"));
    }
}

static void find(void) {
    static char text[1 << 18];
    int fd = open_list(), length = 0, got;
    while ((got = read(fd, text + length, sizeof text - 1 - length)) > 0) length += got;
    close(fd);
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : 0) {
        unsigned long start, end;
        char may[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, may) != 3 || may[0] != 'r' || may[1] != 'w') continue;
        char *newline = strchr(line, '\n'), *stack = strstr(line, "[stack]");
        if (stack && (!newline || stack < newline)) continue;
        if (found < MOST) { ranges[found].start = start; ranges[found].end = end; found++; }
    }
}

// A page at a time, without any call while it is filled.
__attribute__((noinline, optimize("no-tree-loop-distribute-patterns"))) static void fill(volatile uint64_t *page) {
    uint64_t kept[512];
    for (int i = 0; i < 512; i++) kept[i] = page[i];
    for (int i = 0; i < 512; i++) page[i] = 0xa5a5a5a5a5a5a5a5;
    for (int i = 0; i < 512; i++) page[i] = ~page[i];
    for (int i = 0; i < 512; i++) page[i] = kept[i];
}

static void go_through(void) {
    sigset_t all, before;
    sigfillset(&all);
    find();
    sigprocmask(SIG_SETMASK, &all, &before);
    int rounds = what == 'w' ? 3 : 1, count = found;
    // A thread that is interrupted while the area of restartable sequences is filled dies: a signal
    // may always come, unless the thread is crashing.
    unsigned long own = crashes ? 0 : (unsigned long)__builtin_thread_pointer() & ~4095ul;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            unsigned long start = ranges[i].start, end = ranges[i].end;
            for (unsigned long at = start; at < end; at += 4096) {
                if (what == 'w' && (at == own || at == own + 4096)) continue;
                if (what == 'w') fill((volatile uint64_t *)at);
                else for (int k = 0; k < 512; k += 8) sum += ((volatile uint64_t *)at)[k];
            }
        }
    sigprocmask(SIG_SETMASK, &before, 0);
}

static void handler(int signal) {
    crashes = 1;
    go_through();
    printf("%016lx %s\n", work(7, 2000000), found > 4 ? "several" : "few");
    fflush(stdout);
    _exit(0);
}

static void *run(void *seed) {
    while (__atomic_load_n(&threads_run, __ATOMIC_ACQUIRE)) work((uintptr_t)seed, 100000);
    return 0;
}

int main(int argc, char **argv) {
    how = argv[1][0]; what = argv[2][0];
    heap = malloc(4096 * sizeof *heap);
    for (int i = 0; i < 4096; i++) { table[i] = i * 2654435761u; heap[i] = i * 40503u; }
    uint64_t h = work(1, 5000000);
    pthread_t threads[3];
    if (argv[3][0] == 'h') {
        signal(SIGSEGV, handler);
        *(volatile int *)0 = 1;
    }
    if (argv[3][0] == 't') for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, (void *)(i + 1));
    go_through();
    __atomic_store_n(&threads_run, 0, __ATOMIC_RELEASE);
    if (argv[3][0] == 't') for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    h += work(3, 5000000);
    printf("%016lx %s\n", h, found > 4 ? "several" : "few");
    return 0;
}
