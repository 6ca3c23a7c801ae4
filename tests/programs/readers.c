/* Reads its own code as data, in the way that WAY names, and prints what it finds there; see readers.rs. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BOUNDS 1
#define HELPER 2
#define TABLE 3
#define SEGMENTS 4
#define HEADERS 5
#define SECTION 6
#define FUNCTION 7
#define COPY 8
#define POKE 9
#define BYTE 10
#define FUNCTIONS 11
#define HOOK 12
#define LABEL 13
#define HELD 14
#define SHOWN 15
#define MAPS 16
#define PASSED 17
#define UNION 18
#define REUSED 19
#define RAW 20
#define LAZY 21
#define MACRO(way) (WAY == way)

extern char __executable_start[], etext[], _init[];
static int table[1024];

/* Something to record, and to be changed by entry jumps. */
__attribute__((noinline)) long work(long n) {
  long s = 0;
  for (long i = 0; i < n; i++)
    s += table[(i * 7) & 1023];
  return s;
}

__attribute__((noinline)) static uint64_t sum(const unsigned char *p, const unsigned char *end) {
  uint64_t h = 14695981039346656037ull;
  for (; p < end; p++)
    h = (h ^ *p) * 1099511628211ull;
  return h;
}

__attribute__((noinline)) static uint64_t sum_of(const void *p, size_t n) { return sum(p, (const unsigned char *)p + n); }

