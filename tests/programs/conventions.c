// Calls that leave more alone than the ABI asks for, or return more. Compiled twice: with -DLIBRARY the functions of another file, else the program that
// calls them by way of functions of its own, and looks afterwards at what should have been left alone. Needs -z now: binding at the first call changes r10 and r11.
#include <stdio.h>
#include <stdlib.h>

#if defined(__clang__)
#define KEEPS_MOST __attribute__((preserve_most))
#define KEEPS_ALL __attribute__((preserve_all))
#else
#define KEEPS_MOST __attribute__((no_caller_saved_registers, target("general-regs-only")))
#define KEEPS_ALL KEEPS_MOST
#endif
#define NOINLINE __attribute__((noinline))

extern long table[64];
KEEPS_MOST void most(long);
KEEPS_ALL void all(long);
__attribute__((ms_abi)) void microsoft(long);
void by_hand(void);
void chosen(void);
long local_sum(long, long, long, long, long);

#ifdef LIBRARY

long table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
static long calls;
static __thread long mine[4] = {7, 8, 9, 10};

KEEPS_MOST void most(long i) {
  long s = 0;
  for (int k = 0; k < 8; k++)
    s += table[(i + k) & 63];
  table[i & 63] = s + calls++;
}
KEEPS_ALL void all(long i) {
  table[(i + 1) & 63] += table[i & 63] >> 3;
  calls += table[(i + 7) & 63];
}
__attribute__((ms_abi)) void microsoft(long i) {
  table[i & 63] += table[(i + 5) & 63] + calls;
}
// Values stay in registers across the call that a descriptor of thread-local storage takes.
long local_sum(long a, long b, long c, long d, long e) {
  return table[a & 63] + mine[b & 3] * c + table[d & 63] * e + (mine[a & 3] += b);
}

// Nothing is changed but flags.
asm(".text\n"
    ".globl by_hand\n.type by_hand,@function\nby_hand:\n.cfi_startproc\n"
    " push %rax\n.cfi_adjust_cfa_offset 8\n push %rcx\n.cfi_adjust_cfa_offset 8\n"
    " mov table@GOTPCREL(%rip), %rcx\n"
    " mov 8(%rcx), %rax\n"
    " add 16(%rcx), %rax\n"
    " mov %rax, 24(%rcx)\n"
    " pop %rcx\n.cfi_adjust_cfa_offset -8\n pop %rax\n.cfi_adjust_cfa_offset -8\n"
    " ret\n.cfi_endproc\n.size by_hand,.-by_hand\n"
    ".type chosen_here,@function\nchosen_here:\n.cfi_startproc\n"
    " mov %rdx, -8(%rsp)\n mov %r11, -16(%rsp)\n"
    " mov table@GOTPCREL(%rip), %rdx\n"
    " mov 40(%rdx), %r11\n"
    " sub 48(%rdx), %r11\n"
    " mov %r11, 56(%rdx)\n"
    " mov -16(%rsp), %r11\n mov -8(%rsp), %rdx\n"
    " ret\n.cfi_endproc\n.size chosen_here,.-chosen_here\n");
extern void chosen_here(void);
static void *choose(void) { return chosen_here; }
void chosen(void) __attribute__((ifunc("choose")));

#else

// Functions of this file that change as little as what they call: rax, and what their names say.
#define THROUGH(name, callee)                                                                                                   \
  ".type " name ",@function\n" name ":\n.cfi_startproc\n"                                                                       \
  " sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n call " callee "\n"                                                                 \
  " mov table@GOTPCREL(%rip), %rax\n mov 8(%rax), %rax\n"                                                                       \
  " add $8, %rsp\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.size " name ",.-" name "\n"

