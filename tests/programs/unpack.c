/* The stub of a packed executable, as packed.rs makes it: finds the packed segments behind as many program headers as the file header counts, unpacks them to where they belong,
   and goes on at the entry point of what was packed. Linked to a fixed address, as plain bytes, with its first instruction first. */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>

struct block {
  uint64_t vaddr, filesz, memsz, flags;
};

static long call6(long n, long a, long b, long c, long d, long e, long f) {
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return n;
}

asm(".section .text.first, \"ax\"\n"
    ".globl _start\n"
    "_start: mov %rsp, %rdi\n"
    "  mov %rsp, %rbx\n"
    "  and $-16, %rsp\n"
    "  call unpack\n"
    "  mov %rbx, %rsp\n"
    "  xor %edx, %edx\n"
    "  jmp *%rax\n"
    ".text\n");

uint64_t unpack(uint64_t *stack) {
  const unsigned char *file = (const unsigned char *)IMAGE;
  const Elf64_Ehdr *own = (const Elf64_Ehdr *)file;
  const unsigned char *at = file + sizeof *own + own->e_phnum * sizeof(Elf64_Phdr);
  if (at[4] != MARK[0] || at[5] != MARK[1] || at[6] != MARK[2] || at[7] != MARK[3])
    call6(231, 127, 0, 0, 0, 0, 0);
  at += 24;
  uint64_t first = 0;
  uint32_t key = 1;
  for (;;) {
    struct block b = *(const struct block *)at;
    at += sizeof b;
    if (!b.memsz)
      break;
    uint64_t start = b.vaddr & -4096, end = (b.vaddr + b.memsz + 4095) & -4096;
    call6(9, start, end - start, 3, 0x32, -1, 0);
    volatile unsigned char *to = (volatile unsigned char *)b.vaddr;
    for (uint64_t i = 0; i < b.filesz; i++) {
      key = key * 1664525 + 1013904223;
      to[i] = at[i] ^ key >> 24;
    }
    at += (b.filesz + 7) & -8;
    call6(10, start, end - start, (b.flags & 4 ? 1 : 0) | (b.flags & 2 ? 2 : 0) | (b.flags & 1 ? 4 : 0), 0, 0, 0);
    if (!first)
      first = start;
  }
  const Elf64_Ehdr *program = (const Elf64_Ehdr *)first;
  uint64_t *p = stack + 1 + stack[0] + 1;
  while (*p++)
    ;
  for (; p[0]; p += 2) {
    if (p[0] == AT_PHDR)
      p[1] = first + program->e_phoff;
    if (p[0] == AT_PHNUM)
      p[1] = program->e_phnum;
    if (p[0] == AT_ENTRY)
      p[1] = program->e_entry;
  }
  return program->e_entry;
}
