"""Tables, and how they look in a notebook."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from mgz._mgz import Frame, Stream

# Rows of a table that a notebook shows.
_SHOWN = 20


class Table:
    """A table: columns of one length.

    Libraries with Arrow's C stream interface read it without a copy: ``polars.DataFrame(t)``,
    ``pyarrow.table(t)``, ``duckdb.from_arrow(t)``. Without such a library, use :meth:`to_dicts`.
    """

    def __init__(self, name: str, frame: Frame) -> None:
        self._frame = frame
        self.name = name
        """Name of the table, as in the files of ``mgz-analyze --format csv``."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._frame.columns

    def __len__(self) -> int:
        return len(self._frame)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """A capsule with an ``ArrowArrayStream``. The requested schema is ignored."""
        return self._frame.__arrow_c_stream__(requested_schema)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows, each a dictionary by column. Lists and records are lists and dictionaries."""
        rows: list[dict[str, Any]] = json.loads(self._frame.json())
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_dicts())

    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    def __getitem__(self, key: str | int) -> list[Any] | dict[str, Any]:
        """The values of a column, by its name, or a row, by its number."""
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(
                    f"{self.name} has no column {key!r}; it has {', '.join(self.columns)}"
                )
            return [row[key] for row in self.to_dicts()]
        return self.to_dicts()[key]

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``; requires polars."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``; requires pandas, but not pyarrow.

        Columns of whole numbers with missing values have pandas' type ``UInt64``.
        """
        import pandas

        rows = self.to_dicts()
        columns = {}
        for name in self.columns:
            values = [row[name] for row in rows]
            known = [v for v in values if v is not None]
            whole = bool(known) and all(type(v) is int and v >= 0 for v in known)
            if whole:
                dtype: str | None = "uint64" if len(known) == len(values) else "UInt64"
            else:
                dtype = "float64" if known and all(type(v) is float for v in known) else None
            columns[name] = pandas.Series(values, dtype=dtype or "object")
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        return f"<mgz table {self.name}: {len(self)} rows, {len(self.columns)} columns>"

    def _repr_html_(self) -> str:
        rows = self.to_dicts()
        # A list or a record does not fit a cell.
        names = [
            name
            for name in self.columns
            if not any(isinstance(row[name], list | dict) for row in rows)
            and any(row[name] not in (None, "") for row in rows)
        ]
        # Names first, as on the screen of mgz-analyze.
        names.sort(key=lambda name: not any(isinstance(row[name], str) for row in rows))
        return table_html(names, rows[:_SHOWN], len(rows))


class Rows:
    """Recorded rows. They are read from the trace each time that they are consumed.

    Libraries with Arrow's C stream interface read them: ``polars.DataFrame(rows)``.
    """

    def __init__(self, stream: Stream, columns: Sequence[str]) -> None:
        self._stream = stream
        self.columns = list(columns)
        """Names of the columns."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """A capsule with an ``ArrowArrayStream``. The requested schema is ignored."""
        return self._stream.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<mgz rows: {', '.join(self.columns)}>"


class Summary(Mapping[str, Any]):
    """The numbers of a whole run by name, as in ``summary`` of the JSON."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        names = [
            name for name in ("ranks", "A", "loads", "F", "F_hat", "imbalance") if name in self
        ]
        return f"<mgz summary: {', '.join(f'{name}={_cell(self[name])}' for name in names)}>"

    def _repr_html_(self) -> str:
        plain = {k: v for k, v in self.items() if isinstance(v, str | int | float)}
        rows = [{"name": k, "value": v} for k, v in plain.items()]
        return table_html(["name", "value"], rows, len(rows))


class Finding(Mapping[str, Any]):
    """A cause of slow memory accesses: where, why, and what to try."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def kind(self) -> str:
        """The mechanism, as in docs/reference/findings.md."""
        return str(self["kind"])

    @property
    def score(self) -> float:
        """Estimated cost in percent of the time (or of the loads)."""
        return float(self["score"])

    @property
    def where(self) -> str:
        """Function, file and line."""
        line = f" at {self['file']}:{self['line']}" if self["line"] else ""
        return f"{self['function']}{line}"

    @property
    def finding(self) -> str:
        """The finding as a sentence."""
        return str(self["finding"])

    @property
    def advice(self) -> str:
        """What to try."""
        return str(self["advice"])

    def __repr__(self) -> str:
        return f"<mgz finding {self.score:.1f}% {self['title']}: {self.where}>"


class Findings(Sequence[Finding]):
    """The findings of a run, the most important first."""

    def __init__(self, findings: Sequence[Finding], none: str) -> None:
        self._findings = list(findings)
        self.none = none
        """The reason if there are no findings, else empty."""

    @overload
    def __getitem__(self, key: int) -> Finding: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Finding]: ...
    def __getitem__(self, key: int | slice) -> Finding | Sequence[Finding]:
        return self._findings[key]

    def __len__(self) -> int:
        return len(self._findings)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._findings)) or f"<no mgz findings: {self.none}>"

    def _repr_html_(self) -> str:
        if not self._findings:
            return f"<p>{html.escape(self.none or 'Nothing was found.')}</p>"
        items = (
            f"<li><b>{html.escape(str(v['title']))}</b> ({v.score:.1f}%): "
            f"<code>{html.escape(v.where)}</code><br>{html.escape(v.finding)}"
            f"<br><i>{html.escape(v.advice)}</i></li>"
            for v in self._findings
        )
        return f"<ol>{''.join(items)}</ol>"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return html.escape(str(value))


def table_html(names: Sequence[str], rows: Sequence[Mapping[str, Any]], all_rows: int) -> str:
    """A table as self-contained HTML, without scripts and style sheets."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{"left" if isinstance(row[n], str) else "right"}">{_cell(row[n])}</td>'
            for n in names
        )
        + "</tr>"
        for row in rows
    )
    more = f"<p>… {all_rows - len(rows)} more rows</p>" if all_rows > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
