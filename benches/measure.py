"""Running programs and comparing their times.

Times on a busy or virtual machine drift by tens of percent within a minute. So what is compared is run in
turns (A B C, A B C, …), and a figure is a ratio: minimum over minimum, and the median of the ratios inside
each turn.
"""

import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    """A program that was to be timed did not do its work."""


class Run:
    """One run: wall seconds, CPU seconds (children that it waited for included), what it printed."""

    def __init__(self, wall, cpu, out, err):
        self.wall, self.cpu, self.out, self.err = wall, cpu, out, err


def run(command, discard=False, timeout=900, cwd=None):
    """Runs a command in a session of its own, to its end. `discard` throws its output away (a tracer's flood)."""
    command = [str(c) for c in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        null = subprocess.DEVNULL
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=null,
            stdout=null if discard else out,
            stderr=null if discard else err,
            start_new_session=True,
            cwd=cwd,
        )
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        watchdog = threading.Timer(timeout, stop)
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        result = Run(wall, usage.ru_utime + usage.ru_stime, out.read(), err.read())
    if late.is_set():
        raise Failed(f"{' '.join(command)} ran longer than {timeout} s")
    if process.returncode != 0:
        tail = result.err.decode(errors="replace").strip().splitlines()[-3:]
        raise Failed(f"{' '.join(command)} ended with {process.returncode}: {' / '.join(tail)}")
    return result


def in_turns(variants, turns):
    """Runs each variant (`{name: function that returns a Run}`) once per turn; `{name: {"wall": [s], "cpu": [s]}}`.

    One turn before the first is thrown away: it fills caches and pages.
    """
    times = {name: {"wall": [], "cpu": []} for name in variants}
    for turn in range(turns + 1):
        for name, measure in variants.items():
            done = measure()
            if turn:
                times[name]["wall"].append(done.wall)
                times[name]["cpu"].append(done.cpu)
    return times


def in_pairs(name, alone, recorded, turns, spare):
    """Runs of a program by itself and recorded, turn by turn: `(recorded, alone)`. `spare`: one turn before the first is thrown away."""
    for turn in range(turns + spare):
        # Which comes first changes, since a machine's pace does.
        runs = {}
        for what in (alone, recorded) if turn % 2 else (recorded, alone):
            runs[what is recorded] = run(what)
        if runs[True].out != runs[False].out:
            raise Failed(f"{name}: recorded: another output than alone")
        if turn or not spare:
            yield runs[True], runs[False]


def ratio(times, over):
    """`{"min": minimum over minimum, "median": median of the ratios turn by turn}`."""
    return {
        "min": min(times) / min(over),
        "median": statistics.median(a / b for a, b in zip(times, over)),
    }


def geometric_mean(values):
    """The geometric mean; None of nothing."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def machine():
    """What the figures depend on. No host name, no paths."""

    def first(path, key=None):
        try:
            with open(path) as f:
                for line in f:
                    if key is None:
                        return line.strip()
                    if line.startswith(key):
                        return line.split(":", 1)[1].strip()
        except OSError:
            pass
        return "unknown"

    def version(command):
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            return "none"

    flags = first("/proc/cpuinfo", "flags").split()
    return {
        "cpu": first("/proc/cpuinfo", "model name"),
        "family_model_stepping": "/".join(
            first("/proc/cpuinfo", k) for k in ("cpu family", "model\t", "stepping")
        ),
        "cores": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in flags,
        "fsgsbase": "fsgsbase" in flags,
        "memory": first("/proc/meminfo", "MemTotal"),
        "kernel": os.uname().release,
        "governor": first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": first("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_average_at_start": os.getloadavg()[0],
        "gcc": version(["gcc", "--version"]),
        "valgrind": version(["valgrind", "--version"]),
    }


def ptwrite_is_legal(folder):
    """Whether this machine executes `ptwrite`, found out by doing it."""
    source, program = os.path.join(folder, "ptwrite.s"), os.path.join(folder, "ptwrite")
    with open(source, "w") as f:
        f.write(
            ".globl main\nmain:\n ptwrite %rax\n xorl %eax, %eax\n ret\n.section .note.GNU-stack\n"
        )
    run(["gcc", source, "-o", program])
    return (
        subprocess.run([program], start_new_session=True, stderr=subprocess.DEVNULL).returncode == 0
    )
