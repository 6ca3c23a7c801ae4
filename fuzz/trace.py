#!/usr/bin/env python3
"""Damages trace folders and gives them to mgz-analyze: trace.py MGZ_ANALYZE SECONDS ARTIFACTS TRACE…

The Parquet decoder is a large library that may panic inside; the analyzer promises to contain that. So this
target works from outside, on whole folders and the finished program, which must end by itself, within its
time and memory, with a status of 0 to 3 and without a word of a panic. A finding's folder is kept.

The traces given are small good ones. Each round copies one, damages one to three of its files, and runs.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

MEMORY = 8 << 30
LIMIT = 30
INTERESTING = [
    0,
    1,
    7,
    8,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]


def damage(data, rng):
    """The bytes with a few changes of the kinds that readers meet and some that they do not."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not data:
            return data
        kind = rng.randrange(9)
        # Formats keep their headers at the ends: hit those more often.
        size = len(data)
        at = rng.choice(
            (
                rng.randrange(size),
                min(size - 1, rng.randrange(256)),
                max(0, size - 1 - rng.randrange(2048)),
            )
        )
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice(INTERESTING) & ((1 << 8 * width) - 1)
            data[at : at + width] = value.to_bytes(width, rng.choice(("little", "little", "big")))
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at : at + rng.randrange(1, 64)]
        elif kind == 5:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 32)))
        elif kind == 6:
            end = min(size, at + rng.randrange(1, 256))
            data[at:end] = bytes(end - at)
        elif kind == 7:
            other = rng.randrange(size)
            length = rng.randrange(1, 128)
            data[at : at + length] = data[other : other + length]
        else:
            digits = [i for i in range(at, min(size, at + 64)) if 48 <= data[i] <= 57]
            if digits:
                i = rng.choice(digits)
                data[i : i + 1] = str(rng.choice(INTERESTING + [-1])).encode()
    return data


def files_of(folder):
    return [os.path.join(base, f) for base, _, names in os.walk(folder) for f in names]


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def analyze(program, trace, rng):
    """A description of what went wrong, or None."""
    analysis = [
        [trace],
        [trace, "--zoom"],
        [trace, "--zoom", "--format", "json"],
        [trace, "--format", "json", "--block", "4096"],
    ]
    models = [
        ["reuse", trace, "--stores"],
        ["reuse", trace, "--windows"],
        ["reuse", trace, "--rdx", "--period", "100"],
        ["spectra", trace],
        ["cache", trace, "--level", "32K:8"],
        ["affinity", trace],
    ]
    if os.path.exists(os.path.join(trace, "watch.parquet")):
        models, analysis = (
            [
                ["reuse", trace, "--rdx"],
                ["reuse", trace, "--rdx", "--stores"],
                ["reuse", trace, "--rdx", "--format", "json"],
            ],
            [],
        )
    options = rng.choice(analysis * 2 + models)
    command = [program, *options]
    env = {**os.environ, "RAYON_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2", "RUST_BACKTRACE": "1"}
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
        return f"{' '.join(options)}: still running after {LIMIT} s"
    err = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 2, 3):
        return f"{' '.join(options)}: ended with {done.returncode}: {err[-1500:]}"
    if "panicked" in err:
        return f"{' '.join(options)}: {err[:1500]}"
    if done.returncode != 0 and not err.strip():
        return f"{' '.join(options)}: failed with {done.returncode} and said nothing"
    return None


def main():
    program, seconds, artifacts, traces = (
        os.path.abspath(sys.argv[1]),
        float(sys.argv[2]),
        sys.argv[3],
        sys.argv[4:],
    )
    os.makedirs(artifacts, exist_ok=True)
    rng = random.Random()
    for trace in traces:
        wrong = analyze(program, trace, random.Random(0))
        if wrong:
            sys.exit(f"the undamaged trace {trace}: {wrong}")
    end, runs, findings = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() < end:
            folder = os.path.join(scratch, "trace")
            shutil.copytree(rng.choice(traces), folder)
            files = files_of(folder)
            for path in rng.sample(files, min(len(files), rng.choice((1, 1, 2, 3)))):
                with open(path, "rb") as f:
                    data = f.read()
                if rng.random() < 0.03:
                    os.remove(path)
                    continue
                with open(path, "wb") as f:
                    f.write(damage(data, rng))
            wrong = analyze(program, folder, rng)
            runs += 1
            if wrong:
                findings += 1
                kept = os.path.join(artifacts, f"finding-{os.getpid()}-{findings}")
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                with open(kept + ".txt", "w") as f:
                    f.write(wrong + "\n")
                print(f"finding {findings}: {wrong}\n  kept in {kept}", flush=True)
            shutil.rmtree(folder)
    print(f"{runs} damaged traces, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
