"""Many traces, by one process and by Dask."""

import json
import os
import pathlib
import signal
import subprocess

import pytest
from distributed import Client, LocalCluster

import mgz
from mgz import distributed


def printed(*words):
    return json.loads(mgz.command("mgz-analyze", "ranks", *words, "--format", "json"))


def test_the_rank_with_more_work_is_first(ranks, tmp_path):
    found = distributed.analyze(ranks, workdir=tmp_path)
    first = found.findings[0]
    assert first["kind"] == "imbalance" and first["rank"] == "rank 3"
    assert "rank 3 of 4 executes 1.95" in first["finding"]
    assert [row["rank"] for row in found.ranks] == [0, 1, 2, 3]
    loads = found.metrics[0]
    assert loads["metric"] == "loads" and loads["max_rank"] == "rank 3"
    assert loads["imbalance"] == pytest.approx(1.95, rel=0.02)
    assert loads["min"] <= loads["median"] <= loads["mean"] <= loads["max"]
    sizes = [(row["size"], row["members"]) for row in found.clusters]
    assert sizes == [(3, "0-2"), (1, "3")]
    assert {"gather", "columns"} <= set(found.functions["function"])
    assert "rank 3" in found.outliers["rank"]
    assert sum(found.heat_map["loads"]) > 0
    assert "imbalance" in found._repr_html_() and "rank 3" in repr(found)
    # The same by the command, from traces and from files.
    document = found.json()
    assert printed(*ranks) == document == printed(found.path)
    for name, table in found.tables.items():
        assert table.to_dicts() == document[name]


def test_grouping_changes_no_byte_and_what_is_done_stays(ranks, tmp_path):
    results = []
    for fanin in (2, 3, 8):
        found = distributed.analyze(ranks[::-1], fanin=fanin, workdir=tmp_path / str(fanin))
        results.append(pathlib.Path(found.path).read_bytes())
    by_command = tmp_path / "command.ranks"
    mgz.command("mgz-analyze", "ranks", *ranks, "--partial", by_command)
    results.append(by_command.read_bytes())
    assert len(set(results)) == 1
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "2").glob("rank*")}
    assert len(before) == 4
    distributed.analyze(ranks[::-1], fanin=2, workdir=tmp_path / "2")
    assert before == {f: f.stat().st_mtime_ns for f in before}
    stamp = by_command.stat().st_ino
    mgz.command("mgz-analyze", "ranks", *ranks, "--partial", by_command)
    assert by_command.stat().st_ino == stamp
    with pytest.raises(mgz.CommandError, match="give each trace once"):
        mgz.command("mgz-analyze", "ranks", ranks[0], ranks[0])


def test_failed_ranks_are_named_gaps(ranks, tmp_path):
    broken = tmp_path / "rank.9"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    found = distributed.analyze([*ranks[:2], broken], workdir=tmp_path / "w")
    assert found.gaps["input"] == ["rank.9"]
    assert "damaged manifest" in found.gaps["why"][0]
    assert found.summary["missing_ranks"] == "2-3"
    assert [row["rank"] for row in found.ranks] == [0, 1]
    with pytest.raises(mgz.Error, match="none of 1 traces has a result"):
        distributed.analyze([broken], workdir=tmp_path / "w")
    with pytest.raises(mgz.CommandError, match="--keep-going"):
        mgz.command("mgz-analyze", "ranks", *ranks[:2], broken)
    line = [mgz._commands.find("mgz-analyze"), "ranks", *ranks[:2], broken, "--keep-going"]
    done = subprocess.run([*line, "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 1 and json.loads(done.stdout)["gaps"][0]["input"] == "rank.9"


def test_urls(ranks, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for rank in ranks[:2]:
        memory.put(f"{rank}/", f"/job/{rank.name}/", recursive=True)
    found = distributed.analyze("memory:///job/rank.*", workdir="memory:///results")
    here = distributed.analyze(ranks[:2], workdir=tmp_path)
    assert pathlib.Path(found.path).read_bytes() == pathlib.Path(here.path).read_bytes()
    assert len(memory.ls("/results")) == 4


def test_a_worker_dies_during_the_reduction(eight, tmp_path):
    here = distributed.analyze(eight, fanin=2, workdir=tmp_path / "here")
    steps = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def progress(done, total):
            steps.append((done, total))
            # In the middle of the merges.
            if done == 10:
                pid = next(iter(client.run(os.getpid).values()))
                os.kill(pid, signal.SIGKILL)

        there = distributed.analyze(
            eight, client, fanin=2, workdir=tmp_path / "there", progress=progress
        )
    assert steps[-1] == (15, 15) and len(steps) == 15
    assert pathlib.Path(there.path).read_bytes() == pathlib.Path(here.path).read_bytes()
    assert there.summary["ranks"] == 8 and len(there.gaps) == 0
