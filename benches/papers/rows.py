"""What the five papers say: rows of place, content, the paper's value and evidence."""

from papers.evidence import (
    above,
    advice,
    below,
    between,
    between_cells,
    case,
    cell,
    either,
    finding,
    lacking,
)
from papers.evidence import pair, said, section, table, test, text, value

PT = "no machine at hand has PT with `ptwrite` open to it"
DENSER = "MemGaze: samples against ten times as many"
GRAPH = "our kernels, on a graph of 2^20 vertices instead of 2^22"
HASH = "our tables, on another graph"
OWN = "the report's program; its graph is not known in full"
INSERT = "the table of this library follows a chain: no address of it is strided; the report does not say which library it has"
SIZED = "getMax goes over whole tables; the report does not say which size its v3 gives them"
WALK = "the report counts the same addresses (growth times accesses: 6.7K, 7.3K and 7.8K) as irregular in v1 and as strided in v2 and v3, and does not say why; here they are those of the communities, whose addresses depend on data"
LAYER = "not explained; the layers have the sizes of the report's"

# fmt: off
HASHES = "MemGaze: hash tables of community detection"
LAYERS = "MemGaze: layers of neural networks"
ORIGINAL_VITE = "MemGaze's programs: functions of miniVite"
ORIGINAL_MAPS = "MemGaze's programs: hot objects of miniVite"
ORIGINAL_NETS = "MemGaze's programs: functions of Darknet"
ORIGINAL_GAP = "MemGaze's programs: hot objects of GAP"
# The report's regions are runs of pages: an object with its neighbours. D is between these two.
REGION = ("D of its own blocks over all accesses", "D over all accesses")
SCORES = "the report has as many accesses in a smaller region, and so more reuse; it says no more of its graph than its size"
ABOUT_HASHES = "MemGaze: findings about hash tables"
ABOUT_LAYERS = "MemGaze: findings about neural networks"
ABOUT_GRAPHS = "MemGaze: findings about graphs"


def near(paper, points):
    return lambda value: abs(value - paper) <= points


def times(paper, factor):
    return lambda value: paper / factor <= value <= paper * factor


def memgaze_tables():
    """Tables 4 to 9 by cell, as far as values do not depend on the size of the input."""
    shares = {("buildMap", "v1"): 66.4, ("buildMap", "v2"): 66.9, ("buildMap", "v3"): 66.8, ("insert", "v1"): 73.3, ("insert", "v2"): 93.7, ("insert", "v3"): 92.8, ("getMax", "v1"): 0.5, ("getMax", "v2"): 98.4, ("getMax", "v3"): 97.8}
    why = {("insert", "v1"): INSERT, ("getMax", "v2"): WALK, ("getMax", "v3"): WALK}
    for (function, version), paper in shares.items():
        yield ("table 4", f"F_str% of {function}, {version}", f"{paper}", either(cell("memgaze", ORIGINAL_VITE, [function, version], "F_str%", near(paper, 15), why.get((function, version), OWN)), cell("memgaze", HASHES, [function, version], "F_str%", near(paper, 15), why.get((function, version), HASH))))
    distances = {("map (hash table)", "v1"): 2.65, ("map (hash table)", "v2"): 2.79, ("map (hash table)", "v3"): 1.97, ("edges", "v1"): 8.71, ("edges", "v2"): 4.90, ("edges", "v3"): 3.32, ("other objects", "v1"): 0.37, ("other objects", "v2"): 0.15, ("other objects", "v3"): 0.24}
    for (thing, version), paper in distances.items():
        why = SIZED if (thing, version) == ("map (hash table)", "v3") else OWN
        yield ("table 5", f"D of {thing}, {version}", f"{paper}", between_cells("memgaze", ORIGINAL_MAPS, [thing, version], REGION, 2, paper, why))
    for function in ("gemm", "im2col"):
        for network in ("alexnet", "resnet"):
            yield ("table 6", f"F_str% of {function}, {network}", "100", either(cell("memgaze", ORIGINAL_NETS, [function, network], "F_str%", above(97), OWN), cell("memgaze", LAYERS, [function, network], "F_str%", above(97))))
    yield ("table 7", "hot objects of the networks", "D 0.76 and 0.01", table("memgaze", "MemGaze: hot objects of neural networks", "D, blocks, accesses a block"))
    yield ("table 8", "gemm in eight intervals", "ΔF, D", table("memgaze", "MemGaze: gemm over time", "ΔF and D of both networks"))
    for thing, kind, paper in (("o_score", "gs", 1.13), ("o_score", "jacobi", 2.41), ("cc", "afforest", 5.21), ("cc", "sv", 0.83)):
        yield ("table 9", f"D of {thing}, {kind}", f"{paper}", between_cells("memgaze", ORIGINAL_GAP, [thing, kind], REGION, 2, paper, SCORES))


