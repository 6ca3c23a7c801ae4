//! Work for the system's programs, generated deterministically: text and binary data to compress,
//! SQL, scripts, and a large C file.

use std::fmt::Write as _;

/// A small generator (xorshift), so that inputs are the same everywhere.
pub struct XorShift(u64);

impl XorShift {
    /// Starts a sequence.
    pub fn new(seed: u64) -> XorShift {
        XorShift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.word() >> 11) % n
    }
}

/// Text with a Zipf-like vocabulary, mixed with runs, numbers and noise, about `bytes` long.
pub fn mixed_data(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = XorShift::new(seed);
    let words: Vec<String> = (0..3000)
        .map(|_| {
            (0..2 + random.below(9))
                .map(|_| (b'a' + random.below(26) as u8) as char)
                .collect()
        })
        .collect();
    let mut out = Vec::with_capacity(bytes + 4096);
    while out.len() < bytes {
        match random.below(40) {
            0 => out.extend((0..random.below(2000)).map(|_| random.word() as u8)),
            1 => {
                let byte = random.word() as u8;
                out.extend(std::iter::repeat_n(byte, random.below(3000) as usize));
            }
            2 => {
                for i in 0..random.below(60) {
                    out.extend_from_slice(
                        format!(
                            "{},{},{:.3}\n",
                            i,
                            random.below(100_000),
                            random.below(1000) as f64 / 7.0
                        )
                        .as_bytes(),
                    );
                }
            }
            3 if out.len() > 100_000 => {
                let from = random.below(out.len() as u64 - 5000) as usize;
                out.extend_from_within(from..from + random.below(5000) as usize);
            }
            _ => {
                for _ in 0..random.below(80) {
                    // The product favors the first words.
                    let pick = random.below(3000) * random.below(3000) / 3000;
                    out.extend_from_slice(words[pick as usize].as_bytes());
                    out.push(if random.below(12) == 0 { b'\n' } else { b' ' });
                }
            }
        }
    }
    out.truncate(bytes);
    out
}

/// SQL that creates, fills, indexes and queries tables of about `rows` rows.
pub fn sql(rows: u64) -> String {
    let mut random = XorShift::new(77);
    let mut out = String::from(
        "create table person(id integer primary key, name text, city text, age int, score real);\ncreate table visit(person int, place text, day int);\nbegin;\n",
    );
    for i in 0..rows {
        let _ = writeln!(
            out,
            "insert into person values({i},'name{}','city{}',{},{});",
            random.below(rows),
            random.below(50),
            random.below(90),
            random.below(10_000) as f64 / 16.0
        );
        for _ in 0..random.below(4) {
            let _ = writeln!(
                out,
                "insert into visit values({},'place{}',{});",
                random.below(rows),
                random.below(200),
                random.below(365)
            );
        }
    }
    out.push_str(
        "commit;\ncreate index by_city on person(city, age);\ncreate index by_person on visit(person);\n\
         select city, count(*), avg(score), max(age) from person group by city order by 2 desc, 1 limit 20;\n\
         select p.city, v.place, count(*) c from person p join visit v on v.person = p.id where p.age between 20 and 50 group by 1, 2 order by c desc, 1, 2 limit 30;\n\
         select count(*) from person where name like '%7%' and score > (select avg(score) from person);\n\
         with recursive f(n, a, b) as (select 1, 0, 1 union all select n + 1, b, a + b from f where n < 60) select n, a from f where n % 10 = 0;\n\
         update person set score = score * 1.5 where id % 3 = 0;\ndelete from visit where day % 7 = 1;\n\
         select sum(score), group_concat(distinct age % 5) from person;\n\
         select name, row_number() over (partition by city order by score desc, id) r from person order by r desc, name limit 10;\n\
         select hex(name), json_extract('{\"a\":[1,2,{\"b\":3}]}', '$.a[2].b'), printf('%08.3f', score) from person where id in (3, 5, 8);\n\
         create trigger t after delete on person begin insert into visit values(old.id, 'gone', 0); end;\n\
         delete from person where age = 33;\nselect count(*), min(day), max(place) from visit;\n\
         select * from no_such_table;\npragma integrity_check;\n",
    );
    out
}

