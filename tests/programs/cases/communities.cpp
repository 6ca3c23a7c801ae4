// Community detection by the Louvain method's first phase, with three kinds of hash table for the neighbours' communities.
//
//   v1  chains: std::unordered_map
//   v2  closed: open addressing in one array that starts small and grows
//   v3  closed, made for the number of neighbours at once
//
// As in the report's first case study: for each vertex a map is made of the communities of its neighbours (buildMap), and the one
// with the highest gain is looked for in it (getMax).
#include "cases.h"
#include <unordered_map>
#include <vector>

struct Entry {
    uint32_t community;
    bool used;
    double weight;
};

// A closed table with linear probing, at most three quarters full.
class Closed {
    std::vector<Entry> slots;
    size_t count = 0;

    static size_t place(uint32_t key, size_t mask) {
        return (key * 0x9e3779b97f4a7c15ull >> 32) & mask;
    }

  public:
    void clear(size_t size) {
        size_t wanted = 16;
        while (wanted * 3 < size * 4)
            wanted *= 2;
        slots.assign(wanted, Entry{0, false, 0});
        count = 0;
    }

    void grow() {
        std::vector<Entry> old(slots.size() * 2, Entry{0, false, 0});
        old.swap(slots);
        for (const Entry &e : old)
            if (e.used) {
                size_t at = place(e.community, slots.size() - 1);
                while (slots[at].used)
                    at = (at + 1) & (slots.size() - 1);
                slots[at] = e;
            }
    }

    NOINLINE void insert(uint32_t community, double weight) {
        if ((count + 1) * 4 > slots.size() * 3)
            grow();
        size_t mask = slots.size() - 1, at = place(community, mask);
        while (slots[at].used && slots[at].community != community)
            at = (at + 1) & mask;
        if (!slots[at].used) {
            slots[at] = Entry{community, true, 0};
            count++;
        }
        slots[at].weight += weight;
    }

    template <class F> void each(F f) const {
        for (const Entry &e : slots)
            if (e.used)
                f(e.community, e.weight);
    }
};

// The same by chains.
class Chained {
    std::unordered_map<uint32_t, double> map;

  public:
    void clear(size_t) {
        map = std::unordered_map<uint32_t, double>();
    }

    NOINLINE void insert(uint32_t community, double weight) {
        map[community] += weight;
    }

    template <class F> void each(F f) const {
        for (const auto &e : map)
            f(e.first, e.second);
    }
};

struct State {
    graph g;
    std::vector<uint32_t> community;
    std::vector<double> degree, total;
    double edges;
};

template <class Map> NOINLINE static void buildMap(const State &s, uint32_t v, Map &map, bool sized) {
    const uint32_t *from = s.g.to + s.g.first[v], *to = s.g.to + s.g.first[v + 1], *community = s.community.data();
    map.clear(sized ? (size_t)(to - from) + 1 : 0);
    map.insert(community[v], 0);
    for (const uint32_t *e = from; e < to; e++)
        map.insert(community[*e], 1);
}

// The community with the highest gain in modularity; the smallest number among equals, so that tables agree.
template <class Map> NOINLINE static uint32_t getMax(const State &s, uint32_t v, const Map &map) {
    uint32_t best = s.community[v];
    double most = -1e300, own = s.degree[v];
    map.each([&](uint32_t c, double weight) {
        double without = s.total[c] - (c == s.community[v] ? own : 0);
        double gain = weight - without * own / s.edges;
        if (gain > most || (gain == most && c < best)) {
            most = gain;
            best = c;
        }
    });
    return best;
}

template <class Map> static void sweep(State &s, bool sized) {
    Map map;
    for (uint32_t v = 0; v < s.g.nodes; v++) {
        buildMap(s, v, map, sized);
        uint32_t to = getMax(s, v, map);
        s.total[s.community[v]] -= s.degree[v];
        s.total[to] += s.degree[v];
        s.community[v] = to;
    }
}

int main(int argc, char **argv) {
    if (argc < 2 || argv[1][0] != 'v')
        return usage("communities v1|v2|v3 [SCALE] [SWEEPS]");
    int scale = argc > 2 ? atoi(argv[2]) : 14, sweeps = argc > 3 ? atoi(argv[3]) : 3;
    State s{random_graph(scale, 16, 2), {}, {}, {}, 0};
    for (uint32_t v = 0; v < s.g.nodes; v++) {
        s.community.push_back(v);
        s.degree.push_back((double)(s.g.first[v + 1] - s.g.first[v]));
    }
    s.total = s.degree;
    s.edges = (double)s.g.edges;
    for (int n = 0; n < sweeps; n++)
        switch (argv[1][1]) {
        case '1': sweep<Chained>(s, false); break;
        case '2': sweep<Closed>(s, false); break;
        default: sweep<Closed>(s, true); break;
        }
    std::vector<bool> seen(s.g.nodes);
    uint32_t left = 0;
    uint64_t sum = 14695981039346656037ull;
    for (uint32_t c : s.community) {
        left += !seen[c];
        seen[c] = true;
        sum = (sum ^ c) * 1099511628211ull;
    }
    printf("communities %u %016llx\n", left, (unsigned long long)sum);
    return 0;
}
