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
    """What many traces of one job have found together: by rank, and how metrics are spread.

    ``_min``, ``_median``, ``_mean``, ``_max`` are over ranks; ``imbalance`` is the greatest value over
    the mean, 1 where all ranks are alike.
    """

    def __init__(self, file: Path) -> None:
        self.path = os.fspath(file)
        """The file, which ``mgz-analyze ranks`` reads as well."""
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
        """Number of ranks, loads of all, imbalance of the loads, number of gaps."""
        return Summary(self.json()["summary"])

    @property
    def verdicts(self) -> Table:
        """What is slow about memory, over all ranks; a rank with more work than the others first."""
        return self.tables["findings"]

    @property
    def ranks(self) -> Table:
        """One row per rank, one column per metric."""
        return self.tables["ranks"]

    @property
    def metrics(self) -> Table:
        """One row per metric: how it is spread over ranks."""
        return self.tables["metrics"]

    @property
    def functions(self) -> Table:
        """One row per function: how loads, footprint and reuse distance are spread over ranks."""
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
        """Groups of ranks that are alike, the greatest first."""
        return self.tables["clusters"]

    @property
    def heat_map(self) -> Table:
        """Loads by object and part of the run: ``column`` 0 to 31 are equal parts of each rank's run."""
        return self.tables["heat_map"]

    @property
    def gaps(self) -> Table:
        """What has no result, and why."""
        return self.tables["gaps"]

    def json(self) -> dict[str, Any]:
        """The document that ``mgz-analyze ranks --format json`` prints."""
        document: dict[str, Any] = json.loads(self._found.json())
        return document

    def text(self, rows: int = 20) -> str:
        """What ``mgz-analyze ranks`` prints."""
        return self._found.text(rows)

    def save(self, file: Path) -> None:
        """Keeps the result in a file, to be merged with others."""
        shutil.copyfile(self.path, file)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        tables = (self.verdicts, self.metrics, self.clusters, self.outliers, self.gaps)
        shown = (f"<h4>{t.name}</h4>{t._repr_html_()}" for t in tables if len(t))
        return "".join(shown)
