"""The case studies of the MemGaze report at their real sizes (its section 8; tables 4 to 9, figures 10 and 11).

Programs are ours (benches/papers/programs), sampled in `ring` with one window of 1,000 records in each million: 1 in 1,000.
Only the studied functions are recorded (`--from-function`), as the report ignores how graphs are built.
"""

import os
import subprocess

from . import originals, sampling, tracing
from .findings import (
    FINDINGS,
    gemm_over_time,
    graph_findings,
    length_table,
    network_findings,
    part_table,
    parts_over_time,
    slices,
    table_findings,
)
from .lab import bars, count

PROGRAMS = "benches/papers/programs"


class Study:
    def __init__(self, lab):
        self.lab = lab
        self.options = ["--period", "100000" if lab.quick else "1000000", "--window", "1000"]

    def program(self, source, flags=("-O3",)):
        program = self.lab.compile(f"{PROGRAMS}/{source}", flags=flags)
        return program, self.lab.instrument(program)

    def report(self, name, instrumented, arguments, start, heap=False):
        options = [*self.options, "--from-function", start, *(["--heap"] if heap else [])]
        trace = self.lab.record(name, [instrumented, *arguments], "ring", options)
        return trace, self.lab.analyze(trace, "--zoom")

    def seconds(self, program, arguments):
        """CPU seconds of the program as it is."""
        before = os.times()
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        return after.children_user - before.children_user


def sampled(row):
    """Growth inside samples, and its strided share by the static classes."""
    loads = row["A"] / max(1, row["samples_seen"])
    growth = row["F_sample"] / max(1, loads)
    strided = row["F_str_sample"] / max(1e-9, row["F_sample"])
    return growth, 100 * strided


def footprint(row):
    text = count(row["F_hat"])
    if row["F_lo"] is not None:
        text += f" [{count(row['F_lo'])}, {count(row['F_hi'])}]"
    return text


def loads(row):
    if row["A_lo"] is None:
        return count(row["A_hat"])
    return f"{count(row['A_hat'])} [{count(row['A_lo'])}, {count(row['A_hi'])}]"


def named(rows, *starts):
    """The rows of functions whose names begin so, the hottest first."""
    return [
        r
        for r in rows
        if r["function"].split("::")[-1].startswith(starts) or r["function"].startswith(starts)
    ]


