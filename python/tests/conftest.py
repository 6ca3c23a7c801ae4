"""Traces of small programs, recorded by the commands that the wheel carries."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import mgz

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
enum { N = 40000, ROWS = 300, COLUMNS = 300 };
long *table;
double matrix[ROWS][COLUMNS];
__attribute__((noinline)) long gather(int rounds) {
  long sum = 0;
  unsigned x = 1;
  for (int i = 0; i < rounds; i++) {
    x = x * 1664525u + 1013904223u;
    sum += table[(x >> 8) % N];
  }
  return sum;
}
__attribute__((noinline)) double columns(int rounds) {
  double sum = 0;
  for (int r = 0; r < rounds; r++)
    for (int j = 0; j < COLUMNS; j++)
      for (int i = 0; i < ROWS; i++)
        sum += matrix[i][j];
  return sum;
}
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  table = malloc(N * sizeof *table);
  for (int i = 0; i < N; i++)
    table[i] = i;
  printf("%ld %g\n", gather(20000 * rounds), columns(rounds));
  return argc > 2 ? atoi(argv[2]) : 0;
}
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("mgz")


@pytest.fixture(scope="session")
def program(folder) -> pathlib.Path:
    """A program that gathers and reads columns, not instrumented."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    source, file = folder / "probe.c", folder / "probe"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-g", source, "-o", file], check=True)
    return file


def record(program, folder, name, *options, words=(), env=None) -> pathlib.Path:
    """A trace of the instrumented program."""
    instrumented = pathlib.Path(f"{program}.inst")
    if not instrumented.exists():
        mgz.command("mgz-instrument", program, "-o", instrumented)
    trace = folder / name
    line = [*options, "-o", trace, "--", instrumented, *words]
    mgz.command("mgz-record", *line, env={**os.environ, **(env or {})})
    return trace


@pytest.fixture(scope="session")
def full(program, folder) -> pathlib.Path:
    """Every load."""
    return record(program, folder, "full", "--mode", "full", "--heap")


@pytest.fixture(scope="session")
def sampled(program, folder) -> pathlib.Path:
    """Windows of loads."""
    options = ("--mode", "ring", "--period", "20000")
    return record(program, folder, "sampled", *options, words=["20"])


@pytest.fixture(scope="session")
def ranks(program, folder) -> list[pathlib.Path]:
    """Four ranks, of which the last has three times the work."""
    found = []
    for rank in range(4):
        env = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        }
        words = ["15" if rank == 3 else "5"]
        options = ("--mode", "ring", "--period", "20000")
        record(program, folder, "rank.%r", *options, words=words, env=env)
        found.append(folder / f"rank.{rank}")
    return found


@pytest.fixture
def eight(ranks, tmp_path) -> list[pathlib.Path]:
    """Eight ranks: copies of the four that differ in their manifests."""
    found = []
    for number in range(8):
        copy = tmp_path / f"trace.{number}"
        shutil.copytree(ranks[number % 4], copy)
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest.update(rank=number, world_size=8)
        (copy / "manifest.json").write_text(json.dumps(manifest))
        found.append(copy)
    return found
