/* A library with an allocator of its own, and (with -DUSER) a program that uses it: two sites get blocks of one pool, the second one at the
   address that the first has given back. */
#include <stddef.h>
struct pool {
    char *next, *end;
    void *back;
};
void *pool_get(struct pool *p, size_t bytes);
void pool_put(struct pool *p, void *block);
void *pool_zero(size_t count, size_t each);

#ifndef USER
static char memory[1 << 20], zeros[1 << 20];

void *pool_get(struct pool *p, size_t bytes) {
    if (p->back) {
        void *block = p->back;
        p->back = 0;
        return block;
    }
    if (!p->next) {
        p->next = memory;
        p->end = memory + sizeof memory;
    }
    void *block = p->next;
    p->next += bytes;
    return p->next <= p->end ? block : 0;
}

void pool_put(struct pool *p, void *block) {
    p->back = block;
}

void *pool_zero(size_t count, size_t each) {
    return count * each <= sizeof zeros ? zeros : 0;
}
#else
#include <stdio.h>
enum { WORDS = 4096 };

__attribute__((noinline)) static long walk(const volatile long *block, int times) {
    long sum = 0;
    for (int t = 0; t < times; t++)
        for (int i = 0; i < WORDS; i++)
            sum += block[i];
    return sum;
}

__attribute__((noinline)) static long *first_site(struct pool *p) {
    void *block = pool_get(p, WORDS * sizeof(long));
    __asm__ volatile("" ::: "memory");
    return block;
}

__attribute__((noinline)) static long *second_site(struct pool *p) {
    void *block = pool_get(p, WORDS * sizeof(long));
    __asm__ volatile("" ::: "memory");
    return block;
}

__attribute__((noinline)) static long *third_site(void) {
    void *block = pool_zero(WORDS, sizeof(long));
    __asm__ volatile("" ::: "memory");
    return block;
}

int main(void) {
    struct pool p = {0};
    void *a = first_site(&p);
    long sum = walk(a, 300);
    pool_put(&p, a);
    void *b = second_site(&p);
    sum += walk(b, 600);
    sum += walk(third_site(), 200);
    printf("%s %ld\n", a == b ? "same address" : "other address", sum);
    return 0;
}
#endif
