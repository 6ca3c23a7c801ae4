/* Opens a library (its argument) at run time, uses it, closes it, and opens it again. With a second argument memory that was written to cannot be executed from then on (Linux 6.3). */
#include "mix.h"
#include <dlfcn.h>
#include <sys/prctl.h>

static int numbers[50];

static long twice(long x) {
    return x + numbers[x % 50];
}

int main(int argc, char **argv) {
    for (int i = 0; i < 50; i++)
        numbers[i] = i * 3;
    if (argc > 2)
        prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0);
    for (int round = 0; round < 3; round++) {
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        long (*sum)(const int *, int, long (*)(long)) = (long (*)(const int *, int, long (*)(long)))dlsym(library, "plugin_sum");
        mix((uint64_t)sum(numbers, 50, twice));
        dlclose(library);
    }
    report("loader");
    return 0;
}
