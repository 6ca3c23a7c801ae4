"""Results that are kept as text: benches/results/KIND-DATE.txt, and the figures beside it as JSON."""

import datetime
import json
import os

from measure import machine
from session import commit

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def keep(kind, command, lines, figures):
    """Writes both files: what the script printed below a line with command, commit and machine; and the figures. The text's name."""
    about = machine()
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H%M%SZ")
    base = os.path.join(ROOT, "benches", "results", f"{kind}-{now}")
    head = f"{command}, {now}, {commit()}; {about['cpu']}, {about['cores']} cores{', virtual' if about['virtual'] else ''}"
    with open(base + ".txt", "w", encoding="utf-8") as f:
        f.write("\n".join([head, "", *lines]) + "\n")
    with open(base + ".json", "w", encoding="utf-8") as f:
        kept = {"command": command, "commit": commit(), "machine": about, "figures": figures}
        json.dump(kept, f, indent=1, ensure_ascii=False)
        f.write("\n")
    name = os.path.relpath(base + ".txt", ROOT)
    print(f"kept in {name}")
    return name
