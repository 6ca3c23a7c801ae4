// Exceptions through frames that are not the program's: qsort, bsearch, std::sort, std::function, std::call_once, a thread and its
// exception_ptr, std::terminate by noexcept with a handler that leaves, virtual bases, dynamic_cast and member pointers.
#include "mix.h"
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <typeinfo>
#include <vector>

namespace {

struct Base {
    int data[4] = {1, 2, 3, 4};
    virtual ~Base() { mix(data[0]); }
    virtual int value(int i) const { return data[i & 3]; }
};
struct Left : virtual Base {
    int left = 10;
    int value(int i) const override { return left + Base::value(i); }
};
struct Right : virtual Base {
    int right = 20;
};
struct Both : Left, Right {
    int value(int i) const override {
        if (i % 13 == 7)
            throw std::out_of_range("seven");
        return left * right + Left::value(i);
    }
};

int limit;

int compare(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (limit-- == 0)
        throw x - y;
    return x < y ? -1 : x > y;
}

struct Guard {
    int n;
    ~Guard() { mix(3000 + n); }
};

int through_function(const std::function<int(int)> &f, int n) {
    Guard g{n};
    try {
        return f(n);
    } catch (const std::out_of_range &) {
        if (n % 2)
            throw;
        return -1;
    }
}

struct Function {
    int v;
    explicit Function(int n) try : v(check(n)) {
    } catch (int e) {
        throw std::runtime_error("converted " + std::to_string(e));
    }
    static int check(int n) {
        if (n % 3 == 0)
            throw n;
        return n;
    }
};

} // namespace

int main() {
    uint32_t state = 1;
    std::vector<int> data(300);
    auto fill = [&] {
        for (auto &v : data)
            v = static_cast<int>(next_random(&state) % 10000);
    };
    for (int i = 0; i < 30; i++) {
        fill();
        limit = i * 100;
        try {
            qsort(data.data(), data.size(), sizeof(int), compare);
            mix(data[i]);
        } catch (int d) {
            mix(static_cast<uint64_t>(d));
        }
        limit = i;
        try {
            int key = data[i];
            std::sort(data.begin(), data.end());
            auto p = static_cast<int *>(bsearch(&key, data.data(), data.size(), sizeof(int), compare));
            mix(p ? static_cast<uint64_t>(*p) : 1);
        } catch (int d) {
            mix(static_cast<uint64_t>(d) + 1);
        }
        try {
            int n = i * 20;
            std::sort(data.begin(), data.end(), [&](int a, int b) {
                if (n-- == 0)
                    throw std::string("enough");
                return a > b;
            });
        } catch (const std::string &s) {
            mix(s.size() + static_cast<uint64_t>(i));
        }
    }
    Both both;
    Base *base = &both;
    std::function<int(int)> f = [base](int i) { return base->value(i); };
    int (Base::*member)(int) const = &Base::value;
    for (int i = 0; i < 60; i++)
        try {
            mix(static_cast<uint64_t>(through_function(f, i) + (base->*member)(i + 1)));
        } catch (const std::exception &e) {
            mix(strlen(e.what()));
        }
    mix(dynamic_cast<Right *>(base)->right);
    mix(dynamic_cast<Left *>(static_cast<Right *>(&both)) != nullptr);
    try {
        Left plain;
        Base &b = plain;
        mix(dynamic_cast<Both &>(b).left);
    } catch (const std::bad_cast &) {
        mix(17);
    }
    std::once_flag once;
    for (int i = 0; i < 4; i++)
        try {
            std::call_once(once, [&] {
                if (i < 2)
                    throw i;
                mix(static_cast<uint64_t>(data[i]));
            });
        } catch (int n) {
            mix(static_cast<uint64_t>(n));
        }
    for (int i = 0; i < 6; i++) {
        std::promise<int> promise;
        auto future = promise.get_future();
        std::thread thread([&] {
            try {
                promise.set_value(base->value(i * 7));
            } catch (...) {
                promise.set_exception(std::current_exception());
            }
        });
        thread.join();
        try {
            mix(static_cast<uint64_t>(future.get()));
        } catch (const std::out_of_range &) {
            mix(99);
        }
        try {
            mix(static_cast<uint64_t>(Function(i).v));
        } catch (const std::runtime_error &e) {
            mix(strlen(e.what()));
        }
    }
    std::set_terminate([] {
        try {
            std::rethrow_exception(std::current_exception());
        } catch (int n) {
            mix(static_cast<uint64_t>(n));
        }
        report("callbacks");
        fflush(stdout);
        _Exit(7);
    });
    [&]() noexcept {
        Guard g{5};
        if (data[3] >= 0)
            throw 42;
    }();
}
