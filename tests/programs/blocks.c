/* Heap blocks: addresses that are freed and used again from another site, threads, a forked child, growing blocks.
   Says on standard output whether the second site got the first one's address. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4096, ROUNDS = 300 };

static long walk(volatile long *data, int rounds)
{
    long sum = 0;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++)
            sum += data[i];
    return sum;
}

static volatile long *first_site(void)
{
    return calloc(N, sizeof(long));
}

static volatile long *second_site(void)
{
    void *p = malloc(N * sizeof(long));
    memset(p, 0, N * sizeof(long));
    return p;
}

static volatile long *grown_site(void)
{
    long *p = malloc(16);
    p = realloc(p, N * sizeof(long));
    memset(p, 0, N * sizeof(long));
    return p;
}

static void *thread_site(void *unused)
{
    (void)unused;
    void *p = NULL;
    if (posix_memalign(&p, 4096, N * sizeof(long)) != 0)
        return NULL;
    memset(p, 0, N * sizeof(long));
    long sum = walk(p, ROUNDS);
    free(p);
    return (void *)sum;
}

int main(void)
{
    long sum = 0;
    volatile long *a = first_site();
    sum += walk(a, 2 * ROUNDS);
    free((void *)a);
    volatile long *b = second_site();
    sum += walk(b, ROUNDS);
    printf("%s address\n", a == b ? "same" : "another");
    fflush(stdout);

    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, thread_site, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);

    pid_t child = fork();
    if (child == 0) {
        /* The parent's block, at the same address. */
        _exit(walk(b, ROUNDS) != 0);
    }
    int status = 1;
    waitpid(child, &status, 0);

    volatile long *c = grown_site();
    sum += walk(c, ROUNDS);
    free((void *)c);
    free((void *)b);
    return sum != 0 || status != 0;
}
