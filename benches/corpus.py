"""Inputs for other people's programs, the same in every run on every machine."""

import random


def text(size):
    """`size` bytes of lines of words and numbers, which compress about as prose and tables do."""
    r = random.Random(12)
    words = [
        "".join(
            r.choice("etaoinshrdlucmfwypvbgkjqxz"[: r.randint(6, 26)])
            for _ in range(r.randint(2, 10))
        )
        for _ in range(4000)
    ]
    lines, length = [], 0
    while length < size:
        # Few words are frequent, most are rare.
        line = (
            " ".join(words[int(r.paretovariate(0.6)) % len(words)] for _ in range(9))
            + f" {r.randrange(10 ** r.randint(1, 8))}\n"
        )
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()[:size]


def sql_corpus(rows, statements):
    """Statements of many kinds, the same in every run."""
    r = random.Random(4711)
    out = [
        "create table a(id integer primary key, n int, x real, t text, b blob);",
        "create table b(k text, v int, unique(k, v));",
        "create virtual table f using fts5(body);",
        "begin;",
    ]
    words = ["".join(r.choice("abcdefghij") for _ in range(r.randint(2, 9))) for _ in range(400)]
    for i in range(rows):
        out.append(
            f"insert into a values({i},{r.randrange(1000)},{r.random() * 1e3:.6f},'{r.choice(words)} {r.choice(words)}',x'{r.randbytes(6).hex()}');"
        )
        out.append(f"insert or ignore into b values('{r.choice(words)}',{r.randrange(50)});")
        if i % 5 == 0:
            out.append(f"insert into f values('{' '.join(r.choice(words) for _ in range(8))}');")
    out += [
        "commit;",
        "create index an on a(n);",
        "create index at on a(t collate nocase);",
        "analyze;",
    ]
    columns, tests = (
        ["id", "n", "x", "length(t)", "n % 7"],
        [
            "n > {}",
            "x between {} and {}",
            "t like '%{}%'",
            "id in (select v from b where v < {})",
            "n is not {}",
            "abs(x - {}) < 50",
        ],
    )
    for _ in range(statements):
        c, d = r.choice(columns), r.choice(columns)
        test = r.choice(tests)
        where = test.format(
            *(
                r.randrange(1000) if "like" not in test else r.choice(words)[:2]
                for _ in range(test.count("{}"))
            )
        )
        out.append(
            r.choice(
                [
                    f"select {c}, count(*), sum({d}), round(avg(x), 3) from a where {where} group by 1 order by 2 desc, 1 limit 5;",
                    f"select a.id, b.v from a join b on b.v = a.n % 50 where {where} order by 1, 2 limit 7;",
                    f"select id, row_number() over (order by {c}, id), sum(n) over (partition by n % 5 order by id rows 3 preceding) from a where {where} order by 2 limit 6;",
                    f"select group_concat(t, ',') from (select distinct t from a where {where} order by t limit 9);",
                    f"update a set x = x + 1 where {where}; select changes();",
                    f"select count(*), min({c}), max({d}), total(x) from a where {where} or not exists (select 1 from b where k = t);",
                    f"with recursive c(i) as (select 1 union all select i + 1 from c where i < {r.randrange(5, 60)}) select sum(i * i), hex(zeroblob(3)), printf('%05.2f', avg(i)) from c;",
                    f"select count(*) from f where f match '{r.choice(words)} OR {r.choice(words)}';",
                    f"explain query plan select * from a where {where};",
                    f"savepoint s; delete from a where {where}; select count(*) from a; rollback to s; release s;",
                    f"select json_group_array(n) from (select n from a where {where} order by n, id limit 5);",
                    f"select strftime('%Y-%m-%d', {r.randrange(10**9)}, 'unixepoch'), upper(t), substr(t, 2, 3), instr(t, 'a'), quote(b) from a where {where} limit 3;",
                ]
            )
        )
    return "\n".join(
        out + ["pragma integrity_check;", "vacuum;", "select count(*), sum(n) from a;"]
    )
