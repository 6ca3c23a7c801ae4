/* Processes and threads as few programs make them, and limits that few programs set. `offspring CASE`. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

extern char **environ;
enum { STACK = 1 << 17 };
static void nothing(int signal) {
    (void)signal;
}

static int child(void *unused) {
    (void)unused;
    return work(20) % 8 + 20;
}

static volatile int stop;

static void *worker(void *unused) {
    while (!stop)
        work(5);
    return unused;
}

/* Children with this memory, beside threads that go on. */
static int sharing(int flags) {
    pthread_t threads[2];
    char *stack = malloc(STACK);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, worker, NULL);
    for (int i = 0; i < 10; i++) {
        int status;
        pid_t pid = clone(child, stack + STACK, CLONE_VM | flags | SIGCHLD, NULL);
        work(20);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
        printf("%x\n", status);
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return work(20) % 8;
}

static int beside(void) {
    return sharing(0);
}

static int instead(void) {
    return sharing(CLONE_VFORK);
}

static int refused(void) {
    char *stack = malloc(STACK);
    int failed = 0;
    /* The kernel wants a thread to share handlers. */
    for (int i = 0; i < 1500; i++)
        failed += clone(child, stack + STACK, CLONE_VM | CLONE_THREAD, NULL) == -1 && errno == EINVAL;
    printf("%d\n", failed);
    return work(3) % 8;
}

static volatile int notified;

static void notify(union sigval value) {
    work(20);
    notified = value.sival_int;
}

static int timers(void) {
    struct timespec pause = {0, 1000000};
    struct itimerspec soon = {.it_value = {0, 1000000}};
    for (int i = 1; i <= 1500; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i};
        event.sigev_notify_function = notify;
        timer_t timer;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer))
            return 1;
        if (i % 500 == 0) {
            timer_settime(timer, 0, &soon, NULL);
            while (notified != i)
                nanosleep(&pause, NULL);
            printf("%d\n", notified);
        }
        timer_delete(timer);
    }
    return work(3) % 8;
}

static int messages(void) {
    char name[64];
    sprintf(name, "/mgz-test-%d", getpid());
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
    if (queue == (mqd_t)-1)
        return work(3) % 8;
    mq_unlink(name);
    unsigned right = work(1);
    for (int i = 1; i <= 30; i++) {
        char message[9000];
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i};
        event.sigev_notify_function = notify;
        if (mq_notify(queue, &event) || mq_send(queue, "x", 1, 0))
            return 1;
        /* Both at once. */
        while (notified != i)
            if (work(1) != right)
                return 2;
        mq_receive(queue, message, sizeof message, NULL);
    }
    return work(3) % 8;
}

static int transfers(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    unsigned right = work(1);
    for (int i = 1; i <= 40; i++) {
        static char bytes[512];
        struct aiocb block = {.aio_fildes = file, .aio_buf = bytes, .aio_nbytes = sizeof bytes}, *list[] = {&block};
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i};
        event.sigev_notify_function = notify;
        if (i % 2)
            block.aio_sigevent = event;
        else
            block.aio_lio_opcode = LIO_READ;
        if (i % 2 ? aio_read(&block) : lio_listio(LIO_NOWAIT, list, 1, &event))
            return 1;
        while (notified != i)
            if (work(1) != right)
                return 2;
        printf("%zd\n", aio_return(&block));
    }
    return work(3) % 8;
}

static volatile int passed;

static void pass(union sigval value) {
    passed = value.sival_int;
}

/* One block for all, of which only the argument is set anew. */
static int transfers_again(void) {
    static char bytes[512];
    struct aiocb block = {.aio_fildes = open("/proc/self/exe", O_RDONLY), .aio_buf = bytes, .aio_nbytes = sizeof bytes, .aio_lio_opcode = LIO_READ}, *list[] = {&block};
    block.aio_sigevent.sigev_notify = SIGEV_THREAD;
    block.aio_sigevent.sigev_notify_function = pass;
    for (int i = 1; i <= 10; i++) {
        block.aio_sigevent.sigev_value.sival_int = i;
        /* Who waits passes no event. */
        if (i % 2 ? aio_read(&block) : lio_listio(LIO_WAIT, list, 1, (struct sigevent *)8))
            return 1;
        while (passed != i)
            work(1);
        printf("%d\n", passed);
    }
    return work(3) % 8;
}

