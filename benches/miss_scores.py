"""Scores of predicted miss ratios: how often intervals hold the truth, and how sharp they are.

A value is one level of one program: `truth`, and `lo`, `hat`, `hi` of the prediction (None where it is not known),
all as parts of the loads. `top` tells whether the line with most misses is the right one, None where there are hardly any misses.
"""

import statistics

# Predictions are shown to a twentieth of a point, which is no failure of an interval.
ROUNDING = 5e-4
# Smaller ratios cost little, so that the width of their intervals is not judged as a factor.
LEAST = 0.01


def interval_score(lo, hi, truth, alpha=0.05):
    """Score of a central interval of level 1 - alpha (Gneiting and Raftery 2007, eq. 43): its width, and a penalty
    of 2/alpha for each unit by which the truth lies outside. Smaller is better; it is proper for the two quantiles."""
    return hi - lo + 2 / alpha * (max(0.0, lo - truth) + max(0.0, truth - hi))


def known(value):
    return all(value[k] is not None for k in ("lo", "hat", "hi"))


def holds(value):
    return value["lo"] - ROUNDING <= value["truth"] <= value["hi"] + ROUNDING


def scores(values):
    """Scores of one level, or of all. Unknown values count as the interval from 0 to 1 in width and interval score,
    so that silence is not the best prediction; they have no error and no part in coverage."""
    firm = [v for v in values if known(v)]
    ends = [(v["lo"], v["hi"]) if known(v) else (0.0, 1.0) for v in values]
    errors = [abs(v["hat"] - v["truth"]) for v in firm]
    large = [(lo, hi) for v, (lo, hi) in zip(values, ends) if v["truth"] >= LEAST]
    top = [v["top"] for v in values if v["top"] is not None]
    return {
        "values": len(values),
        "unknown": len(values) - len(firm),
        "held": sum(map(holds, firm)),
        "mean_error": statistics.fmean(errors) if errors else None,
        "median_error": statistics.median(errors) if errors else None,
        "median_width": statistics.median(hi - lo for lo, hi in ends) if ends else None,
        "wide": sum(hi > 2 * lo for lo, hi in large),
        "large": len(large),
        "score": statistics.fmean(
            interval_score(lo, hi, v["truth"]) for v, (lo, hi) in zip(values, ends)
        )
        if ends
        else None,
        "top_right": sum(top),
        "top": len(top),
    }


def points(part):
    return "     –" if part is None else f"{100 * part:6.2f}"


def table(levels):
    """Lines that show the scores of each level. `levels` maps names to values."""
    everything = [v for values in levels.values() for v in values]
    lines = [
        f"{'level':<6}{'hold':>10}{'':>7}{'unknown':>8}  mean and median error  median width"
        "  wider than factor 2  interval score  top line"
    ]
    for name, values in [*levels.items(), ("all", everything)]:
        s = scores(values)
        firm = s["values"] - s["unknown"]
        held = f"{s['held']}/{firm}"
        part = f"{100 * s['held'] / firm:.0f} %" if firm else "–"
        wide, top = f"{s['wide']}/{s['large']}", f"{s['top_right']}/{s['top']}"
        lines.append(
            f"{name:<6}{held:>10}{part:>7}{s['unknown']:>8}"
            f"  {points(s['mean_error']):>13} {points(s['median_error'])} "
            f"  {points(s['median_width']):>11} {wide:>20} {points(s['score']):>15} {top:>9}"
        )
    lines.append(
        f"errors, widths and scores in points; factor 2 of values of {100 * LEAST:g} % or more"
    )
    return lines
