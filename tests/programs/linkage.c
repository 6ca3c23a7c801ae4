/* Calls the C library for each element, by way of whatever linkage table the linker has made. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 1 << 15 };
struct item {
  uint64_t key;
  char name[24];
};

__attribute__((noinline)) uint64_t visit(const struct item *items, const uint32_t *order) {
  uint64_t h = 0;
  for (int i = 0; i < ELEMENTS; i++) {
    const struct item *item = &items[order[i]];
    h += item->key * 3 + strnlen(item->name, sizeof item->name) + item->name[item->key & 7];
  }
  return h;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  struct item *items = calloc(ELEMENTS, sizeof *items);
  uint32_t *order = malloc(ELEMENTS * sizeof *order), seed = 5;
  for (int i = 0; i < ELEMENTS; i++) {
    items[i].key = i;
    memset(items[i].name, 'a', i % 20);
    seed = seed * 1103515245 + 12345;
    order[i] = (seed >> 8) % ELEMENTS;
  }
  uint64_t h = 0;
  for (int i = 0; i < rounds; i++) {
    h = h * 5 + visit(items, order);
    /* The compiler may not move the call out of the loop. */
    __asm__ volatile("" ::: "memory");
  }
  printf("%016lx\n", h);
  return 0;
}
