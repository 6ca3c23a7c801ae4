#!/usr/bin/env python3
"""Compares ten queries of `mgz query` with DuckDB on the same files: benches/query_check.py TRACE [--bin DIR]

TRACE is a trace folder. The tables of the analysis are written as Parquet by mgz-analyze and read by DuckDB (PyPI: duckdb), the rows are read from
samples/. Prints a line for each query; exit status 1 if one differs.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import duckdb

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# If the dialects differ, the second query is DuckDB's.
QUERIES = [
    ("SELECT count(*) AS n, sum(implied_const) AS c FROM rows", None),
    (
        "SELECT class, count(*) AS n, count(DISTINCT address / 64) AS f FROM rows GROUP BY class ORDER BY class",
        "SELECT class, count(*) AS n, count(DISTINCT address // 64) AS f FROM rows GROUP BY class ORDER BY class",
    ),
    (
        "SELECT size, count(*) AS n FROM rows WHERE store = 0 GROUP BY size ORDER BY n DESC, size",
        "SELECT size, count(*) AS n FROM rows WHERE NOT store GROUP BY size ORDER BY n DESC, size",
    ),
    (
        "SELECT thread, sample, min(seq) AS a, max(seq) AS b, count(*) AS n FROM rows GROUP BY process, thread, sample ORDER BY sample, thread LIMIT 50",
        None,
    ),
    (
        "SELECT ip, count(*) AS n, min(address) AS a, max(address) AS b FROM rows GROUP BY ip ORDER BY n DESC, ip LIMIT 20",
        None,
    ),
    (
        "SELECT address / 4096 AS page, count(*) AS n FROM rows GROUP BY page ORDER BY n DESC, page LIMIT 20",
        "SELECT address // 4096 AS page, count(*) AS n FROM rows GROUP BY page ORDER BY n DESC, page LIMIT 20",
    ),
    (
        "SELECT step, count(*) AS n FROM (SELECT address - lag(address) OVER (PARTITION BY process, thread, sample, site ORDER BY seq) AS step FROM rows) WHERE step IS NOT NULL GROUP BY step ORDER BY n DESC, step LIMIT 20",
        "SELECT step, count(*) AS n FROM (SELECT address::BIGINT - lag(address::BIGINT) OVER (PARTITION BY process, thread, sample, site ORDER BY seq) AS step FROM rows) WHERE step IS NOT NULL GROUP BY step ORDER BY n DESC, step LIMIT 20",
    ),
    ("SELECT function, A, F, dF FROM functions ORDER BY A DESC, function LIMIT 20", None),
    (
        "SELECT file, sum(A) AS a, sum(reuses) AS r, max(D_max) AS d FROM lines GROUP BY file ORDER BY a DESC, file",
        None,
    ),
    (
        "SELECT f.function, count(*) AS lines, sum(l.A) AS a FROM functions f JOIN lines l ON l.function = f.function AND l.module = f.module GROUP BY f.function ORDER BY a DESC, f.function",
        None,
    ),
]


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return a == b


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("--bin", default=os.path.join(ROOT, "target/release"))
    options = parser.parse_args()
    analyze = os.path.join(options.bin, "mgz-analyze")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [
            analyze,
            options.trace,
            "--objects",
            "--all",
            "--format",
            "parquet",
            "-o",
            folder,
        ]
        subprocess.run(command, check=True, capture_output=True)
        database = duckdb.connect()
        samples = os.path.join(options.trace, "samples", "*.parquet")
        database.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{samples}')")
        for table in ("functions", "lines", "loops"):
            path = os.path.join(folder, table + ".parquet")
            database.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{path}')")
        for number, (ours, theirs) in enumerate(QUERIES, 1):
            text = subprocess.run(
                [analyze, "query", options.trace, ours, "--format", "json"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            cursor = database.execute(theirs or ours)
            names = [column[0] for column in cursor.description]
            got = [[row[name] for name in names] for row in json.loads(text)]
            want = [
                [int(v) if hasattr(v, "bit_length") else v for v in row]
                for row in cursor.fetchall()
            ]
            equal = len(got) == len(want) and all(
                len(g) == len(w) and all(map(same, g, w)) for g, w in zip(got, want)
            )
            failed += not equal
            print(f"{number:2} {'equal' if equal else 'DIFFERS'} ({len(got)} rows): {ours[:90]}")
            if not equal:
                for g, w in zip(got, want):
                    if not all(map(same, g, w)):
                        print("  ", g, w)
                        break
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