BECAUSE = {
    "Afforest takes more accesses than Shiloach–Vishkin": "the report's own times (2.7 s against 45.5 s) and full traces (7.9 GB against 10.8 GB) contradict it; it does not say how many trials its table 9 has",
    "growth is greater by Afforest": "the report has a picture without numbers (figure 11), and does not say how many trials it records",
    "time falls from v1 to v3": "seconds depend on the processor, and a Pentium Silver J5005 is not at hand; v1 has the fewest loads here and there",
}


def memgaze_findings():
    for title, place, why, texts in (
        (ABOUT_HASHES, "section 8.1", HASH, ("v1 loads least in getMax, v3 most", "v2 loads most in insert, v3 least", "v1 loads least in all", "getMax is irregular by chains, strided by closed tables", "insert is more strided by closed tables", "D of the map is higher by chains than by v3", "time falls from v1 to v3")),
        (ABOUT_LAYERS, "section 8.2", LAYER, ("gemm dominates", "nearly all of gemm is strided", "D rises over time (alexnet)", "D rises over time (resnet)", "ΔF varies more in AlexNet", "ΔF of ResNet falls over time")),
        (ABOUT_GRAPHS, "section 8.3", GRAPH, ("at once needs fewer accesses than by rounds", "D of o_score is smaller at once", "growth is slightly smaller at once", "Afforest takes more accesses than Shiloach–Vishkin", "D of cc is greater by Afforest", "growth is greater by Afforest", "irregular share is greater by Afforest", "Afforest is faster")),
    ):
        for found in texts:
            because = BECAUSE.get(found, OWN)
            own = finding("memgaze", title.replace("MemGaze:", "MemGaze's programs:"), found, because)
            yield (place, found, "yes", either(own, finding("memgaze", title, found, BECAUSE.get(found, why))))


