"""Tests of the papers' experiments: `python3 -m unittest discover benches`."""

import contextlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from papers import barai, evidence, findings, rdx, table
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

    def test_a_value_lies_between_two_readings_or_near_them(self):
        kept = evidence.Kept()
        kept.parts = {"memgaze": [{"title": "Objects", "text": "", "head": ["object", "own", "all"], "rows": [["map", "3.0", "9.0"]]}]}  # fmt: skip
        for paper, verdict in (
            (2.65, "agrees"),
            (9.5, "agrees"),
            (1.4, "differs"),
            (19, "differs"),
        ):
            row = evidence.between_cells(
                "memgaze", "Objects", ["map"], ("own", "all"), 2, paper, "why"
            )
            self.assertEqual(row(kept).verdict, verdict, paper)

    def test_advice_is_right_in_a_share_of_the_programs(self):
        kept = evidence.Kept()
        rows = [["stream", "no"], ["chase", "yes"], ["sparse", "yes"]]
        kept.parts = {"cabrera": [{"title": "Advice on pages", "text": "", "head": ["program", "advice held"], "rows": rows}]}  # fmt: skip
        self.assertEqual(evidence.advice(0.6)(kept).verdict, "agrees")
        shown = evidence.advice(0.9)(kept)
        self.assertEqual((shown.verdict, shown.why), ("differs", "wrong for stream"))

    def test_reasons_of_low_accuracy_follow_the_tree(self):
        of = lambda stack, hat, model: {"S_stack": stack, "S_hat_stack": hat, "S_stack_model": model, "S_hat_time": 0.95}  # fmt: skip
        self.assertTrue(rdx.reason(of(0.8, 0.95, 0.85), [0.8]).startswith("model"))
        self.assertTrue(rdx.reason(of(0.7, 0.86, 0.99), [0.7]).startswith("off by one"))
        self.assertTrue(rdx.reason(of(0.8, 0.85, 0.99), [0.91]).startswith("bias"))
        self.assertEqual(rdx.reason(of(0.8, 0.85, 0.99), [0.8]), "not told")

    def test_what_varies_is_not_what_falls(self):
        falls, varies = [0.8, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2], [0.5, 0.7] * 4
        rows = findings.network_findings({}, {"alexnet": varies, "resnet": falls}, {})
        self.assertEqual([r[2] for r in rows if r[0] == "ΔF varies more in AlexNet"], ["yes"])

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
