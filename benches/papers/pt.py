"""MemGaze report 2022, figure 9 and table 3: what Intel PT would have to write, modelled from traces."""

import json
import os
import re
import resource
import subprocess

from papers.lab import mean, percent

# Intel SDM 3, chapter on Processor Trace: a byte of TNT for six conditional branches, a TIP with
# four bytes of address for an indirect branch.
TIP, TNT_BRANCHES = 5, 6
# By rounds, of which the time of the program's beginning is taken off; or whole runs over much memory.
PROGRAMS = [
    ("pagerank", "benches/kernels/pagerank.c", "3"),
    ("spmv", "benches/kernels/spmv.c", "6"),
    ("bfs", "benches/kernels/bfs.c", "2"),
    ("hash", "benches/kernels/hash.c", "2"),
    ("chase", "benches/kernels/chase.c", "2"),
    ("stencil", "benches/kernels/stencil.c", "4"),
    ("matmul", "benches/kernels/matmul.c", "1"),
    ("sort", "benches/kernels/sort.c", "2"),
]
WHOLE = [
    ("graph of 300,000 nodes", "benches/models/bfs.c", "300000"),
    ("list of 300,000 nodes", "benches/models/list.c", "300000"),
]
# Windows: bytes of PT data for each, and loads from one to the next.
OURS = (16 * 1000 + 2048, 1_000_000)
# The report's: of its small programs, GAP and miniVite.
THEIRS = [("10K", 16 * 1024, 10_000), ("5M", 8192, 5_000_000), ("10M", 8192, 10_000_000)]


def executed(lab, program, arguments):
    """Instructions, conditional branches and indirect ones, counted by Valgrind."""
    out = os.path.join(lab.work, "cachegrind")
    done = lab.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=yes"]
        + [f"--cachegrind-out-file={out}", program, *arguments]
    )
    text = done.stderr.decode(errors="replace")
    of = lambda name: int(re.search(name + r"\s*:\s*([\d,]+)", text).group(1).replace(",", ""))
    conditional, indirect = re.search(
        r"Branches:\s*[\d,]+\s*\(\s*([\d,]+) cond\s*\+\s*([\d,]+) ind", text
    ).groups()
    number = lambda digits: int(digits.replace(",", ""))
    return of("I\\s+refs"), number(conditional), number(indirect)


def busy(command, turns):
    """CPU seconds of a command, the least of some turns."""
    least = None
    for _ in range(turns):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = seconds if least is None else min(least, seconds)
    return least


def seconds_of(program, size, turns):
    """CPU seconds of `size` rounds, without the beginning of the program."""
    more = 8
    while True:
        many, few = (busy([program, str(n * size)], turns) for n in (more + 1, 1))
        if many - few > 0.2:
            return (many - few) / more
        more *= 4


def packets(lab):
    """Bytes by kind of packet in the real recording that tests use."""
    packed = os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        "collector/intel-pt/tests/pt/data/ubench-ptwrite-geminilake.perf.data.zst",
    )
    file = os.path.join(lab.work, "geminilake.perf.data")
    lab.run(["zstd", "-d", "-q", "-f", "-o", file, packed])
    text = lab.run([lab.tool("mgz-record"), "--import", file, "--packets"], (0, 1)).stdout
    kinds, last = {}, None
    for line in text.decode(errors="replace").splitlines():
        found = re.match(r"([0-9a-f]{8})  ((?:[0-9a-f]{2} )+) *(\S+)", line)
        if found:
            last = found.group(3).split(".")[0]
            number, size = kinds.get(last, (0, 0))
            kinds[last] = (number + 1, size + len(found.group(2).split()))
    return kinds


