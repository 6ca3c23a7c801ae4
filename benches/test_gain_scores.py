"""Tests of the scores of predicted gains: python3 -m unittest discover benches"""

import collections
import unittest

import gain_scores as scores
from gain_pairs import PAIRS, SETS


def result(predicted, measured, cost=None, of="open"):
    return {
        "program": "p",
        "mechanism": "m",
        "remedy": "r",
        "set": of,
        "predicted": predicted,
        "reason": "no such remedy",
        "measured": measured,
        "cost": cost,
    }


class Scores(unittest.TestCase):
    def test_unknown_gains_count_in_no_score(self):
        results = [
            result([20, 30, 40], [33, 35, 36]),
            result([20, 30, 40], [55, 60, 66]),
            result(None, [55, 60, 66]),
        ]
        found = scores.score(results)
        self.assertEqual(
            (found["pairs"], found["predicted"], found["within"], found["held"]), (3, 2, 1, 1)
        )
        self.assertFalse(scores.are_met(results))
        self.assertTrue(scores.are_met(results[:1]))
        self.assertFalse(scores.are_met([]))
        self.assertIn("no such remedy", scores.line(results[2]))
        self.assertIn("outside", scores.line(results[1]))

    def test_orders_are_compared_two_by_two(self):
        self.assertEqual(scores.agreement([(1, 2), (2, 3), (3, 4)]), 1.0)
        self.assertEqual(scores.agreement([(1, 3), (2, 2), (3, 4)]), 2 / 3)
        self.assertIsNone(scores.agreement([(1, 1)]))

    def test_gains_beside_smaller_costs_are_named(self):
        text = "\n".join(scores.summary([result([70, 80, 90], [75, 80, 85], [60, 70, 75])]))
        self.assertIn("above the cost's interval: p", text)

    def test_fixes_have_values_with_ends(self):
        entry = {
            "program": "app",
            "finding": {"kind": "list"},
            "remedy": "pool of nodes",
            "predicted": {"saved_pct": 40, "saved_pct_lo": 30, "saved_pct_hi": 50},
            "measured": {"saved_pct": 42, "saved_pct_lo": 41, "saved_pct_hi": 43},
        }
        found = scores.of_fix(entry)
        self.assertEqual((found["predicted"], found["measured"]), ([30, 40, 50], [41, 42, 43]))
        self.assertTrue(scores.holds(found))
        self.assertIsNone(scores.of_fix({**entry, "predicted": None})["predicted"])

    def test_the_sets_are_alike_and_most_pairs_are_not_open(self):
        self.assertEqual(len({(p.source, p.name) for p in PAIRS}), len(PAIRS))
        self.assertEqual({p.set for p in PAIRS}, set(SETS))
        of = {name: [p for p in PAIRS if p.set == name] for name in SETS}
        for pairs in of.values():
            self.assertGreaterEqual(len(pairs), 20)
            self.assertGreaterEqual(sum(bool(p.like) for p in pairs), 5)
        self.assertGreaterEqual(len([p for p in of["held"] + of["fresh"] if p.remedy]), 30)
        mechanisms = collections.Counter(p.mechanism for p in PAIRS)
        self.assertGreaterEqual(min(mechanisms.values()), 2)

    def test_sets_have_scores_apart(self):
        good, bad = ([70, 80, 90], [75, 80, 85]), ([70, 80, 90], [10, 11, 12])
        lines = scores.summary([result(*good), result(*bad, of="fresh")])
        self.assertIn("fresh: 1 of 1 predicted; 0 of 1", lines[0])
        self.assertTrue(lines[1].startswith("open: 1 of 1 predicted; 1 of 1"), lines)


if __name__ == "__main__":
    unittest.main()
