// Exceptions that pass through loops whose loads are prefetched, in several threads at a time.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Guard {
    long &count;
    ~Guard() { count++; }
};

__attribute__((noinline)) static uint64_t visit(uint64_t value, uint64_t limit) {
    if (value > limit)
        throw std::runtime_error("at " + std::to_string(value));
    return value * 3;
}

__attribute__((noinline)) static uint64_t gather(const int32_t *index, long n, const uint64_t *data,
                                                 uint64_t limit, long &undone) {
    Guard guard{undone};
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint64_t value = data[index[i]];
        sum ^= value;
        sum += visit(value, limit);
    }
    return sum;
}

__attribute__((noinline)) static uint64_t plain(const int32_t *index, long n, const uint64_t *data) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum ^= data[index[i]] + (sum << 1);
    return sum;
}

static void work(int number, std::string &out) {
    std::vector<uint64_t> data(20000);
    std::vector<int32_t> index(30000);
    uint64_t state = 88172645463325252u + number;
    auto draw = [&] {
        state ^= state << 13;
        state ^= state >> 7;
        return state ^= state << 17;
    };
    for (auto &d : data)
        d = draw() % 1000000;
    for (auto &i : index)
        i = draw() % data.size();
    long undone = 0;
    for (uint64_t limit : {1000000, 999900, 999000, 900000, 10}) {
        try {
            out += std::to_string(gather(index.data(), index.size(), data.data(), limit, undone));
        } catch (const std::runtime_error &e) {
            out += e.what();
        }
        out += ' ' + std::to_string(plain(index.data(), index.size(), data.data())) + '\n';
    }
    out += std::to_string(undone) + '\n';
}

int main() {
    std::vector<std::string> outs(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(work, i, std::ref(outs[i]));
    for (auto &t : threads)
        t.join();
    for (auto &o : outs)
        std::fputs(o.c_str(), stdout);
}
