/* Every indirect jump of functions whose name begins with "table_" is a jump table with a certain bound; "open_" have none. */
volatile int sink;
#define CASES(x) case 0: sink = 3; break; case 1: sink = x * 7; break; case 2: sink ^= 5; break; case 3: sink = sink * sink; break; \
    case 4: sink -= x; break; case 5: sink = 99 / (x + 1); break; case 6: sink |= 64; break; case 7: sink = ~x; break;

void table_unsigned(unsigned x) { switch (x) { CASES(x) default: sink = -1; } }
void table_signed(int x) { switch (x) { CASES(x) default: sink = -1; } }
void table_long(long x) { switch (x) { CASES(x) default: sink = -1; } }
void table_byte(unsigned char x) { switch (x) { CASES(x) default: sink = -1; } }
void table_from(int x) { switch (x - 40) { CASES(x) default: sink = -1; } }
void table_pointer(unsigned *p) { switch (*p) { CASES(*p) default: sink = -1; } }
void table_loop(unsigned *p, unsigned *e) { for (; p < e; p++) switch (*p) { CASES(*p) default: sink = -1; } }
int table_state(const unsigned char *p) {
  int s = 0, n = 0;
  for (;; p++) {
    switch (*p) { case 'a': n++; break; case 'b': n += 3; s ^= 1; break; case 'c': n <<= 1; break; case 'd': n ^= s; break; case 'e': s = n; break;
      case 'f': n = -n; break; case 'g': n /= 3; break; case 0: return n; default: n--; }
  }
}
void table_holes(int x) { switch (x) { case 10: sink = 1; break; case 12: sink *= 2; break; case 13: sink ^= 3; break; case 17: sink = sink / 3; break;
  case 18: sink--; break; case 20: sink = 2; break; case 22: sink += 77; break; default: break; } }

/* The least case is subtracted in 64 bits. */
#define FROM(x, n) case n: sink = 3; break; case n + 1: sink = (int)x * 7; break; case n + 2: sink ^= 5; break; case n + 3: sink = sink * sink; break; \
    case n + 5: sink -= (int)x; break; case n + 6: sink |= 64; break; case n + 7: sink = ~(int)x; break;
void table_least(unsigned long x) { switch (x) { FROM(x, 40) default: sink = -1; } }
void table_negative(long x) { switch (x) { FROM(x, -3) default: sink = -1; } }
void table_masked(unsigned long x) { switch (x & 15) { FROM(x, 5) default: sink = -1; } }

/* The first opcode is known, and what follows it only through the jump itself. */
static const unsigned char code[] = {1, 1, 1, 20, 8, 1, 3, 3, 9, 1, 1, 2, 8, 6, 7, 10, 5, 0};
long table_interpreter(void) {
  const unsigned char *p = code;
  long stack[32], *sp = stack, guard = 0;
  for (;;) {
    if (++guard > 3000) return -1;
    switch (*p++) {
    case 0: return sp[-1];
    case 1: *sp++ = *p++; break;
    case 2: sp--; sp[-1] += *sp; break;
    case 3: sp--; sp[-1] *= *sp; break;
    case 4: *sp = sp[-1]; sp++; break;
    case 5: sp--; break;
    case 6: sp[-1]--; break;
    case 7: if (sp[-1] > 0) p -= *p; else p++; break;
    case 8: { long t = sp[-1]; sp[-1] = sp[-2]; sp[-2] = t; break; }
    case 9: sp[-1] ^= 0x5a5a; break;
    case 10: *sp = sp[-2]; sp++; break;
    default: return -2;
    }
  }
}

int open_goto(const unsigned char *p, int n) {
  static void *const labels[] = {&&stop, &&inc, &&dec, &&twice};
  unsigned i = 0;
  goto *labels[p[i++] + 0u];
inc: n++; goto *labels[p[i++]];
dec: n -= sink; goto *labels[p[i++]];
twice: n *= 2; goto *labels[p[i++]];
stop: return n;
}

int main(void) { return 0; }
