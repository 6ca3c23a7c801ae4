/* Reads one word of each page of a large anonymous mapping: a page fault for each, in one function. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGES = 50000, PAGE = 4096 };

static __attribute__((noinline)) uint64_t sum(const volatile char *pages) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < PAGES; i++)
        all += (uint64_t)pages[i * PAGE + (i * 64 & (PAGE - 1))] + i;
    return all;
}

int main(void) {
    char *pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return 1;
    madvise(pages, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE);
    printf("%llu\n", (unsigned long long)sum(pages));
    return 0;
}
