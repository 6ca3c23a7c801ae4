"""The MemGaze report's own programs (its section 8), built from their sources.

MGZ_GAP, MGZ_MINIVITE, MGZ_DARKNET and MGZ_HOPSCOTCH name folders with the sources of GAP (sbeamer/gapbs), miniVite
(ECP-ExaGraph/miniVite), Darknet (pjreddie/darknet) and the hash table of the report's second and third variant
(Tessil/hopscotch-map). Nothing is written there. What is not named is left out. miniVite needs MPI.
"""

import os
import re
import shutil

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
FUNCTION_HEAD = ["function", "program", "F^", "ΔF in samples", "F_str%", "D", "recorded"]
FINDINGS = ["finding", "paper", "here", "values"]
OBJECT_HEAD = ["object", "program", "D over all accesses", "D of its own blocks over all accesses", "max D", "blocks", "recorded", "per block"]  # fmt: skip


def spread(row):
    """D over all accesses. One that is first in its sample counts as 0, as in the report."""
    return (row["D_mean"] or 0) * row["reuses"] / max(1, row["A"])


def share(part, whole):
    return part / whole if whole else 0.0


def of_function(name, program, row):
    growth = share(row["F_sample"], row["A"] / max(1, row["samples_seen"]))
    strided = 100 * share(row["F_str_sample"], row["F_sample"])
    return [name, program, count(row["F_hat"]), f"{growth:.3f}", f"{strided:.1f}", f"{spread(row):.2f}", count(row["A"])]  # fmt: skip


def of_object(name, program, row, own):
    return [name, program, f"{spread(row):.2f}", f"{spread(own):.2f}", own["D_max"], row["blocks"], count(row["A"]), f"{row['A_per_block']:.2f}"]  # fmt: skip


class Originals:
    def __init__(self, lab):
        self.lab = lab
        self.options = ["--period", "100000" if lab.quick else "1000000", "--window", "1000", "--heap"]  # fmt: skip

    def recorded(self, program, arguments, start, environment=None):
        """The trace of a program from a function on, and its analysis."""
        inst = self.lab.instrument(program)
        options = [*self.options, "--from-function", start]
        name = os.path.basename(program)
        trace = self.lab.record(name, [inst, *arguments], "ring", options, environment)
        return trace, self.lab.analyze(trace, "--zoom")


def hottest(rows, names):
    """The row with most loads of those whose name has one of these parts."""
    found = [r for r in rows if any(n in r.get("function", r.get("object", "")) for n in names)]
    return max(found, key=lambda r: r["A"], default=None)


def gap(lab, own, folder, graph_findings):
    """Page rank and components on a Kronecker graph."""
    functions, objects, kept, by_size, seconds = [], [], {}, {}, {}
    size = "16" if lab.quick else "22"
    for program, kind, function, thing, pattern, more in [
        ("pr", "gs", "PageRankPullGS", "o_score", "pvector<float>", ["-i", "20"]),
        ("pr_spmv", "jacobi", "PageRankPull", "o_score", "pvector<float>", ["-i", "20"]),
        ("cc", "afforest", "", "cc", "pvector<int>", []),
        ("cc_sv", "sv", "ShiloachVishkin", "cc", "pvector<int>", []),
    ]:
        out = os.path.join(lab.work, f"gap-{program}")
        flags = ["-std=c++11", "-O3", "-g", "-fno-inline-functions-called-once", "-fno-inline-functions"]  # fmt: skip
        lab.run(["g++", *flags, "-o", out, os.path.join(folder, "src", program + ".cc")])
        arguments = ["-g", size, "-n", "1", *more]
        trace, got = own.recorded(out, arguments, KERNEL)
        names = [function] if function else ["Afforest", "BenchmarkKernel"]
        functions.append(of_function(function or "Afforest", kind, hottest(got["functions"], names)))  # fmt: skip
        alone = lab.analyze(trace, "--object", pattern)
        row = hottest(got["objects"], [pattern])
        alone = hottest(alone["objects"], [pattern])
        objects.append(of_object(thing, kind, row, alone))
        kept[kind] = (row, alone, spread(alone), got)
        by_size[kind] = {w["W"]: w for w in got["windows"]}
        printed = lab.run([out, *arguments]).stdout.decode()
        seconds[kind] = float(re.search(r"Average Time:\s+([\d.]+)", printed).group(1))
        lab.drop(trace)
    lab.table(
        "MemGaze's programs: functions of GAP", FUNCTION_HEAD, functions, f"Graph of 2^{size} vertices."
    )  # fmt: skip
    lab.table(
        "MemGaze's programs: hot objects of GAP (table 9)", OBJECT_HEAD, objects, f"Graph of 2^{size} vertices. The report: o_score 1.13 (gs) and 2.41 (jacobi), cc 5.21 (afforest) and 0.83 (sv)."
    )  # fmt: skip
    last = max(set.intersection(*(set(sizes) for sizes in by_size.values())))
    text = f"D is over all accesses; growth and F_irr% are those of windows of {last} accesses; seconds are those of one trial."
    rows = graph_findings(kept, by_size, seconds, last)
    lab.table("MemGaze's programs: findings about graphs", FINDINGS, rows, text)


