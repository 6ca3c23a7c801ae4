// C++ exceptions: through several frames, through a C callback, rethrown, with destructors that run on
// the way, in constructors, nested handlers, and a catch-all that goes on.
#include "mix.h"
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Guard {
    int id;
    explicit Guard(int i) : id(i) { mix(1000 + i); }
    ~Guard() { mix(2000 + id); }
};

struct Failure : std::runtime_error {
    int code;
    Failure(int c, const std::string &text) : std::runtime_error(text), code(c) {}
};

__attribute__((noinline)) int thrower(const int *p, int i) {
    Guard g(i);
    if (p[i] % 7 == 3)
        throw Failure(p[i], "seven");
    if (p[i] % 11 == 5)
        throw p[i];
    return p[i] * 2;
}

__attribute__((noinline)) int middle(const int *p, int i, std::vector<int> &log) {
    Guard g(100 + i);
    std::unique_ptr<int> owned(new int(i));
    try {
        int v = thrower(p, i);
        log.push_back(v);
        return v + *owned;
    } catch (const Failure &f) {
        log.push_back(-f.code);
        if (f.code % 2)
            throw;
        return f.code;
    }
}

__attribute__((noinline)) int outer(const int *p, int n) {
    std::vector<int> log;
    int sum = 0;
    for (int i = 0; i < n; i++) {
        try {
            sum += middle(p, i, log);
        } catch (const std::exception &e) {
            sum += static_cast<int>(std::string(e.what()).size());
        } catch (int v) {
            sum -= v;
        }
    }
    for (int v : log)
        mix(static_cast<uint64_t>(v));
    return sum;
}

int compared;
int compare(const void *a, const void *b) {
    Guard g(500);
    if (++compared == 9)
        throw std::string("enough");
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

struct Part {
    Guard g;
    explicit Part(int i) : g(i) {
        if (i == 302)
            throw Failure(i, "part");
    }
};
struct Whole {
    Part a{300}, b{301}, c{302};
};

__attribute__((noinline)) void nested() {
    try {
        try {
            throw std::out_of_range("inner");
        } catch (...) {
            Guard g(700);
            try {
                throw 5L;
            } catch (long v) {
                mix(static_cast<uint64_t>(v));
            }
            throw;
        }
    } catch (const std::logic_error &e) {
        mix(static_cast<uint64_t>(e.what()[0]));
    }
}

} // namespace

int main() {
    int data[40];
    uint32_t state = 17;
    for (int &v : data)
        v = static_cast<int>(next_random(&state) % 1000);
    mix(static_cast<uint64_t>(outer(data, 40)));
    try {
        std::qsort(data, 40, sizeof *data, compare);
    } catch (const std::string &s) {
        mix(s.size());
    }
    try {
        Whole w;
        mix(1);
    } catch (const Failure &f) {
        mix(static_cast<uint64_t>(f.code));
    }
    nested();
    report("throws");
}
