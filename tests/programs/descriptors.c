/* Which descriptors are open, as far as the soft limit reaches, before and after threads and in a child: what a program sees that closes or hands on
 * all that it has. It lowers its limit and starts itself again first, so that there is room between the limits. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 256 };

static volatile unsigned table[4096];

static void work(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (unsigned i = 0; i < 4096; i++)
            table[i] += table[(i * 7) & 4095];
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 30);
}

/* While there are no other threads: an event has the lowest free number for a moment before it gets its own. */
static void list(const char *who) {
    char line[1024] = "";
    for (int fd = 0; fd < LIMIT; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            sprintf(line + strlen(line), " %d", fd);
    printf("%s:%s\n", who, line);
    fflush(stdout);
}

static void *thread(void *unused) {
    work();
    return unused;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit))
            return 3;
        limit.rlim_cur = LIMIT;
        if (setrlimit(RLIMIT_NOFILE, &limit))
            return 4;
        execl("/proc/self/exe", argv[0], "listed", NULL);
        return 5;
    }
    work();
    list("main");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL))
            return 6;
    work();
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    list("after threads");
    for (int i = 0; i < 10; i++)
        printf("opened %d\n", open("/dev/null", O_RDONLY));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work();
        list("child");
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        return 8;
    struct rlimit after;
    if (getrlimit(RLIMIT_NOFILE, &after) || after.rlim_cur != LIMIT)
        return 9;
    list("end");
    return 0;
}
