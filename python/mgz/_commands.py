"""The commands of mgz, which the package carries."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from mgz._mgz import Error
from mgz._trace import Path, Trace

Word = str | os.PathLike[str]


class CommandError(Error):
    """A command failed. The text is its output on standard error."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status
        """Its exit status."""


def find(name: str) -> str:
    """The file of a command: installed with this package, or else found in PATH."""
    try:
        files = importlib.metadata.files("mgz") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = pathlib.Path(str(file.locate())).resolve()
        if file.name == name and path.parent.name == "bin" and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise Error(
            f"{name} is neither installed with the package mgz nor in PATH; install the wheel again"
        )
    return found


def command(
    name: str,
    *words: Word,
    capture: bool = True,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """Runs a command of mgz (``mgz``, ``mgz-instrument``, ``mgz-record``, ``mgz-analyze``).

    words
        its arguments.
    capture
        return its standard output; otherwise standard output is not redirected.

    Raises :class:`CommandError` with its output on standard error if it fails.
    """
    line = [find(name), *(os.fspath(word) for word in words)]
    done = subprocess.run(
        line,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        cwd=cwd,
        env=env,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or f"{name} ended with status {done.returncode}"
        raise CommandError(said, done.returncode)
    if done.stderr:
        sys.stderr.write(done.stderr)
    return done.stdout or ""


def run(
    program: Word | Sequence[Word],
    *,
    output: Path | None = None,
    heap: bool = False,
    libs: bool | str = False,
    full: bool = False,
    overhead: str | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Trace:
    """Instruments a program, runs it, records and analyses its loads, as ``mgz run`` does.

    program
        the file, or a list of the file and its arguments.
    output
        folder for the report and the trace; by default NAME.mgz.
    heap
        also log heap blocks, so that data are named by their allocation sites.
    libs
        also instrument libraries: all but the C library, or those of a list.
    full
        record every load (small inputs: traces grow fast).
    overhead
        percent of the program's CPU time that recording may cost, such as ``"5%"``.

    Returns the trace. Raises :class:`CommandError` if the program could not be recorded, or ended
    with a status other than 0.
    """
    words = [program] if isinstance(program, str | os.PathLike) else list(program)
    if output is None:
        output = pathlib.Path(cwd or ".") / f"{pathlib.Path(words[0]).name}.mgz"
    options: list[Word] = ["--no-open", "-o", os.path.abspath(output)]
    options += ["--heap"] if heap else []
    options += ["--full"] if full else []
    options += ["--libs" if libs is True else f"--libs={libs}"] if libs else []
    options += ["--overhead", overhead] if overhead is not None else []
    command("mgz", "run", *options, "--", *words, capture=False, cwd=cwd, env=env)
    return Trace(output)


Run = Path | Trace


def compare(base: Run | Sequence[Run], new: Run | Sequence[Run], *words: Word) -> dict[str, Any]:
    """Compares two builds: better, worse and equal parts, as in ``mgz compare --format json``.

    base, new
        one run, or several runs of one build: traces, folders of ``mgz run``, files of
        ``mgz-analyze --partial``.
    words
        more options of the command, such as ``"--misses"``.
    """

    def paths(runs: Run | Sequence[Run]) -> list[Word]:
        several = [runs] if isinstance(runs, str | os.PathLike | Trace) else runs
        return [run.path if isinstance(run, Trace) else run for run in several]

    sides = [*paths(base), "--", *paths(new)]
    document: dict[str, Any] = json.loads(
        command("mgz-analyze", "compare", "--format", "json", *words, *sides)
    )
    return document
