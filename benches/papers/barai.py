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
    rows, errors = [], {"model": [], "sets": [], "null": [], "recorded": [], "null recorded": []}
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
            for key, value, real in (
                ("model", model, truth),
                ("sets", sets, truth),
                ("null", null, truth),
                ("recorded", sets, recorded),
                ("null recorded", null, recorded),
            ):
                errors[key].append(abs(value - real))
            rows.append(
                [
                    name + ("" if aligned else " (regions not found in all threads)"),
                    schedule,
                    n,
                    percent(null),
                    percent(model),
                    percent(sets),
                    percent(truth),
                    points(null - truth),
                    points(model - truth),
                    points(sets - truth),
                    percent(recorded),
                    points(null - recorded),
                    points(sets - recorded),
                ]
            )
            lab.drop(many)
        lab.drop(one)
    of = lambda key: f"{100 * mean(errors[key]):.2f}, at most {100 * max(errors[key]):.2f}"
    lab.table(
        "Shared cache of 1 MiB, 16 ways, by threads",
        [
            "program",
            "schedule",
            "threads",
            "one thread's rate",
            "paper's model",
            "set distances",
            "measured in turns",
            "one thread − measured",
            "model − measured",
            "sets − measured",
            "measured as recorded",
            "one thread − recorded",
            "sets − recorded",
        ],
        rows,
        "Predicted from a run with one thread. *Measured in turns*: the exact cache on the recorded threads, an access of each in turn between barriers; "
        "*as recorded*: in the order of recorded times, where two cores run the threads in slices. The null model says that n threads have the rate of one. Mean "
        f"absolute errors in points: against turns, null {of('null')}; model {of('model')}; set distances {of('sets')}. Against the recorded order: null "
        f"{of('null recorded')}; set distances {of('recorded')}. The paper: within 2.5 points for BFS and MatMul.",
    )
    equation(lab)


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
