#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <random>
#include <vector>
struct Node {
  Node *next;
  long v;
  long pad[2];
};
__attribute__((noipa)) long walk_list(Node *h) {
  long s = 0;
  for (; h; h = h->next) // planted: list_cpp
    s += h->v; // planted: list_cpp
  return s;
}
__attribute__((noipa)) long walk_vec(const std::vector<long> &v) {
  long s = 0;
  for (long x : v)
    s += x;
  return s;
}
__attribute__((noipa)) Node *build(size_t n) {
  std::vector<Node *> o;
  for (size_t i = 0; i < n; i++) {
    o.push_back(new Node{nullptr, (long)i, {0, 0}});
  }
  std::mt19937 g(1);
  std::shuffle(o.begin(), o.end(), g);
  for (size_t i = 0; i + 1 < n; i++)
    o[i]->next = o[i + 1];
  return o[0];
}
int main(int c, char **a) {
  int rep = c > 1 ? atoi(a[1]) : 10;
  size_t n = 1000000;
  Node *h = build(n);
  std::vector<long> v(n, 1);
  long s = 0;
  for (int r = 0; r < rep; r++) {
    s += walk_list(h);
    s += walk_vec(v);
  }
  printf("%ld\n", s);
}
