"""Traces."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mgz import _mgz
from mgz._tables import Finding, Findings, Rows, Summary, Table

if TYPE_CHECKING:
    from mgz._notebook import Report

Path = str | os.PathLike[str]
#: Selects a part of the trace: ``thread``, ``process``, ``function``, ``object`` (names or
#: regular expressions, one or several), ``start``, ``end`` (seconds after the first sample).
Filter = Mapping[str, "str | int | float | Sequence[str | int]"]

_OPTIONS = {
    "thread": "--thread",
    "process": "--process",
    "function": "--function",
    "object": "--object",
    "start": "--from",
    "end": "--to",
}


def _words(filter: Filter | None) -> list[str]:
    """Options of mgz-analyze."""
    words: list[str] = []
    for key, value in (filter or {}).items():
        if key not in _OPTIONS:
            raise _mgz.Error(f"there is no filter {key!r}; there are {', '.join(_OPTIONS)}")
        values: Iterable[object] = [value] if isinstance(value, str | int | float) else value
        words.extend(f"{_OPTIONS[key]}={one}" for one in values)
    return words


class Analysis:
    """The analysis of a trace, or of several merged ones."""

    def __init__(self, found: _mgz.Analysis) -> None:
        self._found = found
        self._tables: dict[str, Table] | None = None

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by name, as ``mgz-analyze --format csv -o DIR`` writes them."""
        if self._tables is None:
            self._tables = {name: Table(name, frame) for name, frame in self._found.tables()}
        return self._tables

    @property
    def summary(self) -> Summary:
        """The numbers of the whole run; see docs/reference/metrics.md for their units."""
        return Summary(json.loads(self._found.summary()))

    @property
    def findings(self) -> Findings:
        """What is slow about memory, where, and what to try; the most important first."""
        rows = self.tables["findings"].to_dicts()
        return Findings([Finding(row) for row in rows], self._found.no_finding)

    @property
    def verdicts(self) -> Findings:
        """The name of ``findings`` before version 0.2. It will be removed in version 0.3."""
        return self.findings

    @property
    def functions(self) -> Table:
        """One row per function, most loads (or time) first."""
        return self.tables["functions"]

    @property
    def lines(self) -> Table:
        """One row per source line, most loads (or time) first."""
        return self.tables["lines"]

    @property
    def loops(self) -> Table:
        """One row per loop, most loads (or time) first."""
        return self.tables["loops"]

    @property
    def threads(self) -> Table:
        """One row per thread."""
        return self.tables["threads"]

    @property
    def windows(self) -> Table:
        """Mean metrics by window size ``W`` in loads, ascending."""
        return self.tables["windows"]

    @property
    def objects(self) -> Table:
        """One row per data object, most loads first; empty if the trace has none."""
        return self.tables["objects"]

    @property
    def warnings(self) -> list[str]:
        """Sentences about missing or doubtful results."""
        return self._found.warnings

    def json(self) -> dict[str, Any]:
        """The document that ``mgz-analyze --format json`` prints."""
        document: dict[str, Any] = json.loads(self._found.json())
        return document

    def text(self, all: bool = False, rows: int = 20) -> str:
        """The output of ``mgz-analyze``: one screen, or with ``all`` every table, ``rows`` rows each."""
        return self._found.text(all, rows)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"{self.findings._repr_html_()}{self.functions._repr_html_()}"


