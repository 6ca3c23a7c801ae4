"""Tests of kept results: python3 -m unittest discover -s benches -p 'test_*.py'"""

import unittest

from kept import without_folders


class Folders(unittest.TestCase):
    def test_folders_of_the_machine_are_left_out(self):
        self.assertEqual(without_folders("in /home/x/out/a.inst, b"), "in a.inst, b")
        self.assertEqual(without_folders('{"at":"/tmp/t/a"}'), '{"at":"a"}')

    def test_programs_of_the_system_and_other_slashes_stay(self):
        for text in ("/usr/bin/gzip", "tests/programs/x.c", "3 MB/s", "and/or", "/proc/self/maps"):
            self.assertEqual(without_folders(text), text)


if __name__ == "__main__":
    unittest.main()
