/* As in arrays.c: containers of C++. Without optimisation their operators are functions, which have no loops. */
#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define OUT __attribute__((noinline))
OUT void take(long);

template <class T> struct span { T *first; std::size_t count; T &operator[](std::size_t i) const { return first[i]; } std::size_t size() const { return count; } T *begin() const { return first; } T *end() const { return first + count; } };

struct buffer {
  long n; int *data; long pos;
  OUT long sum(); OUT long rest(); OUT void fill(char *);
};

long buffer::sum() { long s = 0; for (long i = 0; i < n; i++)
    s += data[i]; /*= irregular, strided 4 */
  return s; }

long buffer::rest() { long s = 0; while (pos < n)
    s += data[pos++]; /*= irregular, strided 4 */
  return s; }

void buffer::fill(char *out) { for (long i = 0; i < n; i++)
    *out++ = data[i]; /*= irregular, strided 4 */
}

OUT long by_reference(std::vector<long> &v) { long s = 0; for (std::size_t i = 0; i < v.size(); i++)
    s += v[i]; /*=2 irregular, strided 8 */
  return s; }

OUT void to_bytes(std::vector<long> &v, char *out) { for (std::size_t i = 0; i < v.size(); i++)
    out[i] = v[i]; /*=2 irregular, strided 8 */
}

OUT void to_vector(std::vector<int> &v, std::vector<char> &out) { for (std::size_t i = 0; i < v.size(); i++)
    out[i] = v[i]; /*=2 irregular, strided 4 */
}

OUT void handed_on(std::vector<long> &v) { for (std::size_t i = 0; i < v.size(); i++)
    take(v[i]); /*=2 irregular, strided 8 */
}

OUT void counted_down(std::vector<long> &v) { for (std::size_t i = v.size(); i-- > 0;)
    take(v[i]); /*=2 irregular, strided -8 */
}

OUT void pairs(std::vector<std::pair<long, long>> &v) { for (std::size_t i = 0; i < v.size(); i++)
    take(v[i].second); /*=2 irregular, strided 16 */
}

OUT void range(std::vector<int> &v) {
    for (int x : v) take(x); /*=2 strided 4 (irregular) */
}

struct scan { std::vector<long>::iterator at, end; };

OUT void by_iterator(scan *p) { for (; p->at != p->end; ++p->at)
    take(*p->at); /*=2 irregular, strided 8 */
}

OUT long iterator_and_store(std::vector<std::pair<long, long>>::iterator *it, std::vector<std::pair<long, long>>::iterator end, char *out) { long s = 0; for (; *it != end; ++*it)
    *out++ = (*it)->second; /*=2 irregular, strided 16 */
  return s; }

OUT void raw_iterator(long **it, long *end) { while (*it != end)
    take(*(*it)++); /*= irregular, strided 8 */
}

OUT long spanned(span<long> a) { long s = 0; for (std::size_t i = 0; i < a.size(); i++)
    s += a[i]; /*=2 strided 8 */
  return s; }

OUT void span_by_reference(span<int> &a) { for (std::size_t i = 0; i < a.size(); i++)
    take(a[i]); /*=2 irregular, strided 4 */
}

OUT void array_by_reference(std::array<long, 100> &a) { for (std::size_t i = 0; i < a.size(); i++)
    take(a[i]); /*=2 strided 8 */
}

OUT void lower(std::string &t) { for (std::size_t i = 0; i < t.size(); i++)
    t[i] = t[i] * 3; /*=2 irregular, strided 1 */
}

OUT void rows(std::vector<std::vector<int>> &v) { for (std::size_t i = 0; i < v.size(); i++) for (std::size_t j = 0; j < v[i].size(); j++)
    take(v[i][j]); /*=2 irregular, strided 24, strided 4 */
}

OUT long listed(std::list<long> &l) { long s = 0; for (auto i = l.begin(); i != l.end(); ++i)
    s += *i; /*= irregular */
  return s; }

OUT long hashed(std::unordered_map<long, long> &m) { long s = 0; for (auto &p : m)
    s += p.second; /*= irregular */
  return s; }

OUT long looked_up(std::unordered_map<long, long> &m, long *keys, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += m.find(keys[i])->second; /*= irregular */
  return s; }

OUT long sorted(std::map<long, long> &m) { long s = 0; for (auto &p : m)
    s += p.second; /*= irregular */
  return s; }

OUT void queued(std::deque<long> &d) { for (auto i = d.begin(); i != d.end(); ++i)
    take(*i); /*= irregular */
}

void take(long x) { __asm__ volatile("" : : "g"(x) : "memory", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11"); }
int main() { return 0; }
