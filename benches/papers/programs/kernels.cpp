// Page rank at once (gs) or by rounds (jacobi), and connected components by Afforest or by Shiloach and Vishkin (sv), on a
// Kronecker graph: kernels gs|jacobi|afforest|sv [SCALE [DEGREE]]
//
// Rules, tolerance and rounds are those of the GAP benchmark's reference programs.
#include "graph.h"
#include <cmath>

enum { MOST = 22 };

// Static, so that reports can name them.
static float score[1 << MOST], o_score[1 << MOST];
static int32_t cc[1 << MOST];

static const double DAMPING = 0.85, TOLERANCE = 1e-4;
static const int ROUNDS = 20;

NOINLINE static int pagerank_gs(const Graph &g) {
    float base = float((1 - DAMPING) / g.nodes);
    for (uint32_t v = 0; v < g.nodes; v++)
        o_score[v] = g.degree(v) ? score[v] / float(g.degree(v)) : 0;
    for (int round = 1;; round++) {
        double error = 0;
        for (uint32_t v = 0; v < g.nodes; v++) {
            float sum = 0;
            for (uint64_t e = g.first[v]; e < g.first[v + 1]; e++)
                sum += o_score[g.to[e]];
            float old = score[v];
            score[v] = base + float(DAMPING) * sum;
            error += std::fabs(double(score[v]) - old);
            o_score[v] = g.degree(v) ? score[v] / float(g.degree(v)) : 0;
        }
        if (error < TOLERANCE || round == ROUNDS)
            return round;
    }
}

NOINLINE static int pagerank_jacobi(const Graph &g) {
    float base = float((1 - DAMPING) / g.nodes);
    for (int round = 1;; round++) {
        double error = 0;
        for (uint32_t v = 0; v < g.nodes; v++)
            o_score[v] = g.degree(v) ? score[v] / float(g.degree(v)) : 0;
        for (uint32_t v = 0; v < g.nodes; v++) {
            float sum = 0;
            for (uint64_t e = g.first[v]; e < g.first[v + 1]; e++)
                sum += o_score[g.to[e]];
            float old = score[v];
            score[v] = base + float(DAMPING) * sum;
            error += std::fabs(double(score[v]) - old);
        }
        if (error < TOLERANCE || round == ROUNDS)
            return round;
    }
}

static void join(int32_t u, int32_t v) {
    int32_t a = cc[u], b = cc[v];
    while (a != b) {
        int32_t high = std::max(a, b), low = std::min(a, b), parent = cc[high];
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

NOINLINE static void compress(const Graph &g) {
    for (uint32_t v = 0; v < g.nodes; v++)
        while (cc[v] != cc[cc[v]])
            cc[v] = cc[cc[v]];
}

// The component that most of 1,024 vertices are in.
NOINLINE static int32_t frequent(const Graph &g) {
    Random random;
    std::vector<int32_t> names;
    for (int i = 0; i < 1024; i++)
        names.push_back(cc[random.next() % g.nodes]);
    std::sort(names.begin(), names.end());
    int32_t best = names[0];
    size_t most = 0;
    for (size_t i = 0; i < names.size();) {
        size_t j = i;
        while (j < names.size() && names[j] == names[i])
            j++;
        if (j - i > most) {
            most = j - i;
            best = names[i];
        }
        i = j;
    }
    return best;
}

NOINLINE static int components_afforest(const Graph &g) {
    enum { SAMPLED = 2 };
    for (uint32_t r = 0; r < SAMPLED; r++) {
        for (uint32_t v = 0; v < g.nodes; v++)
            if (g.first[v] + r < g.first[v + 1])
                join(int32_t(v), int32_t(g.to[g.first[v] + r]));
        compress(g);
    }
    int32_t skip = frequent(g);
    for (uint32_t v = 0; v < g.nodes; v++)
        if (cc[v] != skip)
            for (uint64_t e = g.first[v] + SAMPLED; e < g.first[v + 1]; e++)
                join(int32_t(v), int32_t(g.to[e]));
    compress(g);
    return 1;
}

NOINLINE static int components_sv(const Graph &g) {
    bool changed = true;
    int round = 0;
    for (; changed; round++) {
        changed = false;
        for (uint32_t u = 0; u < g.nodes; u++)
            for (uint64_t e = g.first[u]; e < g.first[u + 1]; e++) {
                int32_t a = cc[u], b = cc[g.to[e]];
                if (a == b)
                    continue;
                int32_t high = std::max(a, b), low = std::min(a, b);
                if (high == cc[high]) {
                    changed = true;
                    cc[high] = low;
                }
            }
        compress(g);
    }
    return round;
}

int main(int argc, char **argv) {
    std::string kind = argc > 1 ? argv[1] : "";
    int scale = argc > 2 ? atoi(argv[2]) : 20, degree = argc > 3 ? atoi(argv[3]) : 16;
    if (scale < 1 || scale > MOST || degree < 1)
        return 2;
    Graph g = kronecker(scale, degree);
    for (uint32_t v = 0; v < g.nodes; v++) {
        score[v] = 1.0f / float(g.nodes);
        cc[v] = int32_t(v);
    }
    int rounds;
    if (kind == "gs")
        rounds = pagerank_gs(g);
    else if (kind == "jacobi")
        rounds = pagerank_jacobi(g);
    else if (kind == "afforest")
        rounds = components_afforest(g);
    else if (kind == "sv")
        rounds = components_sv(g);
    else
        return 2;
    double total = 0;
    uint32_t roots = 0;
    for (uint32_t v = 0; v < g.nodes; v++) {
        total += score[v];
        roots += uint32_t(cc[v]) == v;
    }
    printf("%s: %d rounds, %zu edges, total %.3f, %u components\n", kind.c_str(), rounds, g.to.size(), total, roots);
    return 0;
}
