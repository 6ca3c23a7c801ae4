"""Tests of halved and doubled constants: `python3 -m unittest discover benches`."""

import glob
import importlib.machinery
import importlib.util
import os
import re
import sys
import tempfile
import types
import unittest

BENCHES = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCHES)
sys.path.insert(0, BENCHES)
import model_constants as mc

PATH = os.path.join(BENCHES, "commands", "sensitivity")
LOADER = importlib.machinery.SourceFileLoader("sensitivity", PATH)
sensitivity = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("sensitivity", LOADER)
)
LOADER.exec_module(sensitivity)

PARAMS = """//! Constants.

/// Imported.
pub(super) use crate::estimate::params::OTHER;

/// At most this many rows
/// are read. Source: Chosen.
pub(super) const MAX_ROWS: u64 = 1 << 20;
/// This share counts. Source: Chosen, as
/// most.
pub(crate) const MIN_SHARE: f64 = 0.6;
/// Without a source.
pub(super) const ODD: usize = 3;
pub(super) const ONE: u32 = 1;
pub(super) const SQUARE: f64 =
    MIN_SHARE * MIN_SHARE;
/// Source: Chosen.
pub(super) const RADII: [usize; 3] = [1, 8, usize::MAX];
/// The first counts. Source: Chosen.
pub(super) const RANGE: std::ops::RangeInclusive<f64> = 1.0 / 64.0..=0.75;
/// Source: Chosen.
pub(super) const TABLE: [(u64, u64); 1] =
    [(32 << 10, 8)];
"""


def constants(text=PARAMS):
    return {c.name: c for c in mc.parse("misses", text)}


def one(name, type, value, doc=""):
    return mc.variants(constants(f"/// {doc}\npub const {name}: {type} = {value};\n")[name])


class Parsing(unittest.TestCase):
    def test_all_constants_are_found_in_order(self):
        names = ["MAX_ROWS", "MIN_SHARE", "ODD", "ONE", "SQUARE", "RADII", "RANGE", "TABLE"]
        self.assertEqual(list(constants()), names)

    def test_doc_comments_give_the_source(self):
        found = constants()
        self.assertEqual(found["MAX_ROWS"].doc, "At most this many rows are read. Source: Chosen.")
        self.assertEqual(found["MIN_SHARE"].source, "Chosen, as most.")
        self.assertEqual(found["ODD"].source, "")
        self.assertEqual(found["ONE"].doc, "")

    def test_expressions_are_evaluated(self):
        for text, value in (
            ("1 << 20", 1 << 20),
            ("2048 * 4096", 2048 * 4096),
            ("65_536", 65536),
            ("1.959_964", 1.959964),
            ("5e-4", 5e-4),
            ("-4.0", -4.0),
            ("(1u64 << 40) as f64", 1 << 40),
            ("1.0 / 64.0", 1 / 64),
            ("3_f64", 3),
        ):
            self.assertEqual(mc.evaluate(text), value, text)
        self.assertAlmostEqual(mc.evaluate("std::f64::consts::LN_10"), 2.302585, 6)
        for text in ("MAX_ROWS * 2", "f(1)", "usize::MAX", "1 <"):
            with self.assertRaises(ValueError):
                mc.evaluate(text)

    def test_values_that_are_no_numbers_say_why(self):
        found = constants()
        self.assertEqual(found["SQUARE"].why, "follows from other constants")
        self.assertEqual(found["TABLE"].why, "is no number ([(u64, u64); 1])")
        self.assertEqual(mc.variants(found["SQUARE"]), {})

    def test_the_real_files_are_read_completely(self):
        for name, path in mc.FILES.items():
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = f.read()
            found = mc.parse(name, text)
            self.assertEqual(len(found), len(re.findall(r"^pub.* const ", text, re.MULTILINE)))
            for c in found:
                self.assertTrue(c.doc, c.name)
                self.assertTrue(mc.variants(c) or c.why, c.name)