MEMGAZE = [
    ("section 4.1", "addresses of loads are written by ptwrite", "–", test("tests/tests/pt.rs", "a_full_trace_comes_back_whole")),
    ("section 4.2", "Constant, Strided and Irregular loads", "by data flow", test("instrument/tests/classes.rs", "classes")),
    ("section 4.2", "a loop whose base is reloaded between calls is Strided", "–", case("instrument/tests/classes/reloads.c", "kept_between_calls")),
    ("section 4.2, figure 4", "Constant loads are implied by another record", "one proxy a block", test("instrument/tests/analysis.rs", "constant_loads_are_implied_or_have_a_proxy")),
    ("section 4.2", "two source registers take two records", "–", test("instrument/tests/analysis.rs", "two_addresses_share_a_slot")),
    ("section 4.3, figure 5", "a sample is w accesses of w + z", "–", test("tests/tests/pipeline.rs", "windows_of_ring_lie_anywhere_in_their_periods")),
    ("equation 1", "ρ, executed over sampled accesses", "formula", test("analyzer/cli/tests/integration/command.rs", "a_small_trace_by_hand")),
    ("equation 2", "κ = 1 + A_const / A", "formula", test("analyzer/cli/tests/integration/command.rs", "a_small_trace_by_hand")),
    ("equation 3", "F = C + S, inside and between samples", "formula", test("analyzer/src/stages/footprint/fold.rs", "all_footprints_agree_with_their_definitions")),
    ("equation 4", "ΔF = F / (κ A)", "formula", test("analyzer/src/stages/windows.rs", "every_size_agrees_with_its_definition")),
    ("table 1", "all symbols are columns", "16 symbols", test("analyzer/cli/tests/integration/columns.rs", "all_columns_have_the_types_that_are_listed")),
    ("section 5.2", "samples are summed by function; intervals", "proposed", test("analyzer/src/estimate/mod.rs", "jackknife_intervals_cover_the_truth")),
    ("section 5.3, figure 6", "zoom in time", "–", test("analyzer/src/views/time_tree.rs", "cuts_cover_everything_once")),
    ("section 5.3, figure 7", "zoom in location", "–", test("analyzer/src/views/location.rs", "hot_runs_of_pages_are_found_and_cold_ones_left_out")),
    ("section 6.1", "accesses of hot regions, without Constant ones", "–", test("analyzer/cli/tests/integration/places.rs", "rows_of_regions_agree_with_their_definition")),
    ("section 6.2", "D inside samples, by block", "–", test("models/src/reuse/mod.rs", "agrees_with_the_definition")),
    ("section 6.5", "F_str, F_irr and their growth", "–", test("analyzer/src/stages/windows.rs", "every_size_agrees_with_its_definition")),
    *(("figure 8", f"trace windows, mean error of F, `{mode}`", "< 25 %", text("validate", rf"^{mode} +trace windows, F +mean error +([\d.]+) %", "{} %", below(25))) for mode in ("ring", "burst")),
    *(("figure 8", f"code windows, error of F, `{mode}`", "< 5 %", text("validate", rf"^{mode} +code windows, F +mean error +([\d.]+) %", "{} %", below(5), "windows are taken by time; the report takes them by loads, as `ring` does")) for mode in ("ring", "burst")),
    *(("figure 8", f"{what} windows, error of F, {kind}, long runs", paper, said("memgaze", DENSER, rf"{kind}: code windows mean ([\d.]+) %.*?trace windows mean ([\d.]+) %", agrees)) for kind in ("0.1 % against 1 %", "0.01 % against 0.1 %") for what, paper, agrees in (("code", "< 5 %", lambda code, trace: code < 5), ("trace", "< 25 %", lambda code, trace: trace < 25))),
    ("section 7.1", "undersampled windows are told by intervals", "proposed", text("validate", r"^intervals that hold the truth: .*?, ([\d.]+) %", "{} % of the intervals hold the truth", above(90))),
    ("figure 9", "`ptwrite`s of all instructions, O3", "near the overhead, < 40 %", said("pt", "Figure 9", r"([\d.]+) % \(O3\)", below(40))),
    ("figure 9", "time of tracing at the report's periods, O3", "10–95 %", said("memgaze", "MemGaze's programs: time of tracing", r"(\d+) % \(O3\)", below(95), "calls in the code cost more than `ptwrite`")),
    ("figure 9", "time with PT always on", "10–95 %", lacking(PT)),
    ("figure 9", "time with PT in samples alone", "< 40 %", lacking(PT)),
    ("figure 9", "data rates of PT", "30–50 % dropped", table("pt", "Figure 9", "bytes a second of modelled packets")),
    ("table 2", "time of rewriting", "83–144 s for 95 kB to 2.7 MB", cell("memgaze", "MemGaze's programs: time of rewriting", ["minivite-v1"], "s", below(135.5))),
    ("table 2", "time of analysis", "22–900 s", section("analyze", "Analysis")),
    ("table 3", "sampled trace over the full one", "about 1 % at O3", text("space", r"^all +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+$", "{} % in all", below(2))),
    ("table 3", "full trace with Constant loads over that without", "1.2 (O3), 2 (O0)", text("space", r"^all +([\d.]+) +([\d.]+)", "{1} MB over {0} MB, both levels", lambda full, plus: 1.2 <= plus / full <= 3)),
    *memgaze_tables(),
    *memgaze_findings(),
    ("figure 10", "heat maps of accesses and D", "picture", table("memgaze", "MemGaze: heat maps", "loads and D over time, by region")),
    ("figure 10", "heat maps inside one object", "picture", either(table("memgaze", "MemGaze's programs: heat maps inside one object", "parts of o_score and cc by time"), table("memgaze", "MemGaze: heat maps inside one object", "parts of o_score and cc by time"))),
    ("figure 11", "ΔF, F_irr% and D by length", "picture", table("memgaze", "MemGaze: locality by interval length", "windows of 16 to 1,024 accesses")),
]

