"""Traces and results in an object store."""

import pathlib

import pytest

from mgz import distributed

PACKAGES = "SKIPPED: moto[server] and s3fs are not installed"


def test_traces_and_results_in_an_object_store(ranks, tmp_path, monkeypatch):
    server = pytest.importorskip("moto.server", reason=PACKAGES)
    s3fs = pytest.importorskip("s3fs", reason=PACKAGES)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        host, port = store.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem()
        files.mkdir("bucket")
        for rank in ranks[:2]:
            files.put(f"{rank}/", f"bucket/job/{rank.name}/", recursive=True)
        found = distributed.analyze("s3://bucket/job/rank.*", workdir="s3://bucket/results")
        here = distributed.analyze(ranks[:2], workdir=tmp_path)
        assert pathlib.Path(found.path).read_bytes() == pathlib.Path(here.path).read_bytes()
        assert len(files.ls("bucket/results", refresh=True)) == 4
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        store.stop()
