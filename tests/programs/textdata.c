/* Calls textdata.S. */
#include "mix.h"
#include <stdlib.h>

long mgz_lookup(long n);
long mgz_mixed(const long *p, long n);
long mgz_dispatch(long kind, long value);
long mgz_shared_tail(long a, const long *p);
long mgz_shared_other(long a, const long *p);
long mgz_seen(long n);
long mgz_filler(long n);
long mgz_through(long n, long (*f)(long));
long mgz_pair(long n);
long mgz_never(long n);
long mgz_constant(long n);
long mgz_pointed(long n);
long mgz_behind(long n);
long mgz_kept(long n);
long mgz_between(long n);
long mgz_again(long n);
long mgz_into(long n);
long mgz_called_end(long n);
long mgz_called_start(long n);
long mgz_returned(long n);
long mgz_by_way(long n);
long mgz_passed(long n);
long mgz_middle(long n);
long mgz_worded(long n);
long mgz_by_word(long n);
long mgz_by_stack(long n);
long mgz_bytes(long n);
long mgz_near(long n);
long mgz_distant(long n);
long mgz_distant_first(long n);
long mgz_bare_before(long n);
long mgz_bare_behind(long n);
long mgz_bare_calls(long n);
long mgz_leave(long n);
long mgz_zero(long n);
long mgz_die(long n);
extern const int mgz_words[8];

/* The compiler does not know what is called. */
static long (*volatile through)(long, long (*)(long)) = mgz_through;
static long (*volatile seen)(long) = mgz_seen;
static long (*volatile filler)(long) = mgz_filler;

static long (*volatile const others[])(long) = {
    mgz_pair, mgz_never, mgz_constant, mgz_pointed, mgz_zero, mgz_behind, mgz_kept, mgz_between, mgz_again, mgz_into,
    mgz_called_end, mgz_called_start, mgz_returned, mgz_by_way, mgz_passed, mgz_middle, mgz_worded, mgz_by_word,
    mgz_near, mgz_distant, mgz_distant_first, mgz_by_stack, mgz_bytes, mgz_bare_before, mgz_bare_behind, mgz_bare_calls,
};
/* Nobody calls them. */
long (*volatile const ends[])(long) = {mgz_die, mgz_leave};

static long again(long n) {
    return n > 0 ? through(n - 1, again) + n : 1;
}

int main(void) {
    long data[64];
    for (long i = 0; i < 64; i++)
        data[i] = i * i;
    for (long i = 0; i < 100; i++) {
        mix((uint64_t)mgz_lookup(i));
        mix((uint64_t)mgz_mixed(data, i % 60 + 1));
        mix((uint64_t)mgz_dispatch(i % 6, i));
        mix((uint64_t)mgz_shared_tail(i, data));
        mix((uint64_t)mgz_shared_other(i, data));
        mix((uint64_t)mgz_words[i % 8]);
        mix((uint64_t)seen(i % 2));
        mix((uint64_t)filler(i));
        mix((uint64_t)through(i % 20, again));
        mix((uint64_t)through(-i, labs));
        for (unsigned k = 0; k < sizeof others / sizeof *others; k++)
            mix((uint64_t)others[k](i));
    }
    report("textdata");
    return 0;
}
