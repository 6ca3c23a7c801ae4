"""Comparisons that more than one benchmark script makes. Each prints its lines and returns figures by subject."""

from inline_ideal import Rewriter
from measure import Failed, geometric_mean, in_turns, ratio, run


def few(session):
    """Turns of what takes long and differs little."""
    return min(session.turns, 3)


def against_ideal(session, kernel, legal, seconds):
    """The PT flavour without tracing beside the original and the inline ideal; CPU times. See inline_ideal.py for the two forms."""
    assembly = session.path(kernel.name + ".s")
    run(["gcc", "-O3", "-g0", "-S", kernel.source, "-o", assembly])
    with open(assembly) as f:
        text = f.read()
    counts, variants = {}, {"original": kernel.path}
    for form, label in (("correct", "ideal"), ("one", "one")):
        rewriter = Rewriter(form, nop=not legal)
        variants[label] = session.path(f"{kernel.name}.{label}")
        with open(variants[label] + ".s", "w") as f:
            f.write(rewriter.rewrite(text))
        run(["gcc", variants[label] + ".s", "-o", variants[label]])
        counts[label] = rewriter.ptwrites
    variants["pt"], counts["pt"] = session.pt(kernel, legal)
    size = kernel.size(seconds)
    times = in_turns(
        {
            v: lambda p=p: kernel.checked(size, run([p, *kernel.arguments(size)]))
            for v, p in variants.items()
        },
        session.turns,
    )
    times = {v: t["cpu"] for v, t in times.items()}
    return {
        "ptwrites": counts,
        "cpu_seconds": times,
        **{v: ratio(times[v], times["original"]) for v in ("ideal", "one", "pt")},
        "pt_over_ideal": ratio(times["pt"], times["ideal"]),
        "pt_over_one": ratio(times["pt"], times["one"]),
    }


def pt_table(session, kernels, legal, seconds):
    """`against_ideal` for all kernels, with the table."""
    session.results["ptwrite_legal"] = legal
    session.say(
        "pt flavour without tracing (CPU time over that of the original; ideal = one ptwrite per non-constant load, put in by the compiler)"
    )
    if not legal:
        session.say(
            "  This CPU does not execute ptwrite: on BOTH sides each one is a NOP of the same length. What is compared is"
        )
        session.say("  therefore the code around the records, not the cost of a ptwrite.")
    out = {}
    session.say(
        f"  {'kernel':<12} {'ideal':>14} {'one':>7} {'pt':>14} {'pt/ideal':>16}   ptwrites: ideal, pt"
    )
    for name, kernel in kernels.items():
        try:
            r = out[name] = against_ideal(session, kernel, legal, seconds)
        except (Failed, ValueError, OSError) as error:
            session.fail(name, error)
            continue
        session.say(
            f"  {name:<12} {r['ideal']['min']:6.2f} /{r['ideal']['median']:6.2f} {r['one']['min']:7.2f} {r['pt']['min']:6.2f} /{r['pt']['median']:6.2f} "
            f"{r['pt_over_ideal']['min']:7.3f} /{r['pt_over_ideal']['median']:7.3f}   {r['ptwrites']['ideal']}, {r['ptwrites']['pt']}"
        )
    session.say(
        "  (two figures: of minima / median of the turns; one = lower bound with a single ptwrite also for base + index)"
    )
    return out


def recorded(session, subjects, mode, seconds, options=()):
    """`ring` and `full`: wall time of mgz-record with the program in it, over the program alone."""
    out = {}
    for name, subject in subjects.items():
        size, last = subject.size(seconds), {}

        def record(subject=subject, size=size, last=last):
            result, last["manifest"] = session.record(subject, size, "--mode", mode, *options)
            return result

        try:
            times = in_turns(
                {
                    "original": lambda subject=subject, size=size: subject.original(size),
                    mode: record,
                },
                few(session) if mode == "full" else session.turns,
            )
        except (Failed, OSError, ValueError) as error:
            session.fail(name, error)
            continue
        totals, program = last["manifest"]["totals"], last["manifest"]["wall_seconds"]
        records, base = totals["records_executed"], min(times["original"]["wall"])
        r = out[name] = {
            "rounds": size,
            "seconds": times,
            "totals": totals,
            "program_seconds": program,
            **ratio(times[mode]["wall"], times["original"]["wall"]),
            "cpu": ratio(times[mode]["cpu"], times["original"]["cpu"]),
        }
        kept = f"{totals['records_kept'] / 1e6:8.1f} M kept" + (
            f", {totals['spill_bytes'] / max(1, totals['records_kept']):.2f} B each"
            if mode == "full"
            else ""
        )
        session.say(
            f"  {name:<12} {r['min']:6.2f} /{r['median']:6.2f}   CPU {r['cpu']['median']:6.2f}   original {base:.3f} s, {records / 1e6:8.1f} M records, one per {base / max(1, records) * 1e9:.2f} ns, {kept}"
        )
        if totals.get("dropped"):
            session.say(f"  {'':<12} dropped: {totals['dropped']}")
    return out


def mean_of(figures, key="median"):
    """Geometric mean of a ratio over subjects."""
    return geometric_mean(r[key] for r in figures.values())


def cpu_note(figures):
    """What `recorded` cost in CPU time, in words."""
    cpu = geometric_mean(r["cpu"]["median"] for r in figures.values())
    return "" if cpu is None else f"CPU time of program and recorder {cpu:.2f} x"


def conversion(session, subjects, seconds):
    """Rows a second from spill/ to Parquet, by subject."""
    session.say(
        "conversion of spill/ to Parquet (rows a second; time of mgz-record less the same with --keep-spill)"
    )
    out = {}
    for name, subject in subjects.items():
        size, last = subject.size(seconds), {}

        def record(*options, subject=subject, size=size, last=last):
            result, manifest = session.record(subject, size, "--mode", "full", *options)
            if not options:
                last["totals"] = manifest["totals"]
            return result

        try:
            times = in_turns(
                {"spill": lambda record=record: record("--keep-spill"), "converted": record},
                few(session),
            )
        except (Failed, OSError, ValueError) as error:
            session.fail(name, error)
            continue
        rows = last["totals"]["rows"]
        wall, cpu = (
            max(1e-9, min(times["converted"][k]) - min(times["spill"][k])) for k in ("wall", "cpu")
        )
        out[name] = {
            "rows": rows,
            "seconds": times,
            "rows_per_second": rows / wall,
            "bytes": last["totals"]["sample_bytes"],
        }
        session.say(
            f"  {name:<12} {rows / 1e6:7.1f} M rows in {wall:.2f} s (CPU {cpu:.2f} s): {rows / wall / 1e6:.1f} M/s, {out[name]['bytes'] / max(1, rows):.2f} B a row on disk"
        )
    return out
