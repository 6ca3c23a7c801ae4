"""Rules of the prediction of misses that `benches/run ablate` switches off, one at a time.

A rule is switched off in the copy of the sources that benches/model_constants.py makes:

    MGZ_SENSITIVITY="rule crowded sets" mgz-analyze TRACE

Most rules have a constant whose extreme value disables them. The others have replacements of source
text, in which `OFF` stands for the question whether the rule is off.
"""

import hashlib
import os
import re
from collections import namedtuple

MISSES = "analyzer/src/misses/"
STAGES = "analyzer/src/stages/"

# `constants` maps names to the Rust text of the value that disables the rule. `patches` are
# (path, old text, new text). `code` lists the files of the rule, or functions as "path:name", which
# only this rule needs.
Rule = namedtuple("Rule", "name code constants patches", defaults=((), {}, ()))


def rule(name, code, constants=None, patches=()):
    paths = tuple(c if c.startswith("analyzer/") else MISSES + c for c in code)
    fitting = tuple((MISSES + path, old, new) for path, old, new in patches)
    return Rule(name, paths, constants or {}, fitting)


RULES = [
    # Reuse distances inside samples.
    rule(
        "reuse by time beyond the reach",
        ["reuse_distance.rs:left_alone"],
        patches=[
            (
                "reuse_distance.rs",
                "let (beyond, meanwhile) = left_alone(parts);",
                "if OFF { return near; }\n        let (beyond, meanwhile) = left_alone(parts);",
            )
        ],
    ),
    # Survival by coincidences of samples.
    rule("phases", ["survival_curve.rs:radius"], {"MIN_COINCIDENCES_FOR_RADIUS": "f64::INFINITY"}),
    rule(
        "lines used unevenly beyond all samples",
        [],
        patches=[
            (
                "survival_curve.rs",
                "let spread = if rate > 0.0 {",
                "let spread = if rate > 0.0 && !OFF {",
            )
        ],
    ),
    rule(
        "lines used unevenly in loops",
        [],
        patches=[
            (
                "survival_curve.rs",
                "fn shape(&self) -> f64 {\n",
                "fn shape(&self) -> f64 {\n        if OFF { return 1.0 / params::MIN_RATE_SPREAD_OF_LOOPS; }\n",
            )
        ],
    ),
    rule(
        "loops that return after equal times",
        ["from_samples.rs:part_at_random", "survival_curve.rs:in_loops"],
        patches=[
            (
                "from_samples.rs",
                "fn part_at_random(&self, table: &VisitTable<'_>, cell: usize) -> [f64; 3] {\n",
                "fn part_at_random(&self, table: &VisitTable<'_>, cell: usize) -> [f64; 3] {\n"
                "        if OFF { return [1.0; 3]; }\n",
            )
        ],
    ),
    rule(
        "doubt about the share of loops",
        ["survival_bounds.rs:either_way"],
        patches=[
            (
                "from_samples.rs",
                "[least, value, most.max(last[2])]",
                "if OFF { return [value; 3]; }\n        [least, value, most.max(last[2])]",
            )
        ],
    ),
    rule(
        "doubt from the latest reuses",
        [],
        patches=[
            (
                "from_samples.rs",
                "let last = from(params::LATEST_REUSES_REACH_SHARE);",
                "let last = if OFF { [least, value, most] } else { from(params::LATEST_REUSES_REACH_SHARE) };",
            )
        ],
    ),
    rule(
        "returns of lines used in episodes",
        ["line_returns.rs"],
        patches=[
            (
                "line_returns.rs",
                "let floor = each.any.clamp(0.0, 1.0);",
                "if OFF { return [1.0; 3]; }\n        let floor = each.any.clamp(0.0, 1.0);",
            )
        ],
    ),
    rule(
        "nests of loops between samples",
        ["survival_bounds.rs:swept_in_parts"],
        patches=[
            (
                "survival_bounds.rs",
                "if !strided || self.samples.fits[cell].evidence",
                "if OFF || !strided || self.samples.fits[cell].evidence",
            )
        ],
    ),
    rule(
        "bursts that are longer than a sample",
        ["from_samples.rs:find_bursts", "survival_bounds.rs:bursts_of"],
        {"VISIT_SHARE_OF_CERTAIN_BURSTS": "0.0"},
    ),
    # Laps of walks.
    rule(
        "laps of walks",
        ["walk_laps.rs", STAGES + "walks.rs"],
        {"MIN_LAP_OVER_REACH": "f64::INFINITY"},
    ),
    rule(
        "visits are rarer by their laps",
        [],
        patches=[
            (
                "survival_bounds.rs",
                "let rarer = (1.0 - again) * wait.returns;",
                "let rarer = if OFF { 1.0 } else { 1.0 - again } * wait.returns;",
            )
        ],
    ),
    # Sets.
    rule("crowded sets", ["crowded_sets.rs"], {"MIN_VISITS_OF_CROWDED_SET": "u32::MAX"}),
    rule(
        "first level from its sets",
        ["set_conflicts.rs:first_level"],
        patches=[
            (
                "cell_misses.rs",
                "if let Some(0) = levels.first() {",
                "if !OFF && levels.first() == Some(&0) {",
            )
        ],
    ),
    rule(
        "set conflicts inside samples",
        ["set_conflicts.rs:conflicts", "set_conflicts.rs:full"],
        patches=[
            (
                "cell_misses.rs",
                "self.conflicts(levels, without, &mut all);",
                "if !OFF { self.conflicts(levels, without, &mut all); }",
            ),
            (
                "cell_misses.rs",
                "level.map_or(0.0, |&l| set_conflicts::full(&near, l));",
                "level.filter(|_| !OFF).map_or(0.0, |&l| set_conflicts::full(&near, l));",
            ),
        ],
    ),
    # Filling of caches.
    rule("fill uncertainty", [], {"FILL_UNCERTAINTY_FACTOR": "1.0"}),
    rule(
        "latest time until caches are full",
        ["survival_bounds.rs:least_curves"],
        patches=[
            (
                "survival_bounds.rs",
                "(is_whole && (has_units || has_bursts))",
                "(is_whole && (has_units || has_bursts) && !OFF)",
            )
        ],
    ),
    rule(
        "soonest time until caches are full",
        ["survival_bounds.rs:most_curves", "survival_bounds.rs:seldom"],
        patches=[
            (
                "survival_bounds.rs",
                "(is_whole && is_seldom)",
                "(is_whole && is_seldom && !OFF)",
            )
        ],
    ),
    # Weights and speed of windows.
    rule("pace bias of weights", ["pace_bias.rs"], {"MAX_TIME_OF_NEW_LINES": "1.0"}),
    rule(
        "errors of weights by function",
        ["load_weights.rs:spread"],
        {"UNKNOWN_PACE_LOG_ERROR": "0.0"},
    ),
    rule(
        "weights by the pace of code",
        [],
        patches=[
            (
                "load_weights.rs",
                "        if weights.counted().is_some() {\n            return (weights.of_loads",
                "        if OFF { return (weights.of(sample) as f64, 0.0); }\n"
                "        if weights.counted().is_some() {\n            return (weights.of_loads",
            )
        ],
    ),
    # Watched reuses.
    rule(
        "watched reuses",
        ["watched_reuses.rs", "watch_survival.rs"],
        {"MIN_WATCHES_FOR_ESTIMATE": "f64::INFINITY"},
    ),
    rule(
        "watches of walks",
        ["watched_reuses.rs:floors", "watched_reuses.rs:floor_of"],
        {"MIN_RETURN_SHARE_OF_TO_AND_FRO": "-1.0"},
    ),
    rule(
        "pace measured by watches",
        ["watched_reuses.rs:speed_corrections"],
        {"MIN_EARLY_WATCHES_FOR_PACE": "usize::MAX"},
    ),
    rule("lines over words", [], {"MIN_REUSES_FOR_LINE_OVER_WORD": "f64::INFINITY"}),
    rule(
        "only watches that contradict the model",
        [],
        {"MIN_ERRORS_TO_CONTRADICT": "-1e9", "ERRORS_TO_COUNT_FULLY": "-1e8"},
    ),
    # Intervals.
    rule(
        "doubts about the model",
        ["fill_time.rs:doubt_of"],
        {"MODEL_DOUBT_PER_VARIANCE": "0.0", "MODEL_DOUBT_PER_SHARE": "0.0"},
    ),
    rule("error of crowded sets", [], {"CROWDED_SETS_ERROR": "0.0"}),
    rule("least width of intervals", [], {"MIN_HALF_INTERVAL_OF_MISSES": "0.0"}),
]


