/* `stale [SIGNAL]`: works for a while. With SIGNAL it also queues signals of a deleted timer and of a closed event of mgz to its own
   thread; prints "fine". */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1 << 14, ROUNDS = 400 };
static long words[WORDS];

static void queue(int number, siginfo_t *info) {
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, info)) {
        puts("cannot queue");
        exit(1);
    }
}

/* The highest descriptor of the process. */
static int highest(void) {
    int high = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *one; (one = readdir(all));)
        if (atoi(one->d_name) > high)
            high = atoi(one->d_name);
    closedir(all);
    return high;
}

int main(int argc, char **argv) {
    int number = argc > 1 ? atoi(argv[1]) : 0;
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WORDS; i++)
            sum += words[i] + 1;
        if (number) {
            siginfo_t info;
            memset(&info, 0, sizeof info);
            info.si_signo = number;
            info.si_code = SI_TIMER;
            /* The value in collector/runtime/src/record/trigger.rs. */
            info.si_value.sival_ptr = (void *)0x6d677a6275727374;
            queue(number, &info);
            int closed = highest() + 1;
            if (closed > 1000) {
                memset(&info, 0, sizeof info);
                info.si_signo = number;
                info.si_code = POLL_IN;
                info.si_fd = closed;
                queue(number, &info);
            }
        }
    }
    puts(sum == (long)WORDS * ROUNDS ? "fine" : "wrong");
    return 0;
}
