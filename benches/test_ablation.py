"""Tests of rules that can be switched off: `python3 -m unittest discover benches`."""

import glob
import importlib.machinery
import importlib.util
import os
import re
import sys
import unittest

BENCHES = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCHES)
sys.path.insert(0, BENCHES)
import model_constants as mc
import model_rules as mr

PATH = os.path.join(BENCHES, "commands", "ablate")
LOADER = importlib.machinery.SourceFileLoader("ablate", PATH)
ablate = importlib.util.module_from_spec(importlib.util.spec_from_loader("ablate", LOADER))
LOADER.exec_module(ablate)


def real_sources():
    sources = {}
    for path in glob.glob(os.path.join(ROOT, "analyzer/src/**/*.rs"), recursive=True):
        with open(path, encoding="utf-8") as f:
            sources[os.path.relpath(path, ROOT)] = f.read()
    return sources


class Rules(unittest.TestCase):
    def test_names_are_distinct_and_no_factors(self):
        names = [r.name for r in mr.RULES]
        self.assertEqual(len(names), len(set(names)))
        self.assertFalse(set(names) & set(mc.FACTORS))

    def test_each_rule_can_be_switched_off(self):
        for r in mr.RULES:
            self.assertTrue(r.constants or r.patches, r.name)
            for *_, new in r.patches:
                self.assertTrue(re.search(r"\bOFF\b", new), r.name)

    def test_constants_have_a_function_with_the_value(self):
        constants = {c.name: c for c in mc.all_constants(real_sources())}
        tree = mc.switched_tree(real_sources(), mr.RULES)
        for r in mr.RULES:
            for name, value in r.constants.items():
                self.assertIsNotNone(constants[name].shape, name)
                self.assertIn(f'        "{r.name}" => {value},\n', tree[mc.FILES["misses"]])

    def test_the_real_sources_fit(self):
        tree = mc.switched_tree(real_sources(), mr.RULES)
        for r in mr.RULES:
            for path, *_ in r.patches:
                self.assertIn(f'is_off("{r.name}")', tree[path])
            self.assertEqual(mr.code_lines(r, ROOT) > 0, bool(r.code), r.name)

    def test_sources_that_do_not_fit_are_an_error(self):
        odd = mr.rule("odd", [], patches=[("a.rs", "x", "OFF")])
        for text in ("", "x x"):
            with self.assertRaises(ValueError):
                mr.patched({mr.MISSES + "a.rs": text}, [odd])
        fits = mr.patched({mr.MISSES + "a.rs": "if x {"}, [odd])
        self.assertEqual(fits[mr.MISSES + "a.rs"], 'if crate::misses::params::is_off("odd") {')

    def test_the_version_depends_on_the_way_only(self):
        one = mr.rule("a", [], {"X": "0.0"})
        self.assertEqual(mr.version(one), mr.version(mr.rule("b", ["c.rs"], {"X": "0.0"})))
        self.assertNotEqual(mr.version(one), mr.version(mr.rule("a", [], {"X": "1.0"})))


class Lines(unittest.TestCase):
    TEXT = (
        "use a;\n\n/// Adds.\n#[inline]\npub(crate) fn add() {\n    if b {\n    }\n}\n\n"
        "fn added() {\n}\n\n#[cfg(test)]\nmod tests {\n    fn add() {\n    }\n}\n"
    )

    def test_files_are_counted_without_tests(self):
        self.assertEqual(mr.lines_of(self.TEXT), 11)

    def test_functions_are_counted_with_their_comments(self):
        self.assertEqual(mr.lines_of(self.TEXT, "add"), 6)
        self.assertEqual(mr.lines_of(self.TEXT, "added"), 2)


def compared(**changes):
    same = {"error": 0.0, "score": 0.0, "held": 0, "unknown": 0, "top": 0}
    return {"changes": {**same, **changes}, "reports": 1, "failed": 0}


class Comparing(unittest.TestCase):
    def test_a_figure_gets_worse_in_its_direction(self):
        for worse in ({"error": 0.1}, {"score": 1.0}, {"held": -1}, {"top": -1}, {"unknown": 1}):
            self.assertTrue(ablate.makes_worse(compared(**worse)), worse)
        for better in ({"error": -0.1}, {"held": 2}, {"top": 1}, {"score": 0.001}, {}):
            self.assertFalse(ablate.makes_worse(compared(**better)), better)
        self.assertTrue(ablate.makes_worse(compared(error=None)))
        self.assertTrue(ablate.makes_worse({**compared(), "failed": 1}))

    def test_columns_of_a_line_are_those_of_the_head(self):
        figures = {"error": 1.0, "score": 12.3, "held": 130, "unknown": 0, "top": 101}
        text = ablate.line("bursts", 30, figures, compared(error=0.25, held=-2), 45)
        self.assertEqual(len(text), len(ablate.head()))
        self.assertEqual(text.split()[1:6], ["30", "1.00", "+0.25", "12.30", "."])
        self.assertTrue(text.endswith("1 of 45"))


if __name__ == "__main__":
    unittest.main()