def values_of(constant, rules=RULES):
    """By name of a rule: the value of a constant that disables the rule."""
    return {r.name: r.constants[constant] for r in rules if constant in r.constants}


def patched(sources, rules=RULES):
    """The sources with the replacements of all rules. ValueError if one no longer fits."""
    texts = dict(sources)
    for r in rules:
        for path, old, new in r.patches:
            if texts.get(path, "").count(old) != 1:
                raise ValueError(f"the rule “{r.name}” does not fit {path} any more: {old}")
            switch = f'crate::misses::params::is_off("{r.name}")'
            texts[path] = texts[path].replace(old, re.sub(r"\bOFF\b", switch, new))
    return texts


def version(r):
    """A digest of the way in which a rule is switched off."""
    return hashlib.sha256(repr((r.constants, r.patches)).encode()).hexdigest()[:8]


def lines_of(text, function=None):
    """The number of lines of a file without its tests, or of one of its functions."""
    lines = text.split("\n#[cfg(test)]\n")[0].rstrip("\n").split("\n")
    if function is None:
        return len(lines)
    at = next(i for i, line in enumerate(lines) if re.match(rf"\s*(pub\S* )?fn {function}\b", line))
    indent = re.match(r"\s*", lines[at]).group(0)
    end = next(i for i, line in enumerate(lines[at:], at) if line == indent + "}")
    begin = at
    while begin and re.match(r"\s*(///|#\[)", lines[begin - 1]):
        begin -= 1
    return end - begin + 1


def code_lines(r, root):
    """The number of lines of code that only this rule needs, as far as `code` tells."""
    count = 0
    for place in r.code:
        path, _, function = place.partition(":")
        with open(os.path.join(root, path), encoding="utf-8") as f:
            count += lines_of(f.read(), function or None)
    return count
