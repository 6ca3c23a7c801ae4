"""Tests of the papers' experiments: `python3 -m unittest discover benches`."""

import contextlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from papers import barai, evidence, table
from papers.lab import Lab


class Answers(Lab):
    """A lab whose tools answer as mgz-analyze does: rates of models only where it is asked for them."""

    def __init__(self):
        super().__init__("", "", True)

    def compile(self, source, name=None, flags=()):
        return name or source

    def instrument(self, program, stores=False):
        return program

    def record(self, name, command, mode="full", options=(), environment=None, statuses=(0,)):
        return f"{name} {(environment or {}).get('OMP_NUM_THREADS', 1)}"

    def rows(self, trace):
        return 1000

    def analyze(self, *arguments):
        if arguments[0] == "predict":
            return {"accuracy": [{"method": "single reference", "accuracy": 0.9}], "by_code": []}
        mimic = "--mimic" in arguments
        models = mimic or "--models" in arguments
        counts = (
            arguments[arguments.index("--mimic") + 1].split(",")
            if mimic
            else [arguments[1].split()[-1]]
        )
        rates = ("hit_rate_model", "hit_rate_sets", "hit_rate_alone")
        levels = [
            {
                "threads": int(n),
                "level": level,
                **dict.fromkeys(rates, 0.5 if models else None),
                "hit_rate_hierarchy": 0.5,
                "hit_rate_one_thread": 0.75 if mimic else None,
            }
            for n in counts
            for level in range(arguments.count("--level"))
        ]
        return {"levels": levels, "summary": {}}


class SharedCaches(unittest.TestCase):
    def test_every_row_has_the_null_model_and_both_orders(self):
        lab = Answers()
        with contextlib.redirect_stdout(io.StringIO()):
            barai.run(lab)
        for made in lab.tables[:2]:
            for row in made["rows"]:
                cells = dict(zip(made["head"], row))
                self.assertEqual(cells["null − real"], "+25.00")
                self.assertEqual(cells["model − real"], "+0.00")
                self.assertEqual(cells["sets on cores − real"], "+0.00")
        self.assertEqual(cells["the paper: measured / model, %"], "97.90 / 95.31")


class Rows(unittest.TestCase):
    def test_numbers_of_cells(self):
        shown = {"2.65": 2.65, "1,024 lines": 1024, "97.9 %": 97.9, "1.26G": 1.26e9, "−1.7": -1.7}
        for text, value in shown.items():
            self.assertEqual(evidence.number(text), value)
        self.assertIsNone(evidence.number("–"))

    def test_a_row_without_evidence_is_open(self):
        kept = evidence.Kept()
        kept.parts = {
            "rdx": [{"title": "A, all", "text": "", "head": ["of", "S"], "rows": [["x", "90 %"]]}]
        }
        verdict = lambda row: row(kept).verdict
        at = lambda title, row, limit: evidence.cell(
            "rdx", title, [row], "S", evidence.above(limit)
        )
        self.assertEqual(verdict(at("A", "x", 90)), "agrees")
        self.assertEqual(verdict(at("A", "x", 91)), "differs")
        self.assertEqual(verdict(at("A", "y", 90)), "open")
        self.assertEqual(verdict(at("B", "x", 90)), "open")
        self.assertEqual(verdict(evidence.test("models/src/emd.rs", "no_such_test")), "open")

    def test_the_page_is_up_to_date(self):
        with open(table.PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), table.page(), "run benches/run papers --table")


if __name__ == "__main__":
    unittest.main()
