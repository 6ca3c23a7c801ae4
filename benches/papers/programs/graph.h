// Kronecker graphs as the graph benchmarks make them: R-MAT with shuffled names, neighbours sorted, none twice.
#ifndef MGZ_PAPERS_GRAPH_H
#define MGZ_PAPERS_GRAPH_H
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

struct Random {
    uint64_t state = 88172645463325252ull;

    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545f4914f6cdd1dull;
    }
    double fraction() {
        return double(next() >> 11) / 9007199254740992.0;
    }
};

// The neighbours of v are to[first[v]] … to[first[v + 1] - 1].
struct Graph {
    uint32_t nodes;
    std::vector<uint64_t> first;
    std::vector<uint32_t> to;

    uint64_t degree(uint32_t v) const {
        return first[v + 1] - first[v];
    }
};

// An undirected graph of 2^scale nodes and up to nodes * pairs edges, probabilities of Graph500.
inline Graph kronecker(int scale, int pairs) {
    uint32_t nodes = uint32_t(1) << scale;
    uint64_t count = uint64_t(nodes) * uint64_t(pairs);
    Random random;
    std::vector<uint32_t> name(nodes);
    std::iota(name.begin(), name.end(), 0);
    for (uint32_t v = nodes - 1; v > 0; v--)
        std::swap(name[v], name[random.next() % (v + 1)]);
    std::vector<std::pair<uint32_t, uint32_t>> edges(count);
    for (auto &edge : edges) {
        uint32_t a = 0, b = 0;
        for (int bit = 0; bit < scale; bit++) {
            double x = random.fraction();
            a = a * 2 + (x >= 0.76);
            b = b * 2 + ((x >= 0.57 && x < 0.76) || x >= 0.95);
        }
        edge = {name[a], name[b]};
    }
    Graph all{nodes, std::vector<uint64_t>(nodes + 1), {}};
    for (auto [u, v] : edges)
        if (u != v)
            all.first[u + 1]++, all.first[v + 1]++;
    std::partial_sum(all.first.begin(), all.first.end(), all.first.begin());
    all.to.resize(all.first[nodes]);
    std::vector<uint64_t> next(all.first.begin(), all.first.end() - 1);
    for (auto [u, v] : edges)
        if (u != v)
            all.to[next[u]++] = v, all.to[next[v]++] = u;
    Graph graph{nodes, std::vector<uint64_t>(nodes + 1), {}};
    graph.to.reserve(all.to.size());
    for (uint32_t v = 0; v < nodes; v++) {
        auto begin = all.to.data() + all.first[v], end = all.to.data() + all.first[v + 1];
        std::sort(begin, end);
        graph.to.insert(graph.to.end(), begin, std::unique(begin, end));
        graph.first[v + 1] = graph.to.size();
    }
    graph.to.shrink_to_fit();
    return graph;
}
#endif
