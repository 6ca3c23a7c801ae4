// What a library (beyond.cpp) gives to a program (border.cpp) that is linked to it, or opens it (OPENED).
#pragma once
#include <cstdint>
#include <exception>

// Both sides have the tables of these classes: they are compared by name.
struct Trouble : std::exception {
    long code;
    explicit Trouble(long c) : code(c) {}
    const char *what() const noexcept override { return "trouble"; }
};

struct Shape {
    virtual int nothing() = 0;
    virtual int same(int x) = 0;
    virtual long area(const int *p, int n) = 0;
    virtual long ask(Shape *other, int depth) = 0;
    virtual ~Shape() = default;
};

typedef long Kernel(const int *, int);
typedef long Callback(long);
typedef int Compare(const void *, const void *);
typedef long Short(const long *);

#define SHORTS 6
#define BEYOND(F) \
    F(long, chosen, (const int *, int)) \
    F(Kernel *, choice, ()) \
    F(long, walk, (int)) \
    F(long *, place, ()) \
    F(long, crowd, (int)) \
    F(long, thrower, (long)) \
    F(long, passes, (Callback *, int)) \
    F(long, shelters, (Callback *, long)) \
    F(long, again, (Callback *, long)) \
    F(void, delivers, (long)) \
    F(long, plain, (Callback *, int)) \
    F(Shape *, make, (int)) \
    F(long, ask_all, (Shape **, int)) \
    F(void, sort, (int *, int, Compare *)) \
    F(int, ascending, (const void *, const void *)) \
    F(Short *, brief, (int)) \
    F(long, sum_of, (Short **, int, const long *))
#define DECLARE(result, name, arguments) result name arguments;
#define POINT(result, name, arguments) static result(*name) arguments;

#if defined(OPENED)
BEYOND(POINT)
static int *numbers;
static long *(*shared)();
#else
extern "C" {
BEYOND(DECLARE)
extern int numbers[64];
extern __thread long common;
}
#endif