/// A Perl script: regular expressions, hashes, sorting, closures, exceptions, big integers, formats.
pub const PERL: &str = r#"
use strict; use warnings; use Math::BigInt;
my $n = shift || 1; my (%count, @lines); my $x = 12345;
sub rnd { $x = ($x * 1103515245 + 12345) & 0x7fffffff; return $x >> 8 }
for my $i (1 .. 400 * $n) { push @lines, join ' ', map { 'w' . rnd() % 200 } 1 .. 8 }
for (@lines) { while (/\b(w(\d)\d*)\b/g) { $count{$1} += $2 + 1 } s/w1(\d+)/<$1>/g; tr/0-4/a-e/ }
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
printf "%-6s %5d\n", $_, $count{$_} for @top[0 .. 9];
my $digest = 0; $digest = ($digest * 31 + ord) % 1000003 for map { split // } @lines; print "$digest\n";
my $caught = 0;
for my $i (1 .. 200 * $n) { eval { die { code => $i } if $i % 3 == 0; die "odd $i\n" if $i % 5 == 0; 1 } or do { $caught += ref $@ ? $@->{code} : length $@ } }
print "caught $caught\n";
my $f = Math::BigInt->new(1); $f->bmul($_) for 1 .. 60; print "$f\n";
print Math::BigInt->new(3)->bpow(200)->bmod(Math::BigInt->new('1000000007')), "\n";
my @subs = map { my $k = $_; sub { $_[0] * $k + 1 } } 1 .. 20; my $v = 1; $v = $_->($v) % 99991 for (@subs) x (10 * $n); print "$v\n";
my $t = ''; $t .= sprintf '%03o|', $_ for unpack 'C*', pack 'Nnw/a*', 305419896, 4660, 'packed'; print "$t\n";
print join(',', map { sprintf '%.4f', sqrt($_) * sin($_) } 1 .. 8), "\n";
local $SIG{__WARN__} = sub { print 'warning: ', $_[0] }; { no strict; no warnings; my $u; use warnings; my $z = 'a' . ($u // ''); warn "checked\n" }
print "sorted: @{[ (sort { length $a <=> length $b or $a cmp $b } @lines)[0] ]}\n";
exit 7;
"#;

/// A Python script: classes, exceptions, generators, regular expressions, big integers, decimals,
/// sorting, json.
pub const PYTHON: &str = r#"
import sys, re, json, zlib, hashlib, heapq, itertools, collections, decimal, struct, random
n = int(sys.argv[1]) if len(sys.argv) > 1 else 1
sys.set_int_max_str_digits(0)
class Error(Exception):
    def __init__(self, code): super().__init__(code); self.code = code
def risky(i):
    try:
        if i % 7 == 3: raise Error(i)
        if i % 11 == 5: return [][i]
        return 10 // (i % 5)
    finally:
        log.append(i)
log, total = [], 0
for i in range(3000 * n):
    try: total += risky(i)
    except Error as e: total += e.code
    except (IndexError, ZeroDivisionError) as e: total -= len(str(e))
print(total, len(log))
def nested(d):
    if d == 0: raise KeyError('deep')
    try: return nested(d - 1)
    except (KeyError, ValueError) as e: raise ValueError(d) from e
try: nested(30)
except ValueError as e:
    depth, x = 0, e
    while x: x, depth = x.__cause__, depth + 1
    print('chain', depth)
r = random.Random(5)
words = [''.join(r.choice('abcdefgh') for _ in range(r.randint(2, 7))) for _ in range(2000 * n)]
text = ' '.join(words)
print(len(re.findall(r'\b(a\w*?[c-e]+)\b', text)), len(re.sub(r'(?P<x>[ab]+)(?=c)', lambda m: m['x'].upper(), text)))
c = collections.Counter(words); print(sorted(c.items(), key=lambda p: (-p[1], p[0]))[:5])
f = 1
for i in range(1, 400 * n): f *= i
print(len(str(f)), f % 1000000007, pow(3, 10**6, 10**9 + 7), hashlib.sha256(str(f).encode()).hexdigest()[:16])
a, b = 0, 1
for _ in range(3000 * n): a, b = b, a + b
print(hash(a) & 0xffffffff, (a * b // (a - 1)).bit_length())
decimal.getcontext().prec = 60; print(decimal.Decimal(2).sqrt() / decimal.Decimal(7))
def primes():
    seen = {}
    for q in itertools.count(2):
        p = seen.pop(q, None)
        if p is None: seen[q * q] = q; yield q
        else:
            x = q + p
            while x in seen: x += p
            seen[x] = p
print(sum(itertools.islice(primes(), 800 * n)))
data = json.loads(json.dumps({w: [i, i / 3, None, True, {'k': w[::-1]}] for i, w in enumerate(words[:500])}))
print(zlib.crc32(json.dumps(data, sort_keys=True).encode()))
heap = []
for w in words: heapq.heappush(heap, (len(w), w))
print([heapq.heappop(heap)[1] for _ in range(5)])
print(struct.unpack('<IhQd', struct.pack('<IhQd', 7, -3, 1 << 60, 2.5)), sum(1 for p in itertools.permutations(range(6)) if p[0] < p[5]))
m = [[(i * j) % 7 for j in range(30)] for i in range(30)]
print(sum(sum(x * y for x, y in zip(row, col)) for row in m for col in zip(*m)))
class Meta(type):
    def __new__(c, name, bases, d): d['tag'] = name.lower(); return super().__new__(c, name, bases, d)
class P(metaclass=Meta):
    __slots__ = ('v',)
    def __init__(s, v): s.v = v
    def __lt__(s, o): return s.v < o.v
    def __getattr__(s, k): return k
print(P.tag, min(P(i * 37 % 101) for i in range(100)).v, P(1).missing)
async def co(i): return i * 2
import asyncio
async def main(): return sum(await asyncio.gather(*(co(i) for i in range(50))))
print(asyncio.run(main()))
sys.exit(9)
"#;

/// An awk script over comma-separated lines.
pub const AWK: &str = r#"
BEGIN { FS = "[ ,]+" }
{ n += NF; for (i = 1; i <= NF; i++) { w[$i]++; if ($i ~ /^[0-9.]+$/) sum += $i; else if (match($i, /[aeiou][^aeiou]+/)) len += RLENGTH } }
length($0) > longest { longest = length($0) }
{ line = toupper(substr($0, 1, 20)); gsub(/[AEIOU]/, "_", line); h = (h * 31 + length(line) + index(line, "_")) % 1000003 }
function fact(k) { return k < 2 ? 1 : k * fact(k - 1) }
END { for (k in w) if (w[k] > best || (w[k] == best && k < name)) { best = w[k]; name = k }
      printf "%d %d %.3f %d %d %s %d %d %g\n", NR, n, sum, len, longest, name, best, h, fact(15); exit 5 }
"#;

/// A C file with `functions` functions of many kinds; it needs no header.
pub fn c_source(functions: u32) -> String {
    let mut random = XorShift::new(4242);
    let mut out = String::from(
        "typedef unsigned long size_t;\nextern int printf(const char *, ...);\nextern void *malloc(size_t);\n\
         struct node { struct node *next; int key; double weight; char name[24]; };\nstatic int counter;\n",
    );
    for i in 0..functions {
        let (a, b, c) = (
            random.below(100),
            1 + random.below(50),
            2 + random.below(14),
        );
        let _ = match i % 6 {
            0 => writeln!(
                out,
                "int f{i}(int *p, int n) {{ int s = {a}; for (int i = 0; i < n; i++) {{ if (p[i] % {b} == {c}) s += p[i] * {c}; else s ^= p[(i * {b}) % n]; }} return s; }}"
            ),
            1 => writeln!(
                out,
                "double f{i}(const double *x, const double *y, long n) {{ double s = {a}.5; for (long i = 0; i < n; i += {c}) s += x[i] * y[n - 1 - i] / {b}; return s; }}"
            ),
            2 => {
                let _ = write!(out, "int f{i}(int x, struct node *n) {{ switch (x) {{ ");
                for k in 0..c + 4 {
                    let _ = write!(
                        out,
                        "case {}: counter += {}; return n->key * {}; ",
                        k * (1 + a % 3),
                        a + k,
                        b + k
                    );
                }
                writeln!(out, "default: return (int)n->weight; }} }}")
            }
            3 => writeln!(
                out,
                "struct node *f{i}(struct node *list, int key) {{ struct node **at = &list; while (*at && (*at)->key < key + {a}) at = &(*at)->next; struct node *n = malloc(sizeof *n); n->key = key; n->weight = {b}; n->next = *at; *at = n; for (int i = 0; i < {c}; i++) n->name[i] = (char)('a' + (key + i) % 26); return list; }}"
            ),
            4 => writeln!(
                out,
                "unsigned long f{i}(unsigned long x) {{ x ^= x << {c}; x ^= x >> {}; x *= {}ul; return x % {b} ? f{i}(x / {}) + 1 : x; }}",
                1 + a % 30,
                a * 2 + 1,
                b + 2
            ),
            _ => writeln!(
                out,
                "int f{i}(char *s, int n) {{ int depth = {a} % 3; while (n-- > 0) {{ if (*s == '(') depth++; else if (*s == ')' && depth) depth--; else if (*s >= '0' && *s <= '9') counter = counter * 10 + (*s - '0'); else *s = (char)(*s ^ {b}); s++; }} return depth * {c}; }}"
            ),
        };
    }
    let _ = writeln!(
        out,
        "int main(void) {{ int data[64]; for (int i = 0; i < 64; i++) data[i] = i * 7; int s = 0;"
    );
    for i in (0..functions).step_by(6) {
        let _ = writeln!(out, "s += f{i}(data, 64);");
    }
    out.push_str("printf(\"%d %d\\n\", s, counter); return 0; }\n");
    out
}
