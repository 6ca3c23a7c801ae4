"""Findings of the MemGaze report (its section 8), for its own programs and for ours."""

from .lab import bars, count, mean

FINDINGS = ["finding", "paper", "here", "values"]
# ΔF and D of gemm in eight intervals (the report's table 8).
GEMM_OVER_TIME = {
    "alexnet": [(0.475, 0.01), (0.675, 0.02), (0.983, 0.02), (0.794, 0.14), (0.489, 1.64), (0.627, 1.66), (0.493, 1.66), (0.644, 1.49)],
    "resnet": [(0.747, 0.47), (0.799, 0.57), (0.617, 2.71), (0.599, 2.62), (0.574, 2.69), (0.618, 2.65), (0.625, 2.63), (0.514, 2.66)],
}  # fmt: skip


def over_all(row):
    """D over all accesses. One that is first in its sample counts as 0, as in the report."""
    return (row["D_mean"] or 0) * row["reuses"] / max(1, row["A"])


def finding(text, is_so, values, paper="yes"):
    """A finding of the report, whether it holds here, and the values that decide it."""
    shown = ", ".join(f"{name} {value}" for name, value in values.items())
    return [text, paper, "yes" if is_so else "no", shown]


def each(values, shown):
    return {name: shown(value) for name, value in values.items()}


def table_findings(variants, all_loads, strided, distances, times):
    insert = {v: all_loads["insert", v] for v in variants}
    used = {v: all_loads["getMax", v] for v in variants}
    total = {v: insert[v] + used[v] for v in variants}
    shares = {p: {v: strided[p, v] for v in variants} for p in ("insert", "getMax")}
    of_map = {v: distances["map (hash table)", v] for v in variants}
    of_walk = shares["getMax"]
    part = lambda share: f"{share:.1f} %"
    return [
        finding("v1 loads least in getMax, v3 most", used["v1"] < used["v2"] < used["v3"], each(used, count)),
        finding("v2 loads most in insert, v3 least", insert["v2"] > insert["v1"] > insert["v3"], each(insert, count)),
        finding("v1 loads least in all", total["v1"] == min(total.values()), each(total, count)),
        finding("getMax is irregular by chains, strided by closed tables", of_walk["v1"] < 5 < of_walk["v2"], each(of_walk, part)),
        finding("insert is more strided by closed tables", shares["insert"]["v2"] > shares["insert"]["v1"], each(shares["insert"], part)),
        finding("D of the map is higher by chains than by v3", of_map["v1"] >= of_map["v3"], each(of_map, "{:.2f}".format)),
        finding("time falls from v1 to v3", times["v1"] > times["v2"] > times["v3"], each(times, "{:.1f} s".format)),
    ]  # fmt: skip


def slices(lab, trace, name, wanted=8):
    """Metrics of a function in parts of the run with equally many samples."""
    query = "SELECT begin_ns, end_ns FROM samples ORDER BY begin_ns"
    done = lab.run(
        [lab.tool("mgz"), "query", trace, query, "--rows", "10000000", "--format", "csv"]
    )
    samples = [tuple(map(int, line.split(","))) for line in done.stdout.decode().split()[1:]]
    # Ends lie in the middle between samples.
    start, ends = samples[0][0], [0.0]
    for part in range(1, wanted):
        at = len(samples) * part // wanted
        ends.append(((samples[at - 1][1] + samples[at][0]) / 2 - start) / 1e9)
    ends.append((samples[-1][1] - start) / 1e9 + 1)
    out = []
    for first, last in zip(ends, ends[1:]):
        part = ["--from", f"{first:.9f}", "--to", f"{last:.9f}", "--function", name]
        found = lab.analyze(trace, *part)["functions"]
        out.append(found[0] if found else None)
    return out


def gemm_over_time(lab, title, over_time):
    """The table of gemm's intervals; its growths and distances by network."""
    rows, growths, distances = [], {}, {}
    for network, parts in over_time.items():
        growths[network] = [p["dF"] for p in parts if p]
        distances[network] = [over_all(p) for p in parts if p]
        for i, p in enumerate(parts):
            ours = [f"{p['dF']:.3f}", f"{over_all(p):.2f}", count(p["A"])] if p else ["–"] * 3
            rows.append([network, i, *ours, *(str(x) for x in GEMM_OVER_TIME[network][i])])
    head = ["network", "interval", "ΔF", "D", "recorded", "paper: ΔF", "paper: D"]
    lab.table(
        title, head, rows, "Eight intervals with equally many samples. D is over all accesses."
    )
    return growths, distances


