"""Evidence for the rows of the papers: tests, and cells of kept results."""

import glob
import os
import re

from kept import RESULTS, ROOT, read_figures

SCALE = {"K": 1e3, "M": 1e6, "G": 1e9}


def number(text):
    """The first number of a cell, or None."""
    found = re.search(r"([-+−]?\d[\d,]*\.?\d*)([KMG])?", str(text))
    if not found:
        return None
    digits = found.group(1).replace(",", "").replace("−", "-")
    return float(digits) * SCALE.get(found.group(2), 1)


class Kept:
    """Kept results of each experiment."""

    def __init__(self):
        self.parts = {}

    def tables(self, part):
        """Tables of all kept results, the newest first."""
        if part not in self.parts:
            names = glob.glob(os.path.join(RESULTS, f"papers-{part}-2*.json.gz"))
            names = [os.path.basename(n).removesuffix(".json.gz") for n in names]
            found = [read_figures(name)["tables"] for name in sorted(names, reverse=True)]
            self.parts[part] = [table for tables in found for table in tables]
        return self.parts[part]

    def table(self, part, title):
        """The newest table whose title begins so, or None."""
        return next((t for t in self.tables(part) if t["title"].startswith(title)), None)

    def texts_of(self, kind):
        """Texts of another kind of result, the newest first."""
        for name in sorted(glob.glob(os.path.join(RESULTS, f"{kind}-2*.txt")), reverse=True):
            with open(name, encoding="utf-8") as file:
                yield file.read()


class Shown:
    """Ours, and the verdict: agrees, differs, shown (the paper has no figure) or open."""

    def __init__(self, ours, verdict, why=""):
        self.ours, self.verdict, self.why = ours, verdict, why


MISSING = "no kept result has it"


def judged(ours, agrees, why):
    return Shown(ours, "agrees") if agrees else Shown(ours, "differs", why)


def test(path, *names):
    """Tests by definition or by the paper's example."""

    def evidence(_):
        file = os.path.join(ROOT, path)
        text = ""
        if os.path.exists(file):
            with open(file, encoding="utf-8") as f:
                text = f.read()
        missing = [n for n in names if f"fn {n}(" not in text]
        if missing:
            return Shown("–", "open", f"no test {', '.join(missing)} in {path}")
        return Shown(f"test `{'`, `'.join(names)}` ({path})", "agrees")

    return evidence


def case(path, content):
    """A case in a file that a test goes through."""

    def evidence(_):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            is_there = content in file.read()
        if not is_there:
            return Shown("–", "open", f"no {content} in {path}")
        return Shown(f"case `{content}` ({path})", "agrees")

    return evidence


def cell(part, title, row, column, agrees, why=""):
    """A cell of a kept table. `row`: the first cells of its row; `agrees`: of the cell's number."""

    def evidence(kept):
        table = kept.table(part, title)
        rows = [r for r in table["rows"] if [str(c) for c in r[: len(row)]] == row] if table else []
        if not rows or column not in table["head"]:
            return Shown("–", "open", MISSING)
        shown = rows[0][table["head"].index(column)]
        value = number(shown)
        return judged(str(shown), value is not None and agrees(value), why)

    return evidence


def between_cells(part, title, row, columns, factor, paper, why=""):
    """The paper's value lies between two cells of a row, or is no further off than by a factor."""

    def evidence(kept):
        found = pair(part, title, row, columns, lambda low, high: min(low, high) / factor <= paper <= factor * max(low, high), why)  # fmt: skip
        return found(kept)

    return evidence


def either(*choices):
    """The first of several that has evidence."""

    def evidence(kept):
        shown = [choice(kept) for choice in choices]
        return next((s for s in shown if s.verdict != "open"), shown[-1])

    return evidence


def finding(part, title, text, why=""):
    """A row of a table of findings: what the report finds, and whether it is so here."""

    def evidence(kept):
        table = kept.table(part, title)
        rows = [r for r in table["rows"] if r[0] == text] if table else []
        if not rows:
            return Shown("–", "open", MISSING)
        _, paper, here, values = rows[0]
        return judged(f"{here}: {values}", paper.split()[0] == here, why)

    return evidence


def table(part, title, what):
    """A table that is shown as it is."""

    def evidence(kept):
        found = kept.table(part, title)
        if not found:
            return Shown("–", "open", MISSING)
        return Shown(f"{len(found['rows'])} rows: {what}", "shown")

    return evidence


def said(part, title, pattern, agrees, why=""):
    """A number in the text of a kept table: the pattern's first group."""

    def evidence(kept):
        found = kept.table(part, title)
        match = re.search(pattern, found["text"]) if found else None
        if not match:
            return Shown("–", "open", MISSING)
        values = [float(g) for g in match.groups()]
        return judged(match.group(0), agrees(*values), why)

    return evidence


def text(kind, pattern, shown, agrees, why=""):
    """Numbers in the newest text of another kind of result that has them; `shown` has their form."""

    def evidence(kept):
        matches = (re.search(pattern, content, re.MULTILINE) for content in kept.texts_of(kind))
        match = next((m for m in matches if m), None)
        if not match:
            return Shown("–", "open", MISSING)
        values = [float(g) for g in match.groups()]
        return judged(shown.format(*values), agrees(*values), why)

    return evidence


def section(kind, name):
    """A section of the page of measurements that shows something else than the paper."""

    def evidence(kept):
        if not any(kept.texts_of(kind)):
            return Shown("–", "open", MISSING)
        return Shown(f"*{name}* on the page of measurements", "shown")

    return evidence


def pair(part, title, row, columns, agrees, why=""):
    """Two cells of a row of a kept table, and whether their numbers agree with the paper."""

    def evidence(kept):
        found = kept.table(part, title)
        rows = [r for r in found["rows"] if [str(c) for c in r[: len(row)]] == row] if found else []
        if not rows or any(c not in found["head"] for c in columns):
            return Shown("–", "open", MISSING)
        cells = [str(rows[0][found["head"].index(c)]) for c in columns]
        numbers = [number(c) for c in cells]
        shown = ", ".join(f"{c} {v}" for c, v in zip(columns, cells))
        return judged(shown, None not in numbers and agrees(*numbers), why)

    return evidence


def value(part, title, row, column):
    """A cell for which the paper has no figure of the kind."""

    def evidence(kept):
        found = cell(part, title, row, column, lambda _: True)(kept)
        return Shown(found.ours, "shown" if found.verdict != "open" else "open", found.why)

    return evidence


def advice(share):
    """Advice on pages, and in how many programs runs have held it."""

    def evidence(kept):
        found = kept.table("cabrera", "Advice on pages")
        if not found:
            return Shown("–", "open", MISSING)
        held = found["head"].index("advice held")
        wrong = [row[0] for row in found["rows"] if row[held] != "yes"]
        programs = len(found["rows"])
        ours = f"right in {programs - len(wrong)} of {programs} programs"
        why = f"wrong for {', '.join(wrong)}"
        return judged(ours, programs - len(wrong) >= share * programs, why)

    return evidence


def lacking(why):
    """Nothing here can show it."""
    return lambda _: Shown("–", "open", why)


def above(limit):
    return lambda value: value >= limit


def below(limit):
    return lambda value: value <= limit


def between(low, high):
    return lambda value: low <= value <= high
