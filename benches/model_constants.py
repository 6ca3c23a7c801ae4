"""Constants of the models: reads the params.rs files, and writes a source tree in which an environment
variable halves or doubles one of them, or switches off a rule (benches/model_rules.py):

    MGZ_SENSITIVITY="MAX_ROWS_READ halved" mgz-analyze TRACE
    MGZ_SENSITIVITY="rule crowded sets" mgz-analyze TRACE

In that tree a function replaces each constant, so that one build serves all constants and rules.
"""

import ast
import collections
import math
import operator
import re

from model_rules import patched, values_of

FILES = {name: f"analyzer/src/{name}/params.rs" for name in ("misses", "estimate", "findings")}
SWITCH = "MGZ_SENSITIVITY"
FACTORS = {"halved": 0.5, "doubled": 2.0}

# `elements` has a number for each element, and text for an element that is kept (`usize::MAX`).
# `shape` is "number", "array", or the operator of a range; None if `why` says that it is skipped.
Constant = collections.namedtuple(
    "Constant", "file name visibility type value doc source shape elements why"
)

DECLARATION = re.compile(
    r"((?:^///[^\n]*\n)*)^(pub(?:\([^)]*\))?) const (\w+): ([^=]+?)\s*=\s*(.*?);$",
    re.MULTILINE | re.DOTALL,
)
SCALAR = r"(?:f32|f64|[iu](?:8|16|32|64|128|size))"
# The uses of a constant. The length of an array stays a constant, since types need it.
USE = re.compile(r"\bparams::([A-Z][A-Z0-9_]*)\b(?!\.len\(\))")
# Lengths of arrays and values of other constants cannot be switched.
LENGTH = re.compile(r";\s*params::([A-Z][A-Z0-9_]*)\s*\]")
ITEM = re.compile(
    r"^[ \t]*(?:pub(?:\([^)]*\))? )?(?:const|static) \w+: .*?;$", re.MULTILINE | re.DOTALL
)
WORD = re.compile(r"\b[A-Z][A-Z0-9_]*\b")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.LShift: operator.lshift,
}
# Values of other constants, which a function can compute.
FOLLOWS = "follows from other constants"
NAMED = {"LN_2": math.log(2), "LN_10": math.log(10), "PI": math.pi, "E": math.e}


