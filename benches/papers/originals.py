"""The MemGaze report's own programs (its section 8), built from their sources.

MGZ_GAP, MGZ_MINIVITE, MGZ_DARKNET and MGZ_HOPSCOTCH name folders with the sources of GAP (sbeamer/gapbs), miniVite
(ECP-ExaGraph/miniVite), Darknet (pjreddie/darknet) and the hash table of the report's second and third variant
(Tessil/hopscotch-map). Nothing is written there. What is not named is left out. miniVite needs MPI.
"""

import os
import re
import shutil

from .findings import (
    FINDINGS,
    gemm_over_time,
    graph_findings,
    length_table,
    network_findings,
    over_all,
    part_table,
    parts_over_time,
    slices,
    table_findings,
)
from .lab import count

# The second and the third variant of miniVite use another table under the name of the first one's.
OTHER_TABLE = """#include <unordered_map>
#include <tsl/hopscotch_map.h>
namespace std { template <class K, class V> using hopscotch = tsl::hopscotch_map<K, V>; }
#define unordered_map hopscotch
"""
# The table of a vertex, and the same with room for all its neighbours.
TABLE_OF_VERTEX = "std::unordered_map<GraphElem, GraphElem> clmap;"
SIZED_TABLE = "clmap.reserve(e1 - e0 + 1);"
EDGES_ARE_KNOWN = "dg.edge_range(i, e0, e1);"
# Functions of GAP behind the making of the graph. A compiler may inline one of them, not all.
KERNEL = "^(PageRankPull|ShiloachVishkin|Afforest)|BenchmarkKernel"
# Functions that the report names have code of their own.
APART = ["-fno-inline-functions-called-once", "-fno-inline-functions"]
# Records of a window: the report's buffers of 8 KiB yield some 500.
WINDOW = "500"
# Loads between windows. Page rank and components have the report's. miniVite takes quadratic time to make
# its graph, so it runs on a smaller one, and its period is so much shorter that there are as many windows.
GAP_PERIOD, VITE_PERIOD, NET_PERIOD = 5_000_000, 1_000_000, 1_000_000
VITE_VERTICES = "100000"
# Afforest is over after a sixteenth of the loads of the others. So it runs as often as GAP's default says.
TRIALS = {"afforest": 16}
FUNCTION_HEAD = ["function", "program", "F^", "ΔF", "F_str%", "ΔF in samples", "F_str% in samples", "D", "recorded"]  # fmt: skip
ALL_SAMPLES = "ΔF and F_str% count the distinct addresses of all samples together, as equations 3 and 4 do"  # fmt: skip
OBJECT_HEAD = ["object", "program", "D over all accesses", "D of its own blocks over all accesses", "max D", "blocks", "recorded", "per block"]  # fmt: skip


def share(part, whole):
    return part / whole if whole else 0.0


def of_function(name, program, row):
    growth = share(row["F_sample"], row["A"] / max(1, row["samples_seen"]))
    strided = 100 * share(row["F_str_sample"], row["F_sample"])
    return [name, program, count(row["F_hat"]), f"{row['dF']:.3f}", f"{row['dF_str_pct']:.1f}", f"{growth:.3f}", f"{strided:.1f}", f"{over_all(row):.2f}", count(row["A"])]  # fmt: skip


def of_object(name, program, row, own):
    return [name, program, f"{over_all(row):.2f}", f"{over_all(own):.2f}", own["D_max"], row["blocks"], count(row["A"]), f"{row['A_per_block']:.2f}"]  # fmt: skip


class Originals:
    def __init__(self, lab):
        self.lab = lab

    def recorded(self, program, arguments, start, period, environment=None):
        """The trace of a program from a function on, and its analysis."""
        inst = self.lab.instrument(program)
        period //= 10 if self.lab.quick else 1
        options = ["--period", str(period), "--window", WINDOW, "--heap", "--from-function", start]
        name = os.path.basename(program)
        trace = self.lab.record(name, [inst, *arguments], "ring", options, environment)
        return trace, self.lab.analyze(trace, "--zoom")


def hottest(rows, names):
    """The row with most loads of those whose name has one of these parts."""
    found = [r for r in rows if any(n in r.get("function", r.get("object", "")) for n in names)]
    return max(found, key=lambda r: r["A"], default=None)


