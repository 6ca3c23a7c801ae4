"""The locality models on streams of addresses.

``accesses`` is a one-dimensional, contiguous array of 64-bit whole numbers: a NumPy array, an
``array.array`` of type ``Q``, anything with the buffer protocol; a list is copied into one. Some
functions also accept an opened trace of ``mgz-record --mode full``: they use its loads with their
sizes, separately for each thread. In an array, each access touches the one block of its address.

Other Python threads can run meanwhile.
"""

from __future__ import annotations

import array
from collections.abc import Sequence

from mgz import _mgz
from mgz._tables import Table
from mgz._trace import Trace

__all__ = [
    "emd",
    "footprint",
    "footprint_curve",
    "miss_ratio_curve",
    "reuse_distances",
    "reuse_histogram",
    "simulate",
]


def _accesses(accesses: object) -> object:
    if isinstance(accesses, Trace):
        return accesses._trace
    if isinstance(accesses, list | tuple | range):
        return array.array("Q", accesses)
    return accesses


def reuse_distances(addresses: object, block: int = 64) -> Table:
    """Reuse distance and interval of each access.

    addresses
        array of n addresses.
    block
        bytes of a block, a power of two.

    Returns n rows: ``distance``, the number of distinct other blocks since the previous access to
    the same block, and ``interval``, the number of accesses since then (1: the previous access was
    to the same block). Both are empty for the first touch of a block.
    """
    return Table("reuse_distances", _mgz.reuse_distances(_accesses(addresses), block))


def reuse_histogram(accesses: object, block: int = 64) -> Table:
    """Histogram of reuse distances, in octaves.

    accesses
        array of addresses, or a full trace.
    block
        bytes of a block, a power of two.

    Returns a row for each bin that is not empty: distances from ``from`` up to, but not
    including, ``to``, in blocks, and their ``count``. The last row, without ``from`` and ``to``, counts first touches.
    """
    return Table("reuse_histogram", _mgz.reuse_histogram(_accesses(accesses), block))


def miss_ratio_curve(accesses: object, sizes: Sequence[int], block: int = 64) -> Table:
    """Miss ratio of fully associative LRU caches (Mattson et al. 1970).

    accesses
        array of addresses, or a full trace.
    sizes
        bytes of the caches.
    block
        bytes of a line, a power of two.

    Returns a row for each size: ``size`` in bytes, ``miss_ratio`` from 0 to 1.
    """
    sizes = [int(size) for size in sizes]
    return Table("miss_ratio_curve", _mgz.miss_ratio_curve(_accesses(accesses), sizes, block))


def footprint(addresses: object, block: int = 64) -> int:
    """Distinct blocks of an array of addresses; with ``block=1``, distinct addresses."""
    return _mgz.footprint(_accesses(addresses), block)


def footprint_curve(addresses: object, windows: Sequence[int], block: int = 64) -> Table:
    """Mean footprint of all windows of given lengths (Xiang et al. 2011).

    addresses
        array of n addresses.
    windows
        lengths in accesses.
    block
        bytes of a block, a power of two.

    Returns a row for each length: ``window`` in accesses, ``footprint`` in blocks, the mean over all
    n - window + 1 windows; empty if there are none.
    """
    windows = [int(window) for window in windows]
    return Table("footprint_curve", _mgz.footprint_curve(_accesses(addresses), windows, block))


def simulate(
    accesses: object, levels: str | Sequence[str | tuple[int, int] | tuple[int, int, int]]
) -> Table:
    """Simulates a hierarchy of caches exactly, as ``mgz-analyze cache`` does.

    accesses
        array of addresses, or a full trace, whose threads share the last level.
    levels
        levels as for ``mgz-analyze cache --level``, first level first:
        ``["32K:8:plru:next-line", "1M:16:exclusive"]``, or one string with commas between;
        also (bytes, ways) or (bytes, ways, bytes of a line). ``stride`` needs a trace.

    Returns a row for each level: ``level`` from 1, ``size`` in bytes, ``ways``, ``line`` in bytes,
    ``policy``, ``inclusion``, ``prefetch``, ``accesses`` that reached it, ``misses``, and
    ``miss_ratio``, the quotient of the two.
    """
    if not isinstance(levels, str):
        levels = ",".join(
            level if isinstance(level, str) else ":".join(map(str, level)) for level in levels
        )
    return Table("simulate", _mgz.simulate(_accesses(accesses), levels))


def emd(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Earth Mover's Distance of two histograms with the same bins, in bins; ``None`` if one is empty."""
    return _mgz.emd(list(a), list(b))