def network_findings(of_gemm, growths, distances):
    """`of_gemm`: its share of the loads, and strided percent, by network.

    ΔF varies by its changes from interval to interval. Its range would count the steady fall of ResNet, which is
    another finding.
    """
    spread = {n: sum(abs(b - a) for a, b in zip(g, g[1:])) for n, g in growths.items()}
    firsts = {n: (d[0], mean(d[1:])) for n, d in distances.items()}
    part = lambda share: f"{share:.1f} %"
    rows = [
        finding("gemm dominates", all(s[0] > 0.9 for s in of_gemm.values()), {n: part(100 * s[0]) + " of loads" for n, s in of_gemm.items()}, "yes (> 90 % of F)"),
        finding("nearly all of gemm is strided", all(s[1] > 97 for s in of_gemm.values()), {n: part(s[1]) for n, s in of_gemm.items()}),
        *(finding(f"D rises over time ({n})", b > a, {"first interval": f"{a:.2f}", "mean of the others": f"{b:.2f}"}) for n, (a, b) in firsts.items()),
    ]  # fmt: skip
    if "resnet" in spread:
        varies = spread["alexnet"] > spread["resnet"]
        rows.append(finding("ΔF varies more in AlexNet", varies, each(spread, "{:.3f}".format)))
        first, last = (mean(growths["resnet"][:4]), mean(growths["resnet"][4:]))
        halves = {"first half": f"{first:.3f}", "second half": f"{last:.3f}"}
        rows.append(finding("ΔF of ResNet falls over time", last < first, halves))
    return rows


def parts_over_time(kind, zoomed):
    """Rows of the heat map of one object: parts of it by address, with loads and D over time."""
    rows = zoomed["heat_map"]["rows"]
    start = min(int(row["start"], 16) for row in rows)
    place = lambda row: f"{(int(row['start'], 16) - start) / 1024:.0f}"
    shown = lambda row: ["`" + bars(row[key]) + "`" for key in ("A", "D_mean")]
    return [[kind, row["label"], place(row), *shown(row)] for row in rows]


def part_table(lab, title, rows):
    """Heat maps inside one object (figure 10)."""
    head = ["algorithm", "object", "from, KiB", "loads over time", "D over time"]
    text = "Equal parts of the object by address (`mgz-analyze --zoom --object`), from the run's start to its end; a bar is as high as its share of the row's greatest value, a point where there is no reuse."
    lab.table(title, head, rows, text)


def common_lengths(by_size):
    """Lengths of intervals that all kinds have, by kind and length."""
    return sorted(set.intersection(*(set(sizes) for sizes in by_size.values())))


def length_table(lab, title, by_size):
    """Locality by the length of intervals (figure 11)."""
    head = ["accesses", *(f"{k}: {m}" for k in by_size for m in ("ΔF", "F_irr%", "D"))]
    of = lambda row: (f"{row['dF']:.3f}", f"{row['dF_irr_pct']:.1f}", f"{row['D_mean'] or 0:.2f}")
    rows = [[w, *(x for k in by_size for x in of(by_size[k][w]))] for w in common_lengths(by_size)]
    lab.table(title, head, rows)


def graph_findings(kept, by_size, times):
    """Growth and irregular shares are means over the lengths of intervals, as in figure 11."""
    lengths = common_lengths(by_size)
    over_lengths = lambda kind, metric: mean(by_size[kind][w][metric] for w in lengths)
    loaded = {k: v[3]["summary"]["A_hat"] for k, v in kept.items()}
    distance = {k: v[2] for k, v in kept.items()}
    growth = {k: over_lengths(k, "dF") for k in kept}
    irregular = {k: over_lengths(k, "dF_irr_pct") for k in kept}

    def compared(text, values, shown, less, more):
        pair = {k: values[k] for k in (less, more)}
        return finding(text, values[less] < values[more], each(pair, shown))

    return [
        compared("at once needs fewer accesses than by rounds", loaded, count, "gs", "jacobi"),
        compared("D of o_score is smaller at once", distance, "{:.2f}".format, "gs", "jacobi"),
        compared("growth is slightly smaller at once", growth, "{:.3f}".format, "gs", "jacobi"),
        compared("Afforest takes more accesses than Shiloach–Vishkin", loaded, count, "sv", "afforest"),
        compared("D of cc is greater by Afforest", distance, "{:.2f}".format, "sv", "afforest"),
        compared("growth is greater by Afforest", growth, "{:.3f}".format, "sv", "afforest"),
        compared("irregular share is greater by Afforest", irregular, "{:.1f} %".format, "sv", "afforest"),
        compared("Afforest is faster", times, "{:.1f} s".format, "afforest", "sv"),
    ]  # fmt: skip
