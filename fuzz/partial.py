#!/usr/bin/env python3
"""Damages partial results and gives them to mgz-analyze --merge: partial.py MGZ_ANALYZE SECONDS ARTIFACTS TRACE…

A partial result is a magic number and a zstd stream of tables in the postcard format. Damage to the packed bytes is mostly noticed by zstd, so
most rounds damage what is inside and pack it again. The analyzer must end by itself, within its time and memory, with a status of 0 to 3 and
without a word of a panic. A finding's file is kept.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from trace import LIMIT, damage, limits

MAGIC = 8


def pack(data):
    return subprocess.run(
        ["zstd", "-q", "-1", "-c"], input=bytes(data), stdout=subprocess.PIPE, check=True
    ).stdout


def unpack(data):
    return subprocess.run(
        ["zstd", "-q", "-d", "-c"], input=bytes(data), stdout=subprocess.PIPE, check=True
    ).stdout


def merge(program, files, out):
    """A description of what went wrong, or None; and whether the files were taken."""
    command = [program, "--merge", *files, *out]
    env = {**os.environ, "RAYON_NUM_THREADS": "2", "RUST_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            preexec_fn=limits,
            env=env,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"{out}: still running after {LIMIT} s", False
    err = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 2, 3):
        return f"{out}: ended with {done.returncode}: {err[-1500:]}", False
    if "panicked" in err:
        return f"{out}: {err[:1500]}", False
    if done.returncode != 0 and not err.strip():
        return f"{out}: failed with {done.returncode} and said nothing", False
    return None, done.returncode == 0


def main():
    program, seconds, artifacts, traces = (
        os.path.abspath(sys.argv[1]),
        float(sys.argv[2]),
        sys.argv[3],
        sys.argv[4:],
    )
    os.makedirs(artifacts, exist_ok=True)
    rng = random.Random()
    runs = findings = taken = 0
    with tempfile.TemporaryDirectory() as scratch:
        good = []
        for number, trace in enumerate(traces):
            path = os.path.join(scratch, f"good-{number}")
            done = subprocess.run([program, trace, "--partial", path], capture_output=True)
            if done.returncode:
                sys.exit(f"{trace}: {done.stderr.decode(errors='replace')}")
            wrong, fine = merge(program, [path, path], [])
            if wrong or not fine:
                sys.exit(f"the undamaged partial result of {trace}: {wrong or 'refused'}")
            with open(path, "rb") as f:
                data = f.read()
            good.append((path, data[:MAGIC], data[MAGIC:], unpack(data[MAGIC:])))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            path, magic, packed, inside = rng.choice(good)
            bad = os.path.join(scratch, "bad")
            with open(bad, "wb") as f:
                if rng.random() < 0.1:
                    f.write(damage(magic + packed, rng))
                else:
                    f.write(magic + pack(damage(inside, rng)))
            files = rng.choice(([bad], [bad, path], [path, bad], [bad, bad]))
            wrong, fine = merge(
                program,
                files,
                rng.choice(([], ["--format", "json"], ["--partial", os.path.join(scratch, "out")])),
            )
            runs += 1
            taken += fine
            if wrong:
                findings += 1
                kept = os.path.join(artifacts, f"finding-{os.getpid()}-{findings}")
                shutil.copy(bad, kept)
                print(f"finding {findings}: {wrong}\n  kept in {kept}", flush=True)
    print(f"{runs} damaged partial results ({taken} were taken as good ones), {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
