/* Work of one thread after the other, none beside another: the main thread, one more, the main thread, a child process, the main thread. Run twice it makes the same accesses in the
   same order. */
#include "mix.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH 60000
static uint32_t table[LENGTH];

__attribute__((noinline)) static void work(uint32_t seed, int rounds) {
    uint32_t state = seed;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < LENGTH; i++)
            table[next_random(&state) % LENGTH] += table[i] + (uint32_t)i;
}

static void *second(void *unused) {
    work(2, 3);
    return unused;
}

int main(void) {
    pthread_t thread;
    work(1, 20);
    if (pthread_create(&thread, 0, second, 0))
        return 1;
    pthread_join(thread, 0);
    work(3, 3);
    pid_t child = fork();
    if (child == 0) {
        work(4, 2);
        _exit((int)(table[7] & 63));
    }
    int status = 0;
    waitpid(child, &status, 0);
    mix((uint64_t)WEXITSTATUS(status));
    work(5, 2);
    for (int i = 0; i < LENGTH; i++)
        mix(table[i]);
    report("relay");
    return 0;
}
