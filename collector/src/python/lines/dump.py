"""Prints the line tables of code objects, and the lines that CPython itself finds in them."""

import argparse
import dis
import json
import sys
import textwrap
import types

EXAMPLE = (
    """
def backwards(values):
    total = max(
        values[0],
        values[1])
    for value in values:
        if value: total += value; continue
        try:
            total -= (value
                + 1)
        finally:
            del value






    return [x for x in
        range(total)]
"""
    + "\n" * 300
    + """
async def far(a):
    async with a as b:
        return b
"""
)


def lines(code):
    if hasattr(code, "co_lines"):
        return [(start, end, line or 0) for start, end, line in code.co_lines()]
    starts = list(dis.findlinestarts(code)) + [(len(code.co_code), 0)]
    return [(a, b, line) for (a, line), (b, _) in zip(starts, starts[1:])]


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def dump(code):
    table = code.co_lnotab if sys.version_info < (3, 10) else code.co_linetable
    ranges = " ".join("%d-%d:%d" % found for found in lines(code) if found[0] < found[1])
    print(sys.version_info[1], code.co_firstlineno, len(code.co_code), table.hex(), ranges, sep=";")


modules = [argparse, dis, json, textwrap] if sys.argv[1:] == ["all"] else []
sources = [EXAMPLE] + [open(module.__file__).read() for module in modules]
for source in sources:
    for code in codes(compile(source, "example.py", "exec")):
        dump(code)
