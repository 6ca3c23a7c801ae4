"""Scores of the gains of fixed programs, for benches/run fix.

A result has `program`, `irregular`, `kept` (a fix was written), `gain` and `measured` (of mgz fix, if it is kept), both
[low, value, high] as ratios of times, and `screen`, what mgz fix has printed.
"""

import math

TARGET_MEAN = 1.20
LEAST_GAIN = 0.99


def ends(low, value, high):
    return f"{value:.2f} ({low:.2f}–{high:.2f})"


def line(result):
    kind = "irregular" if result["irregular"] else "clean"
    of_fix = ends(*result["measured"]) if result["kept"] else "left as it is"
    return f"{result['program']:<16}{kind:<11}{ends(*result['gain']):<20}{of_fix}"


def tried(result):
    """The lines of the screen that tell what was tried."""
    return [text for text in result["screen"].split("\n") if text.startswith("  ")]


def mean(results):
    logs = [math.log(r["gain"][1]) for r in results if r["irregular"]]
    return math.exp(sum(logs) / len(logs)) if logs else None


def summary(results):
    lines = []
    of_irregular = mean(results)
    if of_irregular is not None:
        lines.append(
            f"geometric mean of the irregular programs: {of_irregular:.2f} (target {TARGET_MEAN:.2f})"
        )
    slower = [r["program"] for r in results if r["gain"][1] < LEAST_GAIN]
    lines.append(f"programs below {LEAST_GAIN}: {', '.join(slower) or 'none'}")
    changed = [r["program"] for r in results if r["kept"] and not r["irregular"]]
    lines.append(f"clean programs that were changed: {', '.join(changed) or 'none'}")
    return lines


def are_met(results):
    of_irregular = mean(results)
    is_fast = of_irregular is None or of_irregular >= TARGET_MEAN
    return is_fast and all(r["gain"][1] >= LEAST_GAIN for r in results)
