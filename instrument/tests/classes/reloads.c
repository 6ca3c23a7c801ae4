/* As in arrays.c: bases, limits and positions that are loaded again in each iteration. */
struct vec { long n; int *data; long pos; };
struct cursor { long pad[3]; long *cur, *end, *start; };
struct pair { long key, value; };
struct pairs { struct pair *cur, *end; };
struct outer { long tag; struct cursor *it; };
struct node { struct node *next; int *data; long value; };

int *shared;
struct cursor *shared_cursor;
long shared_n;
long at;
long take(long);
void refill(struct cursor *);
long next(void);

long bump_through(int **it, int *end) { long s = 0; while (*it < end)
    s += *(*it)++; /*= irregular, strided 4 */
  return s; }

long bump_back(int **it, int *begin) { long s = 0; while (*it > begin)
    s += *--(*it); /*= irregular, strided -4 */
  return s; }

long member_cursor(struct cursor *r) { long s = 0; while (r->cur != r->end) {
    s += *r->cur; /*= irregular, strided 8 */
    r->cur++;
  } return s; }

long pair_cursor(struct pairs *r) { long s = 0; while (r->cur != r->end) {
    struct pair *p = r->cur;
    r->cur = p + 1;
    s += p->value; /*= strided 16 */
  } return s; }

void copy(char *out, struct vec *v) { for (long i = 0; i < v->n; i++)
    out[i] = v->data[i]; /*= irregular, strided 4 */
}

long member_index(struct vec *v) { long s = 0; for (v->pos = 0; v->pos < v->n; v->pos++)
    s += v->data[v->pos]; /*= irregular, strided 4 */
  return s; }

long shared_base(void) { long s = 0; for (long i = 0; i < shared_n; i++) {
    s += shared[i]; /*= strided 4 */
    s = take(s);
  } return s; }

long called_between(struct vec *v) { long s = 0; for (long i = 0; i < v->n; i++) {
    s += v->data[i]; /*= irregular, strided 4 */
    s = take(s);
  } return s; }

long called_with_cursor(struct cursor *r) { long s = 0; while (r->cur != r->end) {
    s += *r->cur; /*= irregular */
    r->cur++;
    refill(r);
  } return s; }

long called_beside_cursor(struct cursor *r) { long s = 0; while (r->cur != r->end) {
    s += take(*r->cur); /*= irregular, strided 8 */
    r->cur++;
  } return s; }

long now_and_then(int **it, int *a, long n) { long s = 0; for (long i = 0; i < n; i++)
    if (a[i] > 3) /*= strided 4 */
      s += *(*it)++; /*= irregular */
  return s; }

long nested(struct outer *o) { long s = 0; while (o->it->cur != o->it->end)
    s += *o->it->cur++; /*= irregular, strided 8 */
  return s; }

long two_cursors(int **a, long **b, long n) { long s = 0; for (long i = 0; i < n; i++)
    s += *(*a)++ * *(*b)++; /*= irregular, strided 4, strided 8 */
  return s; }

long index_through(int *a, long *i, long n) { long s = 0; for (; *i < n; (*i)++)
    s += a[*i]; /*= irregular, strided 4 */
  return s; }

long step_through(int *a, long n, long *step) { long s = 0; for (long i = 0; i < n; i += *step)
    s += a[i]; /*= strided ? (strided 4) */
  return s; }

long each_cursor(struct cursor **all, long n) { long s = 0; for (long k = 0; k < n; k++) { struct cursor *r = all[k]; while (r->cur != r->end)
    s += *r->cur++; /*= irregular, strided 8 */
  } return s; }

long one_of_each(struct cursor **all, long n) { long s = 0; for (long k = 0; k < n; k++)
    s += *all[k]->cur++; /*= strided 8, irregular */
  return s; }

long twice(int **it, int *end) { long s = 0; while (*it < end) {
    s += *(*it)++; /*= irregular, strided 8 */
    s ^= *(*it)++; /*= irregular, strided 8 */
  } return s; }

long told(long *a) { long s = 0; while (next())
    s += a[at]; /*= irregular */
  return s; }

long own_pointer(int *a, long n) { long s = 0; int *p = a, **pp = &p; for (long i = 0; i < n; i++)
    s += *(*pp)++; /*=0 strided 4 */
  return s; }

long ring(struct cursor *r, long n) { long s = 0; for (long i = 0; i < n; i++) {
    s += *r->cur; /*=0 irregular */
    if (++r->cur == r->end) r->cur = r->start;
  } return s; }

long same_member(struct node *o) { long s = 0, i = 0; for (struct node *p = o->next; p; p = p->next) {
    s += o->data[i++]; /*= irregular */
    p->data = 0;
  } return s; }

long unrelated(struct node *p, struct node *o) { long s = 0, i = 0; for (; p; p = p->next) {
    s += o->data[i++]; /*= irregular, strided 4 */
    p->data = 0;
  } return s; }

long other_member(struct node *o) { long s = 0, i = 0; for (struct node *p = o->next; p; p = p->next) {
    s += o->data[i++]; /*= irregular, strided 4 */
    p->value = 0;
  } return s; }

void histogram(long *counts, unsigned char **it, unsigned char *end) { while (*it != end)
    counts[*(*it)++]++; /*= irregular, strided 1 */
}

int not_fixed(int *a) { int x = 1; int *p = &x, **pp = &p; *pp = a;
    return *p; /*=0 irregular */
}

int not_fixed_in_static(int *a, int ***where) { int x = 1; shared = &x; **where = a;
    return *shared; /*=0 irregular */
}

int main(void) { return 0; }
/* What callers may not rely on. */
#define CLOBBER(p) __asm__ volatile("" : : "g"(p) : "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
long __attribute__((noinline)) take(long x) { CLOBBER(0); return x; }
void __attribute__((noinline)) refill(struct cursor *r) { shared_cursor = r; CLOBBER(0); }
long __attribute__((noinline)) next(void) { CLOBBER(0); return at; }

struct edge { long tail, weight; };
struct graph { long n; struct edge *edges; };
struct edge *shared_edges;

long kept_between_calls(struct graph *g, long n) { long s = 0; for (long j = 0; j < n; j++) {
    struct edge *e = g->edges + j;
    if (e->tail > s) /*= strided 16 (irregular) */
      s = take(s);
  } return s; }

/* Clang loads the base again behind the call only. */
long kept_static(long n) { long s = 0; for (long j = 0; j < n; j++) {
    struct edge *e = shared_edges + j;
    if (e->tail > s) /*= strided 16 */
      s = take(s);
  } return s; }
