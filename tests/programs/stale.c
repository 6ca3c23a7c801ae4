/* `stale [SIGNAL]`: works for a while. With SIGNAL it also queues signals of a deleted timer of mgz to its own thread; prints "fine". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1 << 14, ROUNDS = 400 };
static long words[WORDS];

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
            if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, &info)) {
                puts("cannot queue");
                return 1;
            }
        }
    }
    puts(sum == (long)WORDS * ROUNDS ? "fine" : "wrong");
    return 0;
}
