// The standard library's templates at work for the user, inlined and not: what is slow is the line that calls them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

static std::vector<uint32_t> keys;

__attribute__((noinline)) void order(std::vector<uint32_t> &list) {
    std::sort(list.begin(), list.end(), [](uint32_t a, uint32_t b) { return keys[a] < keys[b]; }); // order
}

__attribute__((noinline)) uint64_t total(const std::vector<uint32_t> &list) {
    return std::accumulate(list.begin(), list.end(), uint64_t(0)); // total
}

int main(int argc, char **argv) {
    const uint32_t n = 1 << 22;
    keys.resize(n);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (i * 2654435761u) ^ (i << 7);
    std::vector<uint32_t> list(n);
    std::iota(list.begin(), list.end(), 0);
    order(list);
    uint64_t sum = 0;
    for (int i = 0; i < 50; i++)
        sum += total(list);
    std::printf("%llu %u\n", (unsigned long long)sum, list[5]);
}
