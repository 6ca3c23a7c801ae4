// Containers of the C++ library.
#include "runs.h"
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace {
std::map<uint32_t, uint64_t> ordered;
std::unordered_map<uint32_t, uint64_t> hashed;
std::vector<std::string> words;
std::vector<uint32_t> keys;

void set_up() {
    uint32_t seed = 6;
    for (int i = 0; i < 30000; i++) {
        uint32_t key = next_random(&seed);
        keys.push_back(key);
        ordered[key] = hashed[key] = i;
        words.push_back(std::to_string(key) + " is a word of some length");
    }
}

ROW uint64_t look_up_ordered() {
    uint64_t sum = 0;
    for (uint32_t key : keys)
        sum += ordered.find(key)->second;
    return sum;
}

ROW uint64_t look_up_hashed() {
    uint64_t sum = 0;
    for (int t = 0; t < 4; t++)
        for (uint32_t key : keys)
            sum += hashed.find(key)->second;
    return sum;
}

ROW uint64_t sum_lengths() {
    uint64_t sum = 0;
    for (int t = 0; t < 8; t++)
        for (const std::string &word : words)
            sum += word.size() + word[0];
    return sum;
}

uint64_t maps(long k) { return k + look_up_ordered() + look_up_hashed(); }
uint64_t strings(long k) { return k + look_up_hashed() + sum_lengths(); }
} // namespace

PROGRAMS({"maps", set_up, maps}, {"strings", set_up, strings})
