/* Ends in the way that its argument says, after some work. */
#define _GNU_SOURCE
#include "mix.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int data[200];

__attribute__((noinline)) static uint64_t work(void) {
    uint64_t s = 0;
    for (int i = 0; i < 20000; i++)
        s = s * 31 + (uint64_t)data[(i * 13) % 200];
    return s;
}

/* Never ends, and says how far it is: one load in each pass, and so slow that a recorder keeps up. */
__attribute__((noinline)) static void counted(volatile uint64_t *passes) {
    for (uint64_t n = 1;; n++) {
        __asm__ volatile("" ::"r"(data[n % 128]));
        for (int i = 0; i < 8; i++)
            __asm__ volatile("pause");
        *passes = n;
    }
}

/* A child is killed in a loop without calls. */
static void kill_child(void) {
    volatile uint64_t *passes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child)
        counted(passes);
    usleep(100000);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    printf("passes %llu\n", (unsigned long long)*passes);
}

static void *end_thread(void *how) {
    mix(work());
    if (*(const char *)how == 'p')
        pthread_exit(0);
    _exit(44);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    for (int i = 0; i < 200; i++)
        data[i] = i ^ 0x55;
    mix(work());
    report("ends");
    fflush(stdout);
    if (!strcmp(how, "exit"))
        exit(41);
    if (!strcmp(how, "_exit"))
        _exit(42);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "segv"))
        *(volatile int *)8 = 1;
    if (!strcmp(how, "load-segv"))
        return *(volatile int *)16;
    if (!strcmp(how, "trap"))
        __builtin_trap();
    if (!strcmp(how, "loop"))
        kill_child();
    if (!strcmp(how, "raw"))
        syscall(SYS_exit_group, 43);
    if (!strcmp(how, "thread") || !strcmp(how, "pthread_exit")) {
        pthread_t t;
        pthread_create(&t, 0, end_thread, (void *)how);
        if (*how == 'p')
            pthread_exit(0);
        pthread_join(t, 0);
    }
    if (!strcmp(how, "spin"))
        for (;;)
            mix(work());
    return !strcmp(how, "return") ? 40 : 39;
}
