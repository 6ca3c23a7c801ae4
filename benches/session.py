"""What the benchmark scripts share: their options, the table that they print, targets, where results are kept."""

import datetime
import json
import os
import shutil
import subprocess
import tempfile

from kept import commit, write_result
from measure import Failed, machine, run
from mgza import program_to_nops

BENCHES = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCHES)
MISSING = "not measured"


def number(x, digits=2):
    """A figure of the table."""
    return MISSING if x is None else f"{x:.{digits}f}"


def verdict(value, target, smaller_is_better=True):
    """Whether a figure meets its target."""
    if value is None:
        return MISSING
    return "pass" if (value <= target if smaller_is_better else value >= target) else "MISS"


def add_options(parser, quick):
    """The options that all benchmark scripts have; `quick` says what --quick does."""
    a_list = lambda text: [x for x in text.split(",") if x]
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", type=a_list, help="sections, separated by commas")
    parser.add_argument("--kernels", type=a_list, help="kernels, separated by commas")
    parser.add_argument("--turns", type=int, help="turns per comparison (5; quick: 2)")
    parser.add_argument(
        "--bin", help="folder with the three programs (built with cargo where not given)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the results of a quick or partial run as well"
    )


def find_tools(options):
    """Makes `options.bin` the folder of the programs, which are built if no folder was given."""
    if not options.bin:
        subprocess.run(
            [
                "cargo",
                "build",
                "--release",
                "--quiet",
                "-p",
                "mgz-instrument",
                "-p",
                "mgz-record",
                "-p",
                "mgz-analyze",
            ],
            cwd=ROOT,
            check=True,
        )
        options.bin = os.path.join(
            os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), "release"
        )
    options.bin = os.path.abspath(options.bin)


class Session:
    """One run of a benchmark script: works in a scratch folder, collects figures and lines of the table."""

    def __init__(self, options, scratch, title, name):
        self.options, self.scratch, self.title = options, scratch, title
        self.turns = options.turns or (2 if options.quick else 5)
        self.lines, self.errors = [], []
        self.results = {
            "format": name,
            "version": 1,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": commit(),
            "quick": options.quick,
            "turns": self.turns,
            "machine": machine(),
            "targets": {},
        }

    # The table.

    def say(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def fail(self, what, error):
        """Something could not be measured; the script's exit status will say so too."""
        self.errors.append(f"{what}: {error}")
        self.say(f"  {what}: could not be measured: {error}")

    def target(self, name, value, target, unit, smaller_is_better=True, note=""):
        """Prints a figure beside its target and keeps it."""
        sign = "<=" if smaller_is_better else ">="
        result = verdict(value, target, smaller_is_better)
        self.say(
            f"  {name:<52} {number(value):>9} {unit:<9} target {sign} {target:<5g} {result}{'  ' + note if note else ''}"
        )
        self.results["targets"][name] = {
            "value": value,
            "target": target,
            "unit": unit,
            "smaller_is_better": smaller_is_better,
            "result": result,
        }

    def go(self, sections, prepare):
        """Prints the head, prepares, runs the sections (`[(name, function)]`), prints the sum."""
        m = self.results["machine"]
        self.say(
            f"{self.title}, {self.results['date']}, {self.results['commit']}{', quick' if self.options.quick else ''}"
        )
        self.say(
            f"{m['cpu']} ({m['family_model_stepping']}), {m['cores']} cores{', virtual' if m['virtual'] else ''}, {m['memory']}, Linux {m['kernel']}, "
            f"governor {m['governor']}, load {m['load_average_at_start']:.2f}, {m['gcc']}, {m['valgrind']}"
        )
        if m["load_average_at_start"] > 0.5:
            self.say("NOTE: the machine was not idle when this began; wall times are too high.")
        self.say(f"{self.turns} turns each; {min(self.turns, 3)} of full and conversion")
        try:
            prepare()
        except Failed as error:
            self.fail("preparation", error)
            return
        for name, section in sections:
            if not self.options.only or name in self.options.only:
                self.say()
                section()
        self.say()
        missed = [name for name, t in self.results["targets"].items() if t["result"] != "pass"]
        self.say(
            f"targets: {len(self.results['targets']) - len(missed)} of {len(self.results['targets'])} met"
            + (f"; not: {'; '.join(missed)}" if missed else "")
        )
        self.results["errors"] = self.errors

    def keep(self, prefix=""):
        """Writes table and figures to benches/results."""
        # Scratch and source paths say nothing about the figures.
        clean = lambda text: text.replace(self.scratch, "SCRATCH").replace(ROOT, ".")
        figures = json.loads(clean(json.dumps(self.results)))
        name = prefix + self.results["date"].replace(":", "")
        write_result(name, clean("\n".join(self.lines)).split("\n"), figures)

    # The programs of mgz.

    def tool(self, name):
        path = os.path.join(self.options.bin, name)
        if not os.access(path, os.X_OK):
            raise Failed(f"{name} is not built (no {os.path.relpath(path, ROOT)})")
        return path

    def path(self, name):
        return os.path.join(self.scratch, name)

    def instrument(self, binary, flavour, output, libs=None):
        """Instruments and returns the JSON report and the run."""
        annotations = output + ".mgza"
        for old in (output, annotations):
            if os.path.exists(old):
                os.remove(old)
        shutil.rmtree(output + ".libs", ignore_errors=True)
        command = [
            self.tool("mgz-instrument"),
            "--backend",
            flavour,
            "--for",
            "ring",
            "--format",
            "json",
            "-o",
            output,
            "--annotations",
            annotations,
        ]
        result = run(command + ([f"--libs={libs}"] if libs else []) + [binary])
        return json.loads(result.out), result

    def soft(self, subject):
        """The soft-flavoured copy of a subject, with its main library."""
        output = self.path(subject.name + ".soft")
        if not os.path.exists(output):
            self.instrument(subject.path, "soft", output, subject.libs)
        return output

    def pt(self, subject, legal):
        """The copy of the PT flavour, with no-operations for `ptwrite`s where they are not `legal`; and how many there are (libraries not counted)."""
        output = self.path(subject.name + ".pt")
        report, _ = self.instrument(subject.path, "pt", output, subject.libs)
        count = report["records"] if legal else program_to_nops(output)
        return output, count

    def record(self, subject, size, *options):
        """Records a subject into the scratch trace and returns (run, manifest)."""
        trace = self.path("trace")
        command = [
            self.tool("mgz-record"),
            "-o",
            trace,
            "--force",
            *options,
            "--",
            self.soft(subject),
            *subject.arguments(size),
        ]
        result = subject.checked(size, run(command))
        with open(os.path.join(trace, "manifest.json")) as f:
            return result, json.load(f)


def scratch_folder(prefix):
    """A temporary folder on a disk (TMPDIR, else /var/tmp): traces are large."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("TMPDIR", "/var/tmp"))
