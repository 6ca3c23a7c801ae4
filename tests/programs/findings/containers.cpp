// The standard library's containers, and vectors of what the user has made.
#include "planted.h"
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

static std::list<uint64_t> items;

NOINLINE static uint64_t sum_list() {
    uint64_t sum = 0;
    for (uint64_t x : items) // planted: std_list
        sum += x;            // planted: std_list
    return sum;
}

static std::map<uint64_t, uint64_t> tree;

NOINLINE static uint64_t look_up_map(uint64_t key) {
    auto found = tree.find(key); // planted: std_map
    return found == tree.end() ? 0 : found->second; // planted: std_map
}

static std::unordered_map<uint64_t, uint64_t> table;

NOINLINE static uint64_t look_up_table(uint64_t key) {
    auto found = table.find(key); // planted: unordered_map
    return found == table.end() ? 0 : found->second; // planted: unordered_map
}

struct shape { uint64_t area; uint64_t rest[7]; };
static std::vector<std::unique_ptr<shape>> shapes;

NOINLINE static uint64_t sum_shapes() {
    uint64_t sum = 0;
    for (const auto &s : shapes)
        sum += s->area; // planted: unique_ptr
    return sum;
}

static std::vector<uint64_t> keys;

NOINLINE static uint64_t position(const std::vector<uint64_t> &of, uint64_t key) {
    return uint64_t(std::lower_bound(of.begin(), of.end(), key) - of.begin()); // planted: lower_bound
}

struct body { double x, y, z, vx, vy, vz, mass; char name[72]; };
static std::vector<body> bodies;

NOINLINE static double energy() {
    double sum = 0;
    for (size_t i = 0; i < bodies.size(); i++)
        sum += bodies[i].mass * bodies[i].vx; // planted: vector_field
    return sum;
}

static std::vector<double> grid;

NOINLINE static double column_sums(size_t side) {
    double sum = 0;
    for (size_t j = 0; j < side; j++)
        for (size_t i = 0; i < side; i++)
            sum += grid[i * side + j]; // planted: vector_columns
    return sum;
}

static std::vector<uint32_t> neighbours;
static std::vector<double> ranks;

NOINLINE static double pull(size_t n) {
    double sum = 0;
    for (size_t e = 0; e < n; e++)
        sum += ranks[neighbours[e]]; // planted: vector_gather
    return sum;
}

NOINLINE static double read_ranks() {
    return std::accumulate(ranks.begin(), ranks.end(), 0.0); // planted: accumulate
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "std_list";
    double seconds = argc > 2 ? atof(argv[2]) : 0.5;
    uint64_t sum = 0;
    std::mt19937_64 random(5);
    const uint64_t many = 1 << 20;
    if (what == "std_list") {
        std::vector<uint64_t> numbers(many);
        std::iota(numbers.begin(), numbers.end(), 0);
        std::shuffle(numbers.begin(), numbers.end(), random);
        items.assign(numbers.begin(), numbers.end());
        std::vector<std::list<uint64_t>::iterator> places;
        for (auto at = items.begin(); at != items.end(); ++at)
            places.push_back(at);
        std::shuffle(places.begin(), places.end(), random);
        for (auto at : places)
            items.splice(items.end(), items, at);
    } else if (what == "std_map") {
        while (tree.size() < many / 4)
            tree[random() % (2 * many)] = 1;
    } else if (what == "unordered_map") {
        for (uint64_t i = 0; i < many / 2; i++)
            table[random() % (2 * many)] = i;
    } else if (what == "unique_ptr") {
        for (uint64_t i = 0; i < many; i++)
            shapes.push_back(std::make_unique<shape>());
        std::shuffle(shapes.begin(), shapes.end(), random);
    } else if (what == "lower_bound") {
        for (uint64_t i = 0; i < 8 * many; i++)
            keys.push_back(i * 3);
    } else if (what == "small_bound" || what == "small_sort") {
        for (uint64_t i = 0; i < 1000; i++)
            keys.push_back(i * 3);
    } else if (what == "vector_field") {
        bodies.resize(many);
    } else if (what == "vector_columns") {
        grid.resize(4096 * 4096, 1.0);
    } else if (what == "small_columns") {
        grid.resize(32 * 32, 1.0);
    } else if (what == "vector_gather") {
        ranks.resize(8 * many);
        neighbours.resize(8 * many);
        for (auto &n : neighbours)
            n = uint32_t(random() % ranks.size());
    } else if (what == "accumulate") {
        ranks.resize(16 * many, 1.0);
    } else if (what == "small_map") {
        while (tree.size() < 60)
            tree[random() % 128] = 1;
    }
    while (planted_goes_on(seconds)) {
        if (what == "std_list")
            sum += sum_list();
        else if (what == "std_map")
            for (int i = 0; i < 1000; i++)
                sum += look_up_map(planted_random() % (2 * many));
        else if (what == "small_map")
            for (int i = 0; i < 1000; i++)
                sum += look_up_map(planted_random() % 128);
        else if (what == "unordered_map")
            for (int i = 0; i < 1000; i++)
                sum += look_up_table(planted_random() % (2 * many));
        else if (what == "unique_ptr")
            sum += sum_shapes();
        else if (what == "lower_bound")
            for (int i = 0; i < 1000; i++)
                sum += position(keys, planted_random() % (24 * many));
        else if (what == "small_bound")
            for (int i = 0; i < 1000; i++)
                sum += position(keys, planted_random() % 3000);
        else if (what == "small_sort") {
            std::shuffle(keys.begin(), keys.end(), random);
            std::sort(keys.begin(), keys.end());
            sum += keys[0];
        } else if (what == "vector_field")
            sum += uint64_t(energy());
        else if (what == "vector_columns" || what == "small_columns")
            sum += uint64_t(column_sums(what == "small_columns" ? 32 : 4096));
        else if (what == "vector_gather")
            sum += uint64_t(pull(neighbours.size()));
        else if (what == "accumulate")
            sum += uint64_t(read_ranks());
        else
            return 2;
    }
    planted_sink = sum;
    return 0;
}
