"""Traces of many ranks, analysed by jobs of Slurm."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
import slurm
from distributed import Client

from mgz import distributed


@pytest.fixture
def cluster(monkeypatch):
    """Two jobs of a Slurm of this machine's, each with one worker of Dask."""
    jobqueue = pytest.importorskip(
        "dask_jobqueue", reason="SKIPPED: dask-jobqueue is not installed"
    )
    # A short path: names of sockets have a limit.
    with tempfile.TemporaryDirectory(prefix="mgz-slurm-") as name:
        folder = pathlib.Path(name)
        try:
            with slurm.running(folder) as env:
                monkeypatch.setenv("SLURM_CONF", env["SLURM_CONF"])
                with jobqueue.SLURMCluster(
                    cores=1,
                    processes=1,
                    memory="1GB",
                    python=sys.executable,
                    log_directory=name,
                    local_directory=name,
                    interface="lo",
                    scheduler_options={"dashboard_address": None},
                    worker_extra_args=["--no-dashboard"],
                ) as made:
                    made.scale(jobs=2)
                    yield made
        except slurm.CannotStart as why:
            pytest.skip(f"SKIPPED: {why}")


def test_a_job_is_cancelled_during_the_reduction(cluster, eight, tmp_path):
    here = distributed.analyze(eight, fanin=2, workdir=tmp_path / "here")
    steps = []
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        jobs = client.run(lambda: os.environ["SLURM_JOB_ID"])
        assert len(set(jobs.values())) == 2

        def progress(done, total):
            steps.append((done, total))
            # In the middle of the merges.
            if done == 10:
                subprocess.run(["scancel", min(jobs.values())], check=True)

        there = distributed.analyze(
            eight, client, fanin=2, workdir=tmp_path / "there", progress=progress
        )
        states = subprocess.run(
            ["squeue", "-h", "-t", "all", "-j", min(jobs.values()), "-o", "%T"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert states.split()[0] in ("CANCELLED", "COMPLETING"), states
    assert steps[-1] == (15, 15) and len(steps) == 15
    assert pathlib.Path(there.path).read_bytes() == pathlib.Path(here.path).read_bytes()
    assert there.summary["ranks"] == 8 and len(there.gaps) == 0
