"""What a default run costs: pairs of a program alone and recorded, for `benches/run burst --default`.

`mgz-record` without options samples by a budget, so the cost depends on how long a program runs: each is measured at two lengths. As in
the other parts of bench-burst, what counts is the CPU time of the program; that of the recorder, which works beside it and writes the
trace when it is over, is a column of its own (`rec`, of the program's).
"""

import json
import os
import random
import statistics

import subjects
from measure import Failed, geometric_mean, in_pairs, run

# Seconds of CPU time, turns, and what the upper end of the interval and the mean may be.
LENGTHS = [(0.5, 8, 1.06, None), (10, 2, 1.01, 1.02)]


def pairs(subject, seconds, tool, scratch, turns):
    """CPU time, user and system, of the recorded program, of the program alone, and of program and recorder together; wall times of both. Turn by turn."""
    size = subject.size(seconds)
    out = os.path.join(scratch, f"{subject.name}.inst")
    libraries = [f"--libs={subject.libs}"] if subject.libs else []
    if not os.path.exists(out):
        run([tool("mgz-instrument"), *libraries, "-o", out, subject.path])
    trace = os.path.join(scratch, "trace")
    alone = [subject.path, *subject.arguments(size)]
    recorded = [tool("mgz-record"), "--force", "-o", trace, "--", out, *subject.arguments(size)]
    found = []
    # The first turn of a short program fills caches.
    for with_it, without in in_pairs(subject.name, alone, recorded, turns, seconds < 5):
        with open(os.path.join(trace, "manifest.json")) as f:
            own = json.load(f)["cpu_seconds"]
        found.append((own, without.cpu, with_it.cpu, with_it.wall, without.wall))
    return found


def result(name, found):
    """What is kept of a program at one length."""
    return {
        "name": name,
        "seconds": statistics.median(f[1] for f in found),
        "cpu": [f[0] / f[1] for f in found],
        "recorder": [(f[2] - f[0]) / f[1] for f in found],
        "wall": [f[3] / f[4] for f in found],
    }


def interval(results):
    """95% of what 2,000 draws of turns give for the geometric mean of the programs' medians of CPU time."""
    draw = random.Random(1)
    means = sorted(
        geometric_mean(
            [statistics.median(draw.choices(r["cpu"], k=len(r["cpu"]))) for r in results]
        )
        for _ in range(2000)
    )
    return means[50], means[-51]


def line(r):
    """A program's row."""
    cpu, wall = statistics.median(r["cpu"]), statistics.median(r["wall"])
    beside = statistics.median(r["recorder"])
    return f"{r['name']:<13}{r['seconds']:>8.2f}{cpu:>9.4f}{min(r['cpu']):>9.4f}{max(r['cpu']):>9.4f}{beside:>8.3f}{wall:>9.4f}"


def table(results, most, upper):
    """Lines of text: each program's median with its ends, and the mean of all."""
    lines = [f"{'program':<13}{'alone s':>8}{'CPU':>9}{'from':>9}{'to':>9}{'rec':>8}{'wall':>9}"]
    lines += [line(r) for r in results]
    mean = geometric_mean([statistics.median(r["cpu"]) for r in results])
    wall = geometric_mean([statistics.median(r["wall"]) for r in results])
    rec = statistics.mean([statistics.median(r["recorder"]) for r in results])
    low, high = interval(results)
    fine = mean <= most and (upper is None or high <= upper)
    target = f"target <= {most}" + (f", upper end <= {upper}" if upper else "")
    lines.append(
        f"{'pass' if fine else 'MISS'}  CPU time of programs in default runs, geometric mean of {len(results)} programs: {mean:.4f} (95% {low:.4f} to {high:.4f}; {target}); recorder beside, mean {rec:.3f}; wall time {wall:.4f}"
    )
    return lines


def measure(tool, scratch, only, say, turns=None):
    """`({length: results}, errors)`."""
    results, errors = {}, []
    for subject in (subjects.kernels(scratch, only) | subjects.programs(scratch, only)).values():
        for seconds, usual, _, _ in LENGTHS:
            try:
                found = pairs(subject, seconds, tool, scratch, turns or usual)
            except (Failed, OSError, ValueError) as error:
                errors.append(f"{subject.name}: {error}")
                continue
            results.setdefault(seconds, []).append(result(subject.name, found))
            say(line(results[seconds][-1]))
    return results, errors


def report(results):
    """All tables."""
    lines = []
    for seconds, _, most, upper in LENGTHS:
        if results.get(seconds):
            lines += [f"Programs of {seconds} s", *table(results[seconds], most, upper), ""]
    return lines
