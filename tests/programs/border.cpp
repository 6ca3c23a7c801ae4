// Uses a library (beyond.cpp) in every way that crosses the border between the two: it is linked to it, or (OPENED) opens it, closes it and opens it again.
#include "border.h"
#include "mix.h"
#include <atomic>
#include <csetjmp>
#include <dlfcn.h>
#include <pthread.h>
#include <string>
#include <unistd.h>

#if defined(OPENED)
static bool open_library(const char *path, void **library) {
    *library = dlopen(path, RTLD_NOW);
    if (!*library)
        return false;
#define LOOK(result, name, arguments) name = reinterpret_cast<result(*) arguments>(dlsym(*library, #name));
    BEYOND(LOOK)
    numbers = static_cast<int *>(dlsym(*library, "numbers"));
    return true;
}
static long &common_here() { return *place(); }
#else
static long &common_here() { return common; }

// The library's constructors have run by now, and its destructors have not.
static struct Early {
    long value = walk(3);
    ~Early() { printf("early ends %ld\n", value + walk(2)); }
} early;
#endif

namespace {

struct Guard {
    long n;
    ~Guard() { mix(static_cast<uint64_t>(n)); }
};

struct Own final : Shape {
    int width = 6;
    int nothing() override { return 0; }
    int same(int x) override { return x; }
    long area(const int *p, int n) override { return p[n + 1] + width; }
    long ask(Shape *other, int depth) override {
        Guard guard{depth};
        if (depth == 5)
            throw width;
        return depth <= 0 ? width : other->ask(this, depth - 1) + width;
    }
};

long throws(long x) {
    Guard guard{x};
    if (x % 4 == 1)
        throw static_cast<int>(x);
    if (x % 4 == 2)
        throw Trouble(x + 3);
    if (x % 4 == 3)
        throw std::string("text");
    return x * 2;
}

long asked;
long throws_sometimes(long x) { return throws(x + asked); }

jmp_buf back;
long jumps(long x) { longjmp(back, static_cast<int>(x) + 1); }

int descending(const void *a, const void *b) { return ascending(b, a); }

int calls;
int tired(const void *a, const void *b) {
    if (++calls == 40)
        throw Trouble(calls);
    return ascending(a, b);
}

// What comes out of a call into the library.
template <typename F> void note(F f) {
    try {
        mix(static_cast<uint64_t>(f()));
    } catch (int x) {
        mix(static_cast<uint64_t>(x) + 1000);
    } catch (const Trouble &trouble) {
        mix(static_cast<uint64_t>(trouble.code) + strlen(trouble.what()));
    } catch (const std::string &s) {
        mix(s.size());
    } catch (int *p) {
        mix(static_cast<uint64_t>(*p) + static_cast<uint64_t>(p - numbers) * 100);
    }
}

void *outside(void *p) {
    long n = *static_cast<long *>(p);
    *static_cast<long *>(p) = walk(static_cast<int>(n) + 30) + common_here() + chosen(numbers, 5);
    return nullptr;
}

void use(int round) {
    // Functions that the library's own resolver has chosen, by every name.
    Kernel *pointer = +chosen;
    for (int i = 0; i < 40; i++) {
        mix(static_cast<uint64_t>(chosen(numbers, i % 12)));
        mix(static_cast<uint64_t>(pointer(numbers + 1, i % 12)));
        mix(static_cast<uint64_t>(choice()(numbers + 2, i % 12)));
    }
    mix(pointer == +chosen);
    report("chosen");

    for (int i = 0; i < 10; i++) {
        mix(static_cast<uint64_t>(walk(i * 5)));
        common_here() += i;
        mix(static_cast<uint64_t>(common_here()));
    }
    mix(place() == &common_here());
    report("storage");

    mix(static_cast<uint64_t>(crowd(4)));
    for (long i = 0; i < 4; i++) {
        pthread_t thread;
        long value = i;
        pthread_create(&thread, nullptr, outside, &value);
        pthread_join(thread, nullptr);
        mix(static_cast<uint64_t>(value));
    }
    mix(static_cast<uint64_t>(crowd(3)));
    report("threads");

    for (long i = 0; i < 40; i++) {
        asked = i;
        note([i] { return thrower(i); });
        note([i] { return passes(throws_sometimes, static_cast<int>(i % 9)); });
        note([i] { return shelters(throws_sometimes, i % 7); });
        note([i] { return again(throws, i); });
        note([i] {
            // Through the library and the program by turns.
            return passes([](long x) { return passes(throws, static_cast<int>(x % 5) + 1); }, static_cast<int>(i % 4));
        });
    }
    for (long i = 1; i < 6; i++)
        note([i] { return delivers(i), 0; });
    report("exceptions");

    Shape *shapes[6];
    for (int i = 0; i < 6; i++)
        shapes[i] = i % 3 == 2 ? new Own : make(i + round);
    for (int i = 0; i < 30; i++) {
        mix(static_cast<uint64_t>(shapes[i % 6]->nothing() + shapes[i % 6]->same(i)));
        mix(static_cast<uint64_t>(shapes[i % 6]->area(numbers, i)));
        note([&] { return shapes[i % 6]->ask(shapes[(i / 2 + 1) % 6], i % 8); });
    }
    mix(static_cast<uint64_t>(ask_all(shapes, 6)));
    for (Shape *shape : shapes)
        delete shape;
    report("virtual");

    int data[200];
    uint32_t state = 7 + static_cast<uint32_t>(round);
    for (Compare *compare : {static_cast<Compare *>(nullptr), static_cast<Compare *>(descending), +ascending, static_cast<Compare *>(tired)}) {
        for (int &x : data)
            x = static_cast<int>(next_random(&state) % 1000);
        calls = 0;
        note([&] { return sort(data, 200, compare), data[17]; });
        qsort(data, 100, sizeof *data, ascending);
        mix(static_cast<uint64_t>(data[17] + data[99] * 3));
    }
    report("callbacks");

    Short *functions[SHORTS];
    const long words[4] = {2, 30, 400, 5000};
    for (int i = 0; i < SHORTS; i++)
        functions[i] = brief(i);
    for (int i = 0; i < 60; i++) {
        mix(static_cast<uint64_t>(functions[i % SHORTS](words)));
        mix(static_cast<uint64_t>(sum_of(functions, i % SHORTS + 1, words)));
    }
    report("short");

    for (volatile int i = 0; i < 20; i = i + 1) {
        int how = setjmp(back);
        if (how == 0)
            mix(static_cast<uint64_t>(plain(jumps, i % 6)));
        mix(static_cast<uint64_t>(how + i));
    }
    report("jumps");
}

#if defined(OPENED)
std::atomic<bool> stop;

// Runs meanwhile, in code of the program.
void *beside(void *) {
    static uint32_t table[256];
    uint32_t state = 1;
    for (long i = 0; !stop; i++) {
        table[i & 255] += next_random(&state) ^ table[(i * 7) & 255];
        if (i % 500 == 0)
            usleep(100);
    }
    return nullptr;
}
#endif

} // namespace

// Arguments: how often, and the library's path if it is opened.
int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
#if defined(OPENED)
    pthread_t thread;
    pthread_create(&thread, nullptr, beside, nullptr);
    for (int round = 0; round < rounds; round++) {
        void *library;
        if (argc < 3 || !open_library(argv[2], &library)) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        use(round);
        dlclose(library);
        printf("closed, %s\n", dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) ? "still there" : "gone");
    }
    stop = true;
    pthread_join(thread, nullptr);
#else
    for (int round = 0; round < rounds; round++)
        use(round);
#endif
    report("border");
    return static_cast<int>(mgz_sum % 100);
}
