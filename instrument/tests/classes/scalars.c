/* As in arrays.c: scalars, pointers, frames. */
struct node { struct node *next; long value; };
struct tree { struct tree *left, *right; long key; };

int g;
static long h;
extern int shared_scalar;
int shared_scalar;
__thread int t;
int G[10];
int take(int *, int);

int global(void) {
    return g + 1; /*= constant */
}

long statics(long n) { for (long i = 0; i < n; i++)
    h += i; /*= constant */
  return h; }

int element(void) {
    return G[3]; /*= constant */
}

int threaded(void) {
    return t; /*= constant */
}

int other(void) {
    return shared_scalar; /*= constant */
}

long stacked(long a, long b, long c, long d, long e, long f, long stack1, long stack2) {
    return a + b + c + d + e + f + stack1 + stack2; /*= constant */
}

long deref(long *p) {
    return *p; /*= irregular */
}

long member(struct node *p) {
    return p->value; /*= irregular */
}

long invariant(long *p, long n) { long s = 0; for (long i = 0; i < n; i++) {
    s += *p; /*=0 irregular */
    s ^= i;
  } return s; }

long list(struct node *p) { long s = 0; while (p) {
    s += p->value; /*= irregular */
    p = p->next; /*= irregular */
  } return s; }

long walk(struct tree *p) {
    if (!p) return 0;
    long l = walk(p->left); /*= irregular */
    return l + p->key; /*= irregular */
}

struct tree *lookup(struct tree *p, long key) { while (p) {
    if (key == p->key) break; /*= irregular */
    p = key < p->key ? p->left : p->right; /*= irregular */
  } return p; }

long bisect(long *a, long lo, long hi, long x) { while (lo < hi) { long mid = (lo + hi) / 2;
    if (a[mid] < x) lo = mid + 1; else hi = mid; /*= irregular */
  } return lo; }

long bump(int *p, int *e) { long s = 0; while (p < e)
    s += *p++; /*= strided 4 */
  return s; }

long bump_down(int *p, int *e) { long s = 0; while (e > p)
    s += *--e; /*= strided -4 */
  return s; }

unsigned char *find(unsigned char *p, int c) {
    while (*p != c) p++; /*= strided 1 (irregular) */
    return p; }

int frame_array(int n) { volatile int buf[64]; int s = 0; for (int i = 0; i < n; i++) buf[i] = i;
    for (int i = 0; i < n; i++)
    s += buf[i]; /*= strided 4 */
  return s; }

int frame_scalar(int n) { volatile int x = n;
    return x + x; /*= constant */
}

int frame_struct(int n) { volatile struct { int a, b; } q = {n, 1};
    return q.a - q.b; /*= constant */
}

int call_between(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) {
    s += a[i]; /*= strided 4 */
    s = take(a, s);
  } return s; }

long global_index(long *a) { long s = 0; for (g = 0; g < 100; g++)
    s += a[g]; /*= strided 8 */
  return s; }

long wide_steps(long *a, long n, long step) { long s = 0; for (long i = 0; i < n; i += step)
    s += a[i]; /*= strided ? */
  return s; }

long lagging(int *a, long n) { long s = 0; long before = 0; for (long i = 1; i < n; i++) {
    s += a[before] * 3; /*=0 strided 4 */
    before = i;
  } return s; }

int main(void) { return 0; }
int __attribute__((noinline)) take(int *p, int x) { __asm__ volatile("" : : "r"(p) : "memory", "rdx"); return x; }
