"""The page docs/reference/papers.md: the rows of the papers with their evidence."""

import os

from kept import ROOT
from papers.evidence import Kept
from papers.rows import PAPERS

PAGE = os.path.join(ROOT, "docs", "reference", "papers.md")
INTRO = """\
# The papers, row by row

<!-- Written by benches/run papers --table from benches/results/ and the tests. -->

This page lists algorithms, metrics, equations, tables and figures of the five papers behind mgz. *Ours* is a
test that checks a definition or an example, or a value of the newest kept result of `benches/run`
([measurements](../measurements.md)).

| verdict | meaning |
|---|---|
| agrees | the test exists, or the value meets the paper's within the bounds of the row |
| differs | the value does not; the reason follows where it is known |
| shown | the paper has a picture or no value; ours is on the page of measurements |
| open | there is no evidence, with the reason |
"""


def page():
    """The whole text."""
    kept, sections, counts = Kept(), [], {}
    for paper, rows in PAPERS.items():
        lines = [
            "",
            f"## {paper}",
            "",
            "| place | what | the paper | ours | verdict |",
            "|---|---|---|---|---|",
        ]
        for place, what, value, evidence in rows:
            shown = evidence(kept)
            counts[shown.verdict] = counts.get(shown.verdict, 0) + 1
            why = f": {shown.why}" if shown.why else ""
            lines.append(f"| {place} | {what} | {value} | {shown.ours} | {shown.verdict}{why} |")
        sections.append("\n".join(lines))
    total = ", ".join(
        f"{n} {verdict}" for verdict, n in sorted(counts.items(), key=lambda c: -c[1])
    )
    whole = sum(counts.values())
    return f"{INTRO}\n{whole} rows: {total}.\n" + "\n".join(sections) + "\n"


def write():
    """Writes the page, and tells what it says in all."""
    text = page()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)
    print(next(line for line in text.split("\n") if " rows: " in line))
