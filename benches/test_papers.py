"""Tests of the papers' experiments: `python3 -m unittest discover benches`."""

import contextlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from papers import barai
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
            for level in (1, 2)
        ]
        return {"levels": levels, "summary": {}}


class SharedCaches(unittest.TestCase):
    def test_every_row_has_the_null_model_and_both_orders(self):
        lab = Answers()
        with contextlib.redirect_stdout(io.StringIO()):
            barai.run(lab)
        table = lab.tables[0]
        for row in table["rows"]:
            cells = dict(zip(table["head"], row))
            self.assertEqual(cells["null − real"], "+25.00")
            self.assertEqual(cells["null − turns"], "+25.00")
            self.assertEqual(cells["model − real"], "+0.00")
            self.assertEqual(cells["sets − turns"], "+0.00")


if __name__ == "__main__":
    unittest.main()