def build_gap(lab, folder, program, level="O3"):
    out = os.path.join(lab.work, f"gap-{program}" + ("" if level == "O3" else f"-{level}"))
    if not os.path.exists(out):
        flags = ["-std=c++11", f"-{level}", "-g", *APART]
        lab.run(["g++", *flags, "-o", out, os.path.join(folder, "src", program + ".cc")])
    return out


def gap(lab, own, folder):
    """Page rank and components on a Kronecker graph."""
    functions, objects, parts, kept, by_size, seconds = [], [], [], {}, {}, {}
    size = "16" if lab.quick else "22"
    for program, kind, function, thing, pattern, more in [
        ("pr", "gs", "PageRankPullGS", "o_score", "pvector<float>", ["-i", "20"]),
        ("pr_spmv", "jacobi", "PageRankPull", "o_score", "pvector<float>", ["-i", "20"]),
        ("cc", "afforest", "", "cc", "pvector<int>", []),
        ("cc_sv", "sv", "ShiloachVishkin", "cc", "pvector<int>", []),
    ]:
        out = build_gap(lab, folder, program)
        arguments = ["-g", size, "-n", str(TRIALS.get(kind, 1)), *more]
        trace, got = own.recorded(out, arguments, KERNEL, GAP_PERIOD)
        names = [function] if function else ["Afforest", "BenchmarkKernel"]
        functions.append(of_function(function or "Afforest", kind, hottest(got["functions"], names)))  # fmt: skip
        row = hottest(got["objects"], [pattern])
        one = "^" + re.escape(row["object"]) + "$"
        parts += parts_over_time(kind, lab.analyze(trace, "--object", one, "--zoom"))
        alone = hottest(lab.analyze(trace, "--object", pattern)["objects"], [pattern])
        objects.append(of_object(thing, kind, row, alone))
        got["summary"]["A_hat"] /= TRIALS.get(kind, 1)
        kept[kind] = (row, alone, over_all(alone), got)
        by_size[kind] = {w["W"]: w for w in got["windows"]}
        printed = lab.run([out, *arguments]).stdout.decode()
        seconds[kind] = float(re.search(r"Average Time:\s+([\d.]+)", printed).group(1))
        lab.drop(trace)
    lab.table(
        "MemGaze's programs: functions of GAP", FUNCTION_HEAD, functions, f"Graph of 2^{size} vertices. {ALL_SAMPLES}."
    )  # fmt: skip
    lab.table(
        "MemGaze's programs: hot objects of GAP (table 9)", OBJECT_HEAD, objects, f"Graph of 2^{size} vertices. The report: o_score 1.13 (gs) and 2.41 (jacobi), cc 5.21 (afforest) and 0.83 (sv)."
    )  # fmt: skip
    part_table(lab, "MemGaze's programs: heat maps inside one object (figure 10)", parts)
    length_table(lab, "MemGaze's programs: locality by interval length (figure 11)", by_size)
    text = "Accesses and seconds of one trial; D is over all accesses; growth and F_irr% are means over the lengths of intervals."  # fmt: skip
    rows = graph_findings(kept, by_size, seconds)
    lab.table("MemGaze's programs: findings about graphs", FINDINGS, rows, text)


def vite(lab, folder, version, tables, level="O3"):
    """miniVite with one of the tables."""
    out = os.path.join(lab.work, f"minivite-{version}" + ("" if level == "O3" else f"-{level}"))
    if os.path.exists(out):
        return out
    place = os.path.join(lab.work, f"minivite-{version}-source")
    shutil.copytree(folder, place, dirs_exist_ok=True)
    flags = ["-std=c++17", f"-{level}", "-g", *APART, "-fopenmp", "-w", "-DPRINT_DIST_STATS"]
    if version != "v1":
        header = os.path.join(place, "other_table.h")
        with open(header, "w", encoding="utf-8") as file:
            file.write(OTHER_TABLE)
        flags += ["-I", os.path.join(tables, "include"), "-include", header]
    if version == "v3":
        name = os.path.join(place, "dspl.hpp")
        with open(name, encoding="utf-8") as file:
            text = file.read()
        before, table, after = text.partition(TABLE_OF_VERTEX)
        start, known, rest = after.partition(EDGES_ARE_KNOWN)
        if not table or not known:
            raise RuntimeError(f"{name}: another version of miniVite: its table was not found")
        with open(name, "w", encoding="utf-8") as file:
            file.write(before + table + start + known + SIZED_TABLE + rest)
    lab.run(["mpicxx", *flags, "-o", out, os.path.join(place, "main.cpp")])
    return out


