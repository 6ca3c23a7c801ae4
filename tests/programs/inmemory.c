/* Carries another program encrypted behind itself, and runs it out of memory without writing it to a file (see packed.rs). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
  int fd = open("/proc/self/exe", O_RDONLY);
  struct {
    char magic[8];
    int64_t len;
  } trailer;
  off_t size = lseek(fd, 0, SEEK_END);
  if (pread(fd, &trailer, sizeof trailer, size - sizeof trailer) != sizeof trailer || memcmp(trailer.magic, "INMEMORY", 8)) {
    puts("nothing inside");
    return 2;
  }
  unsigned char *program = malloc(trailer.len);
  if (pread(fd, program, trailer.len, size - sizeof trailer - trailer.len) != trailer.len)
    return 3;
  uint32_t key = 1;
  for (int64_t i = 0; i < trailer.len; i++) {
    key = key * 1664525 + 1013904223;
    program[i] ^= key >> 24;
  }
  int memory = memfd_create("inside", MFD_CLOEXEC);
  if (write(memory, program, trailer.len) != trailer.len)
    return 4;
  fexecve(memory, argv, environ);
  return 5;
}
