/* Two sites whose blocks take turns at one address, many thousand times in a chunk of the record stream, and a third one that grows its block there.
   Arguments: threads beside the first one; microseconds from signal to signal, whose handler reads a table of its own. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { WORDS = 8, TURNS = 20000, SHORT = 3, LONG = 5 };

__attribute__((noinline)) static long walk(const volatile long *block, int times)
{
    long sum = 0;
    for (int t = 0; t < times; t++)
        for (int i = 0; i < WORDS; i++)
            sum += block[i];
    return sum;
}

static volatile long table[WORDS];
static volatile sig_atomic_t came;

static void on_signal(int signal)
{
    (void)signal;
    walk(table, 1);
    came++;
}

static void send_signals(long microseconds)
{
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    signal(SIGALRM, on_signal);
    setitimer(ITIMER_REAL, &every, NULL);
}

__attribute__((noinline)) static void fill(volatile long *block)
{
    for (int i = 0; i < WORDS; i++)
        block[i] = i;
}

__attribute__((noinline)) static long *first_site(void)
{
    long *block = malloc(WORDS * sizeof(long));
    __asm__ volatile("" ::: "memory");
    return block;
}

__attribute__((noinline)) static long *second_site(void)
{
    long *block = malloc(WORDS * sizeof(long));
    __asm__ volatile("# second" ::: "memory");
    return block;
}

__attribute__((noinline)) static long *third_site(void)
{
    long *block = realloc(NULL, WORDS * sizeof(long) - 8);
    __asm__ volatile("" ::: "memory");
    return block;
}

static void *turns(void *same)
{
    long sum = 0;
    for (int t = 0; t < TURNS; t++) {
        long *a = first_site();
        fill(a);
        sum += walk(a, SHORT);
        free(a);
        long *b = second_site();
        fill(b);
        sum += walk(b, LONG);
        free(b);
        long *c = third_site();
        c = realloc(c, WORDS * sizeof(long));
        fill(c);
        sum += walk(c, 1);
        free(c);
        *(int *)same += a == b;
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    int others = argc > 1 ? atoi(argv[1]) : 0;
    int same[4] = {0};
    pthread_t threads[4];
    if (argc > 2)
        send_signals(atol(argv[2]));
    for (int i = 0; i < others && i < 3; i++)
        pthread_create(&threads[i], NULL, turns, &same[i + 1]);
    long sum = (long)turns(&same[0]);
    for (int i = 0; i < others && i < 3; i++)
        pthread_join(threads[i], NULL);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    printf("same %d of %d, %ld; signals %d\n", same[0], TURNS, sum, (int)came);
    return 0;
}
