/* A kernel in several threads at once, each with data and rounds of its own: the kernel is compiled with -Dmain=kernel_main, this with -DTHREADS=n. */
#include <pthread.h>
#include <stdio.h>

int kernel_main(int argc, char **argv);

struct arguments {
    int argc;
    char **argv;
};

static void *run(void *given) {
    struct arguments *a = given;
    return kernel_main(a->argc, a->argv) ? given : NULL;
}

int main(int argc, char **argv) {
    struct arguments a = {argc, argv};
    pthread_t threads[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, run, &a)) {
            perror("pthread_create");
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        failed |= pthread_join(threads[i], &result) || result;
    }
    return failed;
}