ATTRIBUTION = "RDX: attributions"
PERIODS = "RDX: sampling periods"
HISTOGRAMS = "RDX: histograms"
LIVE = "RDX live against full traces"
RATE = "no machine at hand counts accesses: intervals beyond the steps are CPU time at the mean rate of the run"
RDX = [
    ("section II", "reuse distances of the example", "numbers", test("models/src/reuse/mod.rs", "example_of_rdx")),
    ("figure 2", "use, watchpoint, reuse", "–", test("tests/tests/watch.rs", "reuses_are_those_of_the_source")),
    ("section III", "reservoir: each sample survives with equal probability", "–", test("models/src/sampling/rdx.rs", "every_sample_survives_with_equal_probability")),
    ("section III", "proportional attribution by context", "–", test("models/src/sampling/rdx.rs", "watchpoints_of_one_context_share_what_is_not_accounted_for")),
    ("section III", "the example of undercounted long reuses", "numbers", test("models/src/sampling/rdx.rs", "the_example_of_the_introduction", "long_reuses_are_not_undercounted")),
    ("equation 1", "S", "formula", test("models/src/histogram.rs", "similarity_of_equal_disjoint_and_shifted_histograms")),
    ("equation 2", "Ŝ, over neighbouring bins", "formula", test("models/src/histogram.rs", "similarity_of_equal_disjoint_and_shifted_histograms")),
    ("section V", "bins of powers of two from 4 K", "20 bins", test("models/src/histogram.rs", "the_scales_of_rdx_and_cabrera")),
    ("equation 3", "P(k, Δ)", "formula", test("models/src/sampling/time_to_stack.rs", "agrees_with_the_equations")),
    ("equation 4", "P_R(k)", "formula", test("models/src/sampling/time_to_stack.rs", "agrees_with_the_equations")),
    ("section IV", "exact times converted to distances", "99 %", said("rdx", ATTRIBUTION, r"number of blocks: ([\d.]+) %", above(97))),
    ("figure 1", "histograms of lbm and milc", "picture", table("rdx", HISTOGRAMS, "of other programs, for SPEC CPU is not free")),
    ("figure 3", "S without proportional attribution falls", "picture", pair("rdx", ATTRIBUTION, ["**mean**"], ("time: paper's, 4", "time: none, 4"), lambda with_it, without: without < with_it)),
    ("figure 4", "Ŝ of time, median", "> 96 %", cell("rdx", PERIODS, ["4000"], "paper's", above(96))),
    ("figure 4", "Ŝ of time, median, with half as many samples", "> 96 %", cell("rdx", PERIODS, ["2000"], "paper's", above(96))),
    ("figure 5", "reasons of low accuracy", "decision tree", said("rdx", "RDX: reasons of low accuracy", r"(\d+) of (\d+) have a reason", lambda told, low: told >= 0.9 * low)),
    ("figure 6", "one watchpoint instead of four hardly matters", "picture", pair("rdx", ATTRIBUTION, ["**mean**"], ("time: paper's, 4", "time: paper's, 1"), lambda four, one: abs(four - one) < 3)),
    ("figure 7", "S of stack distance, median", "90 %", cell("rdx", ATTRIBUTION, ["**median**"], "stack: paper's, 4", above(89))),
    ("figures 8–10", "histograms of soplex and lbm", "pictures", table("rdx", HISTOGRAMS, "of other programs, stack and time, exact and estimated")),
    ("table II", "time", "5 %", said("rdx", "RDX live: time and memory", r"wall time: ([\d.]+) at 100", below(1.05), "no machine at hand has a counter of accesses that stops the program: a timer does, and stops are stepped through")),
    ("table II", "memory", "7 %", value("rdx", "RDX live: time and memory", ["bfs"], "100/s: MiB more")),
    ("section V", "live: Ŝ of time, median", "> 96 %", either(said("rdx", LIVE, r"and ([\d.]+) % by the paper's attribution", above(96), RATE), table("rdx", LIVE, "few samples each"))),
    ("section V", "live: S of stack distance, median", "90 %", either(said("rdx", LIVE, r"S of stack [\d.]+ % and ([\d.]+) %", above(89), RATE), table("rdx", LIVE, "few samples each"))),
    ("table III, figure 11", "percentiles of SPEC CPU2006 and 2017", "4 KB to 512 MB", table("rdx", "RDX: sizes that hold the reuses", "percentiles of other programs")),
    ("table IV, figures 12–13", "optimisations of LULESH and others", "1.05× to 6×", cell("rdx", "RDX live: an optimisation guided", ["weights"], "gain", above(1.04))),
    ("figures 14–15", "comparison with ThreadSpotter", "picture", lacking("ThreadSpotter is not free")),
    ("figures 16–86", "arguments and histograms of SPEC CPU", "pictures", table("rdx", HISTOGRAMS, "of other programs")),
]

