/* Opens and closes a library (its argument) again and again while another thread calls and returns. */
#include "mix.h"
#include <dlfcn.h>
#include <pthread.h>

static volatile int stop;

__attribute__((noinline)) static uint32_t step(uint32_t *state, int depth) {
    uint32_t x = next_random(state);
    return depth ? x ^ step(state, depth - 1) : x;
}

static void *run(void *p) {
    uint32_t state = 1;
    while (!stop)
        *(uint32_t *)p += step(&state, 20);
    return 0;
}

int main(int argc, char **argv) {
    static int numbers[50];
    uint32_t value = 0;
    pthread_t thread;
    pthread_create(&thread, 0, run, &value);
    for (int round = 0; round < 300; round++) {
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        long (*sum)(const int *, int, long (*)(long)) = (long (*)(const int *, int, long (*)(long)))dlsym(library, "plugin_sum");
        mix((uint64_t)sum(numbers, 0, 0));
        dlclose(library);
    }
    stop = 1;
    pthread_join(thread, 0);
    report("closes");
    return 0;
}