def evaluate(text):
    """The value of an expression of numbers. ValueError if it has anything else."""
    text = re.sub(r"\bstd::f64::consts::(\w+)", r"\1", text)
    text = re.sub(r"(?<=\d)_(?=\d)", "", text)
    text = re.sub(rf"(?<=[\d.])_?{SCALAR}\b", "", text)
    text = re.sub(rf"\bas {SCALAR}\b", "", text)

    def value(node):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.Name) and node.id in NAMED:
            return NAMED[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(text)

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(text) from error


def scalar(type):
    """The type of the elements, None if they are no plain numbers."""
    found = re.fullmatch(
        rf"({SCALAR})|\[({SCALAR}); \w+\]|(?:std::ops::)?Range(?:Inclusive)?<({SCALAR})>", type
    )
    return next(filter(None, found.groups())) if found else None


def elements(type, value):
    """The shape of a value and its elements. ValueError if they are not known."""
    if not scalar(type):
        raise ValueError(f"is no number ({type})")
    if type.startswith("["):
        shape, parts = "array", [p for p in value.strip("[] \n").split(",") if p.strip()]
    elif "Range" in type:
        shape = "..=" if "..=" in value else ".."
        parts = value.split(shape)
    else:
        shape, parts = "number", [value]
    found = []
    for part in parts:
        if re.fullmatch(rf"\s*{SCALAR}::MAX\s*", part):
            found.append(part.strip())
            continue
        try:
            found.append(evaluate(part))
        except ValueError as error:
            raise ValueError(FOLLOWS) from error
    return shape, found


def parse(file, text):
    """The constants of a params.rs file, in its order."""
    constants = []
    for doc, visibility, name, type, value in DECLARATION.findall(text):
        doc = " ".join(line.strip("/ ") for line in doc.splitlines())
        source = re.search(r"Source: (.*)", doc)
        shape, numbers, why = None, [], None
        try:
            shape, numbers = elements(type, value)
        except ValueError as error:
            why = str(error)
        source = source.group(1) if source else ""
        constants.append(
            Constant(file, name, visibility, type, value, doc, source, shape, numbers, why)
        )
    return constants


def all_constants(sources):
    """The constants of all files. `sources` are the Rust files of the analyzer, {path: text}."""
    fixed = {}
    for path, text in sources.items():
        if path not in FILES.values():
            for item in ITEM.findall(text):
                # A closure of a constant may call functions.
                value = item.split("|")[0]
                fixed.update((name, "is part of another constant") for name in USE.findall(value))
            fixed.update((name, "is the length of an array") for name in LENGTH.findall(text))
    found = [c for name, path in FILES.items() for c in parse(name, sources[path])]
    return [c._replace(shape=None, why=fixed[c.name]) if c.name in fixed else c for c in found]


def limit(constant):
    """The end of the scale of a share (1) or percentage (100), None for other quantities."""
    numbers = [x for x in constant.elements if not isinstance(x, str)]
    share = re.search(r"SHARE|QUANTILE", constant.name) or "this share" in constant.doc
    if share and all(0 < x <= 1 for x in numbers) and scalar(constant.type) in ("f32", "f64"):
        return 1
    if re.search(r"(?<!_95)_PCT$", constant.name) and all(0 < x <= 100 for x in numbers):
        return 100
    return None


def scaled(x, factor, whole, most):
    """A number times a factor. A whole number is rounded and at least 1. A number that would reach
    the end of its scale goes half the way there instead."""
    value = x * factor
    if most is not None and value >= most:
        value = (x + most) / 2
    return max(1, math.floor(value + 0.5)) if whole else value


def variants(constant):
    """{"halved": text, "doubled": text} of the values; a factor that changes nothing is left out."""
    if constant.shape is None:
        return {}
    whole, most = not scalar(constant.type).startswith("f"), limit(constant)
    found = {}
    for factor, times in FACTORS.items():
        numbers = [
            x if isinstance(x, str) else scaled(x, times, whole, most) for x in constant.elements
        ]
        if numbers == constant.elements:
            continue
        texts = [x if isinstance(x, str) else repr(x if whole else float(x)) for x in numbers]
        if constant.shape == "array":
            found[factor] = f"[{', '.join(texts)}]"
        else:
            found[factor] = texts[0] if constant.shape == "number" else constant.shape.join(texts)
    return found


def function(name):
    """The function that replaces a constant."""
    return name.lower()


SUPPORT = f"""
static SWITCH: std::sync::LazyLock<(String, String)> = std::sync::LazyLock::new(|| {{
    let text = std::env::var("{SWITCH}").unwrap_or_default();
    let (name, factor) = text.split_once(' ').unwrap_or_default();
    (name.to_owned(), factor.to_owned())
}});

fn factor_of(name: &str) -> &'static str {{
    if SWITCH.0 == name || SWITCH.0 == "rule" {{ &SWITCH.1 }} else {{ "" }}
}}

pub(crate) fn is_off(rule: &str) -> bool {{
    SWITCH.0 == "rule" && SWITCH.1 == rule
}}
"""


def replaced(constant):
    """Whether a function replaces this constant."""
    follows = constant.why == FOLLOWS and WORD.search(constant.value) is not None
    return constant.shape is not None or follows


def switched_params(text, constants):
    """A params.rs file with a function for each of its constants. `constants` has those of all files."""
    names = {c.name for c in constants if replaced(c)}

    def also_function(use):
        path, name = use.groups()
        return f"{path}{{{name}, {function(name)}}};" if name in names else use.group(0)

    uses = re.sub(r"(\bparams::)([A-Z][A-Z0-9_]*);", also_function, text)
    parts = ["#![allow(dead_code, unused_imports)]\n", uses, SUPPORT]
    for c in constants:
        if c.name not in names or not re.search(rf"\bconst {c.name}:", text):
            continue
        default = c.name
        if c.shape is None:
            default = WORD.sub(
                lambda m: function(m.group(0)) + "()" if m.group(0) in names else m.group(0),
                c.value,
            )
        values = {**variants(c), **values_of(c.name)}
        arms = "".join(f'        "{f}" => {v},\n' for f, v in values.items())
        parts.append(
            f"\n{c.visibility} fn {function(c.name)}() -> {c.type} {{\n"
            f'    match factor_of("{c.name}") {{\n{arms}        _ => {default},\n    }}\n}}\n'
        )
    return "".join(parts)


def switched(text, names):
    """A source file that calls the functions of the constants of these names."""

    def call(use):
        name = use.group(1)
        return f"params::{function(name)}()" if name in names else use.group(0)

    return "\n".join(
        line if re.match(r"\s*(//|(pub(\([^)]*\))? )?use )", line) else USE.sub(call, line)
        for line in text.split("\n")
    )


def switched_tree(sources, rules=()):
    """{path: text} of the files that differ in a tree in which constants and these rules can be
    switched."""
    constants = all_constants(sources)
    names = {c.name for c in constants if replaced(c)}
    found = {}
    for path, text in patched(sources, rules).items():
        new = switched_params(text, constants) if path in FILES.values() else switched(text, names)
        if new != sources[path]:
            found[path] = new
    return found
