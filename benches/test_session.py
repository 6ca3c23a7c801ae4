"""Tests of what the benchmark scripts share: `python3 -m unittest discover benches`."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from corpus import sql_corpus, text
from measure import Failed, run
from session import verdict
from subjects import Program, needed_library


class Corpora(unittest.TestCase):
    def test_they_are_the_same_each_time(self):
        self.assertEqual(text(5000), text(5000))
        self.assertEqual(sql_corpus(20, 20), sql_corpus(20, 20))

    def test_text_has_the_size_asked_for_and_packs_like_text(self):
        import zlib

        data = text(200_000)
        self.assertEqual(len(data), 200_000)
        self.assertTrue(0.15 < len(zlib.compress(data)) / len(data) < 0.6)


class Subjects(unittest.TestCase):
    def test_another_output_than_the_original_fails(self):
        subject = Program("echo", "/bin/echo", None, 3, lambda size: [str(size)])
        subject.checked(3, run(["/bin/echo", "3"]))
        with self.assertRaises(Failed):
            subject.checked(3, run(["/bin/echo", "4"]))

    def test_no_output_fails(self):
        # A program that prints nothing would be the same as anything that prints nothing.
        with self.assertRaises(Failed):
            Program("true", "/bin/true", None, 1, lambda size: []).original(1)

    def test_size_is_in_proportion_to_the_time(self):
        subject = Program("any", "/bin/true", None, 100, lambda size: [])
        subject.seconds = 0.5
        self.assertEqual([subject.size(s) for s in (1, 0.25, 0)], [200, 50, 1])

    def test_a_library_is_found_by_the_name_that_the_loader_uses(self):
        self.assertTrue(needed_library("/bin/sh", "libc.so.6").endswith("libc.so.6"))
        self.assertIsNone(needed_library("/bin/sh", "libnone.so.1"))


class Verdicts(unittest.TestCase):
    def test_both_directions_and_nothing(self):
        self.assertEqual(
            [
                verdict(1, 2),
                verdict(3, 2),
                verdict(3, 2, False),
                verdict(1, 2, False),
                verdict(None, 2),
            ],
            ["pass", "MISS", "pass", "MISS", "not measured"],
        )


class Maps(unittest.TestCase):
    def test_a_program_that_waits_for_input_is_seen(self):
        # The script has no .py in its name.
        from importlib.machinery import SourceFileLoader
        from importlib.util import module_from_spec, spec_from_loader

        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "commands", "rewriter")
        loader = SourceFileLoader("bench_rewriter", path)
        script = module_from_spec(spec_from_loader("bench_rewriter", loader))
        sys.dont_write_bytecode = True
        loader.exec_module(script)
        self.assertGreater(script.mappings(["/bin/cat"]), 5)
        with self.assertRaises(Failed):
            script.mappings(["/bin/true"])


if __name__ == "__main__":
    unittest.main()