// Fills the registers that the ABI lets functions change, calls, and adds up in rax what has changed: a bit per register.
#define FILL(r) " mov $0x1234567, %" r "\n"
#define LOOK(r, bit) " cmp $0x1234567, %" r "\n je 1f\n or $" bit ", %rax\n1:\n"
#define LOOKS_AT(name, callee, looks)                                                                                           \
  ".globl " name "\n.type " name ",@function\n" name ":\n.cfi_startproc\n"                                                      \
  " push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\n"                                                               \
  FILL("rcx") FILL("rdx") FILL("rsi") FILL("rdi") FILL("r8") FILL("r9") FILL("r10") FILL("r11")                                 \
  " call " callee "\n xor %eax, %eax\n" looks                                                                                   \
  " pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n ret\n.cfi_endproc\n.size " name ",.-" name "\n"
#define LOOK_ALL LOOK("rcx", "1") LOOK("rdx", "2") LOOK("rsi", "4") LOOK("rdi", "8") LOOK("r8", "16") LOOK("r9", "32") LOOK("r10", "64") LOOK("r11", "128")

asm(".text\n"
    THROUGH("through_hand", "by_hand@PLT")
    THROUGH("through_word", "*by_hand@GOTPCREL(%rip)")
    THROUGH("through_chosen", "chosen@PLT")
    LOOKS_AT("look_hand", "through_hand", LOOK_ALL)
    LOOKS_AT("look_word", "through_word", LOOK_ALL)
    LOOKS_AT("look_chosen", "through_chosen", LOOK_ALL)
    // Changes rax; what else it uses it puts back before its last load.
    ".type puts_back,@function\nputs_back:\n.cfi_startproc\n"
    " mov %rcx, -8(%rsp)\n movq %rdx, %xmm7\n mov %r8, %r11\n push %rsi\n.cfi_adjust_cfa_offset 8\n"
    " mov table@GOTPCREL(%rip), %rcx\n mov 8(%rcx), %rdx\n mov 16(%rcx), %r8\n mov 24(%rcx), %rsi\n"
    " lea (%rdx,%r8), %rax\n add %rsi, %rax\n mov %rax, 32(%rcx)\n"
    " pop %rsi\n.cfi_adjust_cfa_offset -8\n mov %r11, %r8\n movq %xmm7, %rdx\n mov -8(%rsp), %rcx\n"
    " mov table@GOTPCREL(%rip), %rax\n mov 40(%rax), %rax\n ret\n.cfi_endproc\n.size puts_back,.-puts_back\n"
    LOOKS_AT("look_back", "puts_back", LOOK("rcx", "1") LOOK("rdx", "2") LOOK("rsi", "4") LOOK("rdi", "8") LOOK("r8", "16") LOOK("r9", "32") LOOK("r10", "64"))
    // Results in rcx, rsi, r8 and r9, the last of which nobody has read when the last load comes.
    ".type four,@function\nfour:\n.cfi_startproc\n"
    " mov table@GOTPCREL(%rip), %rax\n"
    " mov 8(%rax), %rcx\n mov 16(%rax), %rsi\n mov 24(%rax), %r8\n mov 32(%rax), %r9\n mov 40(%rax), %rax\n"
    " ret\n.cfi_endproc\n.size four,.-four\n"
    ".globl sum_of_four\n.type sum_of_four,@function\nsum_of_four:\n.cfi_startproc\n"
    " sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n call four\n"
    " lea (%rax,%rcx,2), %rax\n lea (%rax,%rsi,4), %rax\n lea (%rax,%r8,2), %rax\n lea (%rax,%r9,8), %rax\n"
    " add $8, %rsp\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.size sum_of_four,.-sum_of_four\n"
    // A piece of its caller, as compilers make them of code that occurs several times: it is given rbx, and what it reads it returns as well.
    ".type piece,@function\npiece:\n.cfi_startproc\n"
    " mov 8(%rbx), %rcx\n mov 16(%rbx), %rsi\n lea (%rcx,%rsi), %rdi\n mov 24(%rbx), %rax\n mov 32(%rbx), %rdx\n"
    " ret\n.cfi_endproc\n.size piece,.-piece\n"
    ".globl sum_of_piece\n.type sum_of_piece,@function\nsum_of_piece:\n.cfi_startproc\n"
    " push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\n mov table@GOTPCREL(%rip), %rbx\n call piece\n"
    " lea (%rax,%rcx,2), %rax\n lea (%rax,%rsi,4), %rax\n lea (%rax,%rdi,8), %rax\n add %rdx, %rax\n"
    " pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n ret\n.cfi_endproc\n.size sum_of_piece,.-sum_of_piece\n"
    // Calls the function of Microsoft's convention in rdi and tells whether rsi and rdi are left alone.
    ".globl look_microsoft\n.type look_microsoft,@function\nlook_microsoft:\n.cfi_startproc\n"
    " push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\n sub $48, %rsp\n.cfi_adjust_cfa_offset 48\n"
    " mov %rsi, %rcx\n mov %rdi, %rax\n" FILL("rsi") FILL("rdi")
    " call *%rax\n xor %eax, %eax\n" LOOK("rsi", "4") LOOK("rdi", "8")
    " add $48, %rsp\n.cfi_adjust_cfa_offset -48\n pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n ret\n.cfi_endproc\n"
    ".size look_microsoft,.-look_microsoft\n");