SHARED = "Shared cache of 1 MiB"
CACHES = "Shared caches of 1 to 32 MiB"
ERRORS = r"against real threads, null ([\d.]+).*?sets on cores ([\d.]+)"
BARAI = [
    ("figure 1", "reuse distances of the example", "numbers", test("models/src/reuse/mod.rs", "example_of_barai_figure_1")),
    ("section II-B", "misses of the example with 3 blocks", "50 + 13 %", test("models/src/miss_ratio.rs", "the_example_of_barai_figure_1")),
    ("figure 2", "dilation, overlap, interception", "CRD", test("models/src/threads/interleave.rs", "barai_figure_2")),
    ("section III-A", "outlined regions, by both compilers", "Rose, GOMP", test("models/commands/src/mimic.rs", "regions_go_from_the_outlined_function_to_the_host", "names_of_both_compilers_are_known")),
    ("section III-B", "iterations by static scheduling", "–", test("models/commands/src/mimic.rs", "iterations_are_divided_as_by_static_scheduling")),
    ("section III-B", "adaptive chunks", "future work", test("models/src/threads/schedule.rs", "each_iteration_goes_where_the_rules_say")),
    ("section III-B", "private data get an offset, shared data none", "–", test("models/commands/src/private_data.rs", "threads_share_no_private_line_and_do_not_meet_in_the_same_sets")),
    ("section III-B", "thread-local storage is private", "–", test("analyzer/cli/tests/integration/papers.rs", "thread_local_storage_is_private_to_mimicked_threads")),
    ("section III-B", "other interleavings", "future work", test("models/src/threads/interleave.rs", "each_access_has_its_turn", "more_threads_than_cores_share_them_by_slices")),
    ("equation 1", "profiles by basic block", "formula", test("models/src/predict/by_code.rs", "pieces_that_grow_differently_are_told_apart")),
    ("equation 1", "small inputs to large ones", "no figure", table("barai", "Equation 1", "rates of caches of large inputs")),
    ("equation 2", "P(h\\|D)", "formula", test("models/src/cache/model.rs", "hit_probability_agrees_with_equation_2")),
    *((figure, f"{name} at {cache}: model − measured, 4 threads", paper, cell("barai", CACHES, [f"{name} {size}", shape, "4"], "model − real", between(-2.6, 2.6)))
      for figure, name, size, cache, shape, paper in (
          ("figure 3", "bfs", "100", "6 MB", "6M:12", "−1.72"), ("figure 4", "bfs", "100", "25 MB", "25M:25", "−1.74"),
          ("figure 5", "matmul", "62", "6 MB", "6M:12", "−2.52"), ("figure 6", "matmul", "62", "25 MB", "25M:25", "−2.59"))),
    ("section IV", "mean error below that of one thread's rate, 1 MiB", "no figure", said("barai", SHARED, ERRORS, lambda null, sets: sets < null, "not explained")),
    ("section IV", "mean error below that of one thread's rate, 1 to 32 MiB", "no figure", said("barai", CACHES, r"null ([\d.]+).*?sets on cores ([\d.]+)", lambda null, sets: sets < null, "not explained")),
]

ANALYZERS = "Analyzers by number"
FFT = "Histogram of FFT"
INPUTS = "Prediction of inputs a hundred times"
MISLED = "one program of seven is misled by its data size, as one of the paper's fifteen is (Apsi, 27.2 %)"
RATIOS = "Prediction of inputs that grow as the paper's"
FIVE = "Five methods of prediction"
SMALL = "Small training inputs"
FIRST = "A run predicted from"


def table_six():
    papers = {("8³", "10³"): 89.50, ("8³", "12³"): 82.84, ("8³", "14³"): 85.14, ("8³", "28³"): 80.30, ("10³", "12³"): 90.44, ("10³", "14³"): 87.23, ("10³", "16³"): 84.61, ("16³", "28³"): 83.50}
    for (train, size), paper in papers.items():
        yield ("table VI", f"{size} after {train}, log-linear", f"{paper:.1f} %", cell("zhong", SMALL, [train, size], "multi log-linear", above(paper - 5)))


