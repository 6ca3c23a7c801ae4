"""Barai et al. 2019: shared caches of OpenMP programs, with the rate of one thread beside, and equation 1."""

from papers.lab import mean, percent, points

# Programs whose shared-cache rate depends on the number of threads, and two whose rate does not.
PROGRAMS = [
    ("blocks", "48000", "static"),
    ("scratch", "3000", "static"),
    ("local", "3000", "static"),
    ("columns", "400", "static"),
    ("cyclic", "400", "static,4"),
    ("uneven", "700", "dynamic,8"),
    ("nested", "400", "static"),
    ("triad", "30000", "static"),
]
OLD = {"triad"}
LEVELS = ["--level", "32K:8", "--level", "1M:16"]


def run(lab):
    counts = [2, 4] if lab.quick else [2, 4, 8, 16, 32]
    rows, errors = [], {}
    for name, size, schedule in PROGRAMS[:3] if lab.quick else PROGRAMS:
        source = "omp" if name in OLD else "omp_shared"
        program = lab.instrument(
            lab.compile(f"benches/models/{source}.c", source, ["-O2", "-fopenmp"])
        )
        one = lab.record(
            "one", [program, name, size], options=["--heap"], environment={"OMP_NUM_THREADS": "1"}
        )
        said = lab.analyze(
            "cache", one, "--mimic", ",".join(map(str, counts)), "--schedule", schedule, *LEVELS
        )
        last = lambda got, n: [l for l in got["levels"] if l["threads"] == n][-1]
        for n in counts:
            many = lab.record(
                "many",
                [program, name, size],
                environment={"OMP_NUM_THREADS": str(n), "OMP_DYNAMIC": "false"},
            )
            turns = lab.analyze("cache", many, *LEVELS, "--models", "--turns", "round-robin")
            in_time = lab.analyze("cache", many, *LEVELS, "--models")
            recorded = last(in_time, n)["hit_rate_alone"]
            aligned = turns["summary"].get("aligned", True)
            truth, level = last(turns, n)["hit_rate_alone"], last(said, n)
            model, sets, null = (
                level[k] for k in ("hit_rate_model", "hit_rate_sets", "hit_rate_one_thread")
            )
            predicted = {"null": null, "model": model, "sets": sets}
            for key, value in predicted.items():
                errors.setdefault((key, "turns"), []).append(abs(value - truth))
                errors.setdefault((key, "recorded"), []).append(abs(value - recorded))
            rows.append(
                [name + ("" if aligned else " (regions not found in all threads)"), schedule, n]
                + [percent(value) for value in predicted.values()]
                + [percent(recorded)]
                + [points(value - recorded) for value in predicted.values()]
                + [percent(truth)]
                + [points(value - truth) for value in predicted.values()]
            )
            lab.drop(many)
        lab.drop(one)
    lab.table(
        "Shared cache of 1 MiB, 16 ways, by threads",
        [
            "program",
            "schedule",
            "threads",
            "null: one thread's rate",
            "paper's model",
            "set distances",
            "real threads",
            "null − real",
            "model − real",
            "sets − real",
            "in turns",
            "null − turns",
            "model − turns",
            "sets − turns",
        ],
        rows,
        "Predicted from a run with one thread. *Real threads*: the exact cache on the recorded threads, in the order of recorded times, where two cores run the threads in "
        "slices; *in turns*: an access of each thread in turn between barriers, as the prediction assumes. The null model says that n threads have the rate of one. Mean "
        f"absolute errors in points: against real threads, {mean_errors(errors, 'recorded')}; against turns, {mean_errors(errors, 'turns')}. The paper: within 2.5 points "
        "for BFS and MatMul.",
    )
    equation(lab)


def mean_errors(errors, order):
    """Mean and greatest error of each prediction against an order of the threads."""

    def shown(name, key):
        found = errors[key, order]
        return f"{name} {100 * mean(found):.2f}, at most {100 * max(found):.2f}"

    names = {"null": "null", "model": "model", "sets": "set distances"}
    return "; ".join(shown(name, key) for key, name in names.items())


def equation(lab):
    jobs = [
        ("matmul", "benches/models/matmul.c", ["24", "40", "64"], ["160"]),
        ("stencil", "benches/models/stencil.c", ["64", "96", "144"], ["700"]),
        ("bfs", "benches/models/bfs.c", ["1000", "3000", "9000"], ["90000"]),
        ("fft", "benches/models/fft.c", ["9", "10", "11"], ["16"]),
    ]
    rows = []
    for name, source, small, large in jobs[:2] if lab.quick else jobs:
        program = lab.instrument(lab.compile(source))
        train = [lab.record(f"small-{i}", [program, size]) for i, size in enumerate(small)]
        test = lab.record("large", [program, *large])
        got = lab.analyze(
            "predict",
            *(a for t in train for a in ("--train", t)),
            "--test",
            test,
            "--block",
            "64",
            "--level",
            "32K:8",
            "--level",
            "256K:8",
            "--level",
            "1M:16",
        )
        single = [a for a in got["accuracy"] if a["method"] == "single reference"][0]
        for row in got["by_code"]:
            rows.append(
                [
                    name,
                    f"{large[0]} after {', '.join(small)}",
                    f"{lab.rows(test) / max(1, lab.rows(train[-1])):.0f}×",
                    f"{row['bytes'] // 1024} KiB",
                    percent(row["hit_rate_training"]),
                    percent(row["hit_rate_scaled"]),
                    percent(row["hit_rate_weighted"]),
                    percent(row["hit_rate_model"]),
                    percent(row["accuracy_scaled"]),
                    percent(single["accuracy"]),
                ]
            )
        for trace in [*train, test]:
            lab.drop(trace)
    lab.table(
        "Equation 1 from small to large inputs",
        [
            "program",
            "inputs",
            "accesses over the largest of training",
            "cache",
            "rate of the largest training run",
            "P(D|BB) and P(BB) scaled",
            "with P(BB) of the large run",
            "from its own distances",
            "histogram's accuracy, by code",
            "without code",
        ],
        rows,
        "Hit rates by the stack-distance model, 64-byte blocks; basic blocks are lines by class of load. The paper gives no accuracy from small to large.",
    )
