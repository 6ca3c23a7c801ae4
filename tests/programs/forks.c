/* fork, fork and exec of itself, vfork and exec, posix_spawn, a child that is killed, and one of vfork that drops its parent's handlers. */
#define _GNU_SOURCE
#include "mix.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int data[100];

__attribute__((noinline)) static int work(int seed) {
    int s = seed;
    for (int i = 0; i < 100; i++)
        s = s * 31 + data[(i * 7 + seed) % 100];
    return s & 0x7f;
}

static volatile sig_atomic_t seen;

static void handler(int signal) {
    seen += signal;
}

static int wait_for(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return status;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 100; i++)
        data[i] = i * i;
    if (argc > 1)
        return work(atoi(argv[1]));
    char *again[] = {argv[0], "5", 0};
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(work(i));
        mix((uint64_t)wait_for(pid));
    }
    pid_t pid = fork();
    if (pid == 0) {
        execv("/proc/self/exe", again);
        _exit(100);
    }
    mix((uint64_t)wait_for(pid));
    pid = vfork();
    if (pid == 0) {
        execv("/proc/self/exe", again);
        _exit(101);
    }
    mix((uint64_t)wait_for(pid));
    if (posix_spawn(&pid, "/proc/self/exe", 0, 0, again, environ) == 0)
        mix((uint64_t)wait_for(pid));
    pid = fork();
    if (pid == 0) {
        data[0] = work(1);
        raise(SIGKILL);
    }
    mix((uint64_t)wait_for(pid));
    pid = vfork();
    if (pid == 0)
        _exit(work(3));
    mix((uint64_t)wait_for(pid));
    // The child's handlers are its own, though its memory is not.
    signal(SIGUSR1, handler);
    pid = vfork();
    if (pid == 0) {
        struct sigaction now;
        signal(SIGUSR1, SIG_DFL);
        _exit(sigaction(SIGUSR1, 0, &now) == 0 && now.sa_handler == SIG_DFL ? 0 : 1);
    }
    mix((uint64_t)wait_for(pid));
    raise(SIGUSR1);
    mix((uint64_t)seen);
    mix((uint64_t)work(9));
    report("forks");
    return 0;
}
