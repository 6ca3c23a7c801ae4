/* Sets the %gs base by a system call, in the way that WAY names, and uses it in code that it makes; see segments.rs. With -DLIBRARY a library that does so for who calls it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SET_GS 0x1001
#define SET_FS 0x1002
#define GET_FS 0x1003
#define GET_GS 0x1004

int arch_prctl(int, void *);
static long area[16];

#ifdef LIBRARY
/* What calls it are is not to be seen. */
long set_by_number(long number, long operation) {
  area[2] = 77;
  return syscall(number, operation, area);
}
long set_by_name(int operation) {
  area[2] = 77;
  return arch_prctl(operation, area);
}
long set_itself(void) {
  area[2] = 77;
  register long result asm("rax") = 158;
  asm volatile("mov $158, %%eax\n mov $0x1001, %%edi\n syscall" : "=r"(result) : "S"(area) : "rcx", "r11", "rdi", "memory");
  return result;
}
#else

static volatile long data[256];

__attribute__((noinline)) static long work(long n) {
  long s = 0;
  for (long i = 0; i < n; i++)
    s += data[i & 255];
  return s;
}

static long through_gs(void) {
  const unsigned char code[] = {0x65, 0x48, 0x8b, 0x04, 0x25, 16, 0, 0, 0, 0xc3};
  void *m = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(m, code, sizeof code);
  return ((long (*)(void))m)();
}

#ifdef HOST
long set_by_number(long, long), set_by_name(int), set_itself(void);
#endif

int main(int argc, char **argv) {
  long s = 0, found = 0;
  for (int i = 0; i < 256; i++)
    data[i] = i;
  s += work(100000);
#if defined(HOST)
  if (argc > 2)
    s += set_by_number(atol(argv[1]), strtol(argv[2], 0, 0));
  else if (argc > 1)
    s += set_by_name(strtol(argv[1], 0, 0));
  else
    s += set_itself();
#elif defined(CALL)
  area[2] = 77;
  s += syscall(SYS_arch_prctl, SET_GS, area);
#elif defined(FUNCTION)
  area[2] = 77;
  s += arch_prctl(SET_GS, area);
#elif defined(INSTRUCTION)
  long result = SYS_arch_prctl;
  area[2] = 77;
  asm volatile("syscall" : "+a"(result) : "D"((long)SET_GS), "S"(area) : "rcx", "r11", "memory");
  s += result;
#else
  /* Other operations: the base of %fs, which is put where it is, and that of %gs, which nobody has set. */
  void *base = 0, *other = (void *)1;
  s += syscall(SYS_arch_prctl, GET_FS, &base) + arch_prctl(SET_FS, base);
  s += arch_prctl(GET_GS, &other) + syscall(SYS_arch_prctl, GET_GS, &base);
  printf("%p %p\n", other, base);
  area[2] = 1;
#endif
  for (int i = 0; i < 50; i++)
    s += work(10000);
#if defined(HOST) || defined(CALL) || defined(FUNCTION) || defined(INSTRUCTION)
  found = through_gs();
#endif
  printf("%ld %ld %ld\n", s, found, area[2] > 1);
  return 3;
}
#endif
