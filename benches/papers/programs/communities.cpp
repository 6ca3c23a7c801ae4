// The first phase of Louvain community detection on an R-MAT graph, with three hash tables for the communities of a vertex's
// neighbours: communities chained|hopscotch|sized [SCALE [DEGREE [SWEEPS]]]
//
//   chained    std::unordered_map (the report's v1)
//   hopscotch  a hopscotch table that starts empty and grows (v2)
//   sized      the same, made for the number of neighbours at once (v3)
#include "graph.h"
#include <unordered_map>

// Hopscotch hashing (Herlihy, Shavit, Tzafrir): a key lies within REACH buckets of its home, whose bits say where. The array
// ends REACH - 1 buckets behind the last home, so that none wraps.
class Hopscotch {
    enum { REACH = 62 };

    struct Bucket {
        uint64_t bits = 0;
        bool used = false;
        uint32_t key = 0;
        uint32_t value = 0;
    };

    std::vector<Bucket> buckets;
    size_t homes = 0, count = 0;

    size_t home(uint32_t key) const {
        return (key * 0x9e3779b97f4a7c15ull >> 32) & (homes - 1);
    }

    void make(size_t wanted) {
        homes = wanted;
        buckets.assign(homes + REACH - 1, Bucket{});
        count = 0;
    }

    NOINLINE void grow() {
        std::vector<Bucket> old;
        old.swap(buckets);
        make(homes ? homes * 2 : 2);
        for (const Bucket &b : old)
            if (b.used)
                put(b.key, b.value);
    }

    // The nearest free bucket is brought into reach by moving others on.
    void put(uint32_t key, uint32_t value) {
        for (;;) {
            size_t at = home(key), free = at;
            while (free < buckets.size() && buckets[free].used)
                free++;
            while (free < buckets.size() && free - at >= REACH && nearer(free)) {
            }
            if (free < buckets.size() && free - at < REACH) {
                buckets[at].bits |= uint64_t(1) << (free - at);
                buckets[free].used = true;
                buckets[free].key = key;
                buckets[free].value = value;
                count++;
                return;
            }
            grow();
        }
    }

    bool nearer(size_t &free) {
        for (size_t from = free - (REACH - 1); from < free; from++) {
            uint64_t bits = from < homes ? buckets[from].bits : 0;
            if (!bits)
                continue;
            size_t first = from + size_t(__builtin_ctzll(bits));
            if (first >= free)
                continue;
            buckets[free].used = true;
            buckets[free].key = buckets[first].key;
            buckets[free].value = buckets[first].value;
            buckets[first].used = false;
            buckets[from].bits ^= uint64_t(1) << (first - from) | uint64_t(1) << (free - from);
            free = first;
            return true;
        }
        return false;
    }

  public:
    void reserve(size_t size) {
        size_t wanted = 2;
        while (double(wanted) * 0.9 < double(size))
            wanted *= 2;
        make(wanted);
    }

    NOINLINE uint32_t *insert(uint32_t key, uint32_t value) {
        if (homes) {
            size_t at = home(key);
            for (uint64_t bits = buckets[at].bits; bits; bits &= bits - 1) {
                Bucket &b = buckets[at + size_t(__builtin_ctzll(bits))];
                if (b.key == key)
                    return &b.value;
            }
        }
        if (double(count + 1) > double(homes) * 0.9)
            grow();
        put(key, value);
        return nullptr;
    }

    template <class F> void each(F f) const {
        for (const Bucket &b : buckets)
            if (b.used)
                f(b.key, b.value);
    }
};

class Chained {
    std::unordered_map<uint32_t, uint32_t> map;

  public:
    void reserve(size_t) {
    }

    NOINLINE uint32_t *insert(uint32_t key, uint32_t value) {
        auto [at, is_new] = map.emplace(key, value);
        return is_new ? nullptr : &at->second;
    }

    template <class F> void each(F f) const {
        for (const auto &e : map)
            f(e.first, e.second);
    }
};

struct State {
    Graph g;
    std::vector<float> weight;
    std::vector<uint32_t> community;
    std::vector<double> degree, total;
    double edges;
};

// The communities of v's neighbours, each with its number, and the weights of the edges to each.
template <class Map> NOINLINE static void buildMap(const State &s, uint32_t v, Map &map, std::vector<double> &counter) {
    map.insert(s.community[v], 0);
    counter.push_back(0);
    for (uint64_t e = s.g.first[v]; e < s.g.first[v + 1]; e++) {
        if (uint32_t *at = map.insert(s.community[s.g.to[e]], uint32_t(counter.size())))
            counter[*at] += s.weight[e];
        else
            counter.push_back(s.weight[e]);
    }
}

// The community with the highest gain in modularity; the smallest number among equals, so that tables agree.
template <class Map> NOINLINE static uint32_t getMax(const State &s, uint32_t v, const Map &map, const std::vector<double> &counter) {
    uint32_t own = s.community[v], best = own;
    double most = -1e300, degree = s.degree[v];
    map.each([&](uint32_t c, uint32_t at) {
        double without = s.total[c] - (c == own ? degree : 0);
        double gain = counter[at] - without * degree / s.edges;
        if (gain > most || (gain == most && c < best)) {
            most = gain;
            best = c;
        }
    });
    return best;
}

template <class Map> NOINLINE static void sweep(State &s, bool sized) {
    std::vector<double> counter;
    for (uint32_t v = 0; v < s.g.nodes; v++) {
        Map map;
        if (sized)
            map.reserve(size_t(s.g.degree(v)) + 1);
        counter.clear();
        buildMap(s, v, map, counter);
        uint32_t to = getMax(s, v, map, counter);
        s.total[s.community[v]] -= s.degree[v];
        s.total[to] += s.degree[v];
        s.community[v] = to;
    }
}

int main(int argc, char **argv) {
    std::string kind = argc > 1 ? argv[1] : "";
    int scale = argc > 2 ? atoi(argv[2]) : 20, degree = argc > 3 ? atoi(argv[3]) : 8, sweeps = argc > 4 ? atoi(argv[4]) : 2;
    State s{kronecker(scale, degree), {}, {}, {}, {}, 0};
    s.weight.assign(s.g.to.size(), 1);
    for (uint32_t v = 0; v < s.g.nodes; v++) {
        s.community.push_back(v);
        s.degree.push_back(double(s.g.degree(v)));
    }
    s.total = s.degree;
    s.edges = double(s.g.to.size());
    for (int n = 0; n < sweeps; n++)
        if (kind == "chained")
            sweep<Chained>(s, false);
        else if (kind == "hopscotch")
            sweep<Hopscotch>(s, false);
        else if (kind == "sized")
            sweep<Hopscotch>(s, true);
        else
            return 2;
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