VITE_FUNCTIONS = [
    ("buildMap", ["distBuildLocalMapCounter"]),
    ("insert", ["_M_insert", "insert_impl", "insert_value", "hopscotch_hash::insert", "_Node_iterator", "hopscotch_hash<"]),
    ("getMax", ["distGetMaxIndex"]),
]  # fmt: skip
# Blocks of the tables come from memory that the making of the graph had before, and keep its name.
VITE_OBJECTS = [
    ("map (hash table)", r"generate\(|\[heap\]|hopscotch|_Hashtable"),
    ("edges", "set_nedges"),
]


def used_by_build_map(lab, trace):
    """The object from buildMap's callers from which it loads most."""
    narrow = ["--object", "distInitLouvain", "--function", "^distBuildLocalMapCounter"]
    row = hottest(lab.analyze(trace, *narrow)["objects"], [""])
    return [("other objects", "^" + re.escape(row["object"]) + "$")] if row else []


def together(rows, pattern):
    """One row of all objects whose name matches."""
    found = [r for r in rows if r["kind"] == "heap" and re.search(pattern, r["object"])]
    total = lambda key: sum(r[key] or 0 for r in found)
    reuses = sum((r["D_mean"] or 0) * r["reuses"] for r in found)
    return {
        "A": total("A"),
        "blocks": total("blocks"),
        "reuses": total("reuses"),
        "D_mean": share(reuses, total("reuses")),
        "D_max": max((r["D_max"] or 0 for r in found), default=0),
        "A_per_block": share(total("A"), total("blocks")),
    }


def minivite(lab, own, folder, tables):
    """Community detection with three tables."""
    functions, objects, loads = [], [], []
    by_part, strided, distances, seconds = {}, {}, {}, {}
    # The graph is geometric, with 2 % of its edges between random vertices.
    arguments = ["-n", "20000" if lab.quick else VITE_VERTICES, "-p", "2"]
    alone = {"OMP_NUM_THREADS": "1"}
    versions = ["v1", "v2", "v3"] if tables else ["v1"]
    for version in versions:
        out = vite(lab, folder, version, tables)
        trace, got = own.recorded(out, arguments, "^distExecuteLouvain", VITE_PERIOD, alone)
        for name, parts in VITE_FUNCTIONS:
            row = hottest(got["functions"], parts)
            if row:
                functions.append(of_function(name, version, row))
            strided[name, version] = row["dF_str_pct"] if row else 0.0
            named = [f for f in got["functions"] if any(n in f["function"] for n in parts)]
            by_part[name, version] = sum(f["A_hat"] for f in named)
        for name, pattern in VITE_OBJECTS + used_by_build_map(lab, trace):
            apart = lab.analyze(trace, "--object", pattern)["objects"]
            row = together(got["objects"], pattern)
            objects.append(of_object(name, version, row, together(apart, pattern)))
            distances[name, version] = over_all(row)
        printed = lab.run([out, *arguments], env={**os.environ, **alone}).stdout.decode()
        seconds[version] = float(re.search(r"Average total time[^:]*: ([\d.]+)", printed).group(1))
        loads.append(f"{version} {got['summary']['A_hat'] / 1e9:.2f}G loads")
        lab.drop(trace)
    text = f"`miniVite {' '.join(arguments)}`, one process, one thread. {', '.join(loads)}."
    lab.table("MemGaze's programs: functions of miniVite (table 4)", FUNCTION_HEAD, functions, f"{text} {ALL_SAMPLES}.")  # fmt: skip
    lab.table("MemGaze's programs: hot objects of miniVite (table 5)", OBJECT_HEAD, objects, text)
    if tables:
        rows = table_findings(versions, by_part, strided, distances, seconds)
        text = "Loads of the functions of a kind; F_str%, D over all accesses and seconds without the making of the graph."
        lab.table("MemGaze's programs: findings about hash tables", FINDINGS, rows, text)


def build_darknet(lab, folder):
    """The program, and the folder with its networks."""
    place = os.path.join(lab.work, "darknet-source")
    built = os.path.join(place, "darknet")
    if not os.path.exists(built):
        shutil.copytree(folder, place, dirs_exist_ok=True)
        flags = "CFLAGS=-g -fPIC -w -Ofast"
        lab.run(["make", "-s", "-B", "-C", place, "GPU=0", "OPENMP=0", flags], seconds=1800)
    return built, place


