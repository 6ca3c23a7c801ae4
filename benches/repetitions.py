"""Widths of intervals against the spread of repetitions: `benches/run misses --repeat N`.

A program is recorded N times without options. If an interval is as wide as the data allow, its half is 1.96 standard deviations
of the estimates of these runs, and the mean of the estimates lies in 95 % of the intervals. An estimate that is wrong in all runs
alike is not seen here; the comparison with the truth is for that.
"""

import collections
import math
import statistics

# Functions with less of the time, and miss ratios below this part, are no rows.
LEAST_TIME = 5.0
# A share of nearly all of the time spreads by less than one window: no width compares with that.
MOST_TIME = 99.0
LEAST_MISSES = 0.01
TARGET = (0.9, 1.5)
KINDS = ("time", "loads", "footprint", "misses")


def estimate(row, hat, base):
    ends = (row.get(base + "_lo"), row.get(hat), row.get(base + "_hi"))
    return None if None in ends else ends


def estimates(found, levels):
    """All estimates of one run as (lo, hat, hi), None where unknown, by kind and row."""
    out = {}
    rows = [("run", found["summary"])]
    for f in found["functions"]:
        name = f"{f['module']}:{f['function']}"
        out["time", name] = estimate(f, "time_pct", "time_pct")
        rows.append((name, f))
    for name, row in rows:
        out["loads", name] = estimate(row, "A_hat", "A")
        out["footprint", name] = estimate(row, "F_hat", "F")
    predicted = (found["summary"].get("misses") or {}).get("levels") or [{}] * len(levels)
    for level, of in zip(levels, predicted):
        ratio = of.get("ratio")
        out["misses", level] = tuple(ratio) if ratio and None not in ratio else None
    return out


def quantity(values):
    """Half-width against spread of one quantity in all runs."""
    firm = [v for v in values if v is not None]
    out = {"runs": len(values), "known": len(firm), "values": values}
    if len(firm) >= 2:
        mean = statistics.fmean(v[1] for v in firm)
        out["mean"] = mean
        out["half_width"] = statistics.fmean((v[2] - v[0]) / 2 for v in firm)
        out["spread"] = 1.96 * statistics.stdev(v[1] for v in firm)
        slack = 1e-9 * abs(mean)
        out["held"] = sum(v[0] - slack <= mean <= v[2] + slack for v in firm)
    return out


def quantities(runs):
    """Quantities of a program by kind and row. `runs` are the estimates of each."""
    names = list(dict.fromkeys(k for run in runs for k in run))
    every = {n: [run.get(n) for run in runs] for n in names}

    def mean(name):
        hats = [v[1] for v in every[name] if v is not None]
        return statistics.fmean(hats) if hats else 0.0

    functions = {n[1] for n in names if n[0] == "time" and mean(n) >= LEAST_TIME}
    out = {}
    for (kind, row), values in every.items():
        if kind == "misses" and mean((kind, row)) < LEAST_MISSES:
            continue
        if kind == "time" and mean((kind, row)) > MOST_TIME:
            continue
        if kind != "misses" and row != "run" and row not in functions:
            continue
        out[kind, row] = quantity(values)
    return out


def ratio(of):
    """Half-widths over spreads of some quantities, each as a part of its mean. None if nothing spreads and no interval has a width."""
    firm = [q for q in of if "mean" in q and q["mean"]]
    width = sum(q["half_width"] / q["mean"] for q in firm)
    spread = sum(q["spread"] / q["mean"] for q in firm)
    if spread <= 1e-12:
        return math.inf if width > 1e-9 else None
    return width / spread


def totals(of):
    """(intervals that hold the mean, intervals, all) of some quantities."""
    firm = [q for q in of if "mean" in q]
    return (
        sum(q["held"] for q in firm),
        sum(q["known"] for q in firm),
        sum(q["runs"] for q in of),
    )


def cell(of):
    if not of:
        return "      –"
    r = ratio(of)
    held, firm, every = totals(of)
    return f"{'–' if r is None else f'{r:.2f}':>7} {held:>3}/{firm:<3} of {every:<3}"


def program_line(name, found):
    by_kind = collections.defaultdict(list)
    for (kind, _), q in found.items():
        by_kind[kind].append(q)
    return f"{name:<20}" + "  ".join(f"{cell(by_kind[k]):<22}" for k in KINDS)


def head_line():
    return f"{'program':<20}" + "  ".join(f"{k:<22}" for k in KINDS)


def summary(programs):
    """Lines over all programs, a mapping of names to their quantities."""
    lines = []
    for kind in KINDS:
        of = {p: [q for (k, _), q in found.items() if k == kind] for p, found in programs.items()}
        ratios = {p: r for p, qs in of.items() if (r := ratio(qs)) is not None}
        held, firm, every = totals([q for qs in of.values() for q in qs])
        if not ratios or not firm:
            lines.append(f"{kind:<10} no interval ({every} unknown)")
            continue
        right = sum(TARGET[0] <= r <= TARGET[1] for r in ratios.values())
        low, high = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
        lines.append(
            f"{kind:<10} width over spread: median {statistics.median(ratios.values()):.2f}, "
            f"{right} of {len(ratios)} programs within {TARGET[0]} to {TARGET[1]}, least {ratios[low]:.2f} ({low}), "
            f"greatest {ratios[high]:.2f} ({high}); the mean is held by {held} of {firm} intervals, "
            f"{100 * held / firm:.0f} % (target 93 to 97); {every - firm} of {every} unknown"
        )
    return lines


def figures(programs):
    """The same for the kept file."""
    return [
        {"program": p, "kind": kind, "row": row, **q}
        for p, found in programs.items()
        for (kind, row), q in found.items()
    ]
