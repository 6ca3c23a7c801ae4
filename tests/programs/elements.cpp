// Blocks of several types that one line allocates, two arrays that one line declares, and fields that are
// loaded equally often each.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

struct item {
    long key;
    double weight;
    char tag[48];
};

static std::unordered_map<long, item> table;
static std::vector<item> list;

__attribute__((noinline)) static void build(long n) {
    for (long i = 0; i < n; i++) { table.emplace(i, item{i, 1, ""}), list.push_back(item{i, 1, ""}); }
}

__attribute__((noinline)) static double two(long n) {
    double *left = (double *)malloc(n * 8), *right = (double *)malloc(n * 8);
    for (long i = 0; i < n; i++) left[i] = right[n - 1 - i] = i;
    double sum = 0;
    for (int round = 0; round < 40; round++)
        for (long i = 0; i < n; i++) sum += left[i] + right[i];
    free(left);
    free(right);
    return sum;
}

__attribute__((noinline)) static double weights() {
    double sum = 0;
    for (int round = 0; round < 40; round++)
        for (const item &one : list) sum += one.weight;
    return sum;
}

__attribute__((noinline)) static double lookups(long n) {
    double sum = 0;
    for (int round = 0; round < 4; round++)
        for (long i = 0; i < n; i++) sum += table.find(i * 7919 % n)->second.weight;
    return sum;
}

int main() {
    const long n = 4000;
    build(n);
    printf("%.0f %.0f %.0f\n", two(n), weights(), lookups(n));
    return 0;
}
