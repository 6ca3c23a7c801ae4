"""Results that are kept: benches/results/NAME.txt for people, NAME.json.gz with all figures."""

import datetime
import gzip
import json
import os
import re
import subprocess

from measure import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "benches", "results")


def commit():
    """The commit that is measured, `+` if files differ from it."""
    try:
        git = ["git", "-C", ROOT]
        name = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        return f"commit {name}{'+' if dirty else ''}"
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"


def utc_now():
    """The time as it stands in names of results."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H%M%SZ")


# Folders of the machine that measured. Those of the system stay: they name programs.
FOLDERS = re.compile(
    r"(?<![\w.])/(?!(?:usr|lib\w*|s?bin|etc|proc|sys|dev)/)(?:[\w.+@-]+/)+(?=[\w.+@-])"
)


def without_folders(text):
    """A text whose paths have no folders of the machine."""
    return FOLDERS.sub("", text)


def write_result(name, lines, figures):
    """Writes the text of a result, and its figures if it has any. Returns the text's path in the repository."""
    os.makedirs(RESULTS, exist_ok=True)
    base = os.path.join(RESULTS, name)
    with open(base + ".txt", "w", encoding="utf-8") as f:
        f.write(without_folders("\n".join(lines)) + "\n")
    # No time stamp, so that equal figures give equal bytes.
    if figures:
        with open(base + ".json.gz", "wb") as f:
            content = json.dumps(figures, ensure_ascii=False, separators=(",", ":"))
            f.write(gzip.compress(without_folders(content).encode(), mtime=0))
    text = os.path.relpath(base + ".txt", ROOT)
    print(f"kept in {text}")
    return text


def read_figures(name):
    """The figures of benches/results/NAME.json.gz."""
    with gzip.open(os.path.join(RESULTS, name + ".json.gz"), "rt", encoding="utf-8") as f:
        return json.load(f)


def keep(kind, command, lines, figures):
    """Keeps a result of today, with the command, commit and machine. Returns the text's path."""
    about = machine()
    now = utc_now()
    virtual = ", virtual" if about["virtual"] else ""
    head = f"{command}, {now}, {commit()}; {about['cpu']}, {about['cores']} cores{virtual}"
    kept = {"command": command, "commit": commit(), "machine": about, "figures": figures}
    return write_result(f"{kind}-{now}", [head, "", *lines], kept)