class Trace:
    """An opened trace. Properties analyse it when they are first used, and keep the result.

    Other Python threads can run during an analysis.
    """

    def __init__(self, path: Path, annotations: bool = True) -> None:
        folder = pathlib.Path(path)
        # The folder of `mgz run` has the trace inside.
        if not (folder / "manifest.json").exists() and (folder / "trace/manifest.json").exists():
            folder = folder / "trace"
        self.path = folder
        """The folder."""
        self._trace = _mgz.Trace(folder, annotations)
        self._analyses: dict[tuple[str, ...], Analysis] = {}

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest that the recorder wrote; see docs/reference/trace.md."""
        document: dict[str, Any] = json.loads(self._trace.manifest())
        return document

    def analyse(
        self,
        *,
        zoom: bool = False,
        objects: bool | None = None,
        misses: bool = False,
        caches: str | None = None,
        block: int = 64,
        filter: Filter | None = None,
        weights_from: Path | None = None,
    ) -> Analysis:
        """Analyses the trace.

        zoom
            also the time tree, the location tree and the heat map.
        objects
            also the table of data objects; by default if the trace has any.
        misses
            also predict cache misses of sampled traces. (Misses of full traces are always counted.)
        caches
            predict misses of these caches, for example ``"L1=32K/8,L2=1M/16"`` (size/ways) or ``"zen4"``.
        block
            block size of reuse distances in bytes, a power of two.
        filter
            analyse only a part of the trace: ``thread``, ``process``, ``function``, ``object``, ``start``,
            ``end``.
        weights_from
            a trace of the same command with counted loads.
        """
        if objects is None:
            objects = (self.path / "objects.parquet").exists()
        words = [f"--block={block}", *_words(filter)]
        words += [option for option, on in (("--zoom", zoom), ("--objects", objects)) if on]
        words += ["--misses"] if misses else []
        words += [f"--caches={caches}"] if caches is not None else []
        words += [f"--weights-from={os.fspath(weights_from)}"] if weights_from else []
        key = tuple(words)
        if key not in self._analyses:
            self._analyses[key] = Analysis(self._trace.analyse(words, []))
        return self._analyses[key]

    @property
    def summary(self) -> Summary:
        """The numbers of the whole run; see docs/reference/metrics.md for their units."""
        return self.analyse().summary

    @property
    def findings(self) -> Findings:
        """What is slow about memory, where, and what to try; the most important first."""
        return self.analyse().findings

    @property
    def verdicts(self) -> Findings:
        """The name of ``findings`` before version 0.2. It will be removed in version 0.3."""
        return self.findings

    @property
    def functions(self) -> Table:
        """One row per function, most loads (or time) first."""
        return self.analyse().functions

    @property
    def lines(self) -> Table:
        """One row per source line, most loads (or time) first."""
        return self.analyse().lines

    @property
    def objects(self) -> Table:
        """One row per data object, most loads first; empty if the trace has none."""
        return self.analyse().objects

    @property
    def windows(self) -> Table:
        """Mean metrics by window size ``W`` in loads, ascending."""
        return self.analyse().windows

    @property
    def time_tree(self) -> Table:
        """The time zoom as rows, parents first: ``id`` is the path from the root, ``0.3.2``.

        ``from_ns`` and ``to_ns`` are nanoseconds of the recording machine's clock.
        """
        return self._zoomed("time_zoom")

    @property
    def location_tree(self) -> Table:
        """The location zoom as rows, parents first: regions of memory with ``start`` and ``end``."""
        return self._zoomed("location_zoom")

    @property
    def heat_map(self) -> Table:
        """Loads ``A`` and mean reuse distance ``D_mean`` by region and column of time."""
        return self._zoomed("heat_map")

    def _zoomed(self, name: str) -> Table:
        tables = self.analyse(zoom=True).tables
        if name not in tables:
            raise _mgz.Error(f"{self.path}: there are no loads to zoom into")
        return tables[name]

    def miss_ratio(
        self,
        sizes: Sequence[int],
        by: Literal["function", "line", "loop", "object"] | None = None,
    ) -> list[dict[str, Any]]:
        """Misses per load of fully associative LRU caches with lines of 64 bytes.

        sizes
            bytes of the caches, ascending.
        by
            one result for each function, line, loop or object; ``None``: of the whole run.

        Returns one dictionary per row and size: ``size`` in bytes, ``miss_ratio`` from 0 to 1 with
        its 95 % interval ``lo`` and ``hi`` (of a full trace they are equal; ``None``: unknown), and
        the names of the row. Ratios of sampled traces are predicted; docs/design/miss-prediction.md
        describes the limits of the prediction.
        """
        sizes = [int(size) for size in sizes]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 64:
            raise _mgz.Error("sizes of caches are bytes, at least 64, and ascend")
        words = ["--objects"] if by == "object" else []
        document = json.loads(self._trace.analyse(words, sizes).json())
        names = {
            None: ("summary", ()),
            "function": ("functions", ("function", "module")),
            "line": ("lines", ("function", "module", "file", "line")),
            "loop": ("loops", ("function", "module", "file", "line", "address")),
            "object": ("objects", ("object", "kind")),
        }
        if by not in names:
            raise _mgz.Error(f"by is function, line, loop, object or None, not {by!r}")
        table, keys = names[by]
        rows = [document[table]] if by is None else document[table]
        found = []
        for row in rows:
            levels = (row["misses"] or {}).get("levels", [])
            known = {level["size"]: level["ratio"] for level in levels}
            for size in sizes:
                lo, ratio, hi = known.get(size) or (None, None, None)
                named = {key: row[key] for key in keys}
                found.append({**named, "size": size, "miss_ratio": ratio, "lo": lo, "hi": hi})
        return found

    def rows(self, columns: Sequence[str] | None = None, filter: Filter | None = None) -> Rows:
        """The recorded loads and stores, in order of process, thread and sample.

        columns
            some of ``process``, ``thread``, ``sample``, ``from_ns``, ``to_ns`` (the time, in ns,
            in which the row's part of a sample was recorded), ``access`` (``load``, ``store``),
            ``address``, ``size`` (bytes), ``class``, ``implied`` (number of loads
            at constant places that the row also represents), ``function``, ``module``, ``file``, ``line``, ``object``;
            ``None``: all.
        filter
            as in :meth:`analyse`.

        The rows are read when they are consumed, some batches ahead, so memory does not grow with
        the trace. An error while reading, such as a damaged file, is raised in the consumer, after
        all rows that could be read.
        """
        names = _mgz.Trace.row_columns() if columns is None else list(columns)
        return Rows(self._trace.rows(names, _words(filter)), names)

    def report(self, file: Path | None = None, height: int = 700) -> Report:
        """The report as one HTML file; in a notebook it is shown in a sandboxed frame.

        file
            where to write it; ``None``: it is not kept.
        height
            height of the frame, in pixels.
        """
        from mgz._notebook import Report

        return Report.of(self.path, file, height)

    def __repr__(self) -> str:
        return f"<mgz trace {self.path}>"

    def _repr_html_(self) -> str:
        return f"<p><code>{self.path}</code></p>{self.analyse()._repr_html_()}"


def open(path: Path, annotations: bool = True) -> Trace:
    """Opens a trace: the folder that mgz-record or ``mgz run`` wrote.

    annotations
        read the sidecars. Without them addresses are analysed, but code has no names.
    """
    return Trace(path, annotations)


def merge(files: Sequence[Path], to: Path | None = None) -> Analysis:
    """Merges partial results of ``mgz-analyze --partial``.

    files
        the partial results; their order affects only the order of equal rows.
    to
        also write the merged partial result there.
    """
    return Analysis(_mgz.merge([os.fspath(file) for file in files], to))
