/* As many threads at once as the argument says, all alive until the last has run; each walks over memory, so that it records. A second
   argument makes so many of the first and of the last of them fork a child that does the same, itself and in a thread. */
#include "mix.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t all;
static int table[4096];
static int total, children;

__attribute__((noinline)) static int walk(const int *p, int n, int step) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s = s * 3 + p[(i * step) & 4095];
    return s;
}

static void *walk_alone(void *p) {
    return (void *)(long)walk(p, 5000, 9);
}

/* In a child, which has one thread. */
static int again(void) {
    pthread_t other;
    void *result = 0;
    int s = walk(table, 5000, 7);
    if (pthread_create(&other, 0, walk_alone, table) == 0)
        pthread_join(other, &result);
    return (s + (int)(long)result) & 127;
}

static void *work(void *raw) {
    long n = (long)raw;
    long s = walk(table, 300, (int)n | 1);
    pthread_barrier_wait(&all);
    s = s * 5 + walk(table, 300, (int)n | 3);
    if (n < children || n >= total - children) {
        pid_t child = fork();
        if (child == 0)
            _exit(again());
        int status = -1;
        waitpid(child, &status, 0);
        s = s * 5 + status;
    }
    pthread_barrier_wait(&all);
    return (void *)s;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 300;
    total = n;
    children = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < 4096; i++)
        table[i] = i * 7 % 31;
    pthread_t *threads = malloc((size_t)n * sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&all, 0, (unsigned)n);
    for (long i = 0; i < n; i++) {
        int error = pthread_create(&threads[i], &small, work, (void *)i);
        if (error) {
            printf("thread %ld: %s\n", i, strerror(error));
            return 3;
        }
    }
    for (int i = 0; i < n; i++) {
        void *s;
        pthread_join(threads[i], &s);
        mix((uint64_t)(uintptr_t)s);
    }
    report("many");
    return 0;
}
