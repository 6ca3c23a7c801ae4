"""Time of tracing the MemGaze report's programs at its periods (figure 9), from the sources that originals.py names."""

import os
import re
import time

from .lab import mean, median
from .originals import WINDOW, build_gap, vite

# Loads from window to window: the report's.
GAP_PERIOD, VITE_PERIOD = 5_000_000, 10_000_000
TURNS = 3
# Lines with the seconds of two phases: the making of the graph, and the studied part.
GAP_PHASES = (r"(?:Generate|Build) Time: +([\d.]+)", r"Trial Time: +([\d.]+)")
VITE_PHASES = (r"Time to generate distributed graph[^:]*: ([\d.]+)", r"Average total time[^:]*: ([\d.]+)")  # fmt: skip


class Turn:
    """Seconds of a run in all, and by phase."""

    def __init__(self, lab, command, phases):
        begin = time.monotonic()
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        text = lab.run(command, env=alone, start_new_session=True).stdout.decode()
        self.whole = time.monotonic() - begin
        self.phases = [sum(map(float, re.findall(phase, text))) for phase in phases]


def programs(lab):
    """Name, level, program, arguments, period and phases of the programs whose sources are named."""
    folder, size = os.environ.get, "16" if lab.quick else "20"
    for level in ("O0", "O3"):
        if folder("MGZ_GAP"):
            for name in ("pr", "pr_spmv", "cc", "cc_sv"):
                out = build_gap(lab, folder("MGZ_GAP"), name, level)
                # Enough trials for seconds.
                trials = "1" if lab.quick else {"cc": "64"}.get(name, "4")
                yield f"GAP {name}", level, out, ["-g", size, "-n", trials], GAP_PERIOD, GAP_PHASES
        if folder("MGZ_MINIVITE"):
            for version in ("v1", "v2") if folder("MGZ_HOPSCOTCH") else ("v1",):
                out = vite(lab, folder("MGZ_MINIVITE"), version, folder("MGZ_HOPSCOTCH"), level)
                nodes = "20000" if lab.quick else "100000"
                yield f"miniVite {version}", level, out, ["-n", nodes, "-p", "2"], VITE_PERIOD, VITE_PHASES  # fmt: skip


def run(lab):
    rows, kernels, turns = [], {"O0": [], "O3": []}, 1 if lab.quick else TURNS
    for name, level, program, arguments, period, phases in programs(lab):
        trace = os.path.join(lab.work, "traced.trace")
        recorder = [lab.tool("mgz-record"), "-o", trace, "--force", "--mode", "ring"]
        recorder += ["--period", str(period), "--window", WINDOW, "--"]
        plain, traced = [program, *arguments], [*recorder, lab.instrument(program), *arguments]
        # By turns, so that a slow minute of the machine meets both.
        pairs = [(Turn(lab, plain, phases), Turn(lab, traced, phases)) for _ in range(turns)]
        more = lambda of, p=pairs: 100 * (median(of(b) / of(a) for a, b in p) - 1)
        cost = [more(lambda t: t.phases[0]), more(lambda t: t.phases[1]), more(lambda t: t.whole)]
        kernels[level].append(cost[1])
        seconds = median(a.whole for a, _ in pairs)
        kilobytes = f"{lab.size(trace) / 1e3:.0f}"
        rows.append([name, level, f"{period / 1e6:.0f}M", f"{seconds:.1f}", *(f"{c:.0f} %" for c in cost), kilobytes])  # fmt: skip
        lab.drop(trace)
    if not rows:
        raise RuntimeError("name sources in MGZ_GAP, MGZ_MINIVITE (MGZ_HOPSCOTCH)")
    of = lambda level: f"{mean(kernels[level]):.0f} % ({level})"
    lab.table(
        "MemGaze's programs: time of tracing (figure 9)",
        ["program", "", "period", "s", "making of the graph", "studied part", "in all", "kB"],
        rows,
        f"More wall time than the program alone, median of {turns} pairs: `ring` with windows of {WINDOW} records, one thread; graphs smaller than the report's. mgz records by calls in the code, not by `ptwrite`. "
        f"Mean of the studied parts: {of('O0')}, {of('O3')}. The report, by PT: 10 to 95 %, of the studied part of miniVite 80 % with PT always on and less than 40 % with PT in windows alone.",
    )
