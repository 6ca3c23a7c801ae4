#!/usr/bin/env python3
"""Random programs must do the same before and after rewriting: programs.py BIN_FOLDER SECONDS ARTIFACTS

Csmith writes C programs without undefined behaviour that print a checksum of all their globals. Each is
compiled in some way (gcc or clang, -O0 to -O3, position-independent or not, stripped or not, with AVX-512
where the CPU has it), rewritten in both flavours and run: the soft flavour alone and under mgz-record in
`full` and `ring`, the pt flavour with its `ptwrite`s made NOPs where the CPU has none. Output and status must be
those of the original. A finding's source, command lines and outputs are kept. `apt install csmith libcsmith-dev`.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benches"))
from measure import ptwrite_is_legal
from mgza import ptwrites_to_nops


def run(command, timeout, folder=None):
    """(status, output), or None if it did not end in time."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            start_new_session=True,
            cwd=folder,
        )
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return None


def build(folder, rng):
    """A random program: the command that built it, or None if it is not usable; and what the compiler said."""
    source, program = os.path.join(folder, "p.c"), os.path.join(folder, "p")
    seed = rng.randrange(1 << 32)
    generate = [
        "csmith",
        "--seed",
        str(seed),
        "--output",
        source,
        "--max-funcs",
        str(rng.choice((4, 10, 20))),
        rng.choice(("--no-float", "--float")),
        "--builtins",
    ]
    if rng.random() < 0.3:
        generate.append("--jumps")
    # (It leaves a file behind where it runs.)
    if run(generate, 30, folder) is None or not os.path.exists(source):
        return None, "csmith ended without a program"
    compiler = rng.choice([c for c in ("gcc", "gcc", "clang") if shutil.which(c)])
    flags = [
        rng.choice(("-O0", "-O1", "-O2", "-O2", "-O3", "-O3", "-Os")),
        *rng.choice((["-fpie", "-pie"], ["-fno-pie", "-no-pie"])),
    ]
    flags += rng.choice(
        (
            [],
            [],
            ["-march=native"],
            ["-fomit-frame-pointer"],
            ["-fno-omit-frame-pointer"],
            ["-fstack-protector-all"],
            ["-fcf-protection=full"],
        )
    )
    flags += rng.choice(([], ["-s"], ["-g"], ["-static"]))
    command = [compiler, "-w", "-I/usr/include/csmith", *flags, source, "-o", program]
    done = run(command, 120)
    return (command if done and done[0] == 0 else None), done and done[2].decode(errors="replace")


def check(folder, bins, legal, static):
    """What is wrong with the rewritten program, or None. Programs that run too long are skipped."""
    program = os.path.join(folder, "p")
    expected = run([program], 2)
    if expected is None:
        return None
    tool = lambda name: os.path.join(bins, name)
    variants = {}
    for flavour in ("soft", "pt"):
        output = os.path.join(folder, "p." + flavour)
        done = run(
            [
                tool("mgz-instrument"),
                "--backend",
                flavour,
                "-o",
                output,
                "--annotations",
                output + ".mgza",
                program,
            ],
            120,
        )
        if done is None or done[0] not in (0, 3):
            return f"mgz-instrument --backend {flavour}: {done}"
        if done[0] == 3:
            continue
        if flavour == "pt" and not legal:
            ptwrites_to_nops(output, output + ".mgza", output)
        variants[flavour] = [output]
    # A static program has no loader that could bring the runtime in.
    if "soft" in variants and not static:
        soft = variants["soft"][0]
        record = [tool("mgz-record"), "-o", os.path.join(folder, "trace"), "--force"]
        variants["full"] = [*record, "--mode", "full", "--", soft]
        variants["ring"] = [
            *record,
            "--mode",
            "ring",
            "--period",
            "1000",
            "--window",
            "100",
            "--",
            soft,
        ]
    for name, command in variants.items():
        done = run(command, 120)
        if done is None:
            return f"{name}: still running after 120 s"
        if done[:2] != expected[:2]:
            return f"{name}: ended with {done[0]}, not {expected[0]}; printed {done[1][-300:]!r}, not {expected[1][-300:]!r}; {done[2][-800:].decode(errors='replace')}"
    return None


def main():
    bins, seconds, artifacts = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    if not shutil.which("csmith"):
        sys.exit("csmith is not installed: apt install csmith libcsmith-dev")
    os.makedirs(artifacts, exist_ok=True)
    rng = random.Random()
    end, runs, findings = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        legal = ptwrite_is_legal(scratch)
        while time.monotonic() < end:
            folder = os.path.join(scratch, "work")
            os.makedirs(folder)
            command, said = build(folder, rng)
            wrong = command and check(folder, bins, legal, "-static" in command)
            runs += bool(command)
            if wrong:
                findings += 1
                kept = os.path.join(artifacts, f"finding-{os.getpid()}-{findings}")
                shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("trace"))
                with open(os.path.join(kept, "report.txt"), "w") as f:
                    f.write(" ".join(command) + "\n" + wrong + "\n")
                print(
                    f"finding {findings}: {' '.join(command[:-3])}: {wrong[:600]}\n  kept in {kept}",
                    flush=True,
                )
            shutil.rmtree(folder)
    print(f"{runs} programs, {findings} findings")
    if not runs:
        sys.exit(f"no program could be built (is libcsmith-dev installed?): {said}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