def vite(lab, folder, version, tables):
    """miniVite with one of the tables."""
    place = os.path.join(lab.work, f"minivite-{version}-source")
    shutil.copytree(folder, place, dirs_exist_ok=True)
    flags = ["-std=c++17", "-O3", "-g", "-fopenmp", "-w", "-DPRINT_DIST_STATS"]
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
    out = os.path.join(lab.work, f"minivite-{version}")
    lab.run(["mpicxx", *flags, "-o", out, os.path.join(place, "main.cpp")])
    return out


def minivite(lab, own, folder, tables):
    """Community detection with three tables."""
    functions, objects, seconds = [], [], []
    # The graph is geometric, with 2 % of its edges between random vertices.
    arguments = ["-n", "20000" if lab.quick else "100000", "-p", "2"]
    for version in ["v1", "v2", "v3"] if tables else ["v1"]:
        out = vite(lab, folder, version, tables)
        start = "^distExecuteLouvain"
        trace, got = own.recorded(out, arguments, start, {"OMP_NUM_THREADS": "1"})
        for name, parts in [
            ("buildMap", ["distBuildLocalMapCounter", "distExecuteLouvainIteration"]),
            ("insert", ["_M_insert", "insert_impl", "insert_value", "hopscotch_hash::insert", "_Node_iterator", "hopscotch_hash<"]),
            ("getMax", ["distGetMaxIndex"]),
        ]:  # fmt: skip
            row = hottest(got["functions"], parts)
            if row:
                functions.append(of_function(name, version, row))
        for name, parts in [
            ("map (hash table)", ["[heap]", "hopscotch", "_Hashtable"]),
            ("edges", ["set_nedges", "vector<Edge"]),
            ("other objects", ["distInitLouvain"]),
        ]:
            row = hottest(got["objects"], parts)
            if row:
                objects.append(of_object(name, version, row, row))
        seconds.append(f"{version} {got['summary']['A_hat'] / 1e9:.2f}G loads")
        lab.drop(trace)
    text = f"`miniVite {' '.join(arguments)}`, one process, one thread. {', '.join(seconds)}."
    lab.table("MemGaze's programs: functions of miniVite (table 4)", FUNCTION_HEAD, functions, text)
    lab.table("MemGaze's programs: hot objects of miniVite (table 5)", OBJECT_HEAD, objects, text)


def darknet(lab, own, folder):
    """Layers of two networks on one image; weights are random."""
    place = os.path.join(lab.work, "darknet-source")
    shutil.copytree(folder, place, dirs_exist_ok=True)
    lab.run(["make", "-s", "-B", "-C", place, "GPU=0", "OPENMP=0", "CFLAGS=-g -fPIC -w -Ofast"], seconds=1800)  # fmt: skip
    functions, objects = [], []
    for network in ["alexnet"] if lab.quick else ["alexnet", "resnet152"]:
        out = os.path.join(lab.work, f"darknet-{network}")
        shutil.copy(os.path.join(place, "darknet"), out)
        arguments = ["speed", os.path.join(place, "cfg", network + ".cfg"), "1"]
        trace, got = own.recorded(out, arguments, "^network_predict$")
        kind = network.removesuffix("152")
        for name in ("gemm", "im2col"):
            row = hottest(got["functions"], [name])
            if row:
                functions.append(of_function(name, kind, row))
        for row in got["objects"][:3]:
            objects.append(of_object(row["object"], kind, row, row))
        lab.drop(trace)
    text = "One image; `darknet speed`, which needs no trained weights."
    lab.table("MemGaze's programs: functions of Darknet (table 6)", FUNCTION_HEAD, functions, text)
    lab.table("MemGaze's programs: hot objects of Darknet (table 7)", OBJECT_HEAD, objects, text)


def run(lab, graph_findings):
    own = Originals(lab)
    folder = os.environ.get
    if folder("MGZ_GAP"):
        gap(lab, own, folder("MGZ_GAP"), graph_findings)
    if folder("MGZ_MINIVITE"):
        minivite(lab, own, folder("MGZ_MINIVITE"), folder("MGZ_HOPSCOTCH"))
    if folder("MGZ_DARKNET"):
        darknet(lab, own, folder("MGZ_DARKNET"))
    if not lab.tables:
        raise RuntimeError("name sources in MGZ_GAP, MGZ_MINIVITE (MGZ_HOPSCOTCH), MGZ_DARKNET")
