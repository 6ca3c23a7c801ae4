// All the ways in which control leaves a function, over and over: direct and indirect calls, recursion, tail calls, switch
// tables, virtual functions, callbacks from the C library, exceptions, longjmp. Same work and same addresses in every run.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define KEEP __attribute__((noinline))

static uint64_t state = 88172645463325252ull;
static uint32_t table[4096];
static jmp_buf back;

static uint32_t next_random() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

struct Shape {
    uint32_t a, b;
    virtual KEEP uint32_t area(const uint32_t *t) { return t[a & 4095] + b; }
    virtual ~Shape() {}
};
struct Square : Shape {
    KEEP uint32_t area(const uint32_t *t) override { return t[b & 4095] * a; }
};
struct Circle : Shape {
    KEEP uint32_t area(const uint32_t *t) override { return Shape::area(t) ^ t[(a + b) & 4095]; }
};

KEEP static uint32_t tree(uint32_t depth, uint32_t key) {
    uint32_t here = table[(key * 2654435761u) >> 20];
    if (depth == 0) return here;
    return here + tree(depth - 1, key * 2 + 1) + tree(depth - 1, key * 2 + 2);
}

KEEP static uint32_t by_kind(uint32_t kind, const uint32_t *t, uint32_t i) {
    switch (kind) {
        case 0: return t[i & 4095];
        case 1: return t[(i * 3) & 4095] ^ t[i & 255];
        case 2: return t[(i * 5) & 4095] + 7;
        case 3: return t[(i * 7) & 4095] - t[(i + 1) & 4095];
        case 4: return t[(i * 11) & 4095] * 3;
        case 5: return t[(i * 13) & 4095] >> 3;
        case 6: return t[(i * 17) & 4095] | 1;
        default: return i;
    }
}

KEEP static uint32_t add(const uint32_t *t, uint32_t i) { return t[i & 1023] + i; }
KEEP static uint32_t mix(const uint32_t *t, uint32_t i) { return t[i & 2047] * 31 + t[(i >> 3) & 63]; }
KEEP static uint32_t last(const uint32_t *t, uint32_t i) { return add(t, i + table[i & 15]); }
static uint32_t (*const volatile functions[])(const uint32_t *, uint32_t) = {add, mix, last};

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

KEEP static uint32_t thrower(uint32_t depth) {
    if (depth == 0) {
        if (table[next_random() & 4095] & 1) throw table[5];
        return 1;
    }
    return thrower(depth - 1) + table[depth];
}

KEEP static void jumper(uint32_t depth) {
    if (depth == 0) longjmp(back, 1 + (int)(table[next_random() & 4095] & 3));
    jumper(depth - 1);
    table[depth]++;
}

KEEP static uint32_t rounds(long n) {
    Square square;
    Circle circle;
    Shape shape;
    Shape *shapes[3] = {&square, &circle, &shape};
    for (int i = 0; i < 3; i++) shapes[i]->a = next_random(), shapes[i]->b = next_random();
    volatile uint32_t sum = 0;
    for (volatile long r = 0; r < n; r++) {
        for (uint32_t i = 0; i < 400; i++) sum += table[i] * i;
        sum += tree(6, (uint32_t)r);
        for (uint32_t i = 0; i < 200; i++) sum += by_kind(table[i] & 7, table, i);
        for (uint32_t i = 0; i < 100; i++) sum += functions[table[i + 300] % 3](table, i);
        for (uint32_t i = 0; i < 100; i++) sum += shapes[table[i] % 3]->area(table);
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t *copy = (uint32_t *)malloc(256 + 64 * i);
            memcpy(copy, table + i, 256);
            sum += copy[i & 63];
            free(copy);
        }
        if (r % 8 == 0) {
            uint32_t part[64];
            memcpy(part, table + (r & 1023), sizeof part);
            qsort(part, 64, sizeof part[0], compare);
            sum += part[32];
        }
        if (r % 4 == 0) {
            try {
                sum += thrower(5);
            } catch (uint32_t value) {
                sum += value + table[7];
            }
        }
        if (r % 4 == 1) {
            int how = setjmp(back);
            if (how == 0) jumper(4);
            sum += table[how];
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    for (uint32_t &entry : table) entry = next_random();
    printf("%u\n", rounds(argc > 1 ? atol(argv[1]) : 400));
}
