"""Default runs against the truth: `benches/run validate --runs`.

The programs of benches/runs do a number of equal rounds. A function's loads grow linearly with it, and each round touches
the same words, so that full traces of one and two rounds tell loads and footprints of a run of any length. Shares of time are those that
`perf record` samples from the program as it is, by CPU time, in as many rounds.

Rows are the whole run and all functions with 1% of the time or more. Compared are time% of functions, loads executed
(`A`), and footprint (`F`): how many intervals hold the truth, how wide they are, how many rows are unknown. Nothing is left
out of the means.
"""

import collections
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from kept import keep

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(ROOT, "benches/runs")
PROGRAMS = {
    "phases": ["micro", "milli", "seconds", "rare", "twister"],
    "pointers": ["list", "tree", "chain"],
    "dense": ["gemm", "blocked", "transpose", "heat2", "heat3", "conv"],
    "sparse": ["bfs", "pagerank", "spmv", "open"],
    "interpreters": ["bytecode", "automaton", "repeats", "primes"],
    "sorting": ["quicksort", "mergesort", "radix", "bsearch"],
    "openmp": ["omp-alike", "omp-unlike"],
    "containers": ["maps", "strings"],
}
# Rounds come in multiples: a program whose phases last many rounds ends at a phase's end.
MULTIPLES = {"seconds": 400}
# Functions with less of the time are no rows.
LEAST = 1.0
# Rate of perf's samples, whose own standard error is not counted against the estimate.
PERF_RATE = 4000


def call(command, limit=900, **more):
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=limit,
        **more,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr[-400:]}"
        )
    return done


def seconds_of(command):
    """CPU time that a command takes."""
    before = os.times()
    call(command)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def plain(name):
    """A function's name as perf and mgz both have it."""
    name = name.replace("(anonymous namespace)::", "").split("(")[0]
    return name.split(".")[0].strip()


class Truth:
    """What a run of so many rounds does."""

    def __init__(self, first, second, step):
        self.first, self.second, self.step = first, second, step

    def loads(self, function, rounds):
        """Loads that a function executes, of the whole run for None."""
        one, two = (self.of(t, function, "A") for t in (self.first, self.second))
        return one + (two - one) * (rounds / self.step - 1)

    def footprint(self, function):
        return self.of(self.second, function, "F")

    def growing(self, function):
        """How much more two rounds touch than one."""
        return self.footprint(function) / max(1, self.of(self.first, function, "F"))

    @staticmethod
    def of(analysis, function, key):
        if function is None:
            return analysis["summary"][key] + (analysis["summary"]["A_const"] if key == "A" else 0)
        return sum(
            f[key] + (f["A_const"] if key == "A" else 0)
            for f in analysis["functions"]
            if plain(f["function"]) == function
        )


