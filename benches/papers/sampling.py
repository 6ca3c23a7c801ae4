"""Figure 8 of the MemGaze report: long runs, sampled, against samples that are ten times as frequent."""

import os
import subprocess
import time

from .lab import count, mean

CASES = "tests/programs/cases"
# Name, source, first argument, and the second one to begin with. It is a number of repetitions, or the
# logarithm of a graph's size.
PROGRAMS = [
    *((kind, "micro.c", kind, 400) for kind in ("str1", "str8", "irr", "str1+irr", "str1/irr")),
    *((f"communities {v}", "communities.cpp", v, 12) for v in ("v1", "v2", "v3")),
    *((f"pagerank {v}", "pagerank.c", v, 14) for v in ("gs", "jacobi")),
    *((f"components {v}", "components.c", v, 14) for v in ("afforest", "sv")),
]
WINDOW = 1000
# Loads between windows, densest first: 1, 0.1 and 0.01 % of the loads. Primes are in step with few loops.
PERIODS = {"1 %": 100_003, "0.1 %": 1_000_003, "0.01 %": 10_000_019}
# Seconds of a run; MGZ_SECONDS is another number of them.
SECONDS = 60
# A function's share of the loads from which on it is compared.
SHARE = 0.01


def seconds_of(command):
    begin = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def sized(program, variant, first, wanted):
    """The command of a run of about so many seconds."""
    size, is_scale = first, first < 100
    while (taken := seconds_of([program, variant, str(size)])) < wanted / 20:
        size = size + 1 if is_scale else size * 4
    # A larger graph takes twice as long.
    while is_scale and taken < wanted / 1.5:
        size, taken = size + 1, 2 * taken
    return [variant, str(size if is_scale else round(size * wanted / taken))]


def relative(found, truth):
    return 100 * abs(found - truth) / truth


def code_error(found, denser):
    """Error of a function's footprint in windows, mean over functions by their loads."""
    rows = {f["function"]: f for f in found["functions"]}
    total, weight, loads = 0.0, 0, sum(f["A"] for f in denser["functions"])
    for f in denser["functions"]:
        row = rows.get(f["function"])
        if row and f["A"] >= SHARE * loads and row["F_sample"] and f["F_sample"]:
            total += relative(row["F_sample"], f["F_sample"]) * f["A"]
            weight += f["A"]
    return total / weight if weight else None


def trace_errors(found, denser):
    """Errors of the footprint by size of window: those of marked and of unmarked windows."""
    truth = {row["W"]: row["F_hat"] for row in denser["growth"] if row["F_hat"]}
    marked, firm = [], []
    for row in found["growth"]:
        if row["W"] in truth and row["F_hat"] is not None:
            errors = marked if row["F_undersampled"] else firm
            errors.append(relative(row["F_hat"], truth[row["W"]]))
    return firm, marked


class Errors:
    """Errors of one kind by program."""

    def __init__(self):
        self.code, self.firm, self.marked = {}, {}, {}

    def add(self, name, found, denser):
        """Adds a program, and returns its cells."""
        error = code_error(found, denser)
        if error is not None:
            self.code[name] = error
        firm, marked = trace_errors(found, denser)
        self.firm[name], self.marked[name] = firm, marked
        shown = lambda value: "–" if value is None else f"{value:.2f} %"
        return [shown(error), shown(mean(firm)), shown(mean(firm + marked)), f"{len(marked)} of {len(firm + marked)}"]  # fmt: skip

    def text(self):
        windows = {name: mean(errors) for name, errors in self.firm.items() if errors}
        every = [
            e for errors in (self.firm, self.marked) for list_ in errors.values() for e in list_
        ]
        marked = sum(map(len, self.marked.values()))
        said = lambda errors: (
            f"mean {mean(errors.values()):.2f} %, worst {max(errors.values()):.2f} % ({max(errors, key=errors.get)})"
            if errors
            else "none"
        )
        all_of_them = (
            f"all windows {mean(every):.2f} %, {marked} of {len(every)} marked" if every else ""
        )
        return f"code windows {said(self.code)}; trace windows {said(windows)}, {all_of_them}"


def recorded(lab, name, command, mode, options):
    """The analysis of a recording, and its samples."""
    trace = lab.record(name, command, mode, ["--window", str(WINDOW), *options])
    got = lab.analyze(trace)
    lab.drop(trace)
    return got


def samplings(lab, label, program, arguments, ratios):
    """Pairs to compare: a name, the analysis of a recording, and that of a denser one."""
    # For both modes.
    instrumented = program + ".burst"
    lab.run([lab.tool("mgz-instrument"), "--for", "burst", "-o", instrumented, program])
    command = [instrumented, *arguments]
    rings = {
        ratio: recorded(lab, label, command, "ring", ["--period", str(PERIODS[ratio])])
        for ratio in ratios
    }
    for denser, ratio in zip(ratios, ratios[1:]):
        yield f"{ratio} against {denser}", rings[ratio], rings[denser]
    by_time = recorded(lab, label, command, "burst", ["--rate", "1000"])
    yield f"`burst` against {ratios[0]}", by_time, rings[ratios[0]]


def run(lab):
    wanted = 0.5 if lab.quick else float(os.environ.get("MGZ_SECONDS", SECONDS))
    rows, errors = [], {}
    ratios = list(PERIODS)[: 2 if lab.quick else 3]
    for name, source, variant, first in PROGRAMS[4:6] if lab.quick else PROGRAMS:
        for level in ("O0", "O3"):
            label = f"sampling-{os.path.splitext(source)[0]}-{level}"
            flags = [f"-{level}", *(["-std=c++17"] if source.endswith("cpp") else [])]
            program = lab.compile(f"{CASES}/{source}", label, flags)
            arguments = sized(program, variant, first, wanted)
            for kind, found, denser in samplings(lab, label, program, arguments, ratios):
                cells = errors.setdefault(kind, Errors()).add(f"{name} -{level}", found, denser)
                rows.append([name, level, kind, count(found["summary"]["samples"]), *cells])
    lab.table(
        "MemGaze: samples against ten times as many (figure 8)",
        ["program", "", "compared", "samples", "code windows, F", "trace windows, F", "all windows", "marked"],
        rows,
        f"Runs of about {wanted:g} s, windows of {WINDOW:,} loads. *Code windows*: footprint of a function in a window, by loads. *Trace windows*: footprint by size of window, without and with those that mgz marks as "
        f"undersampled. {'. '.join(f'{kind}: {e.text()}' for kind, e in errors.items())}. `ring` takes windows by loads, as the report does; `burst` by time, and its means are over time. "
        "The report: less than 25 % for trace windows, less than 5 % for code windows, against samples that are ten times as frequent.",
    )  # fmt: skip
