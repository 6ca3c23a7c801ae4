"""Traces of mgz as tables: how programs use memory.

>>> import mgz
>>> trace = mgz.open("app.mgz/trace")        # doctest: +SKIP
>>> trace.findings                           # doctest: +SKIP
>>> trace.functions.to_polars()              # doctest: +SKIP

The names of columns are those of ``mgz-analyze --format json``: ``A`` recorded loads, ``F``
footprint (distinct addresses), ``D`` reuse distance (distinct blocks between two accesses to a
block), ``_hat`` an estimate for the whole run, ``_lo`` and ``_hi`` the ends of its 95 % interval,
``_pct`` percent, ``_ns`` nanoseconds.

Errors raise :class:`Error`, with the message that the commands print.
"""

from mgz import distributed, models
from mgz._commands import CommandError, command, compare, run
from mgz._mgz import Error, __version__
from mgz._notebook import Report, load_ipython_extension
from mgz._ranks import Ranks
from mgz._tables import Rows, Summary, Table, Finding, Findings
from mgz._trace import Analysis, Trace, merge, open

__all__ = [
    "Analysis",
    "CommandError",
    "Error",
    "Ranks",
    "Report",
    "Rows",
    "Summary",
    "Table",
    "Trace",
    "Finding",
    "Findings",
    "__version__",
    "command",
    "compare",
    "distributed",
    "load_ipython_extension",
    "merge",
    "models",
    "open",
    "run",
]
