"""What counting costs: pairs of a program alone and counted, for `benches/run burst --count`."""

import math
import os
import random
import statistics

from measure import geometric_mean, in_pairs, run


def pairs(name, command, tool, scratch, turns):
    """CPU time, user and system, of program and recorder together, over that of the program alone, turn by turn."""
    out = os.path.join(scratch, f"{name}.count")
    run(
        [
            tool("mgz-instrument"),
            "--for",
            "count",
            "--libs",
            "-o",
            out,
            command[0],
        ]
    )
    trace = os.path.join(scratch, "counts")
    counted = [tool("mgz-record"), "--count", "--force", "-o", trace, "--", out, *command[1:]]
    runs = in_pairs(name, command, counted, turns, True)
    return [(with_it.cpu, without.cpu) for with_it, without in runs]


def interval(results):
    """95% of what 2,000 draws of turns give for the geometric mean of the programs' medians."""
    draw = random.Random(1)
    means = sorted(
        geometric_mean(
            [statistics.median(draw.choices(r["pairs"], k=len(r["pairs"]))) for r in results]
        )
        for _ in range(2000)
    )
    return means[50], means[-51]


def result(name, found):
    """What is kept of a program."""
    return {
        "name": name,
        "seconds": statistics.median(alone for _, alone in found),
        "pairs": [counted / alone for counted, alone in found],
    }


def table(results, target=1.25):
    """Lines of text: each program's median with its quartiles, and the mean of all."""
    lines = [f"{'program':<13}{'alone s':>8}{'count':>9}{'from':>9}{'to':>9}"]
    for r in results:
        low, high = min(r["pairs"]), max(r["pairs"])
        middle = statistics.median(r["pairs"])
        lines.append(f"{r['name']:<13}{r['seconds']:>8.2f}{middle:>9.3f}{low:>9.3f}{high:>9.3f}")
    mean = geometric_mean([statistics.median(r["pairs"]) for r in results])
    low, high = interval(results)
    fine = not math.isnan(mean) and mean <= target
    lines += [
        "",
        f"{'pass' if fine else 'MISS'}  CPU time of --count with files made by --for count, recorder included, geometric mean of {len(results)} programs: {mean:.3f} (95% {low:.3f} to {high:.3f}; target <= {target})",
    ]
    return lines
