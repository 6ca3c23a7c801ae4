/* A compiler in small: it makes loops at run time and names them.
   jitted map           two functions, named in /tmp/perf-PID.map, which it removes at its end
   jitted dump FOLDER   one function after the other at the same address, named in FOLDER/jit-PID.dump
   jitted gdb           two functions, named by ELF files in memory
   jitted calls         a function that calls one of this file, named in the perf map
   jitted none          two functions without names
   The first of two functions takes five eighths of the time. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 16, SECOND = 4096, THIRD = 8192 };

/* mov rax, rdi; 1: dec rax; jne 1b; ret */
static const unsigned char loop[] = "\x48\x89\xf8\x48\xff\xc8\x75\xfb\xc3";

/* push rbx; push rbp; sub rsp, 8; mov rbx, rdi; mov rbp, rsi; 1: mov edi, 10; call rbp; dec rbx; jne 1b;
   add rsp, 8; pop rbp; pop rbx; ret */
static const unsigned char caller[] =
    "\x53\x55\x48\x83\xec\x08\x48\x89\xfb\x48\x89\xf5\xbf\x0a\x00\x00\x00\xff\xd5\x48\xff\xcb\x75\xf4"
    "\x48\x83\xc4\x08\x5d\x5b\xc3";

struct jit_code_entry {
  struct jit_code_entry *next, *previous;
  const char *file;
  uint64_t size;
};

struct jit_descriptor {
  uint32_t version, action;
  struct jit_code_entry *relevant, *first;
} __jit_debug_descriptor = {1, 0, NULL, NULL};

static int table[4096];

__attribute__((noinline)) static long work(int rounds) {
  long sum = 0;
  for (int k = 0; k < rounds; k++)
    for (int i = 0; i < 4096; i++)
      sum += table[(i * 5 + k) & 4095];
  return sum;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Runs a function for so long, in CPU time. */
static void run(unsigned char *code, int milliseconds) {
  clock_t until = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  do
    ((void (*)(long))code)(500000);
  while (clock() < until);
}

static void name_in_map(unsigned char *code) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  FILE *map = fopen(path, "w");
  if (!map)
    exit(4);
  /* A function that was there before: the last line counts. */
  fprintf(map, "%lx %x stale\n", (long)code, BYTES);
  fprintf(map, "%lx %zx spin_long\n", (long)code, sizeof loop);
  fprintf(map, "%lx %zx made_caller\n", (long)code + THIRD, sizeof caller);
  fprintf(map, "%lx %zx spin_short\n", (long)code + SECOND, sizeof loop);
  fclose(map);
}

static FILE *begin_dump(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/jit-%d.dump", folder, getpid());
  FILE *dump = fopen(path, "w+");
  if (!dump)
    exit(4);
  struct {
    uint32_t magic, version, size, machine, pad, process;
    uint64_t time, flags;
  } header = {0x4a695444, 1, 40, EM_X86_64, 0, getpid(), now(), 0};
  fwrite(&header, sizeof header, 1, dump);
  fflush(dump);
  if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
    exit(4);
  return dump;
}

static void name_in_dump(FILE *dump, unsigned char *code, const char *name, uint64_t index) {
  struct {
    uint32_t kind, size;
    uint64_t time;
    uint32_t process, thread;
    uint64_t address, code, bytes, index;
  } load = {0, sizeof load + strlen(name) + 1 + sizeof loop, now(), getpid(), getpid(), (uint64_t)code, (uint64_t)code, sizeof loop, index};
  fwrite(&load, sizeof load, 1, dump);
  fwrite(name, strlen(name) + 1, 1, dump);
  fwrite(loop, sizeof loop, 1, dump);
  fflush(dump);
}

/* An object file with one function in a section that lies at `code`. */
static void name_for_gdb(unsigned char *code, const char *name) {
  struct file {
    Elf64_Ehdr head;
    Elf64_Shdr sections[4];
    Elf64_Sym symbols[2];
    char names[64], heads[64];
  } *file = calloc(1, sizeof *file);
  static const char heads[] = "\0.text\0.symtab\0.strtab";
  memcpy(file->head.e_ident, ELFMAG, SELFMAG);
  file->head.e_ident[EI_CLASS] = ELFCLASS64;
  file->head.e_ident[EI_DATA] = ELFDATA2LSB;
  file->head.e_ident[EI_VERSION] = EV_CURRENT;
  file->head.e_type = ET_REL;
  file->head.e_machine = EM_X86_64;
  file->head.e_version = EV_CURRENT;
  file->head.e_shoff = offsetof(struct file, sections);
  file->head.e_ehsize = sizeof(Elf64_Ehdr);
  file->head.e_shentsize = sizeof(Elf64_Shdr);
  file->head.e_shnum = 4;
  file->head.e_shstrndx = 3;
  strcpy(file->names + 1, name);
  memcpy(file->heads, heads, sizeof heads);
  file->sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addr = (Elf64_Addr)code, .sh_size = sizeof loop};
  file->sections[2] = (Elf64_Shdr){.sh_name = 7, .sh_type = SHT_SYMTAB, .sh_offset = offsetof(struct file, symbols), .sh_size = sizeof file->symbols, .sh_link = 3, .sh_info = 1, .sh_entsize = sizeof(Elf64_Sym)};
  file->sections[3] = (Elf64_Shdr){.sh_name = 15, .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct file, names), .sh_size = 128};
  file->symbols[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1, .st_size = sizeof loop};
  for (int at = 1; at < 4; at++)
    file->sections[at].sh_name += 64;
  struct jit_code_entry *entry = calloc(1, sizeof *entry);
  *entry = (struct jit_code_entry){__jit_debug_descriptor.first, NULL, (const char *)file, sizeof *file};
  if (entry->next)
    entry->next->previous = entry;
  __jit_debug_descriptor.first = entry;
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "none";
  table[count & 4095] = count;
  unsigned char *code = mmap(0, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED)
    return 5;
  memcpy(code, loop, sizeof loop);
  memcpy(code + SECOND, loop, sizeof loop);
  memcpy(code + THIRD, caller, sizeof caller);
  if (!strcmp(way, "dump") && count > 2) {
    FILE *dump = begin_dump(arguments[2]);
    name_in_dump(dump, code, "early", 1);
    run(code, 1000);
    name_in_dump(dump, code, "late", 2);
    run(code, 600);
    fclose(dump);
  } else if (!strcmp(way, "calls")) {
    name_in_map(code);
    for (int times = 0; times < 20; times++)
      ((void (*)(long, long (*)(int)))(code + THIRD))(2000, work);
  } else {
    if (!strcmp(way, "map"))
      name_in_map(code);
    if (!strcmp(way, "gdb")) {
      name_for_gdb(code, "spin_long");
      name_for_gdb(code + SECOND, "spin_short");
    }
    run(code, 1000);
    run(code + SECOND, 600);
  }
  if (!strcmp(way, "map") || !strcmp(way, "calls")) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    unlink(path);
  }
  /* Code that can be recorded. */
  long sum = 0;
  clock_t until = clock() + 60 * (CLOCKS_PER_SEC / 1000);
  do
    sum += work(10);
  while (clock() < until);
  puts(sum ? "done" : "nothing");
  return 0;
}
