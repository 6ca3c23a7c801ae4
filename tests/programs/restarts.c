// Counters per processor, added to in restartable sequences (rseq). WAY says where the descriptor of the sequence comes from:
// DATA: it stands in a section of data. STACK: the function makes it on its stack. TABLE: another function makes it out of a table of
// addresses, and the sequence goes on in another section. OWN: in a section of data; the threads register with a signature of their own.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DATA 1
#define STACK 2
#define TABLE 3
#define OWN 4

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

struct sequence { uint32_t version, flags; uint64_t start, length, abort; } __attribute__((aligned(32)));
struct area { uint32_t cpu_id_start, cpu_id; uint64_t rseq_cs; uint32_t flags, node, mm; } __attribute__((aligned(32)));

static struct { uint64_t n; char pad[56]; } counters[4096];
static uint64_t table[4096], each;
static __thread struct area own;

#if WAY == OWN
#define SIGNATURE "0x1badcafe"
#define BEFORE ".long " SIGNATURE "\n"
#else
#define SIGNATURE "0x53053053"
#define BEFORE ".byte 0x0f, 0xb9, 0x3d\n .long " SIGNATURE "\n"
#endif

#if WAY == DATA || WAY == OWN
#define MAKE ".pushsection .data.mine, \"aw\"\n .balign 32\n 3: .long 0, 0\n .quad 1f, 2f-1f, 4f\n .popsection\n leaq 3b(%%rip), %%rax\n movq %%rax, 8(%[r])\n"
#define GO_ON BEFORE "4: jmp %l[moved]\n"
#elif WAY == STACK
#define MAKE "leaq 1f(%%rip), %%rax\n movq %%rax, 8(%[d])\n leaq 2f(%%rip), %%rcx\n subq %%rax, %%rcx\n movq %%rcx, 16(%[d])\n" \
    "leaq 4f(%%rip), %%rax\n movq %%rax, 24(%[d])\n movq $0, (%[d])\n movq %[d], 8(%[r])\n"
#define GO_ON BEFORE "4: jmp %l[moved]\n"
#else
#define MAKE ".pushsection .data.mine, \"aw\"\n .globl addresses\n addresses: .quad 1f, 2f, 4f\n .popsection\n movq %[d], 8(%[r])\n"
#define GO_ON ".pushsection .text.failure, \"ax\"\n" BEFORE "4: jmp %l[moved]\n .popsection\n"
extern uint64_t addresses[3];
static struct sequence *made;
__attribute__((noinline)) static void make(void) {
    made = aligned_alloc(32, sizeof *made);
    *made = (struct sequence){0, 0, addresses[0], addresses[1] - addresses[0], addresses[2]};
}
#endif

__attribute__((noinline)) static int add(struct area *r, uint64_t v) {
    uint32_t cpu = r->cpu_id_start;
    uint64_t *c = &counters[cpu & 4095].n;
#if WAY == TABLE
    struct sequence *d = made;
#elif WAY == STACK
    struct sequence *d = __builtin_alloca_with_align(32, 256);
#else
    struct sequence *d = 0;
#endif
    __asm__ goto(MAKE
        "1: cmpl %[cpu], 4(%[r])\n jne %l[moved]\n"
        "movq (%[c]), %%rax\n addq %[v], %%rax\n"
        "movl $60, %%ecx\n 6: decl %%ecx\n jnz 6b\n movq (%[c]), %%rcx\n"
        "movq %%rax, (%[c])\n"
        "2: jmp 5f\n" GO_ON "5:\n"
        : : [r] "r"(r), [cpu] "r"(cpu), [c] "r"(c), [v] "r"(v), [d] "r"(d) : "rax", "rcx", "memory", "cc" : moved);
    return 1;
moved:
    return 0;
}

static struct area *mine(void) {
    struct area *r = (struct area *)((char *)__builtin_thread_pointer() + __rseq_offset);
#if WAY == OWN
    // (The kernel knows one area of a thread: the C library's goes first.)
    syscall(SYS_rseq, r, 32, 1, 0x53053053);
    if (syscall(SYS_rseq, &own, 32, 0, 0x1badcafe)) exit(3);
    r = &own;
#endif
    return r;
}

static void *work(void *seed) {
    struct area *r = mine();
    uint64_t s = (uintptr_t)seed;
    for (uint64_t done = 0; done < each;) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        done += add(r, 1 + (table[s >> 52] & 1));
    }
#if WAY == OWN
    syscall(SYS_rseq, r, 32, 1, 0x1badcafe);
#endif
    return 0;
}

int main(int argc, char **argv) {
    each = argc > 1 ? strtoull(argv[1], 0, 0) : 1000000;
    if (!&__rseq_size || !__rseq_size) { puts("no rseq"); return 0; }
#if WAY == TABLE
    make();
#endif
    pthread_t threads[6];
    for (long i = 0; i < 6; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    uint64_t sum = 0;
    for (int i = 0; i < 4096; i++) sum += counters[i].n;
    printf("lost %ld of %lu\n", (long)(6 * each - sum), 6 * each);
    return 0;
}
