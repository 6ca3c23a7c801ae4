// (a) AoS vs SoA sum: 64-byte struct, only one double used
#include <cstdio>
#include <cstdlib>
#include <vector>
struct P {
  double x, y, z, vx, vy, vz, m, q;
};
__attribute__((noipa)) double sum_aos(const std::vector<P> &v) {
  double s = 0;
  for (auto &p : v)
    s += p.x; // planted: aos_cpp
  return s;
}
__attribute__((noipa)) double sum_soa(const std::vector<double> &v) {
  double s = 0;
  for (auto p : v)
    s += p;
  return s;
}
int main(int c, char **a) {
  int rep = c > 1 ? atoi(a[1]) : 50;
  size_t n = 1000000;
  std::vector<P> ps(n); // the array of structures
  std::vector<double> xs(n);
  for (size_t i = 0; i < n; i++) {
    ps[i].x = i;
    xs[i] = i;
  }
  double t = 0;
  for (int r = 0; r < rep; r++) {
    t += sum_aos(ps);
    t += sum_soa(xs);
  }
  printf("%g\n", t);
}
