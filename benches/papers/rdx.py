"""RDX (Wang, Liu, Chabbi 2019): figures 3, 4, 6 and 7, and live runs against full traces."""

import itertools
import os
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from papers.lab import bars, count, mean, median, percent

KERNELS = [
    "bfs",
    "bsearch",
    "chase",
    "hash",
    "histogram",
    "pagerank",
    "scan",
    "sort",
    "spmv",
    "stencil",
]


def traces(lab):
    target = 1_000_000 if lab.quick else 4_000_000
    for name in KERNELS[:4] if lab.quick else KERNELS:
        program = lab.instrument(lab.compile(f"benches/kernels/{name}.c", f"kernel-{name}"))
        base, one = (lab.rows(lab.record("one", [program, str(n)])) for n in (0, 1))
        rounds = max(1, (target - base) // max(1, one - base))
        yield name, lab.record(f"rdx-{name}", [program, str(rounds)])
    for name, size in (("fft", "14"), ("list", "200000")):
        program = lab.instrument(lab.compile(f"benches/models/{name}.c"))
        yield name, lab.record(f"rdx-{name}", [program, size])


# Sparser samples: figures 4 and 7 have four periods.
SAMPLES = (20000, 10000, 4000, 2000)
# Below it, the paper calls the accuracy of stack distances low.
LOW = 0.9


# Bytes of a block, and shares of the reuses of table III.
BLOCK = 64
PERCENTILES = (0.7, 0.8, 0.9, 0.95)


def drawings(exact, estimates):
    """Histograms of stack and time distances as bars, exact and estimated."""
    for table in ("distances", "intervals"):
        true = {row["from"]: row["share"] for row in exact[table]}
        near = {row["from"]: row["share_hat"] for row in estimates[table]}
        bins = sorted({*true, *near})
        for shares in (true, near):
            yield "`" + bars([shares.get(at, 0.0) for at in bins]) + "`"


def size_that_holds(exact, share):
    """KiB up to which so large a share of the reuses has its distance."""
    total = sum(row["share"] for row in exact["distances"])
    below = itertools.accumulate(row["share"] for row in exact["distances"])
    ends = (row["to"] for row, sum_ in zip(exact["distances"], below) if sum_ >= share * total)
    return round(next(ends) * BLOCK / 1024, 2)


def reason(first, sparser):
    """Why the accuracy is low, by the paper's tree (figure 5). `first`, `sparser`: similarities by number of samples."""
    if first["S_stack_model"] < LOW:
        return "model: exact times, converted, have no higher accuracy"
    loss = 1 - first["S_stack"]
    if first["S_hat_stack"] >= LOW or first["S_hat_stack"] - first["S_stack"] >= loss / 2:
        return "off by one bin: Ŝ takes half of the loss away, or more"
    if max(sparser) >= LOW:
        return "bias of samples that survive long: sparser samples are better"
    return "attribution: time distances are off" if first["S_hat_time"] < LOW else "not told"


def run(lab):
    attributions(lab)
    live(lab)
    overhead(lab)
    guided(lab)


def attributions(lab):
    variants = [
        ("survival, 4", []),
        ("paper's, 4", ["--attribution", "proportional"]),
        *(
            (f"paper's, {k}", ["--attribution", "proportional", "--watchpoints", str(k)])
            for k in (3, 2, 1)
        ),
        ("none, 4", ["--attribution", "none"]),
    ]
    rows, sums, periods, low, drawn, reached = [], {}, {}, [], [], []
    for name, trace in traces(lab):
        accesses = lab.rows(trace)
        time, stack = [name], []
        for label, more in variants:
            got = lab.analyze(
                "reuse", trace, "--rdx", "--compare", "--period", max(50, accesses // 20000), *more
            )
            s = got["summary"]
            for key in ("S_time", "S_hat_time", "S_stack", "S_hat_stack"):
                sums.setdefault((label, key), []).append(s[key])
            time.append(percent(s["S_time"]))
            stack.append(percent(s["S_stack"]))
            if label == "survival, 4":
                sums.setdefault("converted", []).append(s["S_stack_model"])
            if label == "paper's, 4":
                first = s
                estimates = got
        rows.append(time + stack)
        exact = lab.analyze("reuse", trace, "--block", BLOCK)
        drawn.append([name, *drawings(exact, estimates)])
        reached.append([name, *(size_that_holds(exact, share) for share in PERCENTILES)])
        sparser = []
        for samples in SAMPLES:
            for label in ("survival", "proportional"):
                s = lab.analyze(
                    "reuse",
                    trace,
                    "--rdx",
                    "--compare",
                    "--attribution",
                    label,
                    "--period",
                    max(1, accesses // samples),
                )["summary"]
                for key in ("S_hat_time", "S_stack"):
                    periods.setdefault((samples, label, key), []).append(s[key])
                if label == "proportional" and samples < SAMPLES[0]:
                    sparser.append(s["S_stack"])
        if first["S_stack"] < LOW:
            keys = ("S_stack", "S_hat_stack", "S_stack_model", "S_hat_time")
            cells = [percent(first[k]) for k in keys]
            low.append([name, *cells, percent(max(sparser)), reason(first, sparser)])
        lab.drop(trace)
    labels = [label for label, _ in variants]
    rows.append(
        ["**mean**"] + [percent(mean(sums[l, k])) for k in ("S_time", "S_stack") for l in labels]
    )
    rows.append(
        ["**median**"]
        + [percent(median(sums[l, k])) for k in ("S_time", "S_stack") for l in labels]
    )
    lab.table(
        "RDX: attributions and watchpoints (figures 3, 6)",
        ["program", *(f"time: {l}" for l in labels), *(f"stack: {l}" for l in labels)],
        rows,
        "Similarity S of the histograms to the exact ones, 64-byte blocks, about 20,000 samples. The paper, on SPEC CPU2006: with proportional "
        "attribution the number of watchpoints hardly matters, and without it S falls. Contexts are lines here, for full traces have no call paths. "
        f"Exact times, converted by Shen's model with the number of blocks: {percent(mean(sums['converted']))} (Shen et al.: 99 %).",
    )
    lab.table(
        "RDX: sampling periods (figures 4, 7)",
        [
            "samples",
            "Ŝ of time, median: survival",
            "paper's",
            "S of stack, median: survival",
            "paper's",
        ],
        [
            [samples]
            + [
                percent(median(periods[samples, label, key]))
                for key in ("S_hat_time", "S_stack")
                for label in ("survival", "proportional")
            ]
            for samples in SAMPLES
        ],
        "The paper: Ŝ of time above 96 % and S of stack distance 90 % in the median, at periods of 0.5 to 10 million.",
    )
    lab.table(
        "RDX: histograms (figures 1, 8 to 10 and 16 to 86)",
        ["program", "stack: exact", "stack: RDX", "time: exact", "time: RDX"],
        drawn,
        "Shares of the reuses by logarithmic bins of distance, from 0 on; a bar is as high as its share of the row's greatest value. The paper has those of SPEC CPU2006 and 2017, which are not free.",
    )
    kib = [sorted(row[at] for row in reached) for at in range(1, 1 + len(PERCENTILES))]
    lab.table(
        "RDX: sizes that hold the reuses (table III)",
        ["program", *(f"{percent(p, 0)}, KiB" for p in PERCENTILES)],
        [*reached, ["**median**", *(k[len(k) // 2] for k in kib)], ["**max**", *(k[-1] for k in kib)]],
        "Stack distances of 64-byte blocks. The paper, on SPEC CPU2006 and 2017: medians of 4 to 128 KB, at most 128 and 512 MB.",
    )  # fmt: skip
    told = sum(row[-1] != "not told" for row in low)
    lab.table(
        "RDX: reasons of low accuracy (figure 5)",
        ["program", "S stack", "Ŝ stack", "exact times converted", "Ŝ time", "S stack, sparser samples", "reason"],
        low,
        f"Programs whose S of stack distances is below {percent(LOW, 0)} with the paper's attribution; {told} of {len(low)} have a reason of the paper's tree: off by one bin, the model, or the number of samples. Its "
        "fourth reason, an imprecise PMU, cannot occur here.",
    )  # fmt: skip


def guided(lab):
    """An optimisation that a live recording points to."""
    source, size = "benches/papers/programs/weights.c", ["4096", "500", "4" if lab.quick else "400"]
    before = lab.compile(source, "weights")
    after = lab.compile(source, "weights-interchanged", ["-O2", "-DINTERCHANGED"])
    seen = lab.record("guided", [before, *size], "watch", ["--rate", "1000"])
    got = lab.analyze("reuse", seen, "--rdx")
    lab.drop(seen)
    pair, summary = got["pairs"][0], got["summary"]
    seconds = [
        min(float(lab.run([program, *size]).stdout) for _ in range(5))
        for program in (before, after)
    ]
    lab.table(
        "RDX live: an optimisation guided by it (table IV)",
        ["program", "samples", "first pair: use", "reuse", "share of the reuses", "ms between them", "remedy", "s before", "s after", "gain"],
        [
            ["weights", summary["samples"], pair["use_line"], pair["reuse_line"], percent(pair["share_hat"])]
            + [f"{pair['interval_mean_hat'] / 1e6:.1f}", "interchange of the j-loop and the k-loop"]
            + [f"{s:.3f}" for s in seconds]
            + [f"{seconds[0] / seconds[1]:.2f}×"]
        ],
        "The loops of `bpnn_adjust_weights` of backprop, written for this table. The first pair of lines, with a long time between use and reuse, names the "
        "statement; best of five runs, processor time. The paper: interchange of the j-loop and the k-loop in backprop 1.52×, in botsspar 3.45×; other programs 1.04 to 1.80×.",
    )  # fmt: skip


def timed(command):
    """Wall and CPU seconds, and the sum of the peaks of memory of the command and of what it starts, MiB."""
    peaks, begin = {}, time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    done = threading.Event()

    def look():
        while not done.wait(0.05):
            for pid in [process.pid, *children(process.pid)]:
                try:
                    with open(f"/proc/{pid}/status") as status:
                        peak = next((x for x in status if x.startswith("VmHWM")), None)
                except OSError:
                    continue
                if peak:
                    peaks[pid] = int(peak.split()[1]) / 1024

    watcher = threading.Thread(target=look)
    watcher.start()
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{command}: {process.returncode}: {errors[-300:]!r}")
    return wall, usage.ru_utime + usage.ru_stime, sum(peaks.values())


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(x) for x in file.read().split()]
    except OSError:
        return []


def overhead(lab):
    """What live sampling costs."""
    length = 1.0 if lab.quick else 10.0
    rates = (100, 1000)
    rows, ratios = [], {rate: [] for rate in rates}
    for name in KERNELS[:3] if lab.quick else KERNELS:
        program = lab.compile(f"benches/kernels/{name}.c", f"kernel-{name}")
        begin = timed([program, "0"])[1]
        rounds = 1
        while (taken := timed([program, str(rounds)])[1] - begin) < 0.2:
            rounds *= 4
        rounds = round(rounds * length / taken)
        inst = lab.instrument(program)
        base, one = (lab.rows(lab.record("one", [inst, str(n)])) for n in (0, 1))
        accesses = base + rounds * (one - base)
        wall, cpu, memory = timed([program, str(rounds)])
        row = [name, f"{wall:.1f}", count(accesses)]
        for rate in rates:
            trace = os.path.join(lab.work, f"overhead-{name}.trace")
            words = [lab.tool("mgz-record"), "-o", trace, "--force", "--mode", "watch"]
            seen = timed([*words, "--rate", str(rate), "--", program, str(rounds)])
            samples = lab.analyze("reuse", trace, "--rdx")["summary"]["samples"]
            lab.drop(trace)
            ratios[rate].append(seen[0] / wall)
            row += [
                count(accesses / max(1, samples)),
                f"{seen[0] / wall:.2f}",
                f"{seen[1] / cpu:.2f}",
                f"{seen[2] - memory:.0f}",
            ]
        rows.append(row)
    means = [
        f"{statistics.geometric_mean(ratios[rate]):.2f} at {rate} samples a second"
        for rate in rates
    ]
    heads = ["accesses a sample", "wall", "CPU", "MiB more"]
    lab.table(
        "RDX live: time and memory",
        ["program", "s", "accesses"] + [f"{r}/s: {h}" for r in rates for h in heads],
        rows,
        f"Over the original, one run each; geometric means of wall time: {', '.join(means)}. The paper: 5 % of time and 7 % of memory, with a PMU that counts "
        "accesses and hardware that tells where. Here a timer stops the program, and stops are stepped through.",
    )


# Live runs: accesses from sample to sample, samples of a run, of which two thirds or more arrive, and
# the most samples a second.
LIVE_PERIOD, LIVE_SAMPLES, LIVE_RATE = 550_000, 1_450, 15_000


def live_jobs(lab):
    """Name, program, arguments and samples a second of live runs that are short enough for a full trace."""
    if lab.quick:
        yield "passes", lab.compile("tests/programs/passes.c", "live-passes"), ["800"], LIVE_RATE
        return
    for name in KERNELS:
        program = lab.compile(f"benches/kernels/{name}.c", f"kernel-{name}")
        inst = lab.instrument(program, stores=True)
        base, one = (lab.rows(lab.record("one", [inst, str(n)])) for n in (0, 1))
        rounds = str(max(1, round((LIVE_SAMPLES * LIVE_PERIOD - base) / (one - base))))
        seconds = timed([program, rounds])[1]
        yield name, program, [rounds], min(LIVE_RATE, round(LIVE_SAMPLES / seconds))


def live(lab):
    rows, similar, attributions = [], {}, ("survival", "proportional")
    for name, program, arguments, rate in live_jobs(lab):
        # The full trace of the same command; blocks are the eight bytes of a watchpoint.
        full = lab.record(f"{name}-full", [lab.instrument(program, stores=True), *arguments])
        seen = lab.record(f"{name}-watch", [program, *arguments], "watch", ["--rate", str(rate)])

        def compared(attribution, seen=seen, full=full):
            words = ["--rdx", "--compare", "--accesses-from", full, "--stores"]
            return lab.analyze("reuse", seen, *words, "--attribution", attribution)["summary"]

        # Each goes through the whole trace, on a processor of its own.
        with ThreadPoolExecutor(len(attributions)) as beside:
            found = zip(attributions, beside.map(compared, attributions))
        for attribution, s in found:
            for key in ("S_hat_time", "S_stack"):
                similar.setdefault((attribution, key), []).append(s[key])
            cells = [percent(s[k]) for k in ("S_time", "S_hat_time", "S_stack", "S_hat_stack")]
            samples = [s["samples"], s["samples_reused"], count(s["A"] / s["samples"])]
            rows.append([name, attribution, rate, *samples, *cells])
        lab.drop(full)
        lab.drop(seen)
    middle = lambda *key: percent(median(similar[key]))
    lab.table(
        "RDX live against full traces of the same commands",
        ["program", "attribution", "samples a second", "samples", "reused", "accesses a sample"]
        + ["S time", "Ŝ time", "S stack", "Ŝ stack"],
        rows,
        "mgz-record --mode watch, contexts are call paths; blocks of 8 bytes. Nothing counts accesses on this machine, so "
        "intervals are stepped accesses and CPU time at the run's mean rate. Loads and stores. Medians: "
        f"Ŝ of time {middle('survival', 'S_hat_time')} by survival and {middle('proportional', 'S_hat_time')} by the paper's attribution, "
        f"S of stack {middle('survival', 'S_stack')} and {middle('proportional', 'S_stack')}. The paper: more than 96 % and 90 %, at periods of 0.5 to 10 million.",
    )


STEPS_OF_PART = {"attributions": attributions, "guided": guided, "live": live}
