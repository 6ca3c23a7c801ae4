"""Tests of mgza.py: `python3 -m unittest discover benches`."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mgza import (
    NONE,
    NOPS,
    PRELUDE,
    Sidecar,
    differences,
    keep_sites,
    numbers,
    ptwrite_length,
    ptwrites_to_nops,
)


def sidecar(ips):
    """The bytes of a sidecar that has nothing but `ptwrites.ip`."""
    data = struct.pack(f"<{len(ips)}Q", *ips)
    column = {
        "table": "ptwrites",
        "name": "ip",
        "kind": "u64",
        "rows": len(ips),
        "encoding": "raw",
        "offset": 8,
        "bytes": len(data),
        "raw_bytes": len(data),
    }
    header = json.dumps({"columns": [column]}).encode()
    header += b" " * (-len(header) % 8)
    return PRELUDE.pack(b"MGZA", 1, bytes(16), len(header), 0, 0) + header + bytes(8) + data


class Lengths(unittest.TestCase):
    def test_register_and_memory_forms(self):
        for text, length in (
            ("f3480faee0", 5),
            ("f3490faee7", 5),
            ("f30faee0", 4),
            ("f3480fae20", 5),
            ("f3480fae6508", 6),
            ("f3480fae642408", 7),
            ("f3480fae2500000000", 9),
            ("f3480faea424000000ff", 10),
        ):
            self.assertEqual(ptwrite_length(bytes.fromhex(text) + bytes(16)), length, text)

    def test_others_are_refused(self):
        for text in ("0f1f440000", "f3480faee8", "f30f6f00", "f3480fb8c0"):
            self.assertEqual(ptwrite_length(bytes.fromhex(text) + bytes(16)), 0, text)

    def test_nops_have_the_length_that_they_stand_for(self):
        self.assertTrue(all(len(v) == k for k, v in NOPS.items()))


class Columns(unittest.TestCase):
    def test_differences_are_read_back(self):
        values = (0, 5, 3, 2**64 - 1, 7, 7, 2**63)
        self.assertEqual(numbers(differences(values, "u64"), "u64", True), values)

    def test_rows_of_other_functions_are_blank(self):
        tables = {
            "sites": {
                "function": [0, 0, 1],
                "ip": [8, 9, 20],
                "location": [0, 1, 2],
                "region": [0, 0, 1],
                "size": [4, 8, 4],
            },
            "functions": {"name": [0, 1], "left": [NONE, NONE], "start": [8, 16]},
            "loops": {"function": [1], "parent": [NONE], "location": [2]},
            "locations": {
                "function": [0, 0, 1],
                "file": [2, 2, 3],
                "line": [1, 2, 3],
                "inlined_into": [NONE, 0, NONE],
            },
            "strings": {"text": ["f", "g", "f.c", "g.c"]},
            "regions": {"function": [0, 1]},
        }
        keep_sites(tables, {1})
        self.assertEqual(tables["sites"]["size"], [4, 8, 0])
        self.assertEqual(tables["sites"]["location"], [0, 1, NONE])
        self.assertEqual(tables["sites"]["region"], [NONE] * 3)
        self.assertEqual(tables["functions"]["start"], [8, 8])
        self.assertEqual(tables["locations"]["line"], [1, 2, 0])
        self.assertEqual(tables["strings"]["text"], ["f", "", "f.c", ""])
        self.assertNotIn("regions", tables)

    def test_numbers_are_those_that_were_written(self):
        self.assertEqual(
            numbers(bytes((0, 1, 2, 0x80, 1, 0x7F)), "i64", False), (0, -1, 1, 64, -64)
        )
        self.assertEqual(numbers(bytes((1, 2)), "u32", False), (0xFFFFFFFF, 1))
        self.assertEqual(
            numbers(bytes((0x80, 0x20, 8, 3, 0)), "u64", True), (0x800, 0x804, 0x802, 0x802)
        )
        self.assertEqual(numbers(bytes((1, 4)), "u32", True), (0xFFFFFFFF, 1))


class Patching(unittest.TestCase):
    def test_a_patched_program_runs_where_ptwrite_does_not(self):
        source = 'int main(void){ __asm__ volatile("probe: .globl probe\\n ptwrite %%r9\\n" ::: "memory"); return 7; }'
        with tempfile.TemporaryDirectory() as folder:
            c, exe, mgza, out = (os.path.join(folder, x) for x in ("a.c", "a", "a.mgza", "b"))
            with open(c, "w") as f:
                f.write(source)
            subprocess.run(["gcc", "-O1", c, "-o", exe], check=True)
            names = subprocess.run(["nm", exe], check=True, capture_output=True, text=True).stdout
            (address,) = [
                int(line.split()[0], 16) for line in names.splitlines() if line.endswith(" probe")
            ]
            with open(mgza, "wb") as f:
                f.write(sidecar([address]))
            self.assertEqual(Sidecar(mgza).column("ptwrites", "ip"), (address,))
            self.assertEqual(ptwrites_to_nops(exe, mgza, out), 1)
            self.assertEqual(subprocess.run([out]).returncode, 7)
            with open(mgza, "wb") as f:
                f.write(sidecar([address + 1]))
            with self.assertRaises(ValueError):
                ptwrites_to_nops(exe, mgza, out)


if __name__ == "__main__":
    unittest.main()
