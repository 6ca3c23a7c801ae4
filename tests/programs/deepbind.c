/* With -DHOST a program that opens the plug-in that its argument names so that it finds the C library's functions first, else that plug-in. Both make threads: the
   plug-in by the function's name, the program by what it has found on a handle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1000, ROUNDS = 1500 };
static int words[WORDS];

static void *work(void *number) {
  long sum = 0;
  for (int k = 0; k < ROUNDS; k++)
    for (int i = 0; i < WORDS; i++)
      sum += words[(i * 7 + k) % WORDS];
  long *result = malloc(sizeof *result);
  *result = sum + (long)number;
  return result;
}

static long all(int threads, int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)) {
  pthread_t made[4];
  long sum = 0;
  for (int i = 0; i < WORDS; i++)
    words[i] = i;
  for (long i = 0; i < threads; i++)
    if (create(made + i, 0, work, (void *)i))
      exit(4);
  for (int i = 0; i < threads; i++) {
    void *result;
    pthread_join(made[i], &result);
    sum = sum * 31 + *(long *)result;
    free(result);
  }
  return sum;
}

#ifdef HOST
int main(int count, char **arguments) {
  void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
  if (!plugin) {
    puts(dlerror());
    return 1;
  }
  printf("plug-in %ld\n", ((long (*)(void))dlsym(plugin, "run"))());
  void *library = dlopen("libc.so.6", RTLD_NOW);
  printf("program %ld\n", all(2, (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(library, "pthread_create")));
  return 0;
}
#else
long run(void) { return all(3, pthread_create); }
#endif
