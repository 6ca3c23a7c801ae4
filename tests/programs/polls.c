// Two threads that hand a byte to each other and wait for it with calls that a signal ends even where handlers are restarted: poll, made by the program itself, and nanosleep. Nothing
// interrupts them but what the program did not ask for. Says how often that happened.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];
static long interrupted;

static long call(long number, long a, void *b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static int wait_for(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    long r;
    while ((r = call(SYS_poll, (long)&one, (void *)1, -1)) == -EINTR)
        __atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
    char byte = 0;
    if (r != 1 || call(SYS_read, fd, &byte, 1) != 1) {
        puts("lost");
        exit(1);
    }
    return byte;
}

static void hand_over(int fd, char byte) {
    if (call(SYS_write, fd, &byte, 1) != 1)
        exit(1);
}

static void *echo(void *none) {
    (void)none;
    for (char byte = 1; byte;)
        hand_over(back[1], byte = wait_for(there[0]));
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000, sum = 0;
    pthread_t thread;
    if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, echo, NULL))
        return 1;
    for (long i = 0; i < rounds; i++) {
        hand_over(there[1], (char)(1 + i % 100));
        sum += wait_for(back[0]);
        struct timespec moment = {0, 1000};
        if (i % 16 == 0 && nanosleep(&moment, NULL))
            interrupted++;
    }
    hand_over(there[1], 0);
    wait_for(back[0]);
    pthread_join(thread, NULL);
    printf("%ld rounds, sum %ld, interrupted %ld times\n", rounds, sum, interrupted);
    return 0;
}
