#!/usr/bin/env python3
"""Puts one `ptwrite` before each non-constant load of a compiler's assembly output.

This is the yardstick for the `pt` flavour: the cost that remains when the compiler itself places the
records, with no rewriting in between. Input is what `gcc -S` or `clang -S` writes for x86-64 (AT&T syntax).

What is a load: every explicit memory source, read-modify-write and compare included, `call`/`jmp`/`push`
through memory, `movs`/`lods`. Not: `lea`, stores, prefetches, `pop`, `ret`. Constant loads get no record:
scalars in the frame (base %rsp, or %rbp where it is the frame pointer, no index), RIP-relative and
absolute ones, and those off %fs.

Payload, always without a spill:

* base only: the base register;
* index only: the index register;
* base + index, the load overwrites a whole general register: `lea` into it, one `ptwrite`; the load keeps
  its own operand unless the destination is part of it;
* base + index otherwise: two `ptwrite`s, base and index (form `correct`), or the base alone (form `one`,
  a lower bound: such a record does not give the address back).

An instruction that touches memory and is in no list is an error, so that none is skipped silently.
With `nop=True` each `ptwrite` becomes a NOP of its length, for CPUs that do not execute `ptwrite`.
"""

import re
import sys

PREFIXES = {"lock", "rep", "repz", "repe", "repnz", "repne", "notrack", "bnd", "data16"}
NO_ACCESS = re.compile(r"lea[lqw]?$|nop[lw]?$|prefetch|clflush|endbr64$")
# With memory as the last of several operands these only write it.
STORES_LAST = re.compile(
    r"mov(abs)?[bwlq]?$|movbe|v?mov(aps|apd|ups|upd|ss|sd|d|q|lps|hps|lpd|hpd|nt\w+|nti|dqa(32|64)?|dqu(8|16|32|64)?)$"
    r"|v?pextr[bwdq]$|v?extract\w+$|vpmov[us]*[wdq][bwd]$|vcvtps2ph$|kmov[bwdq]$|vmaskmov\w+$|vpmaskmov\w+$|vpcompress[dq]$|vcompressp[sd]$"
)
# One-operand instructions that only write.
STORES_ONE = re.compile(
    r"set\w+$|v?stmxcsr$|fst\w*$|fist\w*$|fnst\w+$|fnsave$|fxsave\w*$|xsave\w*$|pop[wq]?$|rdrand|rdseed"
)
INTEGER = re.compile(
    r"(add|sub|and|or|xor|adc|sbb|cmp|test|imul|mul|div|idiv|neg|not|inc|dec|sh[lr]d?|sa[lr]|ro[lr]|rc[lr]|xadd|xchg|cmpxchg(8b|16b)?"
    r"|bt[scr]?|bs[fr]|[lt]zcnt|popcnt|andn|bextr|bls(r|i|msk)|bzhi|pdep|pext|rorx|s[ah][lr]x|mulx|adcx|adox|crc32)[bwlq]?$"
    r"|cmov\w+$|mov[sz](b[wlq]|w[lq]|lq)$|mov(abs)?[bwlq]?$|movbe[wlq]?$|push[wq]?$|call[q]?$|jmp[q]?$"
)
VECTOR = re.compile(
    r"v?(add|sub|mul|div|min|max|sqrt|and|andn|or|xor|cmp\w*|unpck[lh]|shuf|ucomi|comi|round|blendv?|hadd|hsub|addsub|rcp(14)?|rsqrt(14)?|dp)(p|s)[sd]$"
    r"|v?mov(aps|apd|ups|upd|ss|sd|d|q|lps|hps|lpd|hpd|ntdqa|dqa(32|64)?|dqu(8|16|32|64)?|ddup|s[lh]dup)$|v?lddqu$|v?cvt\w+$|v?p[a-z]+\d*[a-z\d]*$"
    r"|vbroadcast\w+$|v?insert\w+$|vf(n?m(add|sub)|maddsub|msubadd)\d+[ps][sd]$|vperm\w+$|vmaskmov\w+$|vtestp[sd]$|v?aes\w+$|kmov[bwdq]$|vpternlog[dq]$"
    r"|v?ldmxcsr$|vexpandp[sd]$|vinsert\w+$"
)
X87 = re.compile(
    r"f(ld\w*|ild\w*|add[sl]?|iadd\w*|subr?[sl]?|isub\w*|mul[sl]?|imul\w*|divr?[sl]?|idiv\w*|comp?[sl]?|icom\w*|rstor|bld)$"
)
STRING = re.compile(r"(movs|lods|stos|cmps|scas)[bwlq]$")
MEMORY = re.compile(
    r"^(?P<seg>%[fg]s:)?(?P<disp>[^(]*)\((?P<base>%\w+)?\s*(?:,\s*(?P<index>%\w+)\s*(?:,\s*(?P<scale>[1248])\s*)?)?\)$"
)

_LEGACY = {
    "ax": "a",
    "bx": "b",
    "cx": "c",
    "dx": "d",
    "si": "si",
    "di": "di",
    "bp": "bp",
    "sp": "sp",
}


class Unknown(ValueError):
    """An instruction that accesses memory in a way that is in no list."""


def whole_register(name):
    """The 64-bit name of a 32- or 64-bit general register; None for others (a narrower write keeps old bits)."""
    n = name.lstrip("%")
    if re.fullmatch(r"r(8|9|1[0-5])d?", n):
        return "%" + n.rstrip("d")
    if n[:1] in "re" and n[1:] in _LEGACY:
        return "%r" + n[1:]
    return None


