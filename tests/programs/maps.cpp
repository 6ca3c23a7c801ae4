// Builds chained maps from the edges of a graph ("build"), or scans its edges through a cursor and looks them up ("max"): loads that move
// regularly and loads that do not, side by side, with all bases, limits and positions in objects.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Edge {
    long target;
    long weight;
};

struct Graph {
    long vertices;
    long *first;
    Edge *edges;
    long *community;
};

struct Node {
    Node *next;
    long key;
    long weight;
};

struct Map {
    unsigned long mask;
    Node **buckets;
    Node *pool;
    long used;
};

struct Cursor {
    const Graph *graph;
    Edge *at;
    Edge *end;
};

__attribute__((noinline)) void build_map(const Graph *g, Map *m) {
    for (long v = 0; v < g->vertices; v++)
        for (long e = g->first[v]; e < g->first[v + 1]; e++) {
            long key = g->community[g->edges[e].target];
            unsigned long slot = ((unsigned long)key * 0x9e3779b97f4a7c15ul >> 40) & m->mask;
            Node *p = m->buckets[slot];
            while (p && p->key != key)
                p = p->next;
            if (!p) {
                p = &m->pool[m->used++];
                p->next = m->buckets[slot];
                p->key = key;
                p->weight = 0;
                m->buckets[slot] = p;
            }
            p->weight += g->edges[e].weight;
        }
}

__attribute__((noinline)) long get_max(Cursor *c, const Map *m) {
    long most = -1, best = -1;
    while (c->at != c->end) {
        long weight = c->at->weight;
        long key = c->graph->community[c->at->target];
        c->at++;
        const Node *p = m->buckets[((unsigned long)key * 0x9e3779b97f4a7c15ul >> 40) & m->mask];
        while (p && p->key != key)
            p = p->next;
        if (p && p->weight + weight > most) {
            most = p->weight + weight;
            best = key;
        }
    }
    return best;
}

int main(int, char **arguments) {
    const long vertices = 4000, degree = 8, edges = vertices * degree;
    Graph g = {vertices, new long[vertices + 1], new Edge[edges], new long[vertices]};
    uint64_t state = 12345;
    auto random = [&](long below) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        return (long)((state >> 33) % (uint64_t)below);
    };
    for (long v = 0; v < vertices; v++)
        g.community[v] = random(vertices);
    for (long v = 0; v <= vertices; v++)
        g.first[v] = v * degree;
    for (long e = 0; e < edges; e++)
        g.edges[e] = {random(vertices), random(100)};
    Map m = {4095, new Node *[4096](), new Node[vertices], 0};
    build_map(&g, &m);
    long best = 0;
    if (!strcmp(arguments[1], "build")) {
        for (int i = 0; i < 10; i++) {
            memset(m.buckets, 0, 4096 * sizeof(Node *));
            m.used = 0;
            build_map(&g, &m);
        }
        best = m.used;
    } else {
        for (int i = 0; i < 10; i++) {
            Cursor c = {&g, g.edges, g.edges + edges};
            best += get_max(&c, &m);
        }
    }
    printf("%ld\n", best);
}