ZHONG = [
    ("figure 1", "distances, signature and miss rates of the example", "numbers", test("models/src/reuse/mod.rs", "the_measures_of_zhong_figure_1")),
    ("figure 2", "measurement of the example", "numbers", test("models/src/reuse/mod.rs", "example_of_zhong_figure_2")),
    ("figure 2d", "scale tree of the example", "numbers", test("models/src/reuse/scale_tree.rs", "zhong_figure_2d")),
    ("figures 3–4", "scale tree with a relative bound", "algorithm", test("models/src/reuse/scale_tree.rs", "errors_stay_within_the_bound")),
    ("table I", "space of both bounds", "logarithmic, linear", test("models/src/reuse/scale_tree.rs", "space_is_logarithmic_for_a_relative_and_linear_for_an_absolute_bound")),
    ("figure 5", "logarithmic and log-linear bins", "–", test("models/src/histogram.rs", "log_bins_are_those_of_the_paper", "log_linear_bins_are_logarithmic_below_2048_and_2048_wide_above")),
    ("figure 5", "reference histogram", "–", test("models/src/histogram.rs", "a_reference_histogram_of_distinct_values_is_their_sorted_list")),
    ("equations 1–2", "single model, two and more inputs", "formula", test("models/src/predict/single.rs", "constant_square_root_and_linear_parts_are_found_from_two_and_three_runs")),
    ("figure 6", "multi model of the example", "numbers", test("models/src/predict/multi.rs", "zhong_figure_6")),
    ("section 3.4", "worked equations", "numbers", test("models/src/predict/multi.rs", "the_worked_equations_of_section_3_4")),
    ("section 3.5", "data samples, access samples, peaks", "algorithm", test("models/src/predict/sampling.rs", "candidates_are_those_of_the_definition", "peaks_are_greater_than_their_neighbours")),
    ("section 3.5", "the whole run is predicted while it runs", "proposed", test("analyzer/cli/tests/integration/beside.rs", "a_run_is_predicted_while_its_rows_come")),
    ("section 3.5", "the size shows in the first percent (Lucas: 0.4 %)", "< 1 %", cell("zhong", FIRST, ["stencil"], "size shown after", below(1))),
    ("section 4.2.1", "accuracy", "formula", test("models/src/predict/mod.rs", "accuracy_of_the_paper")),
    ("figure 7", "Olken, million accesses a second", "4 (Cheetah)", cell("zhong", ANALYZERS, ["Olken"], "1M", above(4))),
    ("figure 7", "Bennett and Kruskal, k = 256", "–", value("zhong", ANALYZERS, ["BK-256"], "1M")),
    ("figure 7", "Kim, Hill and Wood", "7.4", cell("zhong", ANALYZERS, ["KHW"], "1M", above(7.4))),
    ("figure 7", "99 %, 10⁹ elements", "1.2, up to 10¹²", cell("zhong", ANALYZERS, ["99%"], "1G", above(1.2))),
    ("figure 7", "b = 2048", "> 3 (ZDK-2k)", cell("zhong", ANALYZERS, ["b=2048"], "1M", above(3))),
    ("figure 7", "error of 99 % on FFT", "2 %", cell("zhong", FFT, ["99%"], "error, bins of 2,000", below(2))),
    ("figure 7", "error of 99.9 % on FFT", "0.2 %", cell("zhong", FFT, ["99.9%"], "error, bins of 2,000", below(0.2))),
    ("figure 7", "error of b = 2048 on FFT, 55K to 66K", "< 4 %", cell("zhong", FFT, ["b=2048"], "error from 55K to 66K", below(4))),
    ("tables II–III", "accuracy with the data size, mean", "88.6 %", cell("zhong", RATIOS, ["**mean**"], "data size: single reference", above(83))),
    ("tables II–III", "accuracy with the sampled size, mean", "93.5 %", cell("zhong", RATIOS, ["**mean**"], "sampled size: single reference", above(88))),
    ("tables II–III", "coverage, mean", "99.1 %", cell("zhong", RATIOS, ["**mean**"], "coverage of 400 steps", above(99))),
    ("tables II–III", "a hundred times the largest input of training, data size, mean", "88.6 %", cell("zhong", INPUTS, ["**mean**"], "data size: single reference", above(83), MISLED)),
    ("tables II–III", "a hundred times the largest input of training, sampled size, mean", "93.5 %", cell("zhong", INPUTS, ["**mean**"], "sampled size: single reference", above(88))),
    ("table II", "Apsi: the data size misleads", "27.2 and 91.6 %", pair("zhong", RATIOS, ["part"], ("data size: single reference", "sampled size: single reference"), lambda data, sampled: data < 50 and sampled > 91)),
    ("table II, figure 8", "Lucas: 500 times the data", "95.1 %", cell("zhong", RATIOS, ["list"], "sampled size: single reference", above(90))),
    ("table IV", "five methods of prediction", "–", table("zhong", FIVE, "all of them and a combination, by program")),
    ("table V", "multi model, log-linear, mean", "94.9 %", cell("zhong", FIVE, ["**mean**"], "multi log-linear", above(90))),
    *table_six(),
    ("figure 9", "inputs of one compiler overlap", "> 98 %", cell("zhong", "Overlap of signatures", ["cc1 sort.c"], "cc1 bfs.c", above(97))),
    ("figure 9", "two versions of a compiler overlap", "89 %", cell("zhong", "Overlap of signatures", ["cc1 sort.c"], "other cc1 sort.c", above(84))),
    ("figure 9", "a long function overlaps less", "70 %", pair("zhong", "Overlap of signatures", ["cc1 sort.c"], ("cc1 bfs.c", "cc1, one long function"), lambda alike, long: long < alike)),
    ("related work (Zhong et al. 2004)", "reference affinity groups, k-distance", "–", test("models/src/affinity_groups.rs", "links_chain_places_into_groups", "parts_of_a_signature_have_the_means_of_the_sorted_distances")),
]