def darknet(lab, own, folder):
    """Layers of two networks on one image; weights are random."""
    built, place = build_darknet(lab, folder)
    functions, objects, over_time, of_gemm = [], [], {}, {}
    for network in ["alexnet"] if lab.quick else ["alexnet", "resnet152"]:
        out = os.path.join(lab.work, f"darknet-{network}")
        shutil.copy(built, out)
        arguments = ["speed", os.path.join(place, "cfg", network + ".cfg"), "1"]
        trace, got = own.recorded(out, arguments, "^network_predict$", NET_PERIOD)
        kind = network.removesuffix("152")
        for name in ("gemm", "im2col"):
            row = hottest(got["functions"], [name])
            if row:
                functions.append(of_function(name, kind, row))
        for row in got["objects"][:3]:
            apart = lab.analyze(trace, "--object", "^" + re.escape(row["object"]) + "$")["objects"]
            objects.append(of_object(row["object"], kind, row, hottest(apart, [row["object"]])))
        loads = [f["A_hat"] for f in got["functions"] if f["function"].startswith("gemm")]
        part = sum(loads) / sum(f["A_hat"] for f in got["functions"])
        of_gemm[kind] = (part, hottest(got["functions"], ["gemm"])["dF_str_pct"])
        over_time[kind] = slices(lab, trace, "^gemm")
        lab.drop(trace)
    text = "One image; `darknet speed`, which needs no trained weights."
    lab.table("MemGaze's programs: functions of Darknet (table 6)", FUNCTION_HEAD, functions, f"{text} {ALL_SAMPLES}.")  # fmt: skip
    lab.table("MemGaze's programs: hot objects of Darknet (table 7)", OBJECT_HEAD, objects, text)
    title = "MemGaze's programs: gemm over time (table 8)"
    rows = network_findings(of_gemm, *gemm_over_time(lab, title, over_time))
    lab.table("MemGaze's programs: findings about neural networks", FINDINGS, rows, text)


# Kilobytes and seconds of the report's programs in its table 2.
REWRITING = {"gap-pr": (95, 144.2), "gap-cc": (100, 122.1), "minivite-v1": (1900, 135.5), "darknet": (2700, 83.2)}  # fmt: skip


def rewriting(lab):
    """Times of rewriting (table 2)."""
    folder, rows = os.environ.get, []
    programs = []
    if folder("MGZ_GAP"):
        programs += [build_gap(lab, folder("MGZ_GAP"), name) for name in ("pr", "cc")]
    if folder("MGZ_MINIVITE"):
        programs.append(vite(lab, folder("MGZ_MINIVITE"), "v1", None))
    if folder("MGZ_DARKNET"):
        programs.append(build_darknet(lab, folder("MGZ_DARKNET"))[0])
    for program in programs:
        name = os.path.basename(program)
        out = os.path.join(lab.work, name + ".timed")
        before = os.times()
        lab.run([lab.tool("mgz-instrument"), "--backend", "soft", "--for", "ring", "-o", out, program])  # fmt: skip
        after = os.times()
        took = after.children_user + after.children_system
        took -= before.children_user + before.children_system
        size, theirs = REWRITING[name]
        ours = f"{os.path.getsize(program) / 1e3:.0f}"
        rows.append([name, ours, f"{took:.2f}", size, theirs, f"{theirs / took:.0f}×"])
    lab.table(
        "MemGaze's programs: time of rewriting (table 2)",
        ["program", "kB", "s", "the report: kB", "the report: s", "times faster"],
        rows,
        "Processor time of mgz-instrument; files with their debugging information.",
    )


def run(lab):
    own = Originals(lab)
    folder = os.environ.get
    if folder("MGZ_GAP"):
        gap(lab, own, folder("MGZ_GAP"))
    if folder("MGZ_MINIVITE"):
        minivite(lab, own, folder("MGZ_MINIVITE"), folder("MGZ_HOPSCOTCH"))
    if folder("MGZ_DARKNET"):
        darknet(lab, own, folder("MGZ_DARKNET"))
    if not lab.tables:
        raise RuntimeError("name sources in MGZ_GAP, MGZ_MINIVITE (MGZ_HOPSCOTCH), MGZ_DARKNET")
