#!/usr/bin/env python3
"""Damages traces of other tools and gives them to mgz-analyze import: imports.py MGZ_ANALYZE SECONDS ARTIFACTS TRACE…

The given traces are exported in each format that `import` reads; packets of gem5 are made here. Each round damages
one of these files and imports it. The program must end by itself, within its time and memory, with a status of 0 to
3 and without a word of a panic; what it took must be a trace that it can analyse. A finding's file is kept.
"""

import gzip
import lzma
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from trace import LIMIT, damage, limits

FORMATS = ("lackey", "drmemtrace", "champsim")


def varint(number):
    """A number of variable length."""
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def gem5(champsim):
    """The accesses of a trace of ChampSim as packets of gem5."""

    def message(*fields):
        body = b"".join(varint(number << 3) + varint(value) for number, value in fields)
        return varint(len(body)) + body

    packets = [b"gem5", message((3, 10**12))]
    for tick, record in enumerate(struct.iter_unpack("<QQ6Q", champsim)):
        ip, _, *words = record
        for at, address in enumerate(words):
            if address:
                command = 4 if at < 2 else 1
                packets.append(
                    message((1, tick), (2, command), (3, address), (4, 8), (5, 0), (6, 5), (7, ip))
                )
    return b"".join(packets)


def call(program, *arguments):
    """A description of what went wrong, or None; and whether the status is 0."""
    env = {**os.environ, "RAYON_NUM_THREADS": "2", "RUST_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            preexec_fn=limits,
            env=env,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"{arguments}: still running after {LIMIT} s", False
    err = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 2, 3):
        return f"{arguments}: ended with {done.returncode}: {err[-1500:]}", False
    if "panicked" in err:
        return f"{arguments}: {err[:1500]}", False
    if done.returncode != 0 and not err.strip():
        return f"{arguments}: failed with {done.returncode} and said nothing", False
    return None, done.returncode == 0


def files_of(path):
    """The files of an exported trace: itself, or those in its folder."""
    if os.path.isfile(path):
        return [path]
    return sorted(os.path.join(top, f) for top, _, names in os.walk(path) for f in names)


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
            for form in FORMATS:
                path = os.path.join(scratch, f"good-{number}-{form}")
                wrong, fine = call(program, "export", trace, "--to", form, "-o", path)
                if wrong or not fine:
                    sys.exit(f"{trace} as {form}: {wrong or 'refused'}")
                good.append((form, path))
            with open(path, "rb") as f:
                packets = gem5(f.read())
            for end, packed in ("", packets), (".gz", gzip.compress(packets)):
                path = os.path.join(scratch, f"good-{number}-gem5{end}")
                with open(path, "wb") as f:
                    f.write(packed)
                good.append(("gem5", path))
            path = os.path.join(scratch, f"good-{number}-champsim")
            with open(path, "rb") as f:
                packed = lzma.compress(f.read())
            with open(path + ".xz", "wb") as f:
                f.write(packed)
            good.append(("champsim", path + ".xz"))
        out = os.path.join(scratch, "out")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            form, path = rng.choice(good)
            bad = os.path.join(scratch, "bad")
            shutil.rmtree(bad, ignore_errors=True)
            if os.path.isdir(path):
                shutil.copytree(path, bad)
            else:
                os.makedirs(bad)
                shutil.copy(path, os.path.join(bad, "trace"))
            victim = rng.choice(files_of(bad))
            with open(victim, "rb") as f:
                data = damage(f.read(), rng)
            with open(victim, "wb") as f:
                f.write(data)
            shutil.rmtree(out, ignore_errors=True)
            given = bad if os.path.isdir(path) else os.path.join(bad, "trace")
            wrong, fine = call(program, "import", given, "--from", form, "-o", out)
            if not wrong and fine:
                taken += 1
                wrong, fine = call(program, out, "--format", "json")
                if not wrong and not fine:
                    wrong = "the trace that import made is refused"
            runs += 1
            if wrong:
                findings += 1
                kept = os.path.join(artifacts, f"finding-{os.getpid()}-{findings}")
                shutil.copytree(bad, kept)
                print(f"finding {findings}: {wrong}\n  kept in {kept}", flush=True)
    print(f"{runs} damaged traces of other tools ({taken} were taken), {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
