/* Threads and children that are made past the C library's functions as the loader binds them. The first argument says how; each does the same
   work, so that whoever counts its loads can tell whether all were recorded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1024, ROUNDS = 2000, THREADS = 3 };
static long words[WORDS];
static long results[THREADS];
static volatile int left;

__attribute__((noinline)) static long work(long seed) {
  long sum = seed;
  for (long round = 0; round < ROUNDS; round++)
    for (int i = 0; i < WORDS; i++)
      sum += words[(i * 5 + round) & (WORDS - 1)];
  return sum;
}

static void *posix(void *at) {
  long n = (long)at;
  results[n] = work(n);
  return 0;
}

static int standard(void *at) {
  posix(at);
  return 0;
}

static void *library(void) {
  void *handle = dlopen("libc.so.6", RTLD_NOW);
  if (!handle)
    exit(7);
  return handle;
}

/* A raw thread: no thread-local storage of its own, so it calls nothing of the C library. */
static void raw_body(long n) {
  results[n] = work(n);
  __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
  for (;;)
    __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(0) : "rcx", "r11", "memory");
}

#define SHARED (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

__attribute__((noinline)) static void raw_clone(long n, char *stack) {
  void **top = (void **)(stack + (64 << 10)) - 2;
  top[0] = (void *)n;
  long result;
  register long ten __asm__("r10") = 0;
  register long eight __asm__("r8") = 0;
  __asm__ volatile("mov $56, %%eax\n\tsyscall\n\ttest %%rax, %%rax\n\tjne 1f\n\t"
                   "xor %%ebp, %%ebp\n\tpop %%rdi\n\tand $-16, %%rsp\n\tcall *%%rbx\n\t1:"
                   : "=a"(result)
                   : "D"(SHARED), "S"(top), "d"(0), "r"(ten), "r"(eight), "b"(raw_body)
                   : "rcx", "r11", "memory");
  if (result < 0)
    exit(8);
}

struct arguments {
  unsigned long flags, pidfd, child, parent, signal, stack, size, tls;
};

__attribute__((noinline)) static void raw_clone3(long n, char *stack) {
  void **top = (void **)(stack + (64 << 10)) - 2;
  top[0] = (void *)n;
  struct arguments a = {.flags = SHARED, .stack = (unsigned long)stack, .size = (char *)top - stack};
  long result;
  __asm__ volatile("mov $435, %%eax\n\tsyscall\n\ttest %%rax, %%rax\n\tjne 1f\n\t"
                   "xor %%ebp, %%ebp\n\tpop %%rdi\n\tand $-16, %%rsp\n\tcall *%%rbx\n\t1:"
                   : "=a"(result)
                   : "D"(&a), "S"(sizeof a), "b"(raw_body)
                   : "rcx", "r11", "memory");
  if (result < 0)
    exit(8);
}

static void expired(union sigval value) {
  results[value.sival_int] = work(value.sival_int);
  __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
}

static void wait_for_all(void) {
  while (__atomic_load_n(&left, __ATOMIC_SEQ_CST) > 0)
    usleep(1000);
}

static int child_of(int how) {
  void *handle = library();
  pid_t (*by_handle)(void) = (pid_t(*)(void))dlsym(handle, "fork");
  pid_t child = how == 0 ? by_handle() : how == 1 ? syscall(SYS_fork) : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    /* Long enough to be sampled. */
    long sum = 0;
    for (int i = 0; i < 20; i++)
      sum += work(i);
    printf("child %ld\n", sum);
    fflush(stdout);
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "plain";
  for (int i = 0; i < WORDS; i++)
    words[i] = i * i;
  pthread_t threads[THREADS];
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = 0;
  if (!strcmp(how, "plain"))
    create = pthread_create;
  else if (!strcmp(how, "handle"))
    create = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(library(), "pthread_create");
  else if (!strcmp(how, "version"))
    create = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlvsym(library(), "pthread_create", "GLIBC_2.2.5");
  if (create) {
    for (long n = 0; n < THREADS; n++)
      if (create(threads + n, 0, posix, (void *)n))
        return 4;
    for (int n = 0; n < THREADS; n++)
      pthread_join(threads[n], 0);
  } else if (!strcmp(how, "standard")) {
    int (*make)(thrd_t *, thrd_start_t, void *) = (int (*)(thrd_t *, thrd_start_t, void *))dlsym(library(), "thrd_create");
    int (*join)(thrd_t, int *) = (int (*)(thrd_t, int *))dlsym(library(), "thrd_join");
    for (long n = 0; n < THREADS; n++)
      if (make((thrd_t *)threads + n, standard, (void *)n) != thrd_success)
        return 4;
    for (int n = 0; n < THREADS; n++)
      join(threads[n], 0);
  } else if (!strcmp(how, "clone") || !strcmp(how, "clone3")) {
    left = THREADS;
    for (long n = 0; n < THREADS; n++) {
      char *stack = mmap(0, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (how[5])
        raw_clone3(n, stack);
      else
        raw_clone(n, stack);
    }
    wait_for_all();
  } else if (!strcmp(how, "timer")) {
    int (*make)(clockid_t, struct sigevent *, timer_t *) = (int (*)(clockid_t, struct sigevent *, timer_t *))dlsym(library(), "timer_create");
    left = THREADS;
    for (int n = 0; n < THREADS; n++) {
      struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired, .sigev_value.sival_int = n};
      timer_t timer;
      if (make(CLOCK_MONOTONIC, &event, &timer))
        return 4;
      struct itimerspec once = {.it_value.tv_nsec = 1000000};
      timer_settime(timer, 0, &once, 0);
    }
    wait_for_all();
  } else {
    return child_of(!strcmp(how, "fork") ? 0 : !strcmp(how, "fork-by-number") ? 1 : 2);
  }
  long sum = 0;
  for (int n = 0; n < THREADS; n++)
    sum = sum * 31 + results[n];
  printf("%ld\n", sum);
  return 0;
}