class Runs:
    """One validation: builds the programs, records them, and keeps what was found."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.lines, self.rows, self.failed = [], [], 0

    def say(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def tool(self, name):
        return os.path.join(self.options.bin, name)

    def build(self, source):
        plus = source == "containers"
        base = os.path.join(self.scratch, source)
        call(
            [
                "g++" if plus else "gcc",
                "-O2",
                "-g",
                "-fopenmp",
                os.path.join(SOURCES, source + (".cpp" if plus else ".c")),
                "-o",
                base,
            ]
        )
        call([self.tool("mgz-instrument"), "-o", base + ".burst", base])
        call([self.tool("mgz-instrument"), "--for", "ring", "-o", base + ".ring", base])
        return base

    def analysis(self, trace):
        return json.loads(call([self.tool("mgz-analyze"), trace, "--format", "json"]).stdout)

    def truth(self, base, name):
        step = 2 if name in MULTIPLES else 1
        env = {**os.environ, "BLOCK": "1"}
        found = []
        for rounds in (step, 2 * step):
            trace = os.path.join(self.scratch, "full")
            call(
                [
                    self.tool("mgz-record"),
                    "--force",
                    "-o",
                    trace,
                    "--mode",
                    "full",
                    "--",
                    base + ".ring",
                    name,
                    rounds,
                ],
                env=env,
            )
            found.append(self.analysis(trace))
        shutil.rmtree(os.path.join(self.scratch, "full"))
        return Truth(*found, step)

    def shares(self, base, name, rounds):
        """Time of each function by perf, percent, and the number of samples."""
        data = os.path.join(self.scratch, "perf.data")
        call(
            [
                "perf",
                "record",
                "-q",
                "-e",
                "cpu-clock:u",
                "-F",
                PERF_RATE,
                "-o",
                data,
                base,
                name,
                rounds,
            ]
        )
        names = call(["perf", "script", "-i", data, "-F", "ip,sym"]).stdout.split("\n")
        counts = collections.Counter(plain(n.split(None, 1)[1]) for n in names if n.strip())
        total = counts.total()
        return {n: 100 * k / total for n, k in counts.items()}, total

    def program(self, base, name):
        multiple = MULTIPLES.get(name, 1)
        truth = self.truth(base, name)
        # Time of a round, from a run that is long enough to measure it.
        rounds = 8 * multiple
        while (took := seconds_of([base, name, rounds])) < 0.2:
            rounds *= 2
        for length in self.options.lengths:
            n = max(1, round(length / took * rounds / multiple)) * multiple
            shares, samples = self.shares(base, name, n)
            for repeat in range(self.options.repeats):
                trace = os.path.join(self.scratch, "trace")
                call(
                    [
                        self.tool("mgz-record"),
                        "--force",
                        "-o",
                        trace,
                        "--",
                        base + ".burst",
                        name,
                        n,
                    ]
                )
                self.compare(name, length, repeat, n, truth, shares, samples, self.analysis(trace))

    def compare(self, name, length, repeat, rounds, truth, shares, samples, found):
        by_name = collections.defaultdict(list)
        for f in found["functions"]:
            by_name[plain(f["function"])].append(f)
        targets = [(None, found["summary"], None)]
        for function, share in shares.items():
            # Code without a clone has no row: its time is outside of the program's own code.
            if share >= LEAST and truth.of(truth.second, function, "A"):
                rows = by_name.get(function, [])
                targets.append((function, rows[0] if len(rows) == 1 else {}, share))
        known = sum(s for f, s in shares.items() if truth.of(truth.second, f, "A"))
        for function, row, share in targets:
            out = {
                "program": name,
                "seconds": length,
                "repeat": repeat,
                "row": function,
                "share": share,
                "windows": row.get("samples_seen", 0),
            }
            if share is not None:
                # mgz divides among the code that has windows.
                share = 100 * share / known
                out["time"] = self.judge(
                    row, "time_pct", "time_pct", share, 2 * error_of(share, samples)
                )
            out["A"] = self.judge(row, "A", "A_hat", truth.loads(function, rounds))
            out["F"] = self.judge(row, "F", "F_hat", truth.footprint(function))
            out["growing"] = truth.growing(function)
            self.rows.append(out)
        s = found["summary"]
        mine = [
            r
            for r in self.rows
            if (r["program"], r["seconds"], r["repeat"]) == (name, length, repeat)
        ]
        parts = []
        for kind in ("time", "A", "F"):
            told = [r[kind] for r in mine if kind in r]
            firm = [t for t in told if t["known"]]
            parts.append(f"{sum(t['holds'] for t in firm):>3}/{len(firm):<2} of {len(told):<2}")
        self.say(f"{name:<11}{length:>6} s {s['samples']:>6} windows   " + "  ".join(parts))

    @staticmethod
    def judge(row, key, estimate, truth, slack=0.0):
        lo, hi, hat = row.get(key + "_lo"), row.get(key + "_hi"), row.get(estimate)
        known = lo is not None and hi is not None
        return {
            "truth": truth,
            "lo": lo,
            "hat": hat,
            "hi": hi,
            "known": known,
            "holds": known and lo <= truth * 1.0001 + slack and truth * 0.9999 - slack <= hi,
        }

    def go(self):
        self.say(
            "intervals that hold the truth, of those given, of all rows: time%, loads executed, footprint"
        )
        for source, names in PROGRAMS.items():
            wanted = [n for n in names if not self.options.only or n in self.options.only]
            if not wanted:
                continue
            try:
                base = self.build(source)
            except RuntimeError as problem:
                self.failed += 1
                self.say(f"{source}: could not be built: {problem}")
                continue
            for name in wanted:
                try:
                    self.program(base, name)
                except (
                    RuntimeError,
                    OSError,
                    KeyError,
                    ValueError,
                    subprocess.TimeoutExpired,
                ) as problem:
                    self.failed += 1
                    self.say(f"{name}: could not be measured: {problem}")
        self.summary()

    def summary(self):
        self.say()
        for length in self.options.lengths:
            rows = [r for r in self.rows if r["seconds"] == length]
            for kind in ("time", "A", "F"):
                judged = [(r, r[kind]) for r in rows if kind in r]
                firm = [(r, j) for r, j in judged if j["known"]]
                if not firm:
                    self.say(f"{length:>5} s {kind:<5} no interval")
                    continue
                programs = collections.defaultdict(list)
                for r, j in firm:
                    programs[r["program"]].append(j["holds"])
                rates = {p: sum(h) / len(h) for p, h in programs.items()}
                worst = min(rates, key=rates.get)
                whole = [ratio(j) for r, j in firm if r["row"] is None]
                many = [ratio(j) for r, j in firm if r["row"] and r["windows"] >= 100]
                width = lambda w: f"{statistics.median(w):.2f}" if w else "–"
                self.say(
                    f"{length:>5} s {kind:<5} hold {100 * sum(j['holds'] for _, j in firm) / len(firm):5.1f}% of {len(firm)} rows "
                    f"({len(judged) - len(firm)} more unknown); mean over programs {100 * statistics.mean(rates.values()):5.1f}%, worst {100 * rates[worst]:3.0f}% ({worst}); "
                    f"median hi/lo: run {width(whole)}, rows of 100 windows {width(many)}"
                )
        self.say()
        for r in self.rows:
            for kind in ("time", "A", "F"):
                j = r.get(kind)
                if j and j["known"] and not j["holds"]:
                    self.say(
                        f"missed: {r['program']} {r['seconds']} s, {r['row'] or 'run'}: {kind} {j['truth']:.6g} not in {j['lo']:.6g} to {j['hi']:.6g} ({r['windows']} windows)"
                    )


def error_of(share, samples):
    """Standard error of a share by perf, percent."""
    p = share / 100
    return 100 * math.sqrt(max(p * (1 - p), 1 / samples) / samples)


def ratio(judged):
    return judged["hi"] / judged["lo"] if judged["lo"] else math.inf


def run(options):
    """Runs it with the options of `benches/run validate`; the exit status."""
    if not shutil.which("perf") or not shutil.which("gcc"):
        sys.exit("benches/run validate --runs needs gcc and perf (Debian: gcc, linux-perf)")
    with tempfile.TemporaryDirectory(
        prefix="mgz-runs-", dir=os.environ.get("TMPDIR", "/var/tmp")
    ) as scratch:
        runs = Runs(options, scratch)
        began = time.monotonic()
        runs.go()
        runs.say(f"took {time.monotonic() - began:.0f} s")
    if options.keep:
        lengths = ",".join(f"{l:g}" for l in options.lengths)
        command = f"benches/run validate --runs --lengths {lengths} --repeats {options.repeats}"
        keep("runs", command, runs.lines, runs.rows)
    return 1 if runs.failed else 0
