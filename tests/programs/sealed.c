/* Functions that stand in the file encrypted (by packed.rs), and are decrypted in place when the program starts. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static int table[512];

#define SEALED __attribute__((noinline, section("sealed")))

SEALED long first(long n) {
  long s = 0;
  for (long i = 0; i < n; i++)
    s += table[i * 3 & 511];
  return s;
}

SEALED long second(long n) {
  long s = 1;
  for (long i = 0; i < n; i++)
    s = s * 5 + table[i & 511];
  return s;
}

extern char __start_sealed[], __stop_sealed[];

__attribute__((constructor)) static void open_seal(void) {
  uintptr_t start = (uintptr_t)__start_sealed & -4096, end = ((uintptr_t)__stop_sealed + 4095) & -4096;
  mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC);
  uint32_t key = 1;
  for (unsigned char *p = (unsigned char *)__start_sealed; p < (unsigned char *)__stop_sealed; p++) {
    key = key * 1664525 + 1013904223;
    *p ^= key >> 24;
  }
  mprotect((void *)start, end - start, PROT_READ | PROT_EXEC);
}

int main(void) {
  for (int i = 0; i < 512; i++)
    table[i] = i * 7;
  printf("%ld %ld\n", first(3000), second(3000));
  return 6;
}
