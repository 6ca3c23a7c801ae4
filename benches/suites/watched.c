/* Work for programs under sanitizers: four threads sort, look up in a hash table of chains, and compress runs; the main one asks for signals and children between. "wrong" makes a
   mistake at the end that AddressSanitizer (a use after free) or ThreadSanitizer (an update without the lock) reports. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, NUMBERS = 20000, BUCKETS = 1024 };

struct node {
    unsigned key, count;
    struct node *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long total, unlocked;
static volatile sig_atomic_t signals;
static int rounds;

static unsigned next_number(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int compare(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static unsigned long count(const unsigned *numbers) {
    struct node *table[BUCKETS] = {0};
    for (int i = 0; i < NUMBERS; i++) {
        unsigned key = numbers[i] % 5000;
        struct node **at = &table[key % BUCKETS];
        while (*at && (*at)->key != key)
            at = &(*at)->next;
        if (!*at) {
            *at = malloc(sizeof **at);
            **at = (struct node){key, 0, NULL};
        }
        (*at)->count++;
    }
    unsigned long sum = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (struct node *n = table[i], *next; n; n = next) {
            sum = sum * 31 + n->key * n->count;
            next = n->next;
            free(n);
        }
    return sum;
}

static unsigned long runs(const unsigned *numbers) {
    char *out = malloc(2 * NUMBERS);
    size_t n = 0;
    for (int i = 0; i < NUMBERS;) {
        int end = i;
        while (end < NUMBERS && end - i < 255 && numbers[end] >> 19 == numbers[i] >> 19)
            end++;
        out[n++] = (char)(numbers[i] >> 19);
        out[n++] = (char)(end - i);
        i = end;
    }
    unsigned long sum = n;
    for (size_t i = 0; i < n; i++)
        sum = sum * 131 + (unsigned char)out[i];
    free(out);
    return sum;
}

static void *work(void *argument) {
    unsigned state = (unsigned)(long)argument;
    unsigned *numbers = malloc(NUMBERS * sizeof *numbers);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < NUMBERS; i++)
            numbers[i] = next_number(&state);
        unsigned long sum = count(numbers);
        qsort(numbers, NUMBERS, sizeof *numbers, compare);
        sum += runs(numbers);
        pthread_mutex_lock(&lock);
        total += sum;
        pthread_mutex_unlock(&lock);
    }
    free(numbers);
    return NULL;
}

static void *update(void *argument) {
    for (int i = 0; i < 10000; i++)
        unlocked += (long)argument;
    return NULL;
}

static void met(int signal) { signals += signal == SIGUSR1; }

static void all(void *(*function)(void *)) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, function, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    rounds = argc > 2 ? atoi(argv[2]) : 1;
    signal(SIGUSR1, met);
    all(work);
    for (int i = 0; i < 10; i++)
        raise(SIGUSR1);
    printf("total %lu signals %d\n", total, (int)signals);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work((void *)9);
        printf("child %lu\n", total);
        exit(4);
    }
    int status;
    waitpid(child, &status, 0);
    printf("status %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "wrong")) {
        all(update);
        char *text = malloc(10);
        strcpy(text, "gone");
        char *volatile kept = text;
        free(text);
        return kept[0] == 'x';
    }
    return 0;
}
