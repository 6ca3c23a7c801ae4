"""Scores of predicted gains against measured ones, for benches/run gain.

A result has `program`, `mechanism`, `remedy`, `set`, `predicted` and `measured` ([low, value, high] in percent, or None),
`reason` without a prediction, and `cost` of the finding ([low, value, high] or None).
"""

TARGET_WITHIN = 0.8
TARGET_HELD = 0.9
# Points between a prediction and a measurement that agree.
CLOSE = 10.0
# Ends of intervals are printed in whole points.
ROUNDING = 0.5
# A gain is told from none above this.
LEAST_GAIN = 3.0


def is_known(result):
    return result["predicted"] is not None


def error(result):
    return result["predicted"][1] - result["measured"][1]


def holds(result):
    low, _, high = result["predicted"]
    return low - ROUNDING <= result["measured"][1] <= high + ROUNDING


def of_fix(entry):
    """A result of a line that `mgz fix` has kept."""

    def ends(saved):
        return saved and [saved["saved_pct_lo"], saved["saved_pct"], saved["saved_pct_hi"]]

    measured = ends(entry["measured"])
    predicted = ends(entry["predicted"])
    return {
        "program": entry["program"],
        "mechanism": entry["finding"]["kind"],
        "remedy": entry["remedy"],
        "like": "",
        "set": "fixes",
        "predicted": predicted,
        "reason": "" if predicted else "not predicted",
        "measured": measured,
        "cost": None,
    }


def interval(ends):
    low, value, high = ends
    return f"{value:5.0f} ({low:.0f}–{high:.0f})"


def head():
    return f"{'pair':<26}{'mechanism':<18}{'cost':>5}  {'predicted, %':<18}{'measured, %':<18}{'error':>6}"


def line(result):
    cost = f"{result['cost'][1]:5.0f}" if result["cost"] else "    –"
    measured = interval(result["measured"])
    begin = f"{result['program']:<26}{result['mechanism']:<18}{cost}  "
    if not is_known(result):
        return f"{begin}{'unknown':<18}{measured:<18}{'–':>6}  {result['reason']}"
    mark = "" if holds(result) else "  outside"
    return f"{begin}{interval(result['predicted']):<18}{measured:<18}{error(result):>6.0f}{mark}"


def score(results):
    """Numbers of predictions, of those within 10 points, and of intervals that hold; mean error and mean width."""
    known = [r for r in results if is_known(r)]
    count = len(known)
    if not count:
        return None
    return {
        "pairs": len(results),
        "predicted": count,
        "within": sum(abs(error(r)) <= CLOSE for r in known),
        "held": sum(holds(r) for r in known),
        "error": sum(abs(error(r)) for r in known) / count,
        "width": sum(r["predicted"][2] - r["predicted"][0] for r in known) / count,
    }


def agreement(pairs):
    """Share of the pairs of values (a, b) that are in the same order in both, ties left out; None if there are none."""
    same = all_of = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[i + 1 :]:
            if a != c and b != d:
                all_of += 1
                same += (a > c) == (b > d)
    return same / all_of if all_of else None


def summary(results):
    lines = []
    sets = sorted({r["set"] for r in results})
    for name in [*sets, "all"] if len(sets) > 1 else sets:
        found = score([r for r in results if name in ("all", r["set"])])
        if not found:
            continue
        n = found["predicted"]
        lines.append(
            f"{name}: {n} of {found['pairs']} predicted; {found['within']} of {n} ({100 * found['within'] / n:.0f} %) within {CLOSE:.0f} points (target {100 * TARGET_WITHIN:.0f} %), "
            f"{found['held']} of {n} intervals hold ({100 * found['held'] / n:.0f} %, target {100 * TARGET_HELD:.0f} %); mean error {found['error']:.1f} points, mean width {found['width']:.0f} points"
        )
    known = [r for r in results if is_known(r)]
    costs = [(r["cost"][1], r["measured"][1]) for r in results if r["cost"]]
    gains = [(r["predicted"][1], r["measured"][1]) for r in known]
    for what, pairs in (("costs of findings", costs), ("predicted gains", gains)):
        share = agreement(pairs)
        if share is not None:
            lines.append(
                f"{what}: {100 * share:.0f} % of {len(pairs)} programs, two by two, are in the order of their measured gains"
            )
    more = [r["program"] for r in known if r["cost"] and r["predicted"][1] > r["cost"][2] + 1]
    lines.append(f"gains above the cost's interval: {', '.join(more) or 'none'}")
    wrong = [
        r["program"]
        for r in known
        if r["predicted"][0] > LEAST_GAIN and r["measured"][1] < -LEAST_GAIN
    ]
    lines.append(f"gains predicted that were losses: {', '.join(wrong) or 'none'}")
    return lines


def are_met(results):
    found = score(results)
    return (
        found is not None
        and found["within"] >= TARGET_WITHIN * found["predicted"]
        and found["held"] >= TARGET_HELD * found["predicted"]
    )
