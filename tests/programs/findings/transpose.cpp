#include <cstdio>
#include <cstdlib>
#include <vector>
__attribute__((noipa)) void tr_naive(double *b, const double *a, int n) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      b[(size_t)i * n + j] = a[(size_t)j * n + i]; // planted: transpose_cpp
}
__attribute__((noipa)) void tr_block(double *b, const double *a, int n) {
  const int B = 16;
  for (int ii = 0; ii < n; ii += B)
    for (int jj = 0; jj < n; jj += B)
      for (int i = ii; i < ii + B; i++)
        for (int j = jj; j < jj + B; j++)
          b[(size_t)i * n + j] = a[(size_t)j * n + i];
}
int main(int c, char **v) {
  int rep = c > 1 ? atoi(v[1]) : 3;
  int n = 2048;
  double *a = (double *)malloc(sizeof(double) * n * n),
         *b = (double *)malloc(sizeof(double) * n * n);
  for (int i = 0; i < n * n; i++) {
    a[i] = i;
    b[i] = 0;
  }
  for (int r = 0; r < rep; r++) {
    tr_naive(b, a, n);
    tr_block(a, b, n);
  }
  printf("%g\n", a[5] + b[77]);
}