def split_operands(text):
    """Operands of an AT&T operand list; commas inside parentheses belong to the operand."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    tail = text[start:].strip()
    return parts + [tail] if tail else parts


def is_memory(operand):
    """Whether the operand, without a leading `*`, is in memory."""
    return (
        bool(operand)
        and operand[0] not in "%$"
        and not operand.startswith("{")
        or operand.startswith(("%fs:", "%gs:"))
    )


class Rewriter:
    """Rewrites one assembly file, line by line; counts what it did."""

    def __init__(self, form="correct", nop=False):
        assert form in ("correct", "one")
        self.form, self.nop = form, nop
        self.frame_pointer = False
        self.loads = self.constant = self.ptwrites = 0

    def ptwrite(self, register):
        self.ptwrites += 1
        # F3 REX.W 0F AE /4 with a register operand takes five bytes, for every register.
        return "\t.byte 0x0f,0x1f,0x44,0x00,0x00" if self.nop else f"\tptwrite\t{register}"

    def probe(self, mnemonic, operands, where):
        """Lines to put before the instruction, and its own operand `where` (changed if need be)."""
        m = MEMORY.match(operands[where].lstrip("*"))
        if m is None or m["base"] == "%rip":
            self.constant += 1
            return [], None
        base, index = m["base"], m["index"]
        if m["seg"]:
            if base or index:
                raise Unknown(f"segment base with registers: {operands[where]}")
            self.constant += 1
            return [], None
        if not base and not index:
            self.constant += 1
            return [], None
        if index is None and (base == "%rsp" or (base == "%rbp" and self.frame_pointer)):
            self.constant += 1
            return [], None
        for r in (base, index):
            if r and (whole_register(r) != r):
                raise Unknown(f"address of 32 bits or a vector: {operands[where]}")
        self.loads += 1
        if index is None or base is None:
            return [self.ptwrite(base or index)], None
        moves = re.match(r"mov[bwlq]?$|mov[sz](b[lq]|w[lq]|lq)$", mnemonic)
        target = whole_register(operands[-1]) if moves and len(operands) == 2 else None
        if target and target != "%rsp":
            lines = [f"\tleaq\t{operands[where]}, {target}", self.ptwrite(target)]
            return lines, f"({target})" if target in (base, index) else None
        if self.form == "one":
            return [self.ptwrite(base)], None
        return [self.ptwrite(base), self.ptwrite(index)], None

    def line(self, line):
        """The lines that replace this one."""
        text = line.split("#", 1)[0].rstrip()
        if re.match(r"^[A-Za-z_][\w.$]*:", text):
            self.frame_pointer = False
        body = text.strip()
        if not body or body.startswith(".") or body.endswith(":") or not text[:1].isspace():
            return [line]
        words = re.split(r"[\s;]+", body)
        prefixes = []
        while words and words[0] in PREFIXES:
            prefixes.append(words.pop(0))
        if not words:
            return [line]
        mnemonic = words[0]
        rest = body[
            body.index(mnemonic, sum(len(p) + 1 for p in prefixes)) + len(mnemonic) :
        ].strip()
        operands = split_operands(rest)
        if mnemonic in ("movq", "mov") and operands == ["%rsp", "%rbp"]:
            self.frame_pointer = True
        if STRING.match(mnemonic) and not (mnemonic == "movsd" and operands):
            if mnemonic.startswith("stos"):
                return [line]
            if not mnemonic.startswith(("movs", "lods")):
                raise Unknown(body)
            self.loads += 1
            probes = [self.ptwrite("%rsi")] + ([self.ptwrite("%rcx")] if prefixes else [])
            return probes + [line]
        jumps = mnemonic.startswith(("j", "call"))
        if jumps and not rest.startswith("*"):
            return [line]
        memory = [i for i, o in enumerate(operands) if is_memory(o.lstrip("*"))]
        if not memory or NO_ACCESS.match(mnemonic):
            return [line]
        at = memory[0]
        last = at == len(operands) - 1
        if len(operands) == 1 and STORES_ONE.match(mnemonic):
            return [line]
        if last and len(operands) > 1 and STORES_LAST.match(mnemonic):
            return [line]
        if (
            not (INTEGER.match(mnemonic) or VECTOR.match(mnemonic) or X87.match(mnemonic))
            or "gather" in mnemonic
            or len(memory) > 1
        ):
            raise Unknown(body)
        probes, operand = self.probe(mnemonic, operands, at)
        if operand is None:
            return probes + [line]
        operands[at] = operand
        return probes + ["\t" + " ".join(prefixes + [mnemonic]) + "\t" + ", ".join(operands)]

    def rewrite(self, assembly):
        """The whole file."""
        out = []
        for number, line in enumerate(assembly.splitlines(), 1):
            try:
                out.extend(self.line(line))
            except Unknown as error:
                raise Unknown(f"line {number}: {error}") from None
        return "\n".join(out) + "\n"


def main():
    form = "one" if "--one" in sys.argv else "correct"
    rewriter = Rewriter(form, nop="--nop" in sys.argv)
    sys.stdout.write(rewriter.rewrite(sys.stdin.read()))
    print(
        f"{rewriter.loads} loads, {rewriter.constant} constant loads, {rewriter.ptwrites} ptwrites",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
