// Containers of the standard library whose cache misses are predicted from samples and simulated from full traces (benches/run misses): see misses.c.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

uint64_t state = 88172645463325252ull;

uint64_t draw() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

[[gnu::noinline]] uint64_t look_up(const std::map<uint64_t, uint64_t> &tree, uint64_t keys, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += tree.find(draw() % keys)->second;
    return sum;
}

uint64_t tree(long rounds) {
    std::map<uint64_t, uint64_t> tree;
    uint64_t keys = 60000;
    std::vector<uint64_t> order(keys);
    for (uint64_t i = 0; i < keys; i++)
        order[i] = i;
    for (uint64_t i = keys - 1; i > 0; i--)
        std::swap(order[i], order[draw() % (i + 1)]);
    for (uint64_t key : order)
        tree[key] = key;
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += look_up(tree, keys, 50000);
    return sum;
}

[[gnu::noinline]] uint64_t look_up(const std::unordered_map<uint64_t, uint64_t> &table, uint64_t keys, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += table.find(draw() % keys)->second;
    return sum;
}

uint64_t table(long rounds) {
    std::unordered_map<uint64_t, uint64_t> table;
    uint64_t keys = 300000;
    for (uint64_t i = 0; i < keys; i++)
        table[i] = i;
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += look_up(table, keys, 100000);
    return sum;
}

[[gnu::noinline]] void sort(const std::vector<uint32_t> &from, std::vector<uint32_t> &to) {
    to = from;
    std::sort(to.begin(), to.end());
}

uint64_t sorted(long rounds) {
    std::vector<uint32_t> from(300000), to;
    for (uint32_t &x : from)
        x = static_cast<uint32_t>(draw());
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        sort(from, to);
        sum += to[1000];
    }
    return sum;
}

[[gnu::noinline]] uint64_t add(const std::list<uint64_t> &list) {
    uint64_t sum = 0;
    for (uint64_t x : list)
        sum += x;
    return sum;
}

uint64_t list(long rounds) {
    std::list<uint64_t> list;
    for (uint64_t i = 0; i < 100000; i++)
        list.push_back(i);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < 5; i++)
            sum += add(list);
    return sum;
}

} // namespace

int main(int argc, char **argv) {
    std::string kind = argc > 1 ? argv[1] : "";
    long rounds = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1;
    uint64_t sum;
    if (kind == "tree")
        sum = tree(rounds);
    else if (kind == "unordered")
        sum = table(rounds);
    else if (kind == "sort")
        sum = sorted(rounds);
    else if (kind == "list")
        sum = list(rounds);
    else
        return 2;
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
    return 0;
}
