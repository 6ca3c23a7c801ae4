/* A library to be preloaded that must be the first of all, as runtimes of sanitizers and of Java want it: it stands in for functions of the C library, calls the next
   ones, and ends the program if another library is before it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int actions, threads;

int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    int (*next)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
    actions++;
    return next(signal, new, old);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument) {
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    threads++;
    return next(thread, attributes, work, argument);
}

static int first(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (info->dlpi_name[0] == 0 || !strncmp(info->dlpi_name, "linux-vdso", 10))
        return 0;
    *(const char **)data = info->dlpi_name;
    return 1;
}

__attribute__((constructor)) static void check(void) {
    const char *name = NULL;
    dl_iterate_phdr(first, &name);
    if (!name || !strstr(name, "first")) {
        dprintf(2, "%s is before me\n", name ? name : "nobody");
        _exit(7);
    }
}

__attribute__((destructor)) static void told(void) { dprintf(1, "actions %d threads %d\n", actions, threads); }
