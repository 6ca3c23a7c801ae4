/* Graphs. */
#include "sealed.h"

static int vertices, *first, *heads, *order, *distance;
static float *lengths;

/* Edges by vertex; the head of an edge comes from `pick`. */
static void make_graph(int n, int each, uint32_t (*pick)(uint32_t)) {
    vertices = n;
    first = need((n + 1) * sizeof *first);
    heads = need((size_t)n * each * sizeof *heads);
    lengths = need((size_t)n * each * sizeof *lengths);
    order = need(n * sizeof *order);
    distance = need(n * sizeof *distance);
    for (int v = 0; v <= n; v++)
        first[v] = v * each;
    for (int e = 0; e < n * each; e++) {
        heads[e] = pick(n);
        lengths[e] = 0.1f + (float)uniform();
    }
}

/* Breadth-first search of a random graph. */
static void bfs_set_up(void) { make_graph(70000, 7, below); }

static double bfs_round(void) {
    int from = 0, to = 0;
    memset(distance, 0xff, vertices * sizeof *distance);
    order[to++] = below(vertices);
    distance[order[0]] = 0;
    while (from < to) {
        int v = order[from++];
        for (int e = first[v]; e < first[v + 1]; e++) {
            int w = heads[e];
            if (distance[w] < 0) {
                distance[w] = distance[v] + 1;
                order[to++] = w;
            }
        }
    }
    return to;
}

/* Breadth-first search of a map with walls. */
enum { MAP = 1000 };
static uint8_t *walls;

static void map_set_up(void) {
    walls = need(MAP * MAP);
    order = need(MAP * MAP * sizeof *order);
    distance = need(MAP * MAP * sizeof *distance);
    for (int y = 0; y < MAP; y++)
        for (int x = 0; x < MAP; x++)
            walls[y * MAP + x] = !x || !y || x == MAP - 1 || y == MAP - 1 || below(4) == 0;
    walls[MAP * MAP / 2 + MAP / 2] = 0;
}

static double map_round(void) {
    static const int steps[] = {1, -1, MAP, -MAP};
    int from = 0, to = 0;
    memset(distance, 0xff, MAP * MAP * sizeof *distance);
    order[to++] = MAP * MAP / 2 + MAP / 2;
    distance[order[0]] = 0;
    while (from < to) {
        int at = order[from++];
        for (int s = 0; s < 4; s++) {
            int next = at + steps[s];
            if (!walls[next] && distance[next] < 0) {
                distance[next] = distance[at] + 1;
                order[to++] = next;
            }
        }
    }
    return to;
}

/* Dijkstra's shortest paths with a heap of (length, vertex). */
struct item {
    float length;
    int vertex;
};
static struct item *items;
static int n_items;
static float *reached;

static void paths_set_up(void) {
    make_graph(24000, 6, below);
    items = need((size_t)24000 * 6 * sizeof *items);
    reached = need(24000 * sizeof *reached);
}

static void push(struct item new) {
    int at = n_items++;
    for (; at && items[(at - 1) / 2].length > new.length; at = (at - 1) / 2)
        items[at] = items[(at - 1) / 2];
    items[at] = new;
}

static struct item pop(void) {
    struct item top = items[0], last = items[--n_items];
    int at = 0;
    for (int child; (child = 2 * at + 1) < n_items; at = child) {
        child += child + 1 < n_items && items[child + 1].length < items[child].length;
        if (items[child].length >= last.length)
            break;
        items[at] = items[child];
    }
    items[at] = last;
    return top;
}

static double paths_round(void) {
    for (int v = 0; v < vertices; v++)
        reached[v] = INFINITY;
    int start = below(vertices);
    reached[start] = 0;
    push((struct item){0, start});
    double sum = 0;
    while (n_items) {
        struct item top = pop();
        if (top.length > reached[top.vertex])
            continue;
        sum += top.length;
        for (int e = first[top.vertex]; e < first[top.vertex + 1]; e++) {
            float length = top.length + lengths[e];
            if (length < reached[heads[e]]) {
                reached[heads[e]] = length;
                push((struct item){length, heads[e]});
            }
        }
    }
    return sum;
}

/* PageRank that pushes along edges; few vertices have many of them. */
static double *rank, *next_rank;

static void rank_set_up(void) {
    make_graph(150000, 6, skewed);
    rank = need(vertices * sizeof *rank);
    next_rank = need(vertices * sizeof *next_rank);
    for (int v = 0; v < vertices; v++)
        rank[v] = 1. / vertices;
}

static double rank_round(void) {
    for (int v = 0; v < vertices; v++)
        next_rank[v] = 0.15 / vertices;
    for (int v = 0; v < vertices; v++) {
        double part = 0.85 * rank[v] / (first[v + 1] - first[v]);
        for (int e = first[v]; e < first[v + 1]; e++)
            next_rank[heads[e]] += part;
    }
    double *t = rank;
    rank = next_rank;
    next_rank = t;
    return rank[1];
}

/* Components by union and find. */
enum { SETS = 700000, LINKS = 770000 };
static int *parent, (*links)[2];

static void union_set_up(void) {
    parent = need(SETS * sizeof *parent);
    links = need(LINKS * sizeof *links);
    for (int i = 0; i < LINKS; i++) {
        links[i][0] = below(SETS);
        links[i][1] = below(SETS);
    }
}

static int find(int v) {
    while (parent[v] != v) {
        parent[v] = parent[parent[v]];
        v = parent[v];
    }
    return v;
}

static double union_round(void) {
    int sets = SETS;
    for (int v = 0; v < SETS; v++)
        parent[v] = v;
    for (int i = 0; i < LINKS; i++) {
        int a = find(links[i][0]), b = find(links[i][1]);
        if (a != b) {
            parent[a < b ? b : a] = a < b ? a : b;
            sets--;
        }
    }
    return sets;
}

static const struct kind kinds[] = {
    {"bfs-random", bfs_set_up, bfs_round}, {"bfs-map", map_set_up, map_round},
    {"dijkstra", paths_set_up, paths_round}, {"rank-push", rank_set_up, rank_round},
    {"components", union_set_up, union_round},
};

int main(int argc, char **argv) { return RUN(kinds); }
