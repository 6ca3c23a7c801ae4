"""Analyses many traces where they are stored, by Dask or by this process alone.

Tasks receive and return paths: the result of a trace is a file of some ten kilobytes in a folder
that all workers can access, and a tree of merges joins the files. A task whose file exists already
does nothing, so an interrupted analysis continues where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import posixpath
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mgz import _mgz
from mgz._ranks import Ranks
from mgz._trace import Path

__all__ = ["Ranks", "analyze"]

#: What a task has made: its file, or None, and what has no result: (name, why).
_Made = tuple[str | None, tuple[tuple[str, str], ...]]


def _is_url(path: str) -> bool:
    return "://" in path


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


@contextlib.contextmanager
def _local(path: str) -> Iterator[str]:
    """A file or folder as one of this machine's."""
    if not _is_url(path):
        yield path
        return
    import fsspec

    system, inner = fsspec.core.url_to_fs(path)
    with tempfile.TemporaryDirectory(prefix="mgz-") as folder:
        target = os.path.join(folder, _name(path))
        try:
            if system.isdir(inner):
                system.get(inner.rstrip("/") + "/", target + "/", recursive=True)
            else:
                system.get_file(inner, target)
        except FileNotFoundError as error:
            raise _mgz.Error(f"{path}: not a trace folder (it does not exist)") from error
        yield target


@contextlib.contextmanager
def _written(path: str) -> Iterator[str]:
    """A place for a file of this machine's that goes to `path`, whole or not at all."""
    if not _is_url(path):
        yield path
        return
    import fsspec

    system, inner = fsspec.core.url_to_fs(path)
    with tempfile.TemporaryDirectory(prefix="mgz-") as folder:
        file = os.path.join(folder, _name(path))
        with contextlib.suppress(FileNotFoundError):
            system.get_file(inner, file)
        yield file
        if os.path.exists(file):
            # Object stores show a file when it is whole; others get it by a rename.
            system.put_file(file, inner)


def _leaf(path: str, to: str, block: int) -> _Made:
    """What one trace has found. A trace that cannot be analysed is a gap: to try it again is no use."""
    try:
        with _local(path) as trace, _written(to) as file:
            _mgz.ranks_partial(trace, file, block)
    except _mgz.Error as error:
        return None, ((_name(path), str(error).replace(f"{path}: ", "", 1)),)
    return to, ()


def _merge(parts: Sequence[_Made], to: str) -> _Made:
    """A node of the tree."""
    files = [file for file, _ in parts if file is not None]
    gaps = tuple(sorted({gap for _, gaps in parts for gap in gaps}))
    if not files:
        return None, gaps
    with contextlib.ExitStack() as stack:
        local = [stack.enter_context(_local(file)) for file in files]
        file = stack.enter_context(_written(to))
        _mgz.ranks_merge(local, (), file)
    return to, gaps


class _Progress:
    def __init__(self, told: bool | Callable[[int, int], None], total: int) -> None:
        self._told = told
        self._total = total
        self._done = 0

    def step(self) -> None:
        self._done += 1
        if callable(self._told):
            self._told(self._done, self._total)
        elif self._told:
            end = "\n" if self._done == self._total else ""
            print(
                f"\rmgz: {self._done} of {self._total} tasks", end=end, file=sys.stderr, flush=True
            )


class _Tree:
    """Nodes by level: leaves are traces, the others merge at most `fanin` of the level below."""

    def __init__(self, paths: Sequence[str], folder: str, fanin: int) -> None:
        self.paths = paths
        self.leaves = [_join(folder, f"{self._plain(p)}-{self._hash(p)}.ranks") for p in paths]
        self.levels: list[list[tuple[range, str]]] = []
        below = self.leaves
        while len(below) > 1:
            cuts = [range(i, min(i + fanin, len(below))) for i in range(0, len(below), fanin)]
            level = [
                (cut, _join(folder, f"merged-{self._hash(*(below[i] for i in cut))}.ranks"))
                for cut in cuts
            ]
            self.levels.append(level)
            below = [file for _, file in level]

    @staticmethod
    def _hash(*texts: str) -> str:
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

    @staticmethod
    def _plain(path: str) -> str:
        return re.sub(r"[^A-Za-z0-9._-]", "_", _name(path))[:60]

    def __len__(self) -> int:
        return len(self.leaves) + sum(map(len, self.levels))


def _here(tree: _Tree, block: int, progress: _Progress) -> _Made:
    made = []
    for path, file in zip(tree.paths, tree.leaves, strict=True):
        made.append(_leaf(path, file, block))
        progress.step()
    for level in tree.levels:
        above = []
        for cut, file in level:
            above.append(_merge([made[i] for i in cut], file))
            progress.step()
        made = above
    return made[0]


