"""Cabrera, Chamberlain, Beard 2019: spectra of a stream and of a pointer chase over 1 GiB, and the advice on pages against runs."""

import time

from papers.lab import percent

# Programs of giant.c: MiB of the run that gives the advice, its passes, and those of the runs that check it.
KINDS = {
    "stream": (64, "3", "4"),
    "chase": (16, "3", "100000"),
    "sparse": (64, "3", "100000"),
    "quarter": (64, "10", "100000"),
    "scattered": (256, "40", "100000"),
    "local": (16, "1000", "100000"),
    "columns": (16, "3", "4"),
    "gather": (16, "3", "4"),
    "blocks": (16, "3", "4"),
    "window": (16, "3", "4"),
}
HINTS = {4096: "4 KiB", 2 << 20: "2 MiB", 64: "64 B"}


def whole(got, key, where):
    return [r for r in got[key] if r["where"] == where]


def spectrum(got, where):
    """Shares of the signature at each block size: below 4, below a page of 4 KiB's lines, up to 2 MiB's, beyond."""
    cells = []
    for size in (64, 4096, 2 << 20):
        parts = [0.0, 0.0, 0.0]
        for row in whole(got, "signatures", where):
            if row["granularity"] == size:
                parts[0 if row["to"] <= 4 else 1 if row["to"] <= 1024 else 2] += row["share"]
        cells.append(" / ".join(f"{100 * p:.0f}" for p in parts))
    return cells


def places(got):
    """Places worth a line: the program, its functions, intervals, and objects of a MiB and more."""
    sizes = {r["where"]: r["bytes"] for r in got["footprints"] if r["granularity"] == 64}
    for row in got["advice"]:
        name = row["where"]
        if not name.startswith("0x") and sizes.get(name, 0) >= 1 << 20:
            yield row


def run(lab):
    mib = 64 if lab.quick else 1024
    program = lab.compile("benches/models/giant.c")
    rewritten = lab.instrument(program, stores=True)
    # Every line once and a quarter of them again: enough to have distances, in bounded time.
    steps = mib * (1 << 20) // 64 * 5 // 4
    began = time.monotonic()
    trace = lab.record(
        "giant", [rewritten, "both", str(mib), "2", "any", str(steps)], options=["--heap"]
    )
    recorded = time.monotonic() - began
    rows = []
    for kind, more in (("loads", []), ("loads and stores", ["--stores"])):
        began = time.monotonic()
        got = lab.analyze("spectra", trace, "--functions", "--intervals", "4", *more)
        seconds = time.monotonic() - began
        for row in places(got):
            where = row["where"]
            emd = whole(got, "emd", where)
            foot = whole(got, "footprints", where)
            rows.append(
                [
                    kind,
                    where,
                    f"{row['reuses'] / 1e6:.1f}",
                    f"{row['footprint'] >> 20}",
                    *spectrum(got, where),
                    *(f"{e['emd']:.2f}" for e in emd),
                    *(percent(f["utilisation"], 0) for f in foot[1:]),
                    row["prototype"],
                    HINTS.get(row["page"], row["page"]),
                ]
            )
    lab.table(
        f"Spectra of a stream and a pointer chase over {mib} MiB each",
        [
            "accesses",
            "where",
            "M reuses",
            "MiB",
            "64 B: <4 / <1024 / more, %",
            "4 KiB",
            "2 MiB",
            "EMD 64 B–4 KiB",
            "EMD 4 KiB–2 MiB",
            "4 KiB used",
            "2 MiB used",
            "prototype",
            "page",
        ],
        rows,
        f"One program, recorded in full ({lab.rows(trace) / 1e6:.0f} million rows, {lab.size(trace) / 1e6:.0f} MB, {recorded:.0f} s); the last analysis took {seconds:.0f} s. "
        "The stream touches a word of each line of three arrays; the chase goes over all lines in random order and writes to each. "
        "*Function*: reuses by its accesses, and what it touches; *interval*: a quarter of the rows. The paper (SPEC CPU2006, mega_stream; up to 10¹² references): libquantum and libm "
        "shift at 4 KiB with everything used; mega_stream, whose streams are many, keeps its shape; h264ref leaves 90 to 99 % of 2 MiB unused.",
    )
    lab.drop(trace)
    pages(lab)


def pages(lab):
    """What is advised, and what huge pages do."""
    program = lab.compile("benches/models/giant.c")
    rewritten = lab.instrument(program, stores=True)
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        enabled = file.read().strip()
    mib = 64 if lab.quick else 1024
    turns, most = (3, 200_000) if lab.quick else (5, 2_000_000)
    rows = []
    for kind, (small, few, passes) in KINDS.items():
        # The advice comes from a smaller run of the same kind.
        steps = ["any", "1000000"] if kind == "local" else []
        trace = lab.record(kind, [rewritten, kind, str(small), few, *steps], options=["--heap"])
        got = lab.analyze("spectra", trace, "--functions", "--stores")
        chased = kind in ("chase", "sparse", "quarter", "scattered", "local")
        function = f"function {'chase' if chased else kind}_pass"
        advice = whole(got, "advice", function)[0]
        used = [f["utilisation"] for f in whole(got, "footprints", function)[1:]]
        lab.drop(trace)
        size = mib
        best = {}
        for _ in range(turns):
            for way in ("small", "huge"):
                out = lab.run([program, kind, str(size), passes, way, str(most)]).stdout
                step, seconds, resident, huge = map(float, out.split())
                old = best.get(way, (step, seconds, resident, huge))
                best[way] = (min(step, old[0]), min(seconds, old[1]), resident, huge)
        faster = best["small"][0] / best["huge"][0]
        whole_run = best["small"][1] / best["huge"][1]
        pays = max(faster, whole_run) > 1.05 and best["huge"][2] < 2 * best["small"][2]
        held = pays == (advice["page"] == 2 << 20)
        rows.append(
            [
                kind,
                advice["prototype"],
                HINTS.get(advice["page"], advice["page"]),
                *(percent(u) for u in used),
                *(f"{best[w][0]:.1f}" for w in ("small", "huge")),
                f"{faster:.2f}×",
                *(f"{best[w][1]:.2f}" for w in ("small", "huge")),
                *(f"{best[w][2]:.0f}" for w in ("small", "huge")),
                f"{best['huge'][3]:.0f}",
                "yes" if held else "no",
            ]
        )
    lab.table(
        f"Advice on pages against runs over {mib} MiB",
        [
            "program",
            "prototype",
            "page advised",
            "4 KiB used",
            "2 MiB used",
            "ns a step, 4 KiB pages",
            "2 MiB pages",
            "gain",
            "s in all, 4 KiB",
            "2 MiB",
            "MiB resident, 4 KiB",
            "2 MiB",
            "MiB in huge pages",
            "advice held",
        ],
        rows,
        f"The original program with madvise(MADV_NOHUGEPAGE) and with MADV_HUGEPAGE (transparent_hugepage/enabled: {enabled}), best of {turns} in turns; processor time. *In all* has the "
        "first touches. *Held*: huge pages were advised, and made steps or the whole run faster by 5 % without doubling the memory; or they were not, and did not. Steps of `stream` gain little, because its "
        "next page is known long before it is read; its first touches gain. `sparse` uses a line of each 4 KiB: a kernel hands out whole small pages, so that huge ones take no more memory, though "
        "most of either is never used. The paper gives advice and no runs.",
    )


STEPS_OF_PART = {"pages": pages}
