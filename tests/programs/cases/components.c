/* Connected components: by Afforest (few neighbours first, then all but those of the largest component) or by Shiloach and
 * Vishkin (hooking and halving over all edges, again and again). cc[v] is the hot array. */
#include "cases.h"

enum { MOST = 20 };

/* Static, so that reports can name it. */
static uint32_t cc[1 << MOST];

static void join(uint32_t u, uint32_t v) {
    uint32_t a = cc[u], b = cc[v];
    while (a != b) {
        uint32_t high = a > b ? a : b, low = a > b ? b : a, parent = cc[high];
        if (parent == low)
            return;
        if (parent == high) {
            cc[high] = low;
            return;
        }
        a = cc[cc[high]];
        b = cc[low];
    }
}

NOINLINE static void compress(uint32_t nodes) {
    for (uint32_t v = 0; v < nodes; v++)
        while (cc[v] != cc[cc[v]])
            cc[v] = cc[cc[v]];
}

/* The component that most of 1,024 vertices are in. */
NOINLINE static uint32_t frequent(uint32_t nodes) {
    static uint32_t names[1024], counts[1024];
    uint64_t seed = 2463534242;
    uint32_t known = 0, best = 0;
    for (int i = 0; i < 1024; i++) {
        uint32_t c = cc[next_random(&seed) % nodes], n = 0;
        while (n < known && names[n] != c)
            n++;
        if (n == known)
            names[known++] = c;
        if (++counts[n] > counts[best])
            best = n;
    }
    return names[best];
}

NOINLINE static void afforest(const struct graph *g) {
    enum { ROUNDS = 2 };
    for (uint32_t r = 0; r < ROUNDS; r++) {
        for (uint32_t v = 0; v < g->nodes; v++)
            if (g->first[v] + r < g->first[v + 1])
                join(v, g->to[g->first[v] + r]);
        compress(g->nodes);
    }
    uint32_t skip = frequent(g->nodes);
    for (uint32_t v = 0; v < g->nodes; v++)
        if (cc[v] != skip)
            for (uint64_t e = g->first[v] + ROUNDS; e < g->first[v + 1]; e++)
                join(v, g->to[e]);
    compress(g->nodes);
}

NOINLINE static void shiloach_vishkin(const struct graph *g) {
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t v = 0; v < g->nodes; v++)
            for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++) {
                uint32_t a = cc[v], b = cc[g->to[e]];
                if (a == b)
                    continue;
                uint32_t high = a > b ? a : b, low = a > b ? b : a;
                if (high == cc[high]) {
                    changed = 1;
                    cc[high] = low;
                }
            }
        for (uint32_t v = 0; v < g->nodes; v++)
            while (cc[v] != cc[cc[v]])
                cc[v] = cc[cc[v]];
    }
}

int main(int argc, char **argv) {
    if (argc < 2 || (strcmp(argv[1], "afforest") && strcmp(argv[1], "sv")))
        return usage("components afforest|sv [SCALE]");
    int scale = argc > 2 ? atoi(argv[2]) : 15;
    if (scale < 1 || scale > MOST)
        return usage("components afforest|sv [SCALE]   (1 to 20)");
    struct graph g = random_graph(scale, 16, 0);
    for (uint32_t v = 0; v < g.nodes; v++)
        cc[v] = v;
    if (argv[1][0] == 'a')
        afforest(&g);
    else
        shiloach_vishkin(&g);
    uint32_t components = 0;
    for (uint32_t v = 0; v < g.nodes; v++)
        components += cc[v] == v;
    printf("components %u\n", components);
    return 0;
}
