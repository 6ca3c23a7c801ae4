/* Finds what was appended to its own file, in the way that the first argument names, and prints its sum (see payloads.rs). With -DLIBRARY a library that looks into its own
   file, with -DHOST the program that calls it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef STUB
#define STUB 0
#endif

#ifdef HOST
int bundled(int argc, char **argv);
int main(int argc, char **argv) { return bundled(argc, argv); }
#else

static const volatile char reversed[] = ":DELDNUB";
/* Filled in by who appends something. */
static char place[] = "@@OFFSET-OF-THE-REST@@";
static unsigned char *file;
static long size;

static long number(long at) {
  int64_t n;
  memcpy(&n, file + at, 8);
  return n;
}

static unsigned short_number(long at) {
  return file[at] | file[at + 1] << 8 | file[at + 2] << 16 | (unsigned)file[at + 3] << 24;
}

static void print(const char *what, long at, long n) {
  uint64_t h = 14695981039346656037ull;
  if (at < 0 || n < 0 || at + n > size) {
    puts("not there");
    exit(3);
  }
  for (long i = 0; i < n; i++)
    h = (h ^ file[at + i]) * 1099511628211ull;
  printf("%s: %ld bytes, %016lx\n", what, n, (unsigned long)h);
}

/* Where the ELF content ends by the section headers. */
static long sections_end(void) {
  Elf64_Ehdr *e = (Elf64_Ehdr *)file;
  return e->e_shoff + (long)e->e_shnum * e->e_shentsize;
}

/* The same by the program headers. */
static long segments_end(void) {
  Elf64_Ehdr *e = (Elf64_Ehdr *)file;
  long end = 0;
  for (int i = 0; i < e->e_phnum; i++) {
    Elf64_Phdr *p = (Elf64_Phdr *)(file + e->e_phoff) + i;
    if ((long)(p->p_offset + p->p_filesz) > end)
      end = p->p_offset + p->p_filesz;
  }
  return end;
}

/* The only entry of a ZIP archive that is stored. `absolute`: offsets count from the file's first byte, whatever stands before the archive. */
static void zip(int absolute) {
  long end = size - 22;
  while (end >= 0 && end > size - 65557 && memcmp(file + end, "PK\5\6", 4))
    end--;
  if (end < 0 || memcmp(file + end, "PK\5\6", 4)) {
    puts("no archive");
    exit(4);
  }
  long directory = short_number(end + 16), moved = absolute ? 0 : end - short_number(end + 12) - directory;
  if (memcmp(file + directory + moved, "PK\1\2", 4)) {
    puts("no directory");
    exit(5);
  }
  long entry = short_number(directory + moved + 42) + moved;
  if (memcmp(file + entry, "PK\3\4", 4)) {
    puts("no entry");
    exit(6);
  }
  long name = file[entry + 26] | file[entry + 27] << 8, extra = file[entry + 28] | file[entry + 29] << 8;
  print("zip", entry + 30 + name + extra, short_number(entry + 22));
}

static void section(const char *wanted) {
  Elf64_Ehdr *e = (Elf64_Ehdr *)file;
  Elf64_Shdr *s = (Elf64_Shdr *)(file + e->e_shoff);
  for (int i = 0; i < e->e_shnum; i++)
    if (!strcmp((char *)file + s[e->e_shstrndx].sh_offset + s[i].sh_name, wanted))
      print("section", s[i].sh_offset, s[i].sh_size);
}

#ifdef LIBRARY
int bundled(int argc, char **argv);
#define main bundled
#endif
int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "end", *path = argc > 2 ? argv[0] : "/proc/self/exe";
#ifdef LIBRARY
  Dl_info own;
  if (!dladdr(bundled, &own))
    return 2;
  path = own.dli_fname;
#endif
  int fd = open(path, O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st))
    return 2;
  size = st.st_size;
  file = mmap(0, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file == MAP_FAILED)
    return 2;
  /* The trailer: magic, length, offset in the file. */
  long n = number(size - 16), at = number(size - 8);
  int has_trailer = !memcmp(file + size - 24, "PAYLOAD!", 8);
  if (!strcmp(way, "end") && has_trailer)
    print(way, size - 24 - n, n);
  else if (!strcmp(way, "absolute") && has_trailer)
    print(way, at, n);
  else if (!strcmp(way, "mapped") && has_trailer) {
    void *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, at);
    if (p == MAP_FAILED)
      return 7;
    memcpy(file = malloc(n), p, n);
    size = n;
    print(way, 0, n);
  } else if (!strcmp(way, "mapped-end") && has_trailer) {
    void *p = mmap(0, n, PROT_READ, MAP_PRIVATE, fd, size - 24 - n);
    if (p == MAP_FAILED)
      return 7;
    printf("%s: %d\n", way, !memcmp(p, file + at, n));
  } else if (!strcmp(way, "sections"))
    print(way, sections_end() + 8, number(sections_end()));
  else if (!strcmp(way, "segments"))
    print(way, segments_end() + 8, number(segments_end()));
  else if (!strcmp(way, "rest"))
    print(way, sections_end(), size - sections_end());
  else if (!strcmp(way, "rest-segments"))
    print(way, segments_end(), size - segments_end());
  else if (!strcmp(way, "scan")) {
    /* The code must not hold it. */
    char magic[8];
    for (int i = 0; i < 8; i++)
      magic[i] = reversed[7 - i];
    unsigned char *p = memmem(file, size, magic, 8);
    if (p)
      print(way, p + 16 - file, number(p + 8 - file));
  } else if (!strcmp(way, "fixed"))
    print(way, STUB, size - STUB);
  else if (!strcmp(way, "text")) {
    long start = strtol(place, 0, strncmp(place, "0x", 2) ? 10 : 16);
    print(way, start < size ? start : 0, size - (start < size ? start : 0));
  } else if (!strcmp(way, "zip"))
    zip(0);
  else if (!strcmp(way, "zip-absolute"))
    zip(1);
  else if (!strcmp(way, "section"))
    section(".bundle");
  else
    puts("no payload");
  return 0;
}
#endif
