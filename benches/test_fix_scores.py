"""Tests of the scores of fixed programs: python3 -m unittest discover benches"""

import os
import unittest

import fix_scores as scores
from fix_programs import PROGRAMS

BENCHES = os.path.dirname(os.path.abspath(__file__))


def result(gain, is_irregular=True, kept=True):
    return {
        "program": "p",
        "irregular": is_irregular,
        "kept": kept,
        "gain": [gain - 0.1, gain, gain + 0.1],
        "measured": [gain - 0.05, gain, gain + 0.05],
        "screen": "kept 1 of 2\n  pool of nodes: predicted gain unknown\n",
    }


class Scores(unittest.TestCase):
    def test_the_mean_is_that_of_irregular_programs(self):
        results = [result(1.0, kept=False), result(1.44), result(9.0, is_irregular=False)]
        self.assertAlmostEqual(scores.mean(results), 1.2)
        self.assertIsNone(scores.mean(results[2:]))
        self.assertTrue(scores.are_met(results))
        self.assertFalse(scores.are_met(results[:1]))

    def test_a_slower_program_is_named_and_fails(self):
        results = [result(1.9), result(0.98, is_irregular=False)]
        self.assertFalse(scores.are_met(results))
        self.assertIn("programs below 0.99: p", scores.summary(results))
        self.assertIn("clean programs that were changed: p", scores.summary(results))

    def test_lines_tell_what_was_kept(self):
        self.assertIn("left as it is", scores.line(result(1.0, kept=False)))
        self.assertIn("1.30 (1.25–1.35)", scores.line(result(1.3)))
        self.assertEqual(scores.tried(result(1.3)), ["  pool of nodes: predicted gain unknown"])

    def test_there_are_ten_programs_of_each_kind(self):
        of_kind = [p.is_irregular for p in PROGRAMS]
        self.assertEqual((sum(of_kind), len(of_kind)), (10, 20))
        for program in PROGRAMS:
            self.assertTrue(os.path.exists(os.path.join(BENCHES, program.source)), program.source)


if __name__ == "__main__":
    unittest.main()
