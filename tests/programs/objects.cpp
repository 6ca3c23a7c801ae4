// C++ without exceptions: virtual calls, templates, maps, strings, lambdas, std::function, member pointers.
#include "mix.h"
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual int sides() const { return 0; }
};
struct Square : Shape {
    double a;
    explicit Square(double x) : a(x) {}
    double area() const override { return a * a; }
    int sides() const override { return 4; }
};
struct Disc : Shape {
    double r;
    explicit Disc(double x) : r(x) {}
    double area() const override { return 3 * r * r; }
};

struct Counter {
    int n = 0;
    void up(int by) { n += by; }
    void down(int by) { n -= by; }
};

__attribute__((noinline)) double total(const std::vector<Shape *> &all) {
    double s = 0;
    for (const Shape *x : all)
        s += x->area() * (x->sides() + 1);
    return s;
}

} // namespace

int main() {
    std::vector<Shape *> all;
    for (int i = 0; i < 30; i++)
        all.push_back(i % 3 ? static_cast<Shape *>(new Square(i)) : new Disc(i));
    mix(static_cast<uint64_t>(total(all)));
    for (Shape *s : all)
        delete s;
    std::map<std::string, int> words;
    uint32_t state = 3;
    for (int i = 0; i < 120; i++)
        words["k" + std::to_string(next_random(&state) % 40)] += i;
    for (const auto &[key, value] : words)
        mix(key.size() * 1000 + static_cast<uint64_t>(value));
    std::vector<std::function<int(int)>> steps;
    for (int i = 0; i < 8; i++)
        steps.push_back([i, &words](int x) { return x * 3 + i + static_cast<int>(words.size()); });
    int v = 1;
    for (auto &f : steps)
        v = f(v) & 0xffff;
    mix(static_cast<uint64_t>(v));
    Counter c;
    void (Counter::*move[])(int) = {&Counter::up, &Counter::down};
    for (int i = 0; i < 20; i++)
        (c.*move[i % 3 == 0])(i);
    mix(static_cast<uint64_t>(c.n));
    report("objects");
}