long look_hand(void), look_word(void), look_chosen(void), look_back(void), sum_of_four(void), sum_of_piece(void);
long look_microsoft(__attribute__((ms_abi)) long (*)(long), long);

__attribute__((ms_abi)) NOINLINE static long through_microsoft(long i) {
  microsoft(i);
  return table[(i + 1) & 63] + table[(i + 2) & 63] * table[(i + 3) & 63];
}

// Compilers see what the assembly changes, and let callers of the function rely on the rest.
NOINLINE static long through_assembly(long i) {
  asm volatile("sub $128, %%rsp\n call by_hand@PLT\n add $128, %%rsp" ::: "memory", "cc");
  return table[i & 63] + table[table[i & 31] & 63];
}

KEEPS_MOST NOINLINE void through_most(long i) {
  most(i);
  table[(i + 1) & 63]++;
}
KEEPS_ALL NOINLINE void through_all(long i) {
  all(i);
  table[(i + 2) & 63] += table[i & 63] & 3;
}

#define BODY(call)                                                                                                              \
  long s = 0;                                                                                                                   \
  double x = 1.5, y = n;                                                                                                        \
  for (long i = 0; i < n; i++) {                                                                                                \
    call;                                                                                                                       \
    s += p * i + q + r;                                                                                                         \
    p += q;                                                                                                                     \
    q ^= i;                                                                                                                     \
    r += 3;                                                                                                                     \
    x += y * i;                                                                                                                 \
  }                                                                                                                             \
  return s + (long)x;
NOINLINE static long loop_most(long n, long p, long q, long r) { BODY(through_most(i)) }
NOINLINE static long loop_all(long n, long p, long q, long r) { BODY(through_all(i)) }
NOINLINE static long loop_assembly(long n, long p, long q, long r) { BODY(s += through_assembly(i)) }
NOINLINE static long loop_local(long n, long p, long q, long r) { BODY(s += local_sum(i, p & 3, q & 7, r, s & 1)) }

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 2000;
  long hand = 0, word = 0, chose = 0, back = 0, ms = 0, four = 0, piece = 0;
  for (long i = 0; i < n; i++) {
    hand |= look_hand();
    word |= look_word();
    chose |= look_chosen();
    back |= look_back();
    ms |= look_microsoft(through_microsoft, i);
    four += sum_of_four();
    piece += sum_of_piece();
    table[i & 63] += i;
  }
  printf("changed: %ld %ld %ld %ld %ld\nresults: %ld %ld\n", hand, word, chose, back, ms, four, piece);
  printf("%ld\n", loop_most(n, 3, 4, 5));
  printf("%ld\n", loop_all(n, 3, 4, 5));
  printf("%ld\n", loop_assembly(n, 3, 4, 5));
  printf("%ld\n", loop_local(n, 3, 4, 5));
  return 0;
}

#endif
