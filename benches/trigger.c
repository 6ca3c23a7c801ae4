/* What a trigger costs by itself: preloaded into a program, this arms the event that bursts are triggered by (a task clock
 * of each thread, without the kernel's time), with a signal handler that does nothing but count.
 *
 *   cc -O2 -shared -fPIC -o trigger.so trigger.c
 *   TRIGGER_RATE=5000 TRIGGER_COUNT=FILE LD_PRELOAD=./trigger.so PROGRAM
 *
 * FILE gets the number of signals that came. The difference to PROGRAM alone is the floor under every sample: kernel
 * timer, signal there and back, and what they throw out of caches. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long came;

static int number(void) { return SIGRTMIN + 5; }

static void count(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    __atomic_fetch_add(&came, 1, __ATOMIC_RELAXED);
}

static void die(const char *what) {
    perror(what);
    _exit(70);
}

static void arm(void) {
    const char *rate = getenv("TRIGGER_RATE");
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_TASK_CLOCK};
    event.sample_period = 1000000000ull / (rate && atoi(rate) > 0 ? atoi(rate) : 1000);
    event.exclude_kernel = event.exclude_hv = 1;
    int fd = syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    struct f_owner_ex owner = {F_OWNER_TID, (int)syscall(SYS_gettid)};
    if (fd < 0 || fcntl(fd, F_SETOWN_EX, &owner) || fcntl(fd, F_SETSIG, number()) || fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK))
        die("trigger: perf_event_open");
}

struct start {
    void *(*function)(void *);
    void *argument;
};

static void *begin(void *given) {
    struct start start = *(struct start *)given;
    free(given);
    arm();
    return start.function(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next)
        next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    if (!start)
        die("trigger: malloc");
    *start = (struct start){function, argument};
    return next(thread, attributes, begin, start);
}

__attribute__((constructor)) static void first(void) {
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    if (sigaction(number(), &action, NULL))
        die("trigger: sigaction");
    arm();
}

__attribute__((destructor)) static void last(void) {
    const char *path = getenv("TRIGGER_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%lu\n", came);
    fclose(file);
}
