"""Tests of the page of measurements: `python3 -m unittest discover benches`."""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest

BENCHES = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, BENCHES)


def command(name):
    """A command of benches/run as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(BENCHES, "commands", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Page(unittest.TestCase):
    def test_every_part_of_the_papers_has_a_title(self):
        self.assertEqual(set(command("papers").PARTS), set(command("measurements").PAPERS))

    def test_a_kind_without_a_title_is_shown_under_its_name(self):
        page = command("measurements")
        with tempfile.TemporaryDirectory() as folder:
            page.RESULTS = folder
            for name in ("papers-rdx-2026-01-01T000000Z.txt", "papers-new-2026-01-01T000000Z.txt"):
                with open(os.path.join(folder, name), "w", encoding="utf-8"):
                    pass
            parts = page.paper_parts()
            self.assertEqual(list(parts)[:-1], list(page.PAPERS))
            self.assertEqual(parts["new"], "new")

    def test_a_kind_that_no_section_shows_is_an_error(self):
        page = command("measurements")
        names = [
            "README.md",
            "burst.txt",
            "space-2026-01-01T000000Z.txt",
            "new-2026-01-01T000000Z.txt",
        ]
        used = {"README.md", "burst.txt", "space-2026-02-01T000000Z.txt"}
        self.assertEqual(page.kinds_without_section(names, used), ["new"])


if __name__ == "__main__":
    unittest.main()
