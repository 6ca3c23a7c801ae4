/* Loads with their expected classes, checked by hand. A comment that starts with "=" lists the classes of all loads of its line that are
   not Constant ("constant": there are none). "strided 4" is a stride of 4 bytes per iteration of the innermost loop in which the
   address varies, "strided ?" one that is not a constant. "=0" holds without optimisation only; classes in
   parentheses may appear with it (a first iteration before the loop). */
struct point { double x, y; int tag; };
struct vec { long n; int *data; };

int G[1000];
static const unsigned char T[256] = {1, 2, 3};
double M[100][100];

long forward(int *a, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += a[i]; /*= strided 4 */
  return s; }

long backward(int *a, long n) { long s = 0; for (long i = n - 1; i >= 0; i--)
    s += a[i]; /*= strided -4 */
  return s; }

long third(int *a, long n) { long s = 0; for (long i = 0; i < n; i += 3)
    s += a[i]; /*= strided 12 */
  return s; }

int bytes(unsigned char *a, long n) { int s = 0; for (long i = 0; i < n; i++)
    s = s * 3 + a[i]; /*= strided 1 */
  return s; }

int shorts(short *a, long n) { int s = 0; for (long i = 0; i < n; i++)
    s = s * 3 + a[i]; /*= strided 2 */
  return s; }

double doubles(double *a, long n) { double s = 0; for (long i = 0; i < n; i++)
    s += a[i]; /*= strided 8 */
  return s; }

double fields(struct point *p, long n) { double s = 0; for (long i = 0; i < n; i++)
    s += p[i].y; /*= strided 24 */
  return s; }

long int_index(int *a, int n) { long s = 0; for (int i = 0; i < n; i++)
    s += a[i]; /*= strided 4 */
  return s; }

long unsigned_index(long *a, unsigned n) { long s = 0; for (unsigned i = 0; i < n; i++)
    s += a[i]; /*= strided 8 */
  return s; }

long odd(int *a, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += a[2 * i + 1]; /*= strided 8 */
  return s; }

long mirrored(int *a, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += a[n - 1 - i]; /*= strided -4 */
  return s; }

long two(int *a, long *b, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += a[i] * b[i]; /*= strided 4, strided 8 */
  return s; }

long by_four(long *a, long n) { long s = 0; for (long i = 0; i + 3 < n; i += 4)
    s += a[i] + a[i + 1] + a[i + 2] + a[i + 3]; /*= strided 32 */
  return s; }

void stencil(double *a, double *b, long n) { for (long i = 1; i < n - 1; i++)
    b[i] = a[i - 1] + a[i] + a[i + 1]; /*= strided 8 */
}

void prefix(int *a, long n) { for (long i = 1; i < n; i++)
    a[i] ^= a[i - 1]; /*= strided 4 (irregular) */
}

double rows(void) { double s = 0; for (int i = 0; i < 100; i++) for (int j = 0; j < 100; j++)
    s += M[i][j]; /*= strided 8 */
  return s; }

double columns(double (*m)[100], int c) { double s = 0; for (int i = 0; i < 100; i++)
    s += m[i][c]; /*= strided 800 */
  return s; }

long flat_rows(int *a, long n, long m) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < m; j++)
    s += a[i * m + j]; /*= strided 4 */
  return s; }

long flat_column(int *a, long n, long m, long j) { long s = 0; for (long i = 0; i < n; i++)
    s += a[i * m + j]; /*= strided ? */
  return s; }

void matmul(double *a, double *b, double *c, long n) {
  for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) { double s = 0; for (long k = 0; k < n; k++)
    s += a[i * n + k] * b[k * n + j]; /*= strided 8, strided ? */
    c[i * n + j] = s; } }

long outer_inner(long *a, int *b, long n) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) {
    s += b[j]; /*= strided 4 */
    s ^= a[i]; /*=0 strided 8 */
  } return s; }

long triangle(int *a, long n) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j <= i; j++)
    s = (s ^ a[j]) * 5; /*= strided 4 */
  return s; }

double complex_pairs(double *a, long n) { double s = 0; for (long i = 0; i < n; i++)
    s += a[2 * i] * a[2 * i + 1]; /*= strided 16 */
  return s; }

long global_array(long n) { long s = 0; for (long i = 0; i < n; i++)
    s += G[i]; /*= strided 4 */
  return s; }

long table(unsigned char *c, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += T[c[i]]; /*= strided 1, irregular */
  return s; }

long indirect(int *a, int *idx, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += a[idx[i]]; /*= strided 4, irregular */
  return s; }

long hashed(long *t, unsigned *key, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += t[key[i] * 2654435761u >> 20]; /*= strided 4, irregular */
  return s; }

long with_continue(int *a, long n) { long s = 0; for (long i = 0; i < n; i++) {
    if (a[i] < 0) continue; /*= strided 4 */
    s += i; } return s; }

long conditional(int *a, short *b, long n) { long s = 0, k = 0; for (long i = 0; i < n; i++)
    if (a[i] > 3) { /*= strided 4 */
      s += b[k]; /*= irregular */
      k++; }
  return s; }

long doubling(int *a, long n) { long s = 0; for (long i = 1; i < n; i *= 2)
    s += a[i]; /*= irregular */
  return s; }

long bits(unsigned char *b, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += b[i >> 3] >> (i & 7) & 1; /*= irregular */
  return s; }

long random_walk(int *a, unsigned n) { long s = 0; unsigned x = 1; for (unsigned i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    s += a[x & 1023]; /*= irregular */
  } return s; }

long field_base(struct vec *v) { long s = 0; for (long i = 0; i < v->n; i++)
    s += v->data[i]; /*=0 strided 4, irregular */
  return s; }

long rows_of_pointers(int **p, long n, long m) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < m; j++)
    s += p[i][j]; /*= strided 8, strided 4 */
  return s; }

int main(void) { return 0; }
