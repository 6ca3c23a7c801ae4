// A library with what breaks rewriters of libraries: a function that a resolver chooses, thread-local storage in every model, objects with
// constructors and destructors, exceptions that go either way, virtual functions, callbacks, threads, and functions that are too short for a jump.
#include "border.h"
#include "mix.h"
#include <exception>
#include <pthread.h>
#include <string>

#define KEEP __attribute__((noinline))

extern "C" {
// A program at a fixed address has the only copy.
int numbers[64] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
__thread long common = 5;
}

namespace {

const int digits[8] = {2, 7, 1, 8, 2, 8, 1, 8};
__thread long dynamic[3] __attribute__((tls_model("global-dynamic"))) = {1, 2, 3};
__thread long near __attribute__((tls_model("local-dynamic"))) = 7, beside __attribute__((tls_model("local-dynamic"))) = 13;
__thread long initial __attribute__((tls_model("initial-exec"))) = 11;
__thread char zeros[500];

long totals;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Prints when it begins and ends.
struct Static {
    const char *name;
    long value;
    explicit Static(const char *n) : name(n), value(numbers[strlen(n) & 63] + digits[strlen(n) & 7]) { printf("%s begins %ld\n", name, value); }
    ~Static() { printf("%s ends %ld\n", name, value + numbers[1]); }
};
Static outer("outer"), inner("in");

// Of a thread: its end is the library's.
struct Tally {
    long sum = numbers[3] + 20;
    ~Tally() {
        pthread_mutex_lock(&lock);
        totals += sum;
        pthread_mutex_unlock(&lock);
    }
};
thread_local Tally tally;

struct Guard {
    long n;
    ~Guard() { mix(static_cast<uint64_t>(n + numbers[n & 63])); }
};

KEEP long by_sum(const int *p, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += p[i];
    return s;
}

KEEP long by_product(const int *p, int n) {
    long s = 1;
    for (int i = 0; i < n; i++)
        s = s * 31 + p[i];
    return s;
}

struct Square : Shape {
    int side;
    explicit Square(int s) : side(s) {}
    int nothing() override { return 0; }
    int same(int x) override { return x; }
    long area(const int *p, int n) override { return p[n] * side; }
    long ask(Shape *other, int depth) override { return depth <= 0 ? side + other->nothing() : side + other->ask(this, depth - 1); }
    ~Square() override { mix(static_cast<uint64_t>(side)); }
};
struct Hollow final : Square {
    long hole = 4;
    explicit Hollow(int s) : Square(s) {}
    long area(const int *p, int n) override { return Square::area(p, n) - hole; }
    long ask(Shape *other, int depth) override {
        if (depth == 3)
            throw Trouble(hole + side);
        return Square::ask(other, depth);
    }
};

void *thread(void *p) {
    long n = *static_cast<long *>(p);
    for (long i = 0; i < 20; i++)
        tally.sum += walk(static_cast<int>(n + i % 3)) & 0xff;
    *static_cast<long *>(p) = common + near * 3 + beside + initial * 5 + dynamic[n % 3];
    return nullptr;
}

struct Parcel {
    long n;
    std::exception_ptr what;
};

void *fails(void *p) {
    Parcel *parcel = static_cast<Parcel *>(p);
    try {
        Guard guard{parcel->n};
        thrower(parcel->n);
    } catch (...) {
        parcel->what = std::current_exception();
    }
    return nullptr;
}

long nothing(const long *) { return 0; }
long first(const long *p) { return *p; }
long one(const long *) { return 1; }
long from(const long *p) { return reinterpret_cast<long>(p) & 7; }
long past(const long *p) { return p[*p & 3]; }

} // namespace

extern "C" {

Kernel *resolver(void) {
    int most = 0;
    for (int i = 0; i < 8; i++)
        if (digits[i] > digits[most])
            most = i;
    return most == 3 ? by_product : by_sum;
}
long chosen(const int *, int) __attribute__((ifunc("resolver")));

Kernel *choice() { return chosen; }

KEEP long walk(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        common += i;
        near ^= common;
        beside += near & 15;
        initial = initial * 3 + beside;
        dynamic[static_cast<unsigned>(initial) % 3] += initial;
        zeros[static_cast<unsigned>(beside) % 500]++;
        sum += dynamic[i % 3] + zeros[static_cast<unsigned>(beside + i) % 500];
    }
    return sum;
}

long *place() { return &common; }

long crowd(int n) {
    pthread_t ids[8];
    long values[8], sum = 0;
    for (int i = 0; i < n; i++) {
        values[i] = i;
        pthread_create(&ids[i], nullptr, thread, &values[i]);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(ids[i], nullptr);
        sum = sum * 7 + values[i];
    }
    return sum + totals;
}

KEEP long thrower(long n) {
    Guard guard{n};
    if (n <= 0)
        return numbers[9];
    switch (n % 5) {
    case 1: throw static_cast<int>(n);
    case 2: throw Trouble(n * numbers[n & 63]);
    case 3: throw std::string("three");
    case 4: throw &numbers[n & 63];
    }
    return thrower(n - 7) + 1;
}

KEEP long passes(Callback *callback, int depth) {
    Guard guard{depth};
    if (depth == 0)
        return callback(numbers[5]);
    return passes(callback, depth - 1) + numbers[depth & 63];
}

long shelters(Callback *callback, long n) {
    try {
        return passes(callback, static_cast<int>(n));
    } catch (int x) {
        return x + numbers[2];
    } catch (const Trouble &trouble) {
        return trouble.code * 2;
    } catch (const std::exception &e) {
        return e.what()[0];
    } catch (...) {
        return -9;
    }
}

// An exception in place of another.
long again(Callback *callback, long n) {
    Guard guard{n};
    try {
        return callback(n);
    } catch (int x) {
        Guard inside{x};
        return callback(x + 1) + 1;
    }
}

void delivers(long n) {
    Parcel parcel{n, nullptr};
    pthread_t id;
    pthread_create(&id, nullptr, fails, &parcel);
    pthread_join(id, nullptr);
    if (parcel.what)
        std::rethrow_exception(parcel.what);
}

KEEP long plain(Callback *callback, int depth) {
    long n = numbers[depth & 63];
    return depth == 0 ? callback(n) : plain(callback, depth - 1) + n;
}

Shape *make(int kind) {
    if (kind % 2)
        return new Hollow(kind);
    return new Square(kind);
}

long ask_all(Shape **shapes, int n) {
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 3 + shapes[i]->area(numbers, i) + shapes[i]->same(i) + shapes[i]->nothing();
    return sum + static_cast<long>(mgz_sum & 0xffff);
}

void sort(int *p, int n, Compare *compare) { qsort(p, n, sizeof *p, compare ? compare : ascending); }

int ascending(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    return x < y ? -1 : x > y;
}

Short *brief(int i) {
    static Short *const all[SHORTS] = {nothing, first, one, from, past, nothing};
    return all[i % SHORTS];
}

long sum_of(Short **functions, int n, const long *p) {
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 5 + functions[i](p);
    return sum;
}

} // extern "C"

static void at_exit() { printf("at exit %d\n", numbers[4] + digits[3]); }
__attribute__((constructor)) static void starts() {
    printf("starts %d\n", numbers[10] + digits[1]);
    atexit(at_exit);
}
__attribute__((destructor)) static void stops() { printf("stops %d %016llx\n", numbers[11] + digits[2], static_cast<unsigned long long>(mgz_sum)); }
