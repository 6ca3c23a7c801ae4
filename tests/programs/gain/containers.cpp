// Containers of C++: lists, maps, vectors of structures, hash joins.
#include "pairs.h"
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

namespace {

constexpr uint32_t COUNT = 1 << 19;

// A list whose nodes lie at random, or in its order.
NOINLINE double sum_list(const std::list<double> &list) {
    return std::accumulate(list.begin(), list.end(), 0.0);
}

double list(int after, long rounds) {
    std::list<double> list;
    for (uint32_t i = 0; i < COUNT; i++)
        list.push_back(i);
    if (!after) {
        std::unique_ptr<uint32_t, decltype(&free)> order(shuffled(COUNT), free);
        std::vector<std::list<double>::iterator> nodes;
        for (auto at = list.begin(); at != list.end(); ++at)
            nodes.push_back(at);
        for (uint32_t i = 0; i < COUNT; i++)
            list.splice(list.end(), list, nodes[order.get()[i]]);
    }
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += sum_list(list);
    return sum;
}

// Objects behind pointers in random order, or in the order of memory.
struct Shape {
    double area;
    double rest[5];
};

NOINLINE double sum_shapes(const std::vector<Shape *> &shapes) {
    double sum = 0;
    for (const Shape *shape : shapes)
        sum += shape->area;
    return sum;
}

double shapes(int after, long rounds) {
    std::vector<Shape> pool(COUNT);
    std::vector<Shape *> pointers;
    uint32_t *order = shuffled(COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        pool[i].area = i % 3;
        pointers.push_back(&pool[order[i]]);
    }
    if (after)
        std::sort(pointers.begin(), pointers.end());
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += sum_shapes(pointers);
    return sum;
}

// Products of a sparse matrix and a vector, with wide or narrow column numbers.
NOINLINE double row_products(const std::vector<uint64_t> &columns, const std::vector<double> &x) {
    double sum = 0;
    for (uint64_t column : columns)
        sum += x[column];
    return sum;
}

NOINLINE double row_products_narrow(const std::vector<uint32_t> &columns, const std::vector<double> &x) {
    double sum = 0;
    for (uint32_t column : columns)
        sum += x[column];
    return sum;
}

double sparse(int after, long rounds) {
    std::vector<uint64_t> columns(8 * COUNT);
    std::vector<uint32_t> narrow(8 * COUNT);
    std::vector<double> x(4096, 1.5);
    for (uint32_t i = 0; i < 8 * COUNT; i++)
        columns[i] = narrow[i] = (uint32_t)below(4096);
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += after ? row_products_narrow(narrow, x) : row_products(columns, x);
    return sum;
}

// A join: rows of one table refer to rows of another, of which two columns are read.
struct Customer {
    uint64_t id;
    char name[48];
    uint32_t nation;
    char address[60];
    double balance;
};

struct Narrow {
    uint32_t nation;
    double balance;
};

NOINLINE double join(const std::vector<Customer> &customers, const std::vector<uint32_t> &orders) {
    double sum = 0;
    for (uint32_t order : orders)
        if (customers[order].nation < 12)
            sum += customers[order].balance;
    return sum;
}

NOINLINE double join_narrow(const std::vector<Narrow> &customers, const std::vector<uint32_t> &orders) {
    double sum = 0;
    for (uint32_t order : orders)
        if (customers[order].nation < 12)
            sum += customers[order].balance;
    return sum;
}

double joined(int after, long rounds) {
    std::vector<Customer> customers(COUNT / 2);
    std::vector<Narrow> narrow(COUNT / 2);
    std::vector<uint32_t> orders(COUNT);
    for (uint32_t i = 0; i < COUNT / 2; i++) {
        customers[i].nation = narrow[i].nation = (uint32_t)below(24);
        customers[i].balance = narrow[i].balance = i % 100;
    }
    for (uint32_t &order : orders)
        order = (uint32_t)below(COUNT / 2);
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += after ? join_narrow(narrow, orders) : join(customers, orders);
    return sum;
}

// Ordered look-ups: a red-black tree, or a sorted vector of blocks with a small index.
NOINLINE uint64_t find_all(const std::map<uint32_t, uint32_t> &map, const uint32_t *keys, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        sum += map.lower_bound(keys[i % COUNT])->second;
    return sum;
}

NOINLINE uint64_t find_blocks(const std::vector<uint32_t> &index, const std::vector<uint32_t> &sorted,
                              const uint32_t *keys, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        uint32_t key = keys[i % COUNT];
        auto block = std::upper_bound(index.begin(), index.end(), key) - index.begin() - 1;
        auto at = std::lower_bound(sorted.begin() + 64 * block, sorted.begin() + 64 * block + 64, key);
        sum += *at / 2;
    }
    return sum;
}

double map(int after, long rounds) {
    std::map<uint32_t, uint32_t> map;
    std::vector<uint32_t> sorted, index;
    uint32_t *order = shuffled(COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        map[2 * order[i]] = order[i];
    for (uint32_t i = 0; i < COUNT; i++) {
        sorted.push_back(2 * i);
        if (i % 64 == 0)
            index.push_back(2 * i);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        order[i] *= 2;
    return (double)(after ? find_blocks(index, sorted, order, rounds) : find_all(map, order, rounds));
}

const struct pair pairs[] = {
    {"list", list, 25},      {"shapes", shapes, 60}, {"sparse", sparse, 400},
    {"joined", joined, 150}, {"map", map, 1500000},
};

} // namespace

MAIN(pairs)