/* What is no filter is refused as without mgz. */
static int no_filters(void) {
    struct {
        unsigned short length;
        void *filter;
    } program = {0, NULL};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("%d %d\n", prctl(PR_SET_SECCOMP, 2, &program), errno);
    program.length = 3;
    program.filter = (void *)8;
    printf("%d %d\n", prctl(PR_SET_SECCOMP, 2, &program), errno);
    printf("%ld %d\n", syscall(SYS_seccomp, 1, 0, (void *)-1), errno);
    return work(3) % 8;
}

static void *raises(void *unused) {
    while (!stop)
        raise(SIGUSR1);
    return unused;
}

/* Forks while other threads are in handlers all the time. */
static int busy_forks(void) {
    pthread_t threads[3];
    signal(SIGUSR1, nothing);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, raises, NULL);
    for (int i = 0; i < 400; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            signal(SIGUSR2, nothing);
            raise(SIGUSR2);
            _exit(work(1) % 8);
        }
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
            return 1;
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return work(3) % 8;
}

/* Executing a pipe fails at once. */
static int pipes(void) {
    char folder[] = "/tmp/mgz-test-XXXXXX", path[64];
    if (!mkdtemp(folder))
        return 1;
    sprintf(path, "%s/pipe", folder);
    if (mkfifo(path, 0755))
        return 2;
    char *arguments[] = {"pipe", NULL};
    pid_t pid;
    int r = execv(path, arguments), error = errno;
    printf("%d %d\n", r, error);
    printf("%d\n", posix_spawn(&pid, path, NULL, NULL, arguments, environ));
    unlink(path);
    rmdir(folder);
    return work(3) % 8;
}

static void *waits(void *unused) {
    work(2);
    pause();
    return unused;
}

/* Threads until memory is used up. How many there are is the machine's. */
static int no_memory(int limit, rlim_t bytes) {
    struct rlimit now;
    getrlimit(limit, &now);
    now.rlim_cur = bytes;
    setrlimit(limit, &now);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int i = 0; i < 3000; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, waits, NULL))
            break;
    }
    work(100);
    if (write(1, "end\n", 4) != 4)
        _exit(1);
    _exit(0);
}

static int little_data(void) {
    return no_memory(RLIMIT_DATA, 3 << 20);
}

static int little_space(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        return 1;
    fclose(file);
    return no_memory(RLIMIT_AS, pages * 4096 + (40 << 20));
}

/* From now on read, write and _exit only. */
static int strict(void) {
    if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0))
        return 1;
    char line[] = "a\n";
    line[0] += work(1000) % 16;
    if (write(1, line, 2) != 2)
        syscall(SYS_exit, 2);
    syscall(SYS_exit, 3);
    return 4;
}

/* As another user, who may not open the files of this one. */
static int other_user(void) {
    char *arguments[] = {"offspring", "refused", NULL};
    work(3);
    if (setuid(65534)) {
        printf("not the superuser\n");
        return 0;
    }
    execv("/proc/self/exe", arguments);
    return 5;
}

/* More programs than the recorder's table of modules has rows. */
static int programs(void) {
    for (int i = 0; i < 1100; i++) {
        char *arguments[] = {"offspring", "none", NULL};
        pid_t pid;
        int status;
        if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) || waitpid(pid, &status, 0) != pid || status != 77 << 8)
            return 1;
    }
    return work(3) % 8;
}

/* A child that does nothing before it has a child with its memory. */
static int grandchildren(void) {
    int status;
    pid_t child = fork();
    if (!child) {
        pid_t grandchild = vfork();
        if (!grandchild)
            _exit(3);
        unsigned sum = work(20);
        _exit(waitpid(grandchild, &status, 0) == grandchild && status == 3 << 8 ? sum % 8 + 20 : 1);
    }
    printf("%d\n", waitpid(child, &status, 0) == child ? status : -1);
    return work(3) % 8;
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"beside", beside}, {"instead", instead}, {"refused", refused}, {"timers", timers}, {"messages", messages}, {"transfers", transfers}, {"transfers-again", transfers_again}, {"no-filters", no_filters}, {"busy-forks", busy_forks},
    {"pipes", pipes}, {"little-data", little_data}, {"little-space", little_space}, {"strict", strict}, {"other-user", other_user}, {"programs", programs}, {"grandchildren", grandchildren},
};

int main(int argc, char **argv) {
    for (int i = 0; i < 4096; i++)
        table[i] = i * 2654435761u;
    work(1);
    for (unsigned i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1]))
            return cases[i].run();
    return 77;
}
