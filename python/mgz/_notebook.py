"""Reports and the magic of notebooks."""

from __future__ import annotations

import html
import os
import pathlib
import shlex
import tempfile
from typing import Any

from mgz._commands import command
from mgz._mgz import Error
from mgz._trace import Path, Trace


class Report:
    """A report: one HTML file. A notebook shows it in its own frame.

    The frame is sandboxed: the report's scripts run, but cannot access the notebook, the network
    or files.
    """

    def __init__(self, page: str, height: int) -> None:
        self.html = page
        """The whole page."""
        self.height = height
        """Height of the frame, in pixels."""

    @staticmethod
    def of(trace: Path, file: Path | None, height: int) -> Report:
        """The report of a trace."""
        with tempfile.TemporaryDirectory(prefix="mgz-") as folder:
            target = pathlib.Path(file) if file else pathlib.Path(folder) / "report.html"
            command("mgz", "report", trace, "-o", target)
            return Report(target.read_text(encoding="utf-8"), height)

    def save(self, file: Path) -> None:
        """Writes the page to a file that only the current user can read."""
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(self.html)

    def __repr__(self) -> str:
        return f"<mgz report of {len(self.html)} bytes>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" width="100%" height="{self.height}" '
            f'style="border:1px solid #ccc" srcdoc="{html.escape(self.html, quote=True)}"></iframe>'
        )


def run_cell(line: str, cell: str) -> Trace:
    """``%%mgz``: the cell is a command line, the line has options of ``mgz run``."""
    words = shlex.split(cell.replace("\\\n", " "), comments=True)
    if not words:
        raise Error("%%mgz: the cell has no command; write what stands behind `mgz run --`")
    options = shlex.split(line)
    output = f"{pathlib.Path(words[0]).name}.mgz"
    for at, option in enumerate(options[:-1]):
        if option in ("-o", "--output"):
            output = options[at + 1]
    command("mgz", "run", "--no-open", *options, "--", *words, capture=False)
    return Trace(output)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext mgz`` registers ``%%mgz``."""
    shell.register_magic_function(run_cell, magic_kind="cell", magic_name="mgz")
