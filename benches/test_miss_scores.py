"""Tests of the scores of predicted misses: `python3 -m unittest discover benches`."""

import math
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import miss_scores
import repetitions


def value(lo, hat, hi, truth, top=None):
    return {"lo": lo, "hat": hat, "hi": hi, "truth": truth, "top": top}


class Scores(unittest.TestCase):
    def test_an_interval_that_holds_costs_its_width(self):
        self.assertAlmostEqual(miss_scores.interval_score(0.1, 0.3, 0.2), 0.2)
        self.assertAlmostEqual(miss_scores.interval_score(0.1, 0.3, 0.3), 0.2)

    def test_a_miss_costs_forty_times_its_distance(self):
        self.assertAlmostEqual(miss_scores.interval_score(0.1, 0.3, 0.05), 0.2 + 40 * 0.05)
        self.assertAlmostEqual(miss_scores.interval_score(0.1, 0.3, 0.31), 0.2 + 40 * 0.01)

    def test_the_true_quantiles_score_best(self):
        truths = [i / 1000 for i in range(1001)]

        def mean(lo, hi):
            return sum(miss_scores.interval_score(lo, hi, t) for t in truths) / len(truths)

        best = mean(0.025, 0.975)
        for lo, hi in ((0.0, 1.0), (0.1, 0.9), (0.025, 0.9), (0.0, 0.975)):
            self.assertGreater(mean(lo, hi), best)

    def test_figures_of_a_level(self):
        s = miss_scores.scores(
            [
                value(0.10, 0.20, 0.30, 0.25, True),
                value(0.50, 0.55, 0.60, 0.70, False),
                value(0.00, 0.00, 0.001, 0.0, None),
            ]
        )
        self.assertEqual((s["values"], s["unknown"], s["held"]), (3, 0, 2))
        self.assertAlmostEqual(s["mean_error"], 0.2 / 3)
        self.assertAlmostEqual(s["median_error"], 0.05)
        self.assertAlmostEqual(s["median_width"], 0.1)
        # The first of two values of 1 % or more is wider than a factor of 2.
        self.assertEqual((s["wide"], s["large"]), (1, 2))
        self.assertAlmostEqual(s["score"], (0.2 + 0.1 + 40 * 0.1 + 0.001) / 3)
        self.assertEqual((s["top_right"], s["top"]), (1, 2))

    def test_silence_counts_as_the_widest_interval(self):
        s = miss_scores.scores([value(None, None, None, 0.5)])
        self.assertEqual((s["held"], s["unknown"], s["wide"]), (0, 1, 1))
        self.assertEqual((s["score"], s["mean_error"]), (1.0, None))

    def test_an_interval_that_begins_at_zero_is_wide(self):
        self.assertEqual(miss_scores.scores([value(0.0, 0.01, 0.02, 0.01)])["wide"], 1)

    def test_a_twentieth_of_a_point_is_no_failure(self):
        self.assertEqual(miss_scores.scores([value(0.0, 0.0, 0.0, 0.0004)])["held"], 1)
        self.assertEqual(miss_scores.scores([value(0.0, 0.0, 0.0, 0.0006)])["held"], 0)

    def test_a_table_has_a_line_for_each_level_and_one_for_all(self):
        lines = miss_scores.table({"32K": [value(0.1, 0.2, 0.3, 0.2)], "1M": [value(0, 0, 0, 0.5)]})
        self.assertEqual([l.split()[0] for l in lines[1:-1]], ["32K", "1M", "all"])
        self.assertIn("1/2", lines[3])


def run_with(time, loads, ratios):
    return {
        "summary": {
            "A_hat": loads,
            "A_lo": loads and loads - 10,
            "A_hi": loads and loads + 10,
            "misses": {"levels": [{"ratio": r} for r in ratios]},
        },
        "functions": [
            {
                "module": "m",
                "function": f,
                "time_pct": t,
                "time_pct_lo": t - 2,
                "time_pct_hi": t + 2,
            }
            for f, t in time.items()
        ],
    }


class Repetitions(unittest.TestCase):
    def found(self):
        runs = [
            run_with({"f": 59, "g": 41, "rare": 1}, 100, [[0.1, 0.2, 0.3], [0, 0, 0.001]]),
            run_with({"f": 61, "g": 39, "rare": 1}, 120, [[0.1, 0.2, 0.3], None]),
        ]
        return repetitions.quantities([repetitions.estimates(r, ["32K", "1M"]) for r in runs])

    def test_rows_are_the_run_and_functions_with_much_of_the_time(self):
        rows = {k for k in self.found() if k[0] != "footprint"}
        self.assertEqual(
            rows,
            {
                ("time", "m:f"),
                ("time", "m:g"),
                ("loads", "run"),
                ("loads", "m:f"),
                ("loads", "m:g"),
                ("misses", "32K"),
            },
        )

    def test_a_function_with_all_of_the_time_has_no_share_to_compare(self):
        run = repetitions.estimates(run_with({"f": 99.9}, 100, []), [])
        rows = set(repetitions.quantities([run, run]))
        self.assertNotIn(("time", "m:f"), rows)
        self.assertIn(("loads", "m:f"), rows)

    def test_widths_are_compared_with_the_spread(self):
        q = self.found()["time", "m:f"]
        self.assertAlmostEqual(q["half_width"], 2)
        self.assertAlmostEqual(q["spread"], 1.96 * math.sqrt(2))
        self.assertAlmostEqual(repetitions.ratio([q]), 2 / (1.96 * math.sqrt(2)))
        self.assertEqual(repetitions.totals([q]), (2, 2, 2))

    def test_unknown_values_are_counted_as_such(self):
        self.assertEqual(repetitions.totals([self.found()["loads", "m:f"]]), (0, 0, 2))

    def test_intervals_far_from_the_mean_do_not_hold_it(self):
        q = repetitions.quantity([(0, 1, 2), (9, 10, 11), None])
        self.assertEqual(repetitions.totals([q]), (0, 2, 3))

    def test_equal_values_with_and_without_width(self):
        exact, loose = repetitions.quantity([(1, 1, 1)] * 3), repetitions.quantity([(0, 1, 2)] * 3)
        self.assertIsNone(repetitions.ratio([exact]))
        self.assertEqual(repetitions.ratio([loose]), math.inf)

    def test_the_summary_names_each_kind(self):
        lines = repetitions.summary({"p": self.found()})
        self.assertEqual([l.split()[0] for l in lines], list(repetitions.KINDS))
        self.assertIn("median 0.72, 0 of 1 programs", lines[0])
        self.assertIn("4 of 4 intervals", lines[0])
        self.assertIn("no interval", lines[2])


if __name__ == "__main__":
    unittest.main()
