"""Results of many ranks."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from mgz import _mgz
from mgz._tables import Summary, Table
from mgz._trace import Path


class Ranks:
    """The results of many traces of one job: metrics by rank, and their spread over ranks.

    ``_min``, ``_median``, ``_mean``, ``_max`` are over ranks; ``imbalance`` is the greatest value
    divided by the mean, 1 if all ranks are equal.
    """

    def __init__(self, file: Path) -> None:
        self.path = os.fspath(file)
        """The file; ``mgz-analyze ranks`` can read it too."""
        self._found = _mgz.RanksResult(self.path)
        self._tables: dict[str, Table] | None = None

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by name."""
        if self._tables is None:
            self._tables = {name: Table(name, frame) for name, frame in self._found.tables()}
        return self._tables

    @property
    def summary(self) -> Summary:
        """Number of ranks, total loads, imbalance of the loads, number of gaps."""
        return Summary(self.json()["summary"])

    @property
    def findings(self) -> Table:
        """What is slow about memory, over all ranks; a rank with more work than the others first."""
        return self.tables["findings"]

    @property
    def verdicts(self) -> Table:
        """The name of ``findings`` before version 0.2. It will be removed in version 0.3."""
        return self.findings

    @property
    def ranks(self) -> Table:
        """One row per rank, one column per metric."""
        return self.tables["ranks"]

    @property
    def metrics(self) -> Table:
        """One row per metric: its spread over ranks."""
        return self.tables["metrics"]

    @property
    def functions(self) -> Table:
        """One row per function: the spread of loads, footprint and reuse distance over ranks."""
        return self.tables["functions"]

    @property
    def lines(self) -> Table:
        """The same by source line."""
        return self.tables["lines"]

    @property
    def objects(self) -> Table:
        """The same by data object."""
        return self.tables["objects"]

    @property
    def outliers(self) -> Table:
        """Ranks with a metric that is far from the median, the furthest first."""
        return self.tables["outliers"]

    @property
    def clusters(self) -> Table:
        """Groups of similar ranks, the largest first."""
        return self.tables["clusters"]

    @property
    def heat_map(self) -> Table:
        """Loads by object and part of the run: ``column`` 0 to 31 are equal parts of each rank's run."""
        return self.tables["heat_map"]

    @property
    def gaps(self) -> Table:
        """Inputs without a result, and the reasons."""
        return self.tables["gaps"]

    def json(self) -> dict[str, Any]:
        """The document that ``mgz-analyze ranks --format json`` prints."""
        document: dict[str, Any] = json.loads(self._found.json())
        return document

    def text(self, rows: int = 20) -> str:
        """The output of ``mgz-analyze ranks``."""
        return self._found.text(rows)

    def save(self, file: Path) -> None:
        """Writes the result to a file, to be merged with others."""
        shutil.copyfile(self.path, file)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        tables = (self.findings, self.metrics, self.clusters, self.outliers, self.gaps)
        shown = (f"<h4>{t.name}</h4>{t._repr_html_()}" for t in tables if len(t))
        return "".join(shown)
