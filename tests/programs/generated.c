/* Code that is made at run time: `thread` lets it make a thread, `time` lets it take most of the time. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int table[4096];
static volatile int over;

__attribute__((noinline)) static long work(int rounds) {
  long sum = 0;
  for (int k = 0; k < rounds; k++)
    for (int i = 0; i < 4096; i++)
      sum += table[(i * 5 + k) & 4095];
  return sum;
}

int main(int count, char **arguments) {
  enum { BYTES = 1 << 20 };
  unsigned char *code = mmap(0, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED)
    return 5;
  memset(code, 0x90, BYTES);
  if (count > 1 && !strcmp(arguments[1], "time")) {
    /* mov rax, rdi; 1: dec rax; jne 1b; ret */
    memcpy(code, "\x48\x89\xf8\x48\xff\xc8\x75\xfb\xc3", 9);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
      ((void (*)(long))code)(2000000);
      clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 600);
    printf("%ld\n", work(10));
    return 0;
  }
  /* clone(rdi, rsi, 0, 0, 0), the number by way of another register; the new thread counts down from rbx, sets *r12 and ends.
     push rbx; push r12; mov rbx, rdx; mov r12, rcx; xor edx, edx; xor r10d, r10d; xor r8d, r8d; push 56; pop rax; syscall; test rax, rax; je 1f;
     pop r12; pop rbx; ret; 1: dec rbx; jne 1b; mov dword [r12], 1; xor edi, edi; push 60; pop rax; syscall */
  static const unsigned char make[] =
      "\x53\x41\x54\x48\x89\xd3\x49\x89\xcc\x31\xd2\x45\x31\xd2\x45\x31\xc0\x6a\x38\x58\x0f\x05\x48\x85\xc0\x74\x04\x41\x5c\x5b\xc3"
      "\x48\xff\xcb\x75\xfb\x41\xc7\x04\x24\x01\x00\x00\x00\x31\xff\x6a\x3c\x58\x0f\x05";
  memcpy(code, make, sizeof make);
  char *stack = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  long made = ((long (*)(long, void *, long, volatile int *))code)(flags, stack + (1 << 16) - 64, 1500000000, &over);
  if (made < 0)
    return 6;
  long sum = work(50);
  while (!over)
    usleep(1000);
  printf("%ld\n", sum);
  return 0;
}