def communities(lab, study):
    variants = [("v1", "chained"), ("v2", "hopscotch"), ("v3", "sized")]
    program, instrumented = study.program("communities.cpp", ("-O3", "-std=c++17"))
    size = ["16"] if lab.quick else ["20"]
    paper = {
        "buildMap": {"v1": "2.3G, 0.156, 66.4, 291K", "v2": "2.1G, 0.151, 66.9, 273K", "v3": "2.1G, 0.160, 66.8, 270K"},
        "insert": {"v1": ">0.7G, 0.011, 73.3, 106K", "v2": "2.4G, 0.003, 93.7, 318K", "v3": "0.5G, 0.009, 92.8, 67.8K"},
        "getMax": {"v1": "0.4G, 0.150, 0.5, 44.7K", "v2": "1.3G, 0.040, 98.4, 182K", "v3": "1.5G, 0.040, 97.8, 194K"},
    }  # fmt: skip
    parts = {
        "buildMap": ("buildMap",),
        "insert": ("insert", "grow", "_M_rehash", "_M_fill_assign"),
        "getMax": ("getMax",),
    }
    rows, objects, all_loads, strided, distances, times = [], [], {}, {}, {}, {}
    for version, kind in variants:
        trace, got = study.report(version, instrumented, [kind, *size], "sweep", heap=True)
        times[version] = study.seconds(program, [kind, *size])
        for part, starts in parts.items():
            found = named(got["functions"], *starts)
            if not found:
                continue
            growth, share = sampled(found[0])
            total = sum(f["A_hat"] for f in found)
            all_loads[part, version], strided[part, version] = total, share
            rows.append(
                [
                    part,
                    version,
                    footprint(found[0]),
                    f"{growth:.3f}",
                    f"{share:.1f}",
                    loads(found[0]),
                ]
                + [count(total) if len(found) > 1 else "", count(sum(f["A"] for f in found))]
                + [paper[part][version]]
            )
        wanted = {
            "map (hash table)": lambda o: (
                o["kind"] == "heap" and ("make" in o["object"] or "insert" in o["object"])
            ),
            "edges": lambda o: o["kind"] == "heap" and "graph.h" in o["object"],
            "community of a neighbour": lambda o: o["kind"] == "heap" and "main" in o["object"],
        }
        theirs = {
            "map (hash table)": {"v1": "2.65, 71.9", "v2": "2.79, 155.2", "v3": "1.97, 111.3"},
            "edges": {"v1": "8.71, 4.9", "v2": "4.90, 3.9", "v3": "3.32, 3.9"},
            "community of a neighbour": {"v1": "0.37, 0.2", "v2": "0.15, 0.2", "v3": "0.24, 0.2"},
        }
        for name, is_it in wanted.items():
            of = [o for o in got["objects"] if is_it(o)]
            if not of:
                continue
            blocks, accesses = sum(o["blocks"] for o in of), sum(o["A"] for o in of)
            reuses = sum(o["reuses"] for o in of)
            distance = sum((o["D_mean"] or 0) * o["reuses"] for o in of) / max(1, reuses)
            distances[name, version] = distance
            objects.append(
                [name, version, f"{distance:.2f}", blocks, count(accesses), f"{accesses / blocks:.1f}", theirs[name][version]]
            )  # fmt: skip
        lab.drop(trace)
    nodes = 1 << int(size[0])
    lab.table(
        "MemGaze: hash tables of community detection (table 4)",
        ["function", "table", "F^", "ΔF in samples", "F_str%", "loads", "with growing", "recorded", "paper: F, ΔF, F_str%, A"],
        rows,
        f"R-MAT graph of {nodes:,} vertices. v1: std::unordered_map; v2: hopscotch, default size; v3: hopscotch of the right size. "
        "F^ with its 95 % interval; F_str% by static classes per sample, as in the report. `insert` stands for what it calls to grow as well where "
        "loads are summed.",
    )  # fmt: skip
    lab.table(
        "MemGaze: hot objects of community detection (table 5)",
        ["object", "table", "D", "blocks", "recorded", "per block", "paper: D, A/block"],
        objects,
        "D inside windows, over the blocks of all objects.",
    )
    lab.table(
        "MemGaze: findings about hash tables",
        FINDINGS,
        table_findings([v for v, _ in variants], all_loads, strided, distances, times),
        "Loads, F_str%, D and seconds of the tables above; seconds are CPU time, with the graph's making.",
    )


def layers(lab, study):
    program, instrumented = study.program("layers.c")
    paper = {
        ("gemm", "alexnet"): "69M, 0.113, 100, 1.2M", ("gemm", "resnet"): "3855M, 0.478, 100, 2.6M",
        ("im2col", "alexnet"): "3.4M, 0.138, 100, 0.05M", ("im2col", "resnet"): "244M, 0.813, 100, 0.09M",
    }  # fmt: skip
    rows, objects, over_time, share = [], [], {}, {}
    for network in ["alexnet"] if lab.quick else ["alexnet", "resnet"]:
        trace, got = study.report(
            network, instrumented, [network], "^(alexnet|resnet|convolution|im2col)$", heap=True
        )
        total = sum(f["A_hat"] for f in got["functions"])
        for part in ("gemm", "im2col"):
            found = [f for f in got["functions"] if f["function"].startswith(part)]
            growth, strided = sampled(found[0])
            share[part, network] = (sum(f["A_hat"] for f in found) / total, strided)
            rows.append(
                [part, network, footprint(found[0]), f"{growth:.3f}", f"{strided:.1f}", loads(found[0]), count(found[0]["A"]), paper[part, network]]
            )  # fmt: skip
        for o in got["objects"][:4]:
            distance = "–" if o["D_mean"] is None else f"{o['D_mean']:.2f}"
            objects.append(
                [
                    o["object"],
                    network,
                    distance,
                    o["blocks"],
                    count(o["A"]),
                    f"{o['A_per_block']:.1f}",
                ]
            )
        over_time[network] = slices(lab, trace, "^gemm")
        lab.drop(trace)
    lab.table(
        "MemGaze: layers of neural networks (table 6)",
        [
            "function",
            "network",
            "F^",
            "ΔF in samples",
            "F_str%",
            "loads",
            "recorded",
            "paper: F, ΔF, F_str%, A",
        ],
        rows,
        "All layers of AlexNet and ResNet-152 at Darknet's sizes, one image, one thread.",
    )
    lab.table(
        "MemGaze: hot objects of neural networks (table 7)",
        ["object", "network", "D", "blocks", "recorded", "per block"],
        objects,
        "The paper: D of A, B, C together 0.76 (AlexNet, 14.8 accesses a block) and 0.01 (ResNet, 15.6); of im2col's region 1.87 and 2.54.",
    )
    growths, distances = gemm_over_time(lab, "MemGaze: gemm over time (table 8)", over_time)
    of_gemm = {n: s for (p, n), s in share.items() if p == "gemm"}
    rows = network_findings(of_gemm, growths, distances)
    lab.table("MemGaze: findings about neural networks", FINDINGS, rows)


