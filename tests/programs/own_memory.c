// Reads its own code past all protections, or changes it, and computes with what it finds. WAY says by what: PATH, FORMAT and FOLDER lead to
// the file /proc/self/mem; CALL is process_vm_readv; CHILD traces its parent; WRITE changes a number in the code; ALIAS
// does so in shared memory that it puts in the place of the code.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH 1
#define FORMAT 2
#define FOLDER 3
#define CALL 4
#define CHILD 5
#define WRITE 6
#define ALIAS 7

static uint64_t table[4096];
extern char patched_end[];

__attribute__((noinline, aligned(64))) uint64_t work(uint64_t s, uint64_t n) {
    uint64_t h = 0;
    for (uint64_t i = 0; i < n; i++) { s = s * 6364136223846793005u + 1442695040888963407u; h += table[s >> 52]; }
    return h;
}

__attribute__((noinline, aligned(64))) uint64_t patched(uint64_t x) {
    uint64_t r = table[x & 7];
    __asm__ volatile("movl $0x11111111, %%ecx\n patched_end: addq %%rcx, %0\n" : "+r"(r) : : "rcx");
    return r;
}

#if WAY != ALIAS
static int open_memory(int flags) {
#if WAY == FORMAT
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getpid());
    return open(path, flags);
#elif WAY == FOLDER
    return openat(open("/proc/self", O_RDONLY | O_DIRECTORY), "mem", flags);
#else
    return open("/proc/self/mem", flags);
#endif
}

static void copy(unsigned char *to) {
#if WAY == CALL
    struct iovec local = {to, 64}, remote = {(void *)work, 64};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 64) exit(7);
#elif WAY == CHILD
    int ends[2];
    if (pipe(ends)) exit(7);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t child = fork();
    if (!child) {
        pid_t parent = getppid();
        unsigned char seen[64] = {0};
        if (!ptrace(PTRACE_ATTACH, parent, 0, 0)) {
            waitpid(parent, 0, __WALL);
            for (int i = 0; i < 64; i += 8) {
                long word = ptrace(PTRACE_PEEKTEXT, parent, (char *)work + i, 0);
                memcpy(seen + i, &word, 8);
            }
            ptrace(PTRACE_DETACH, parent, 0, 0);
        }
        _exit(write(ends[1], seen, 64) != 64);
    }
    if (read(ends[0], to, 64) != 64) exit(7);
    waitpid(child, 0, 0);
#else
    if (pread(open_memory(O_RDONLY), to, 64, (off_t)(uintptr_t)work) != 64) exit(8);
#endif
}

#endif

int main(void) {
    for (int i = 0; i < 4096; i++) table[i] = i * 2654435761u;
    uint64_t h = work(1, 3000000) + patched(3), sum = 0;
#if WAY == ALIAS
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, 4096)) return 7;
    char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *page = (char *)((uintptr_t)patched & ~4095ul);
    memcpy(shared, page, 4096);
    if (mmap(page, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd, 0) != page) return 8;
    uint32_t number = 0x22222222;
    memcpy(shared + (patched_end - 4 - page), &number, 4);
#elif WAY == WRITE
    uint32_t number = 0x22222222;
    if (pwrite(open_memory(O_RDWR), &number, 4, (off_t)(uintptr_t)patched_end - 4) != 4) return 9;
#else
    unsigned char bytes[64];
    copy(bytes);
    for (int i = 0; i < 64; i++) sum = sum * 31 + bytes[i];
#endif
    for (int i = 0; i < 200; i++) h += work(3, 20000) + patched(i);
    printf("%016lx %016lx\n", h, sum);
    return 0;
}
