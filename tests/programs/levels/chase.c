/* Follows pointers in an order that nobody foresees. */
#include <stdlib.h>
static struct node { struct node *next; long rest[5]; } nodes[20000];
int main(int argc, char **argv) {
    unsigned at = 1;
    struct node *p = nodes;
    for (int i = 0; i < 20000; i++) {
        at = at * 1664525 + 1013904223;
        nodes[i].next = &nodes[at % 20000];
    }
    /* One circle through all: each node's next is a number further on that has no common factor with 20000. */
    for (int i = 0; i < 20000; i++)
        nodes[i].next = &nodes[(i + 7919) % 20000];
    for (int round = argc > 1 ? atoi(argv[1]) * 50 : 0; round > 0; round--)
        for (int i = 0; i < 20000; i++)
            p = p->next;
    return p == nodes + 7;
}