def run(lab):
    kinds = packets(lab)
    total = sum(size for _, size in kinds.values())
    writes = kinds.get("PTW", (0, 0))[0]
    lab.table(
        "Packets of a real recording (Pentium Silver J5005, `branch=0`, `fup_on_ptw`)",
        ["packet", "number", "bytes each", "share of the bytes"],
        [
            [kind, number, f"{size / number:.1f}", percent(size / total)]
            for kind, (number, size) in sorted(kinds.items(), key=lambda k: -k[1][1])
            if size >= total / 1000
        ],
        f"{total} bytes with {writes} `ptwrite`s: {total / max(1, writes):.1f} bytes for each. Tracing itself could not be measured: no machine at hand has PT with `ptwrite` open to it.",
    )
    each = total / max(1, writes)
    # mgz asks for time stamps alone.
    lean = sum(kinds.get(k, (0, 0))[1] for k in ("PTW", "FUP", "PSB", "TSC", "CBR", "PSBEND"))
    lean /= max(1, writes)
    rows, growth = [], {0: [], 3: []}
    for name, source, size in PROGRAMS[:3] if lab.quick else PROGRAMS + WHOLE:
        for level in (0, 3):
            rounds = "kernels" in source
            label = os.path.splitext(os.path.basename(source))[0]
            program = lab.compile(source, f"pt-{label}-{rounds}-O{level}", [f"-O{level}"])
            soft = lab.instrument(program)

            def counts(size, program=program, soft=soft):
                trace = lab.record("pt", [soft, str(size)], mode="ring")
                with open(os.path.join(trace, "manifest.json")) as file:
                    totals = json.load(file)["totals"]
                lab.drop(trace)
                loads = totals.get("loads_executed") or totals.get("loads_executed_estimate") or 0
                return (totals["records_executed"], loads, *executed(lab, program, [str(size)]))

            # Counts of the rounds, without those of the program's start.
            size = int(size)
            once, twice = (
                ([0] * 5, counts(size)) if not rounds else (counts(size), counts(2 * size))
            )
            written, loads, instructions, conditional, indirect = (
                b - a for a, b in zip(once, twice)
            )
            turns = 2 if lab.quick else 3
            if rounds:
                seconds = seconds_of(program, size, turns)
            else:
                seconds = busy([program, str(size)], turns)
            ptwrites = written * lean
            flow = conditional / TNT_BRANCHES + indirect * TIP
            rate = ptwrites / seconds
            share = written / instructions
            growth[level].append(share)
            window = lambda size, period, l=loads, s=seconds: size * l / period / s
            rows.append(
                [
                    name,
                    f"O{level}",
                    f"{loads / seconds / 1e6:.0f}",
                    f"{written / seconds / 1e6:.0f}",
                    percent(share),
                    f"{rate / 1e6:.0f}",
                    f"{written * each / seconds / 1e6:.0f}",
                    f"{(ptwrites + flow) / seconds / 1e6:.0f}",
                    *(percent(max(0, 1 - limit * 1e6 / rate), 0) for limit in (500, 2000)),
                    f"{window(*OURS) / 1e6:.1f}",
                    *(f"{window(*theirs) / 1e6:.1f}" for _, *theirs in THEIRS),
                    f"{64 * 1048576 / rate * 1000:.0f}",
                ]
            )
    means = {level: mean(values) for level, values in growth.items()}
    lab.table(
        "Figure 9, modelled: bytes of PT data a second",
        [
            "program",
            "",
            "M loads/s",
            "M `ptwrite`s/s",
            "of all instructions",
            "MB/s of `ptwrite`s",
            "with MTC",
            "with branches",
            "lost at 500 MB/s",
            "at 2,000 MB/s",
            "MB/s in windows, `ring`",
            *(f"the report's, {period}" for period, *_ in THEIRS),
            "ms to fill 64 MiB",
        ],
        rows,
        f"Rates of the program as it runs untraced, by CPU time. *`ptwrite`s*: records of a `ring` run of the soft flavour, whose plan of records is that of PT but for pairs, of {lean:.1f} bytes each: PTW, FUP, and the PSBs, as in the recording above. *With MTC*: {each:.1f} bytes, as it was recorded. *With branches*: a byte of TNT for six conditional "
        f"branches and {TIP} bytes of TIP for an indirect one (counted by cachegrind), which `branch=0` leaves out. *Lost*: of a full trace, where what reads the buffer takes so much. *Windows*: "
        f"{OURS[0]} bytes for 1,000,000 loads, and the report's 16 KiB for 10,000 (small programs) or 8 KiB for 5 (GAP) and 10 million (miniVite). `ptwrite`s are {percent(means[0])} (O0) and {percent(means[3])} (O3) of the instructions on average: the report finds the overhead of tracing "
        "in windows alone close to that ratio, measures less than 40 % so and 10 to 95 % with PT always on (5 to 7 times for Darknet), and loses 0 to 64 % of full traces (table 3, Rec against All: 163 GB become 77 for miniVite-O0-v1, 59 become 29 for "
        "ResNet). What is measured of mgz: programs with `ptwrite`s and no tracing, see *PT flavour, not traced*.",
    )
    report(lab)


def report(lab):
    """Table 3 of the report: what was lost of full traces."""
    table = [
        ("miniVite-O0-v1", 77, 163, 316.5),
        ("miniVite-O3-v1", 19, 41, 41.1),
        ("miniVite-O3-v2", 22, 43, 54.9),
        ("GAP-cc-O3", 4.9, 7.9, 9.5),
        ("GAP-pr-O3", 5.4, 7.9, 9.5),
        ("Darknet-AlexNet", 4.6, 11.2, 16.9),
        ("Darknet-ResNet", 29, 59, 66),
    ]
    lab.table(
        "The report's full traces (table 3)",
        ["program", "GB recorded", "GB without losses", "lost", "GB with Constant loads"],
        [
            [n, rec, everything, percent(1 - rec / everything, 0), plus]
            for n, rec, everything, plus in table
        ],
        "Numbers of the report. A machine that loses half of a full trace takes half of the rate of the program: 500 to 2,000 MB/s above bracket that.",
    )