def graphs(lab, study):
    program, instrumented = study.program("kernels.cpp", ("-O3", "-std=c++17"))
    size = ["16"] if lab.quick else ["20"]
    kinds = [
        ("gs", "pagerank_gs", "o_score", "1.13, 152, 64K, 0.76"),
        ("jacobi", "pagerank_jacobi", "o_score", "2.41, 132, 82K, 1.14"),
        ("afforest", "components_afforest", "cc", "5.21, 154, 581K, 8.87"),
        ("sv", "components_sv", "cc", "0.83, 36, 476K, 8.65"),
    ]
    objects, functions, by_size, maps, parts, kept, times = [], [], {}, [], [], {}, {}
    for kind, function, name, theirs in kinds:
        trace, got = study.report(kind, instrumented, [kind, *size], "^" + function)
        times[kind] = study.seconds(program, [kind, *size])
        own = lab.analyze(trace, "--object", f"^{name}$", "--zoom")
        parts += parts_over_time(kind, own)
        thing = next(o for o in got["objects"] if o["object"] == name)
        alone = next(o for o in own["objects"] if o["object"] == name)
        # The report's D is over all accesses: one that is first in its sample counts nothing.
        spread = alone["D_mean"] * alone["reuses"] / max(1, alone["A"]) if alone["D_mean"] else 0
        kept[kind] = (thing, alone, spread, got)
        objects.append(
            [name, kind]
            + [
                f"{thing['D_mean'] or 0:.1f}",
                f"{alone['D_mean'] or 0:.1f}",
                f"{spread:.2f}",
                thing["D_max"],
            ]
            + [
                f"{thing['first_pct']:.1f}",
                count(thing["A"]),
                f"{thing['A_per_block']:.2f}",
                theirs,
            ]
        )
        for f in [f for f in got["functions"] if f["A_pct"] >= 5]:
            growth, strided = sampled(f)
            distance = f"{f['D_mean']:.2f}" if f["D_mean"] is not None else "–"
            if f["D_mean_lo"] is not None:
                distance += f" [{f['D_mean_lo']:.2f}, {f['D_mean_hi']:.2f}]"
            functions.append(
                [
                    f["function"],
                    kind,
                    footprint(f),
                    f"{growth:.3f}",
                    f"{strided:.1f}",
                    distance,
                    loads(f),
                ]
            )
        by_size[kind] = {w["W"]: w for w in got["windows"]}
        labels = set()
        for row in got["heat_map"]["rows"]:
            if row["label"] in (name, "[stack]") and row["label"] not in labels:
                labels.add(row["label"])
                maps.append(
                    [
                        kind,
                        row["label"],
                        "`" + bars(row["A"]) + "`",
                        "`" + bars(row["D_mean"]) + "`",
                    ]
                )
        lab.drop(trace)
    nodes = 1 << int(size[0])
    lab.table(
        "MemGaze: hot objects of page rank and components (table 9)",
        ["object", "algorithm", "D", "D of its own blocks", "that over all accesses", "max D", "first touches %", "recorded", "per block", "paper: D, max D, A, A/block"],
        objects,
        f"Kronecker graph of {nodes:,} vertices, 16 pairs a vertex, neighbours sorted. D is a mean over reuses inside windows.",
    )  # fmt: skip
    lab.table(
        "MemGaze: functions of page rank and components",
        ["function", "algorithm", "F^", "ΔF in samples", "F_str%", "D", "loads"],
        functions,
    )
    lab.table(
        "MemGaze: heat maps of the hot objects (figure 10)",
        ["algorithm", "region", "loads over time", "D over time"],
        maps,
        "From the run's start to its end; a bar is as high as its share of the row's greatest value, a point where there is no reuse.",
    )
    part_table(lab, "MemGaze: heat maps inside one object (figure 10)", parts)
    length_table(lab, "MemGaze: locality by interval length (figure 11)", by_size)
    lab.table(
        "MemGaze: findings about graphs",
        FINDINGS,
        graph_findings(kept, by_size, times),
        "D is over all accesses; growth and F_irr% are means over the lengths of intervals; seconds are CPU time, with the graph's making.",
    )


