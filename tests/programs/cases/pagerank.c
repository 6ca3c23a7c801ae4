/* Page rank until the ranks hardly change: at once (gs, Gauss–Seidel) or by rounds (jacobi).
 *
 * What each vertex hands on (o_score) is the hot array. In the Gauss–Seidel form it is brought up to date when its vertex
 * is, in the other form only before the next round. */
#include "cases.h"

enum { NEAR = 8, MOST = 20 };

/* Static, so that reports can name them. */
static double score[1 << MOST], o_score[1 << MOST];

static double change(double a, double b) {
    return a > b ? a - b : b - a;
}

NOINLINE static int gauss_seidel(const struct graph *g, double *last) {
    double base = 0.15 / g->nodes;
    for (int round = 1;; round++) {
        double error = 0;
        for (uint32_t v = 0; v < g->nodes; v++) {
            double sum = 0;
            for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++)
                sum += o_score[g->to[e]];
            double now = base + 0.85 * sum;
            error += change(now, score[v]);
            score[v] = now;
            uint64_t degree = g->first[v + 1] - g->first[v];
            o_score[v] = degree ? now / (double)degree : 0;
        }
        *last = error;
        if (error < 1e-6 || round == 100)
            return round;
    }
}

NOINLINE static int jacobi(const struct graph *g, double *last) {
    double base = 0.15 / g->nodes;
    for (int round = 1;; round++) {
        double error = 0;
        for (uint32_t v = 0; v < g->nodes; v++) {
            uint64_t degree = g->first[v + 1] - g->first[v];
            o_score[v] = degree ? score[v] / (double)degree : 0;
        }
        for (uint32_t v = 0; v < g->nodes; v++) {
            double sum = 0;
            for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++)
                sum += o_score[g->to[e]];
            double now = base + 0.85 * sum;
            error += change(now, score[v]);
            score[v] = now;
        }
        *last = error;
        if (error < 1e-6 || round == 100)
            return round;
    }
}

int main(int argc, char **argv) {
    if (argc < 2 || (strcmp(argv[1], "gs") && strcmp(argv[1], "jacobi")))
        return usage("pagerank gs|jacobi [SCALE]");
    int scale = argc > 2 ? atoi(argv[2]) : 14;
    if (scale < 1 || scale > MOST)
        return usage("pagerank gs|jacobi [SCALE]   (1 to 20)");
    struct graph g = random_graph(scale, 16, NEAR);
    for (uint32_t v = 0; v < g.nodes; v++) {
        uint64_t degree = g.first[v + 1] - g.first[v];
        score[v] = 1.0 / g.nodes;
        o_score[v] = degree ? score[v] / (double)degree : 0;
    }
    double error;
    int rounds = argv[1][0] == 'g' ? gauss_seidel(&g, &error) : jacobi(&g, &error);
    double total = 0;
    for (uint32_t v = 0; v < g.nodes; v++)
        total += score[v];
    printf("pagerank %s: %d rounds, total %.4f\n", argv[1], rounds, total);
    return 0;
}