class Scaling(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual(one("X", "f64", "5e-4"), {"halved": "0.00025", "doubled": "0.001"})
        self.assertEqual(one("X", "f64", "-4.0"), {"halved": "-2.0", "doubled": "-8.0"})
        self.assertEqual(one("X", "u64", "1 << 20"), {"halved": "524288", "doubled": "2097152"})

    def test_whole_numbers_are_rounded_and_at_least_one(self):
        self.assertEqual(one("X", "usize", "3"), {"halved": "2", "doubled": "6"})
        self.assertEqual(one("X", "u32", "1"), {"doubled": "2"})

    def test_shares_stay_below_one(self):
        self.assertEqual(one("MIN_SHARE", "f64", "0.3"), {"halved": "0.15", "doubled": "0.6"})
        self.assertEqual(one("MIN_SHARE", "f64", "0.5"), {"halved": "0.25", "doubled": "0.75"})
        self.assertEqual(one("QUANTILE", "f64", "0.75")["doubled"], "0.875")
        self.assertEqual(one("EARLY", "f64", "0.75", "From this share on.")["doubled"], "0.875")
        self.assertEqual(one("SHARE", "f64", "1.0"), {"halved": "0.5"})

    def test_ratios_and_quantiles_above_one_may_pass_one(self):
        self.assertEqual(one("MIN_RATIO", "f64", "0.75")["doubled"], "1.5")
        self.assertEqual(one("QUANTILE", "f64", "2.5")["doubled"], "5.0")

    def test_percentages_stay_below_a_hundred(self):
        self.assertEqual(one("MIN_PCT", "u64", "60"), {"halved": "30", "doubled": "80"})
        self.assertEqual(one("EVENTS_AT_95_PCT", "f64", "60.0")["doubled"], "120.0")

    def test_all_elements_are_scaled(self):
        found = constants()
        self.assertEqual(
            mc.variants(found["RADII"]),
            {"halved": "[1, 4, usize::MAX]", "doubled": "[2, 16, usize::MAX]"},
        )
        self.assertEqual(
            mc.variants(found["RANGE"]), {"halved": "0.0078125..=0.375", "doubled": "0.03125..=1.5"}
        )
        self.assertEqual(
            one("SHARES", "std::ops::Range<f64>", "0.5..0.75")["doubled"], "0.75..0.875"
        )


class Switching(unittest.TestCase):
    def tree(self, **more):
        sources = {path: "" for path in mc.FILES.values()}
        sources[mc.FILES["misses"]] = PARAMS
        sources[mc.FILES["estimate"]] = "pub(crate) const OTHER: f64 = 3.0;\n"
        return mc.switched_tree({**sources, **{k + ".rs": v for k, v in more.items()}})

    def test_constants_stay_and_get_a_function(self):
        text = self.tree()[mc.FILES["misses"]]
        self.assertIn("pub(super) const MAX_ROWS: u64 = 1 << 20;\n", text)
        self.assertIn(
            "pub(super) fn max_rows() -> u64 {\n"
            '    match factor_of("MAX_ROWS") {\n'
            '        "halved" => 524288,\n'
            '        "doubled" => 2097152,\n'
            "        _ => MAX_ROWS,\n    }\n}\n",
            text,
        )

    def test_constants_that_follow_from_others_follow_their_functions(self):
        text = self.tree()[mc.FILES["misses"]]
        self.assertIn("        _ => min_share() * min_share(),\n", text)

    def test_tables_stay_constants(self):
        self.assertNotIn("fn table()", self.tree()[mc.FILES["misses"]])
        self.assertNotIn("a.rs", self.tree(a="let t = &params::TABLE;"))

    def test_functions_are_exported_like_their_constants(self):
        text = self.tree()[mc.FILES["misses"]]
        self.assertIn("use crate::estimate::params::{OTHER, other};\n", text)
        self.assertNotIn("fn other()", text)
        self.assertIn("pub(crate) fn other()", self.tree()[mc.FILES["estimate"]])

    def test_uses_become_calls(self):
        found = self.tree(
            a="let x = params::MAX_ROWS + params::OTHER;\n// params::ODD\nuse super::params::ODD;"
        )
        self.assertEqual(
            found["a.rs"],
            "let x = params::max_rows() + params::other();\n// params::ODD\nuse super::params::ODD;",
        )

    def test_lengths_of_arrays_stay_constant(self):
        found = self.tree(a="let x = [0; params::RADII.len()];\nparams::RADII.iter()")
        self.assertEqual(found["a.rs"], "let x = [0; params::RADII.len()];\nparams::radii().iter()")

    def test_constants_in_constants_stay(self):
        sources = {path: "" for path in mc.FILES.values()}
        sources[mc.FILES["misses"]] = PARAMS
        sources["a.rs"] = (
            "impl A {\n    pub(super) const NONE: A = A {\n        x: params::ODD,\n    };\n"
            "    fn a() -> u32 {\n        params::ONE\n    }\n}\n"
            "const B: B = B {\n    f: |x| {\n        x + params::MAX_ROWS;\n    },\n};\n"
        )
        why = {c.name: c.why for c in mc.all_constants(sources)}
        self.assertEqual(why["ODD"], "is part of another constant")
        self.assertEqual((why["ONE"], why["MAX_ROWS"]), (None, None))
        self.assertIn("x: params::ODD,", mc.switched_tree(sources)["a.rs"])

    def test_constants_in_constants_stay_if_they_follow_from_others(self):
        sources = {path: "" for path in mc.FILES.values()}
        sources[mc.FILES["misses"]] = PARAMS
        sources["a.rs"] = "const A: A = A {\n    x: params::SQUARE,\n};\n"
        tree = mc.switched_tree(sources)
        self.assertNotIn("a.rs", tree)
        self.assertNotIn("fn square()", tree[mc.FILES["misses"]])

    def test_constants_that_are_lengths_stay(self):
        sources = {path: "" for path in mc.FILES.values()}
        sources[mc.FILES["misses"]] = PARAMS
        sources["a.rs"] = "let x: [u8; params::ODD] = [0; params::ODD];"
        why = {c.name: c.why for c in mc.all_constants(sources)}
        self.assertEqual((why["ODD"], why["ONE"]), ("is the length of an array", None))
        self.assertNotIn("a.rs", mc.switched_tree(sources))

    def test_other_files_are_left_alone(self):
        self.assertNotIn("a.rs", self.tree(a="let x = Params::ODD + MAX_ROWS;"))

    def test_the_real_sources_use_functions_only(self):
        sources = {}
        for path in glob.glob(os.path.join(ROOT, "analyzer/src/**/*.rs"), recursive=True):
            with open(path, encoding="utf-8") as f:
                sources[os.path.relpath(path, ROOT)] = f.read()
        tree = {**sources, **mc.switched_tree(sources)}
        names = [c.name for c in mc.all_constants(sources) if mc.variants(c)]
        self.assertEqual(len(names), len(set(names)), "a name stands for two constants")
        code = "\n".join(
            line.split("//")[0]
            for path, text in tree.items()
            if path not in mc.FILES.values()
            for line in text.split("\n")
        )
        constants = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b(?!\.len)", code))
        calls = set(re.findall(r"\bparams::(\w+)\(\)", code))
        self.assertEqual(constants & set(names), set())
        self.assertEqual({n.lower() for n in names} - calls, set())


def level(hat, truth=0.5):
    return {
        "level": "1M",
        "truth": truth,
        "lo": hat - 0.1,
        "hat": hat,
        "hi": hat + 0.1,
        "top": None,
    }


def predicted(hat, report="a"):
    return {"set": "misses", "result": [level(hat)], "report": report}


def told(mechanism, place=True, planted=True, report="a"):
    result = {"planted": planted, "mechanism": mechanism, "place": place}
    return {"set": "findings", "result": result, "report": report}


class Comparing(unittest.TestCase):
    def test_figures_of_both_sets(self):
        found = sensitivity.figures(
            [
                predicted(0.55),
                predicted(0.8),
                told(True, False),
                told(False),
                told(True, True, False),
            ]
        )
        self.assertAlmostEqual(found["error"], 17.5)
        self.assertEqual((found["held"], found["unknown"]), (1, 0))
        self.assertEqual((found["mechanism"], found["place"], found["clean"]), (1, 1, 1))

    def test_figures_of_one_set_only(self):
        self.assertEqual(set(sensitivity.figures([told(True)])), {"mechanism", "place"})

    def test_equal_reports_change_nothing(self):
        rows = [predicted(0.55), told(True)]
        compared = sensitivity.compare(rows, rows)
        self.assertEqual((compared["reports"], compared["failed"]), (0, 0))
        self.assertFalse(sensitivity.changes_figure(compared))

    def test_changes_that_are_not_printed_are_none(self):
        compared = sensitivity.compare([predicted(0.55)], [predicted(0.55003, "b")])
        self.assertEqual(compared["reports"], 1)
        self.assertFalse(sensitivity.changes_figure(compared))
        self.assertTrue(
            sensitivity.changes_figure(
                sensitivity.compare([predicted(0.55)], [predicted(0.56, "b")])
            )
        )

    def test_a_failed_program_is_a_change_but_counts_for_no_figure(self):
        rows = [told(True), told(True)]
        compared = sensitivity.compare(rows, [told(True), {"set": "findings", "error": "crashed"}])
        self.assertEqual(compared["changes"], {"mechanism": 0, "place": 0})
        self.assertEqual(compared["failed"], 1)
        self.assertTrue(sensitivity.changes_figure(compared))

    def test_an_error_that_is_no_longer_known_is_a_change(self):
        unknown = {**level(0.5), "lo": None, "hat": None, "hi": None}
        row = {"set": "misses", "result": [unknown], "report": "b"}
        compared = sensitivity.compare([predicted(0.55)], [row])
        self.assertIsNone(compared["changes"]["error"])
        self.assertTrue(sensitivity.changes_figure(compared))

    def test_columns_of_a_line_are_those_of_the_head(self):
        rows = [predicted(0.55), told(True), told(True, True, False)]
        compared = sensitivity.compare(rows, [predicted(0.8, "b"), *rows[1:]])
        text = sensitivity.line("X", "0.5", compared, 3)
        self.assertEqual(len(text), len(sensitivity.head()))
        self.assertEqual(text.split()[2:5], ["+25.00", "+800.00", "-1"])
        self.assertTrue(text.endswith("1 of 3"))


class Resuming(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "results.jsonl")
        self.program = types.SimpleNamespace(
            set="findings", name="p", trace=folder.name, measure=lambda analyzer: ({"x": 1}, "a")
        )
        self.manifest = os.path.join(folder.name, "manifest.json")
        with open(self.manifest, "w", encoding="utf-8"):
            pass

    def of(self, source="s", variant="X halved"):
        return sensitivity.Results(self.path, source).of(variant, self.program)

    def measure(self):
        return sensitivity.Results(self.path, "s").measure("X halved", self.program, [])

    def test_results_are_found_again(self):
        self.assertIsNone(self.of())
        self.measure()
        self.assertEqual(self.of()["result"], {"x": 1})

    def test_other_variants_sources_and_traces_are_not_used(self):
        self.measure()
        self.assertIsNone(self.of(variant="X doubled"))
        self.assertIsNone(self.of(source="t"))
        os.utime(self.manifest, (1, 1))
        self.assertIsNone(self.of())

    def test_a_row_that_was_cut_harms_no_other(self):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write('{"source": "s", "vari')
        self.measure()
        self.assertIsNotNone(self.of())

    def test_failures_are_tried_again(self):
        def fail(analyzer):
            raise RuntimeError("crashed")

        self.program.measure = fail
        self.assertEqual(self.measure()["error"], "crashed")
        self.assertIsNone(self.of())


if __name__ == "__main__":
    unittest.main()
