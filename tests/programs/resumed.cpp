// Coroutines of C++20 that hand control to each other by jumps through pointers, and exceptions
// through them. Needs -std=c++20.
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

static uint64_t table[1024];

struct Task {
    struct promise_type {
        uint64_t value = 0;
        std::exception_ptr failed;
        std::coroutine_handle<> back;
        Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct Last {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                auto back = h.promise().back;
                return back ? back : std::noop_coroutine();
            }
            void await_resume() noexcept {}
        };
        Last final_suspend() noexcept { return {}; }
        void return_value(uint64_t v) { value = v; }
        void unhandled_exception() { failed = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> from) {
        handle.promise().back = from;
        return handle;
    }
    uint64_t await_resume() {
        auto failed = handle.promise().failed;
        uint64_t value = handle.promise().value;
        handle.destroy();
        if (failed)
            std::rethrow_exception(failed);
        return value;
    }
};

static Task leaf(uint64_t i) {
    if (i % 61 == 7)
        throw std::runtime_error("leaf");
    co_return table[i % 1024] ^ i;
}

static Task tree(int depth, uint64_t i) {
    if (!depth)
        co_return co_await leaf(i);
    uint64_t a = 0, b = 0;
    try {
        a = co_await tree(depth - 1, i * 2);
    } catch (std::exception &e) {
        a = e.what()[0];
    }
    b = depth > 2 ? co_await tree(depth - 1, i * 2 + 1) : 3;
    co_return a * 3 + b;
}

int main() {
    uint64_t h = 0;
    for (int i = 0; i < 1024; i++)
        table[i] = i * 2654435761u;
    for (int k = 0; k < 3; k++) {
        Task t = tree(7, k);
        t.handle.resume();
        h += t.handle.promise().value;
        t.handle.destroy();
    }
    printf("%016lx\n", h);
}