#if MACRO(SEGMENTS)
static int look(struct dl_phdr_info *info, size_t size, void *data) {
  if (!info->dlpi_name[0])
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const ElfW(Phdr) *p = &info->dlpi_phdr[i];
      if (p->p_type == PT_LOAD && p->p_flags & PF_X && p->p_vaddr < (ElfW(Addr))etext - info->dlpi_addr)
        *(uint64_t *)data = sum_of((void *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
    }
  return 0;
}
#endif

#if MACRO(TABLE)
static const struct {
  const char *start, *end;
} parts[] = {{__executable_start, etext}};
const void *volatile chosen = parts;
#endif

__attribute__((noinline, section("hot"))) long first(long n) { return work(n) + 1; }
__attribute__((noinline, section("hot"))) long second(long n) { return work(n) * 2; }
extern char __start_hot[], __stop_hot[];

__attribute__((noinline)) long main_part(long n) { return work(n) + 7; }
__attribute__((noinline)) long last_part(long n) { return work(n + 1) + 9; }

/* Stands alone, so that a copy of it works. */
__attribute__((noinline, section("sole"))) long alone(const int *t, long n) {
  long s = 0;
  for (long i = 0; i < n; i++)
    s = s * 3 + t[i & 1023];
  return s;
}
__attribute__((noinline, section("sole"))) long behind(long n) { return n + 1; }

#if MACRO(POKE) || MACRO(RAW)
/* Returns 1, and 2 once it is patched. */
__attribute__((noinline, section("poked"))) int answer(void) {
  int r;
  asm volatile("movl $0x11111111, %0" : "=r"(r));
  return r == 0x11111111 ? 1 : 2;
}
#endif

#if MACRO(HOOK) || MACRO(SHOWN)
/* As libraries do that put hooks into functions: from what an object holds whose address they are given. */
struct hook {
  void *from, *to;
  unsigned char saved[12];
};
__attribute__((noinline)) static int install(struct hook *hook) {
  unsigned char *from = hook->from, code[12] = {0x48, 0xb8};
  memcpy(code + 2, &hook->to, 8);
  code[10] = 0xff;
  code[11] = 0xe0;
  uintptr_t page = (uintptr_t)from & -4096;
  if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
    return 1;
  for (int i = 0; i < 12; i++) {
    hook->saved[i] = from[i];
    from[i] = code[i];
  }
  return 0;
}
__attribute__((noinline)) static void take_out(const struct hook *hook) {
  unsigned char *from = hook->from;
  for (int i = 0; i < 12; i++)
    from[i] = hook->saved[i];
}
__attribute__((noinline, noipa)) long hooked(long n) { return table[n & 1023] + n * 3; }
__attribute__((noinline, noipa)) long instead(long n) { return table[n & 1023] - n * 5; }
#endif

#if MACRO(LABEL)
/* From the middle of its own. */
__attribute__((noinline)) static uint64_t label(void) {
  const unsigned char *p;
  uint64_t h = table[5];
  asm volatile("lea 1f(%%rip), %0\n1:" : "=r"(p));
  for (int k = 0; k < 12; k++)
    h = h * 31 + p[k];
  return h;
}
#endif

#if MACRO(FUNCTIONS)
typedef long (*step)(long);
/* (Others may change it.) */
step steps[] = {first, second, work};
#endif

#if MACRO(SHOWN)
/* Sees the object before it is used, and might change it. */
__attribute__((noinline, noipa)) static void show(struct hook *hook) { table[3] += hook->from != hook->to; }
#endif

#if MACRO(PASSED)
/* Both addresses go on to who only calls them. */
__attribute__((noinline, noipa)) static long call_both(long (*f)(long), long (*g)(long)) { return f(3) + g(4); }
__attribute__((noinline, noipa)) long before_all(long n) { return table[n & 1023]; }
__attribute__((noinline, noipa)) long between(long n) {
  long s = 0;
  for (long i = 0; i < n; i++)
    s += table[(i * 5) & 1023] ^ n;
  return s;
}
__attribute__((noinline, noipa)) long behind_all(long n) { return table[n & 511] + 1; }
#endif

#if MACRO(UNION)
/* A word that is a function or a buffer, handed on beside another function. */
__attribute__((noinline, noipa)) static long either_way(int tag, void *p, long (*f)(long)) {
  return f(5) + (tag ? ((long (*)(long))p)(7) : *(long *)p);
}
__attribute__((noinline, noipa)) static long choose(int tag, long v) {
  static long room[4];
  void *p = tag ? (void *)first : (void *)room;
  if (!tag)
    *(long *)p = v;
  return either_way(tag, p, main_part);
}
#endif

#if MACRO(LAZY)
/* A word of data that holds the function that makes an object, and then the object. */
__attribute__((noinline, noipa)) void *make(void) {
  static long room[8];
  room[1] = table[5];
  return room;
}
void *lazy = (void *)make;
int made;
__attribute__((noinline, noipa)) static long use_lazy(long n) {
  if (!made) {
    lazy = ((void *(*)(void))lazy)();
    made = 1;
  }
  ((long *)lazy)[1] += n;
  return ((long *)lazy)[1];
}
#endif

#if MACRO(REUSED)
/* The same words of the frame hold functions first, and then pointers that a callee puts there. */
struct pair {
  void *a, *b;
};
__attribute__((noinline, noipa)) static long call_pair(struct pair *p) { return ((long (*)(long))p->a)(2) + ((long (*)(long))p->b)(3); }
__attribute__((noinline, noipa)) static void fill_pair(struct pair *p) {
  static long room[8];
  p->a = room;
  p->b = room + 8;
}
__attribute__((noinline, noipa)) static long reuse(void) {
  struct pair pair = {(void *)first, (void *)last_part};
  long s = call_pair(&pair);
  fill_pair(&pair);
  for (long *p = pair.a; p < (long *)pair.b; p++) {
    *p += s;
    s = s * 3 + *p;
  }
  return s;
}
#endif

int main(int argc, char **argv) {
  for (int i = 0; i < 1024; i++)
    table[i] = i * 5;
  long w = work(2000) + first(500) + second(500);
  uint64_t h = 0;
#if MACRO(BOUNDS)
  h = 5381;
  for (const unsigned char *p = (unsigned char *)_init; p < (unsigned char *)etext; p++)
    h = h * 33 + *p;
#elif MACRO(HELPER)
  h = sum((unsigned char *)work, (unsigned char *)etext);
#elif MACRO(TABLE)
  for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
    h += sum((unsigned char *)parts[i].start + 0x1000, (unsigned char *)parts[i].end);
#elif MACRO(SEGMENTS)
  dl_iterate_phdr(look, &h);
#elif MACRO(HEADERS)
  const ElfW(Phdr) *p = (void *)getauxval(AT_PHDR);
  for (unsigned long i = 0, n = getauxval(AT_PHNUM); i < n; i++)
    if (p[i].p_type == PT_LOAD && p[i].p_flags & PF_X && !h) {
      const unsigned char *code = (unsigned char *)__executable_start + p[i].p_vaddr;
#ifndef __PIE__
      code = (unsigned char *)p[i].p_vaddr;
#endif
      for (unsigned long k = 0; k < p[i].p_memsz; k++)
        h = h * 31 + code[k];
    }
#elif MACRO(SECTION)
  h = sum((unsigned char *)__start_hot, (unsigned char *)__stop_hot);
#elif MACRO(FUNCTION)
  h = sum_of((void *)alone, (char *)behind - (char *)alone);
#elif MACRO(COPY)
  size_t n = (char *)behind - (char *)alone;
  void *m = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(m, (void *)alone, n);
  h = ((long (*)(const int *, long))m)(table, 300);
#elif MACRO(POKE)
  unsigned char *at = (unsigned char *)answer;
  h = answer();
  mprotect((void *)((uintptr_t)at & -4096), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (int i = 0; i < 64; i++)
    if (!memcmp(at + i, "\x11\x11\x11\x11", 4)) {
      at[i] = 0x22;
      break;
    }
  mprotect((void *)((uintptr_t)at & -4096), 8192, PROT_READ | PROT_EXEC);
  h = h * 10 + answer();
#elif MACRO(RAW)
  unsigned char *at = (unsigned char *)answer;
  h = answer();
  syscall(SYS_mprotect, (uintptr_t)at & -4096, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (int i = 0; i < 64; i++)
    if (!memcmp(at + i, "\x11\x11\x11\x11", 4)) {
      at[i] = 0x22;
      break;
    }
  syscall(SYS_mprotect, (uintptr_t)at & -4096, 8192, PROT_READ | PROT_EXEC);
  h = h * 10 + answer();
#elif MACRO(PASSED)
  for (int i = 0; i < 20; i++)
    h += call_both(before_all, behind_all) + between(300);
#elif MACRO(UNION)
  for (int i = 0; i < 20; i++)
    h += choose(i & 1, i);
#elif MACRO(REUSED)
  h = reuse();
#elif MACRO(LAZY)
  for (int i = 0; i < 20; i++)
    h = h * 3 + use_lazy(i);
#elif MACRO(BYTE)
  /* Looks for a breakpoint. */
  h = *(volatile unsigned char *)alone == 0xcc || *(volatile unsigned char *)work == 0xe9;
#endif
#if MACRO(FUNCTIONS)
  for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
    w += steps[i](10);
    const unsigned char *p = (const unsigned char *)steps[i];
    for (int k = 0; k < 12; k++)
      h = h * 31 + p[k];
  }
#elif MACRO(HOOK) || MACRO(SHOWN)
  struct hook hook = {(void *)hooked, (void *)instead};
  h = hooked(5);
#if MACRO(SHOWN)
  show(&hook);
#endif
  h += install(&hook);
  h = h * 1000 + hooked(6);
  take_out(&hook);
  h = h * 1000 + hooked(7);
#elif MACRO(LABEL)
  h = label();
#elif MACRO(HELD)
  const unsigned char *volatile at = (unsigned char *)alone;
  w += alone(table, 7);
  for (int k = 0; k < 12; k++)
    h = h * 31 + at[k];
#elif MACRO(MAPS)
  /* By what the kernel says is mapped; nothing of it is read. */
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (maps && fgets(line, sizeof line, maps))
    h |= strstr(line, " r-xp ") != 0;
#endif
  printf("%016lx %ld %ld %ld\n", (unsigned long)h, w, alone(table, 100), behind(1));
  return 0;
}
