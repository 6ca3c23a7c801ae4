"""The models on arrays, against simple definitions of them."""

import array
import json
import random
import threading
import time

import numpy
import pytest

import mgz
from mgz import models


def stack_distances(blocks):
    stack = []
    for block in blocks:
        if block in stack:
            at = stack[::-1].index(block)
            yield at
            stack.remove(block)
        else:
            yield None
        stack.append(block)


@pytest.fixture(scope="module")
def addresses():
    rng = random.Random(7)
    return numpy.array([rng.randrange(200) * 24 for _ in range(40_000)], dtype="uint64")


def test_reuse_distances(addresses):
    some = addresses[:3000]
    table = models.reuse_distances(some, block=64)
    assert table["distance"] == list(stack_distances([int(a) // 64 for a in some]))
    intervals, last = [], {}
    for at, block in enumerate(int(a) // 64 for a in some):
        intervals.append(at - last[block] if block in last else None)
        last[block] = at
    assert table["interval"] == intervals


def test_histogram_curve_and_simulation_agree(addresses):
    distances = models.reuse_distances(addresses)["distance"]
    histogram = models.reuse_histogram(addresses).to_dicts()
    assert sum(row["count"] for row in histogram) == len(addresses)
    assert histogram[-1]["count"] == distances.count(None)
    for row in histogram[:-1]:
        inside = [d for d in distances if d is not None and row["from"] <= d < row["to"]]
        assert len(inside) == row["count"]
    sizes = [64 * n for n in (1, 2, 7, 16, 75)]
    curve = models.miss_ratio_curve(addresses, sizes)
    for size, ratio in zip(curve["size"], curve["miss_ratio"], strict=True):
        misses = sum(d is None or d >= size // 64 for d in distances)
        assert ratio == pytest.approx(misses / len(addresses))
        exact = models.simulate(addresses, [(size, size // 64)])
        assert exact[0]["misses"] == misses
    two = models.simulate(addresses, [(1024, 16), (4096, 4)]).to_dicts()
    assert two[1]["accesses"] == two[0]["misses"] > two[1]["misses"] > 0
    assert models.simulate(addresses, "1K:16,4K:4").to_dicts() == two
    # Each level has all that the one in front has lost: together they are one cache.
    victim = models.simulate(addresses, ["1K:16:lru", "3K:48:exclusive"])
    whole = models.simulate(addresses, [(4096, 64)])
    assert victim[1]["misses"] == whole[0]["misses"]
    assert victim["inclusion"] == ["non-inclusive", "exclusive"]
    with pytest.raises(mgz.Error, match="instructions"):
        models.simulate(addresses, ["1K:16:stride"])
    with pytest.raises(mgz.Error, match="mru"):
        models.simulate(addresses, ["1K:16:mru"])


def test_footprints(addresses):
    some = [int(a) for a in addresses[:500]]
    assert models.footprint(addresses) == len({int(a) // 64 for a in addresses})
    assert models.footprint(some, block=1) == len(set(some))
    for row in models.footprint_curve(some, [1, 10, 499, 500, 501], block=64):
        w = row["window"]
        windows = [len({a // 64 for a in some[i : i + w]}) for i in range(len(some) - w + 1)]
        expected = sum(windows) / len(windows) if windows else None
        assert row["footprint"] == (pytest.approx(expected) if windows else None)
    assert models.emd([1, 0, 0], [0, 0, 1]) == pytest.approx(2.0)


def test_all_kinds_of_arrays(addresses):
    some = addresses[:1000]
    expected = models.footprint(some)
    plain = some.tolist()
    for kind in (
        some.astype("int64"),
        plain,
        tuple(plain),
        array.array("Q", plain),
        memoryview(array.array("Q", plain)),
        some.view("uint64"),
    ):
        assert models.footprint(kind) == expected
    some.flags.writeable = False
    assert models.footprint(some) == expected
    for wrong in (
        some.astype("float64"),
        some[::2],
        some.reshape(10, 100),
        some.astype("uint32"),
        b"x" * 64,
    ):
        with pytest.raises(TypeError, match="contiguous array of 64-bit"):
            models.footprint(wrong)
    with pytest.raises(mgz.Error, match="power of two"):
        models.footprint(some, block=48)
    assert models.footprint([]) == 0
    assert models.reuse_distances([]).to_dicts() == []


def test_traces_have_models_too(full, sampled):
    trace = mgz.open(full)
    histogram = models.reuse_histogram(trace).to_dicts()
    assert histogram[-1]["count"] == trace.summary["first_touches"]
    ratios = models.miss_ratio_curve(trace, [1 << 12, 1 << 20])["miss_ratio"]
    assert ratios[0] > ratios[1] > 0
    words = ["--level=4K:4:plru:stride", "--level=32K:8:rrip", "--format", "json"]
    by_command = json.loads(mgz.command("mgz-analyze", "cache", full, *words))
    levels = models.simulate(trace, "4K:4:plru:stride,32K:8:rrip")
    assert levels["misses"] == [row["misses"] for row in by_command["levels"]]
    with pytest.raises(mgz.Error, match="needs every load of the run"):
        models.simulate(mgz.open(sampled), [(1 << 15, 8)])


def test_other_threads_run_meanwhile():
    many = numpy.random.default_rng(1).integers(0, 1 << 30, 3_000_000, dtype="uint64")
    done = threading.Event()
    worker = threading.Thread(target=lambda: (models.reuse_histogram(many), done.set()))
    worker.start()
    ticks = 0
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    worker.join()
    # With the lock held there would be one tick, as long as the whole.
    assert ticks > 3