SPECTRA = "Spectra of a stream"
PAGES = "Advice on pages"
CABRERA = [
    ("figure 1", "stack and histogram of the example, at two sizes", "numbers", test("models/src/reuse/mod.rs", "example_of_cabrera_figure_1_at_two_granularities")),
    ("section III-B", "bins [0,4) [4,8) …", "–", test("models/commands/src/spectra/bands.rs", "bins_are_those_of_the_paper")),
    ("section III-C", "ground distance of the example", "4", test("models/src/emd.rs", "the_ground_distance_of_the_paper")),
    ("equations 1–4", "Earth Mover's Distance", "linear program", test("models/src/emd.rs", "agrees_with_the_best_assignment")),
    ("equation 5", "footprint by block size", "formula", test("analyzer/cli/tests/integration/models.rs", "spectra_of_cabrera_figure_1")),
    ("section IV-A", "prototypes: mass shifts, shape stays", "by eye", test("models/commands/src/spectra/verdict.rs", "prototypes_are_told_apart")),
    ("section IV-A.1", "mass moves to short distances as blocks grow", "proof", cell("cabrera", SPECTRA, ["loads", "function stream_pass"], "EMD 64 B–4 KiB", above(5))),
    ("figure 2", "a dense stream shifts at 4 KiB", "libquantum", cell("cabrera", SPECTRA, ["loads", "function stream_pass"], "4 KiB", above(90))),
    ("figure 4", "a dense stream uses its large pages", "libquantum: all", cell("cabrera", SPECTRA, ["loads", "function stream_pass"], "2 MiB used", above(95))),
    ("figure 4", "large pages that are mostly unused", "h264ref: 1–10 % used", cell("cabrera", PAGES, ["scattered"], "2 MiB used", below(10))),
    ("figure 5", "EMD 64 B–4 KiB above EMD 4 KiB–2 MiB for streams", "libm", pair("cabrera", SPECTRA, ["loads", "function stream_pass"], ("EMD 64 B–4 KiB", "EMD 4 KiB–2 MiB"), lambda small, large: small > large)),
    ("figures 2, 4, 5", "SPEC CPU2006", "pictures", table("cabrera", SPECTRA, "shares, use and distances of other programs' places")),
]
# fmt: on


CABRERA += [
    ("section IV-B", "advice on pages, against runs", "advice alone", advice(0.9)),
]

PAPERS = {
    "MemGaze (report 2022)": MEMGAZE,
    "RDX (Wang, Liu, Chabbi 2019)": RDX,
    "Barai et al. 2019": BARAI,
    "Zhong, Shen, Ding 2009": ZHONG,
    "Cabrera, Chamberlain, Beard 2019": CABRERA,
}
