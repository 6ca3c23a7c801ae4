/* A library to be preloaded: holds a program back, before its main function, until the file that MGZ_TEST_GATE names is there. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

__attribute__((constructor)) static void wait_for_the_gate(void) {
    const char *gate = getenv("MGZ_TEST_GATE");
    for (int i = 0; gate && i < 10000 && access(gate, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, 0);
    unsetenv("MGZ_TEST_GATE");
    unsetenv("LD_PRELOAD");
}
