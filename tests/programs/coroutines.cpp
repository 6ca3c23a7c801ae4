// C++20 coroutines: generators, symmetric transfer, exceptions out of a coroutine, destruction while suspended.
#include "mix.h"
#include <coroutine>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

template <typename T> struct Generator {
    struct promise_type {
        T value;
        std::exception_ptr error;
        Generator get_return_object() { return Generator{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(T v) {
            value = v;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { error = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Generator(std::coroutine_handle<promise_type> h) : handle(h) {}
    Generator(Generator &&other) : handle(std::exchange(other.handle, {})) {}
    ~Generator() {
        if (handle)
            handle.destroy();
    }
    bool next() {
        handle.resume();
        if (handle.promise().error)
            std::rethrow_exception(handle.promise().error);
        return !handle.done();
    }
    T value() const { return handle.promise().value; }
};

struct Noisy {
    int id;
    explicit Noisy(int i) : id(i) { mix(100 + i); }
    ~Noisy() { mix(200 + id); }
};

Generator<long> numbers(const int *p, int n) {
    Noisy noisy(n);
    for (int i = 0; i < n; i++)
        co_yield p[i] * 3L;
}

Generator<long> filtered(Generator<long> inner, long most) {
    while (inner.next()) {
        if (inner.value() > most)
            throw std::runtime_error("too large");
        if (inner.value() % 2)
            co_yield inner.value();
    }
}

struct Task {
    struct promise_type {
        long result = 0;
        std::coroutine_handle<> then;
        std::exception_ptr error;
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        struct Final {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                return h.promise().then ? h.promise().then : std::noop_coroutine();
            }
            void await_resume() noexcept {}
        };
        Final final_suspend() noexcept { return {}; }
        void return_value(long v) { result = v; }
        void unhandled_exception() { error = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Task(std::coroutine_handle<promise_type> h) : handle(h) {}
    Task(Task &&other) : handle(std::exchange(other.handle, {})) {}
    ~Task() {
        if (handle)
            handle.destroy();
    }
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
        handle.promise().then = h;
        return handle;
    }
    long await_resume() {
        if (handle.promise().error)
            std::rethrow_exception(handle.promise().error);
        return handle.promise().result;
    }
};

Task sum(const int *p, int from, int to) {
    if (to - from < 4) {
        long s = 0;
        for (int i = from; i < to; i++)
            s += p[i];
        if (s % 17 == 0)
            throw s;
        co_return s;
    }
    int middle = (from + to) / 2;
    long left = 0;
    try {
        left = co_await sum(p, from, middle);
    } catch (long v) {
        left = -v;
    }
    co_return left * 2 + co_await sum(p, middle, to);
}

} // namespace

int main() {
    uint32_t state = 9;
    std::vector<int> data(400);
    for (auto &v : data)
        v = static_cast<int>(next_random(&state) % 500);
    for (long most : {400L, 1400L, 2000L}) {
        try {
            auto g = filtered(numbers(data.data(), 300), most);
            while (g.next())
                mix(static_cast<uint64_t>(g.value()));
        } catch (const std::exception &e) {
            mix(strlen(e.what()));
        }
    }
    {
        auto left = numbers(data.data(), 50);
        left.next();
        left.next();
    }
    for (int n : {3, 40, 399}) {
        try {
            auto task = sum(data.data(), 0, n);
            task.handle.resume();
            mix(static_cast<uint64_t>(task.await_resume()));
        } catch (long v) {
            mix(static_cast<uint64_t>(v) + 7);
        }
    }
    report("coroutines");
    return 0;
}
