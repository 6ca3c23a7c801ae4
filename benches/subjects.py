"""What is measured: the kernels of benches/kernels, and real programs with their main library.

A subject does work in proportion to its `size`, and prints something that depends on all of it.
"""

import os
import re
import shutil
import subprocess

from corpus import sql_corpus, text
from measure import Failed, run

BENCHES = os.path.dirname(os.path.abspath(__file__))


class Subject:
    """A program; `standard` is a size that takes `seconds`."""

    def __init__(self, name, path, libs, standard):
        self.name, self.path, self.libs, self.standard = name, path, libs, standard
        self.seconds, self.outputs = None, {}

    def arguments(self, size):
        """What the program is called with."""
        raise NotImplementedError

    def calibrate(self):
        """Finds out how long the standard size takes, in CPU time. Two runs: the first fills caches."""
        for _ in range(2):
            self.seconds = run([self.path, *self.arguments(self.standard)]).cpu

    def size(self, seconds):
        """The size that takes the original about this long."""
        return max(1, round(self.standard * seconds / self.seconds))

    def original(self, size):
        """Runs the original."""
        return self.checked(size, run([self.path, *self.arguments(size)]))

    def checked(self, size, result):
        """The result, if the output is that of the original."""
        if size not in self.outputs:
            self.outputs[size] = run([self.path, *self.arguments(size)]).out
        if not self.outputs[size]:
            raise Failed(f"{self.name} prints nothing")
        if result.out != self.outputs[size]:
            raise Failed(
                f"{self.name} printed {result.out[-80:]!r}, not {self.outputs[size][-80:]!r}"
            )
        return result


class Kernel(Subject):
    """A small program of benches/kernels; its size is its rounds."""

    def __init__(self, name, source, scratch):
        path = os.path.join(scratch, name)
        run(["gcc", "-O3", "-g", source, "-o", path])
        with open(source) as f:
            rounds = int(re.search(r"rounds_or\(argc, argv, (\d+)\)", f.read()).group(1))
        super().__init__(name, path, None, rounds)
        self.source = source

    def arguments(self, size):
        return [str(size)]


class Program(Subject):
    """A program of the system."""

    def __init__(self, name, path, libs, standard, arguments):
        super().__init__(name, path, libs, standard)
        self.arguments = arguments


PYTHON = r"""
import json, re, sys
def work(n):
    seen, total = {}, 0
    class Node:
        __slots__ = ("key", "left", "right")
        def __init__(self, key):
            self.key, self.left, self.right = key, None, None
    root, x = Node(1 << 30), 12345
    for i in range(400 * n):
        x = (x * 1103515245 + 12345) & 0x7fffffff
        seen[x % 5003] = seen.get(x % 4999, 0) + i
        at, key = root, x
        while True:
            side = "left" if key < at.key else "right"
            below = getattr(at, side)
            if below is None or i % 8:
                break
            at = below
        if i % 8 == 0:
            setattr(at, side, Node(key))
        total += len(str(x)) + (x >> 7) % 13
    rows = sorted(({"k": k, "v": v % 97, "s": "%x" % v} for k, v in seen.items()), key=lambda r: (r["v"], r["s"]))
    back = json.loads(json.dumps(rows[: 20 * n]))
    words = re.findall(r"[a-f]+\d", " ".join(r["s"] for r in back))
    return total, sum(seen.values()) % 1000003, len(back), len(words), hash(tuple(r["k"] for r in back)) % 1009
print(work(int(sys.argv[1])))
"""


def kernels(scratch, only=None):
    """`{name: Kernel}`, calibrated."""
    found = {}
    for file in sorted(os.listdir(os.path.join(BENCHES, "kernels"))):
        name, dot = os.path.splitext(file)
        if dot == ".c" and (not only or name in only):
            found[name] = Kernel(name, os.path.join(BENCHES, "kernels", file), scratch)
            found[name].calibrate()
    return found


def programs(scratch, only=None):
    """`{name: Program}`, calibrated, of the programs that are installed: gzip, xz with liblzma, sqlite3 with libsqlite3, python3.11."""

    def file(name, make):
        path = os.path.join(scratch, name)
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(make())
        return path

    def several(option):
        # Each file is packed on its own: work in proportion to their number.
        data = file("text", lambda: text(1 << 18))
        return lambda size: [*option, "-c", *[data] * size]

    def statements(size):
        return [":memory:", ".read " + file(f"sql{size}", lambda: sql_corpus(1200, size).encode())]

    script = file("work.py", PYTHON.encode)
    wanted = [
        ("gzip", "/usr/bin/gzip", None, 16, several(["-6"])),
        ("xz", "/usr/bin/xz", "liblzma.so.5", 3, several(["-3", "-T1"])),
        ("sqlite3", "/usr/bin/sqlite3", "libsqlite3.so.0", 600, statements),
        (
            "python3.11",
            "/usr/bin/python3.11",
            None,
            200,
            lambda size: ["-I", "-S", script, str(size)],
        ),
    ]
    found = {}
    for name, path, libs, standard, arguments in wanted:
        if (not only or name in only) and os.path.exists(path):
            found[name] = Program(name, path, libs, standard, arguments)
            found[name].calibrate()
    return found


def needed_library(program, name):
    """The file of a library that a program needs, None if it needs none of that name."""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    found = re.search(re.escape(name) + r" => (/\S+)", linked)
    return os.path.realpath(found.group(1)) if found else None


def compiler():
    """The path of cc1, None where gcc is not installed."""
    if not shutil.which("gcc"):
        return None
    path = subprocess.run(
        ["gcc", "-print-prog-name=cc1"], capture_output=True, text=True
    ).stdout.strip()
    return path if os.path.isabs(path) else None