def reason(errors):
    """The compiler's or linker's first complaint, without the place."""
    lines = [line for line in errors.split("\n") if "error" in line or "cannot find" in line]
    return lines[0].split(": ", 1)[-1] if lines else "no reason given"


def packaged(lab, study):
    """Programs of the same kinds as packages have them: igraph's Louvain method and page rank, OpenBLAS."""
    rows = []
    for source, library, cases in [  # fmt: skip
        (
            "igraph.c",
            "libigraph.so.3",
            [
                ("louvain", "igraph_community_multilevel"),
                ("pagerank", "igraph_pagerank"),
                ("components", "igraph_connected_components"),
            ],
        ),
        ("openblas.c", "libopenblas.so.0", [("alexnet", "cblas_sgemm")]),
    ]:
        program, name = os.path.join(lab.work, source[:-2]), source[:-2]
        command = ["gcc", "-O2", "-g", "-I/usr/include/igraph", "-o", program, os.path.join(os.path.dirname(__file__), "programs", source), f"-l{name}", "-lm"]  # fmt: skip
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            rows.append([source[:-2], f"not built: {reason(built.stderr)}", *[""] * 6])
            continue
        instrumented = program + ".inst"
        lab.run([lab.tool("mgz-instrument"), "--backend", "soft", "--for", "ring", f"--libs={library}", "-o", instrumented, program], seconds=1800)  # fmt: skip
        for case, start in cases:
            size = "14" if lab.quick else "16"
            options = [*study.options, "--from-function", f"^{start}$"]
            trace = lab.record(f"{source}-{case}", [instrumented, case, size], "ring", options)
            got = lab.analyze(trace)
            s = got["summary"]
            hot = [f for f in got["functions"] if f["A_pct"] >= 5][:3]
            first = got["findings"][0]["title"] if got["findings"] else got["no_finding"] or ""
            for f in hot:
                growth, strided = sampled(f)
                distance = "–" if f["D_mean"] is None else f"{f['D_mean']:.2f}"
                rows.append([f"{name} {case}", f["function"], f"{f['A_pct']:.1f}", footprint(f), f"{growth:.3f}", f"{strided:.1f}", distance, first])  # fmt: skip
                first = ""
            if not hot:
                rows.append(
                    [f"{name} {case}", "no function with 5 %", "", footprint(s), "", "", "", first]
                )
            lab.drop(trace)
    lab.table(
        "MemGaze: packaged programs of the same kinds",
        ["program", "function", "loads %", "F^", "ΔF in samples", "F_str%", "D", "first finding"],
        rows,
        "As Debian has them, with the library instrumented.",
    )


def run(lab):
    study = Study(lab)
    communities(lab, study)
    layers(lab, study)
    graphs(lab, study)
    packaged(lab, study)


STEPS_OF_PART = {
    "originals": originals.run,
    "rewriting": originals.rewriting,
    "sampling": sampling.run,
    "tracing": tracing.run,
}