def _by_dask(tree: _Tree, block: int, progress: _Progress, client: Any, retries: int) -> _Made:
    """Each node is submitted when those below it are done: one that has failed is a gap, and no reason for others to fail."""
    import distributed

    # By level and number.
    made: dict[tuple[int, int], _Made] = {}
    parent = {
        (depth, child): (depth + 1, number)
        for depth, level in enumerate(tree.levels)
        for number, (cut, _) in enumerate(level)
        for child in cut
    }
    node: dict[Any, tuple[int, int]] = {}
    completed: Any = distributed.as_completed
    futures: Any = completed()
    for number, (path, file) in enumerate(zip(tree.paths, tree.leaves, strict=True)):
        future = client.submit(_leaf, path, file, block, retries=retries, pure=False)
        node[future.key] = (0, number)
        futures.add(future)
    for future in futures:
        at = node.pop(future.key)
        depth, number = at
        if future.status == "finished":
            made[at] = future.result()
        elif depth == 0:
            error = future.exception()
            why = f"its task has failed ({type(error).__name__}: {error})".split("\n")[0]
            made[at] = (None, ((_name(tree.paths[number]), why),))
        else:
            # Its inputs are files: what no worker could do is done here.
            cut, file = tree.levels[depth - 1][number]
            made[at] = _merge([made[depth - 1, child] for child in cut], file)
        progress.step()
        future.release()
        if at not in parent:
            break
        depth, number = parent[at]
        cut, file = tree.levels[depth - 1][number]
        if all((depth - 1, child) in made for child in cut):
            parts = [made[depth - 1, child] for child in cut]
            future = client.submit(_merge, parts, file, retries=retries, pure=False)
            node[future.key] = (depth, number)
            futures.add(future)
    return made[len(tree.levels), 0]


def analyze(
    paths: Path | Sequence[Path],
    client: Any = None,
    fanin: int = 8,
    retries: int = 2,
    *,
    block: int = 64,
    workdir: Path | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Ranks:
    """Analyses many traces of one job and merges the results.

    paths
        folders of traces, or one pattern of them (``"job/trace.*"``): paths that all workers can
        access, or URLs of fsspec (``s3://…``). Tasks receive the paths, not the files.
    client
        a ``dask.distributed.Client``; ``None``: this process does everything. The result is the same,
        byte by byte.
    fanin
        number of results that one task merges.
    retries
        number of times that Dask repeats a failed task. Tasks of workers that die are always
        repeated by others.
    block
        block size of reuse distances in bytes, a power of two.
    workdir
        folder or URL for results that all workers can access; by default ``mgz-ranks`` beside the
        first trace. Results that exist there are used again.
    progress
        ``True``: count tasks on standard error; a function is called with the numbers of finished
        tasks and of all tasks.

    A trace that cannot be analysed, or whose task fails, is a gap of the result, see
    :attr:`Ranks.gaps`. Raises :class:`mgz.Error` if there is no result at all.
    """
    if fanin < 2:
        raise _mgz.Error(f"fanin is at least 2, not {fanin}")
    if isinstance(paths, str | os.PathLike):
        names = _matching(os.fspath(paths))
    else:
        names = [
            p if _is_url(p) else os.path.abspath(p) for p in (os.fspath(path) for path in paths)
        ]
    if not names:
        raise _mgz.Error(f"{paths}: no traces; give folders that mgz-record wrote")
    if workdir is None:
        first = names[0].rstrip("/")
        folder = _join(first[: first.rindex("/")], "mgz-ranks")
    else:
        folder = os.fspath(workdir)
    if not _is_url(folder):
        folder = os.path.abspath(folder)
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    tree = _Tree(names, folder, fanin)
    counted = _Progress(progress, len(tree))
    if client is None:
        made = _here(tree, block, counted)
    else:
        made = _by_dask(tree, block, counted, client, retries)
    file, gaps = made
    if file is None:
        told = "; ".join(f"{name}: {why}" for name, why in gaps)
        raise _mgz.Error(f"none of {len(names)} traces has a result: {told}")
    # The gaps come last: they are facts of this run, not of the files.
    with tempfile.TemporaryDirectory(prefix="mgz-") as scratch:
        whole = os.path.join(scratch, "all.ranks")
        with _local(file) as merged:
            _mgz.ranks_merge([merged], gaps, whole)
        result = _join(folder, f"all-{_Tree._hash(*names)}.ranks")
        with _written(result) as target:
            _mgz.ranks_merge([whole], (), target)
        if _is_url(result):
            return Ranks(_kept(whole))
    return Ranks(result)


def _kept(file: str) -> str:
    """A copy that stays as long as this process needs it."""
    handle, name = tempfile.mkstemp(prefix="mgz-", suffix=".ranks")
    with os.fdopen(handle, "wb") as out:
        out.write(pathlib.Path(file).read_bytes())
    return name


def _matching(pattern: str) -> list[str]:
    """Traces that a pattern names, sorted."""
    if _is_url(pattern):
        import fsspec

        system, inner = fsspec.core.url_to_fs(pattern)
        scheme = pattern.split("://", 1)[0]
        found = system.glob(inner) if re.search(r"[*?\[]", inner) else [inner]
        return sorted(f"{scheme}://{name}" for name in found)
    import glob

    found = glob.glob(pattern) if re.search(r"[*?\[]", pattern) else [pattern]
    return sorted(os.path.abspath(name) for name in found)
