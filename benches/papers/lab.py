"""What the experiments of benches/run papers share: programs, traces, analyses, tables."""

import json
import os
import shutil
import subprocess
import sys

BENCHES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCHES)
BARS = " ▁▂▃▄▅▆▇█"


def percent(x, digits=1):
    return "–" if x is None else f"{100 * x:.{digits}f} %"


def points(x):
    return f"{100 * x:+.2f}"


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def count(x):
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if x >= size:
            return f"{x / size:.3g}{unit}"
    return f"{x:.3g}"


def bars(values):
    most = max((v for v in values if v is not None), default=0)
    return "".join("·" if v is None else BARS[round(8 * v / most)] if most else " " for v in values)


def shown(table):
    """A table as text."""
    lines = [table["head"], ["---"] * len(table["head"]), *table["rows"]]
    rows = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines)
    return f"\n### {table['title']}\n\n{table['text']}\n\n{rows}"


class Lab:
    def __init__(self, binaries, work, quick):
        self.binaries, self.work, self.quick = binaries, work, quick
        self.tables = []

    def run(self, command, statuses=(0,), seconds=900, **more):
        done = subprocess.run(command, capture_output=True, timeout=seconds, **more)
        if done.returncode not in statuses:
            text = (done.stdout + done.stderr).decode(errors="replace")[-800:]
            raise RuntimeError(f"{' '.join(map(str, command[:8]))}: {done.returncode}: {text}")
        return done

    def tool(self, name):
        return os.path.join(self.binaries, name)

    def compile(self, source, name=None, flags=("-O2",)):
        out = os.path.join(self.work, name or os.path.splitext(os.path.basename(source))[0])
        if not os.path.exists(out):
            compiler = "g++" if source.endswith("cpp") else "gcc"
            self.run([compiler, "-g", *flags, "-o", out, os.path.join(ROOT, source), "-lm"])
        return out

    def instrument(self, program, stores=False):
        out = os.path.join(
            self.work, os.path.basename(program) + (".stores" if stores else "") + ".inst"
        )
        if not os.path.exists(out):
            more = ["--stores"] if stores else []
            self.run(
                [self.tool("mgz-instrument"), "--backend", "soft", "--for", "ring", *more]
                + ["-o", out, program]
            )
        return out

    def record(self, name, command, mode="full", options=(), environment=None, statuses=(0,)):
        trace = os.path.join(self.work, name + ".trace")
        shutil.rmtree(trace, ignore_errors=True)
        self.run(
            [self.tool("mgz-record"), "-o", trace, "--mode", mode, *options, "--", *command],
            statuses,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        return trace

    def rows(self, trace):
        with open(os.path.join(trace, "manifest.json")) as file:
            return json.load(file)["totals"]["rows"]

    def size(self, trace):
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(os.path.join(trace, "samples"))
            for name in names
        )

    def analyze(self, *arguments):
        done = self.run([self.tool("mgz-analyze"), *map(str, arguments), "--format", "json"])
        return json.loads(done.stdout)

    def drop(self, trace):
        shutil.rmtree(trace, ignore_errors=True)

    def table(self, title, head, rows, text=""):
        """A table of the result; `text` says what the paper has and what to look at."""
        self.tables.append({"title": title, "text": text, "head": list(head), "rows": rows})
        print(shown(self.tables[-1]))
        sys.stdout.flush()

    def text(self):
        """All tables, for people."""
        return "\n".join(map(shown, self.tables)) + "\n"
