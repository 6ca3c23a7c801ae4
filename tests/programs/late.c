/* With -DHOST a program that has a thread before it opens the plug-in that its second argument names; else that plug-in. The first argument says what else it does:
   `early` nothing, `stack` the thread has a stack for signals, `handler` the program handles signals, which come while the plug-in works, `blocked` the thread has all signals
   blocked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef HOST
static long (*work)(long);
static sem_t begun, opened;
static const char *how;
static volatile int came;

static void handler(int number, siginfo_t *info, void *context) { came++; }

static void *early(void *argument) {
  if (!strcmp(how, "stack")) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, 0);
  }
  if (!strcmp(how, "blocked")) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
  }
  sem_post(&begun);
  sem_wait(&opened);
  long sum = work(1);
  if (!strcmp(how, "stack")) {
    /* It is still the program's own. */
    stack_t now;
    sigaltstack(0, &now);
    if (now.ss_size != 1 << 16 || now.ss_flags)
      sum = -1;
  }
  return (void *)sum;
}

static void *later(void *argument) { return (void *)work(2); }

int main(int count, char **arguments) {
  how = arguments[1];
  pthread_t first, second;
  sem_init(&begun, 0, 0);
  sem_init(&opened, 0, 0);
  if (!strcmp(how, "handler")) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, 0);
  }
  pthread_create(&first, 0, early, 0);
  sem_wait(&begun);
  void *plugin = dlopen(arguments[2], RTLD_NOW);
  if (!plugin) {
    puts(dlerror());
    return 1;
  }
  work = (long (*)(long))dlsym(plugin, "work");
  long sum = work(0);
  sem_post(&opened);
  pthread_create(&second, 0, later, 0);
  void *result;
  pthread_join(first, &result);
  sum = sum * 31 + (long)result;
  pthread_join(second, &result);
  sum = sum * 31 + (long)result;
  printf("%ld\n", sum);
  struct sigaction action;
  sigaction(SIGALRM, 0, &action);
  return !strcmp(how, "handler") && (!came || action.sa_sigaction != handler);
}
#else
long work(long seed) {
  long words[1024], sum = seed;
  for (int i = 0; i < 1024; i++)
    words[i] = i * seed;
  for (long k = 0; k < 3000; k++)
    for (int i = 0; i < 1024; i++)
      sum += words[(i * 5 + k) & 1023] + (k ^ i);
  return sum;
}
#endif
