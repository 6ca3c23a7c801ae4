//! The few facts that pass 1 needs of most instructions, without decoding them: their length, their
//! kind of branch, and the offsets of four-byte numbers, which may be addresses.
//!
//! Nine of ten instructions of compilers have one of some two hundred opcodes, whose lengths follow
//! from their ModRM byte. The caller decodes the others. The test compares the results with iced's.

/// Number of bytes examined, more than any instruction has.
pub const WINDOW: usize = 16;

/// Bytes at a position in `bytes`, padded with zeros at their end. `tail` is room for them.
#[inline(always)]
pub fn window<'b>(bytes: &'b [u8], at: usize, tail: &'b mut [u8; WINDOW]) -> &'b [u8; WINDOW] {
    let rest = bytes.get(at..).unwrap_or(&[]);
    match rest.first_chunk() {
        Some(window) => window,
        None => {
            tail.fill(0);
            tail[..rest.len()].copy_from_slice(rest);
            tail
        }
    }
}

/// Kind of an instruction for this decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Control continues after it.
    Plain,
    /// The kind is unknown: the instruction must be decoded.
    Unknown,
    /// A direct jump.
    Jump,
    /// A conditional direct jump.
    Branch,
    /// A direct call.
    Call,
    /// A return.
    Return,
}

/// The result for an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Skimmed {
    /// Its kind.
    pub what: What,
    /// Its length, bytes; 0 if it is unknown.
    pub len: u8,
    /// Offset of a four-byte displacement of a memory operand, or 0.
    pub displacement: u8,
    /// Offset of a four-byte constant, or 0.
    pub constant: u8,
    /// Distance of a jump's or call's target from the instruction's end.
    pub distance: i32,
    /// True if the displacement counts from the instruction's end.
    pub ip_relative: bool,
    /// True if no base register is added to the displacement, at most an index.
    pub no_base: bool,
    /// The opcode, if it has one byte; the ModRM byte, or the byte in its place; and true for
    /// REX.W.
    opcode: u8,
    modrm: u8,
    wide: bool,
    /// True if the instruction may copy words from memory to a vector register.
    fills_vector: bool,
}

impl Skimmed {
    const UNKNOWN: Skimmed = Skimmed::of(What::Unknown, 0);

    #[inline(always)]
    const fn of(what: What, len: usize) -> Skimmed {
        let no = false;
        Skimmed {
            what,
            len: len as u8,
            displacement: 0,
            constant: 0,
            distance: 0,
            ip_relative: no,
            no_base: no,
            opcode: ESCAPE,
            modrm: 0,
            wide: no,
            fills_vector: no,
        }
    }

    /// The result for an instruction that branches.
    #[inline(always)]
    const fn leading(what: What, len: usize, distance: i32) -> Skimmed {
        Skimmed {
            distance,
            ..Skimmed::of(what, len)
        }
    }

    /// True if control continues after the instruction, and it has no four-byte number.
    #[inline(always)]
    pub fn is_bare(&self) -> bool {
        self.what as u8 | self.displacement | self.constant == 0
    }

    /// True if the instruction takes the address of its memory operand.
    pub fn takes_address(&self) -> bool {
        self.opcode == LEA
    }

    /// Number of words of eight bytes that the instruction may move from memory to a register, or
    /// add.
    pub fn loaded_words(&self) -> u64 {
        match self.fills_vector {
            true => 2,
            false => u64::from(self.wide && matches!(self.opcode, 0x03 | 0x8b)),
        }
    }

    /// True if the instruction moves, pushes, adds or subtracts its four-byte constant.
    pub fn takes_constant(&self) -> bool {
        match self.opcode {
            0x05 | 0x2d | 0x68 | 0xb8..=0xbf | 0xc7 => true,
            0x81 => matches!(self.modrm >> 3 & 7, 0 | 5),
            _ => false,
        }
    }
}

/// Bit of a known opcode. The other bits give the bytes that follow it. An unknown opcode has 0.
const KNOWN_OPCODE: u8 = 0x80;
/// A ModRM byte.
const MODRM: u8 = 0x40;
/// The length depends on the opcode, and on the ModRM byte.
const SPECIAL: u8 = 0x20;
/// A constant of one byte.
const BYTE: u8 = 1;
/// A constant of four bytes, two behind 0x66.
const LONG_CONSTANT: u8 = 2;
/// No opcode, but a supported prefix.
const PREFIX: u8 = 0x10;
/// The prefixes with which an opcode of two bytes is known: none, 0x66, 0xf3, 0xf2.
const NO_PREFIX: u8 = 0x02;
const P66: u8 = 0x04;
const PF3: u8 = 0x08;
const PF2: u8 = 0x10;

const fn fill(mut table: [u8; 256], from: usize, to: usize, fact: u8) -> [u8; 256] {
    let mut n = from;
    while n <= to {
        table[n] = KNOWN_OPCODE | fact;
        n += 1;
    }
    table
}

/// Opcodes of one byte.
static ONE: [u8; 256] = {
    let mut table = [0; 256];
    // add, or, adc, sbb, and, sub, xor, cmp. (An instruction that begins with a zero may be
    // filler.)
    let mut n = 0;
    while n < 0x40 {
        table = fill(table, n + (n == 0) as usize, n + 3, MODRM);
        table = fill(table, n + 4, n + 4, BYTE);
        table = fill(table, n + 5, n + 5, LONG_CONSTANT);
        n += 8;
    }
    // push, pop; movsxd; push, imul; jumps on conditions.
    table = fill(table, 0x50, 0x5f, 0);
    table = fill(table, 0x63, 0x63, MODRM);
    table = fill(table, 0x68, 0x68, LONG_CONSTANT);
    table = fill(table, 0x69, 0x69, MODRM | LONG_CONSTANT);
    table = fill(table, 0x6a, 0x6a, BYTE);
    table = fill(table, 0x6b, 0x6b, MODRM | BYTE);
    table = fill(table, 0x70, 0x7f, SPECIAL | BYTE);
    // Arithmetic with constants; test, xchg, mov; lea; xchg, cdqe, cqo; test; mov.
    table = fill(table, 0x80, 0x80, MODRM | BYTE);
    table = fill(table, 0x81, 0x81, MODRM | LONG_CONSTANT);
    table = fill(table, 0x83, 0x83, MODRM | BYTE);
    table = fill(table, 0x84, 0x8b, MODRM);
    table = fill(table, LEA as usize, LEA as usize, MODRM | SPECIAL);
    table = fill(table, 0x90, 0x99, 0);
    table = fill(table, 0xa8, 0xa8, BYTE);
    table = fill(table, 0xa9, 0xa9, LONG_CONSTANT);
    table = fill(table, 0xb0, 0xb7, BYTE);
    table = fill(table, 0xb8, 0xbf, LONG_CONSTANT | SPECIAL);
    // Shifts; ret; mov; leave; shifts; call, jumps; test, not, neg, mul, div; inc, dec, push.
    table = fill(table, 0xc0, 0xc1, MODRM | BYTE);
    table = fill(table, 0xc3, 0xc3, SPECIAL);
    table = fill(table, 0xc6, 0xc6, MODRM | SPECIAL | BYTE);
    table = fill(table, 0xc7, 0xc7, MODRM | SPECIAL | LONG_CONSTANT);
    table = fill(table, 0xc9, 0xc9, 0);
    table = fill(table, 0xd0, 0xd3, MODRM);
    table = fill(table, 0xe8, 0xe9, SPECIAL | LONG_CONSTANT);
    table = fill(table, 0xeb, 0xeb, SPECIAL | BYTE);
    table = fill(table, 0xf6, 0xf7, MODRM | SPECIAL);
    // Segments have no effect, or add a base, so that no address of this file is meant.
    table[0x2e] = PREFIX;
    table[0x3e] = PREFIX;
    table[0x64] = PREFIX;
    table[0x66] = PREFIX;
    table[0xf2] = PREFIX;
    table[0xf3] = PREFIX;
    fill(table, 0xfe, 0xff, MODRM | SPECIAL)
};

/// Opcodes of two bytes, the first of which is 0x0f. All have a ModRM byte except conditional
/// jumps, which are left out here.
static TWO: [u8; 256] = {
    const ALL: u8 = NO_PREFIX | P66 | PF3 | PF2;
    let mut table = [0; 256];
    table = fill(table, 0x10, 0x11, ALL);
    table = fill(table, 0x14, 0x15, NO_PREFIX | P66);
    table = fill(table, 0x1f, 0x1f, NO_PREFIX | P66);
    table = fill(table, 0x28, 0x29, NO_PREFIX | P66);
    table = fill(table, 0x2a, 0x2a, ALL);
    table = fill(table, 0x2c, 0x2d, ALL);
    table = fill(table, 0x2e, 0x2f, NO_PREFIX | P66);
    table = fill(table, 0x40, 0x4f, NO_PREFIX | P66);
    table = fill(table, 0x51, 0x51, ALL);
    table = fill(table, 0x54, 0x57, NO_PREFIX | P66);
    table = fill(table, 0x58, 0x5a, ALL);
    table = fill(table, 0x5b, 0x5b, NO_PREFIX | P66 | PF3);
    table = fill(table, 0x5c, 0x5f, ALL);
    table = fill(table, 0x60, 0x6b, NO_PREFIX | P66);
    table = fill(table, 0x6c, 0x6d, P66);
    table = fill(table, 0x6e, 0x6e, NO_PREFIX | P66);
    table = fill(table, 0x6f, 0x6f, NO_PREFIX | P66 | PF3);
    table = fill(table, 0x70, 0x70, ALL | BYTE);
    table = fill(table, 0x74, 0x76, NO_PREFIX | P66);
    table = fill(table, 0x7e, 0x7f, NO_PREFIX | P66 | PF3);
    table = fill(table, 0x90, 0x9f, NO_PREFIX | P66);
    table = fill(table, 0xa3, 0xa3, NO_PREFIX | P66);
    table = fill(table, 0xa4, 0xa4, NO_PREFIX | P66 | BYTE);
    table = fill(table, 0xa5, 0xa5, NO_PREFIX | P66);
    table = fill(table, 0xab, 0xab, NO_PREFIX | P66);
    table = fill(table, 0xac, 0xac, NO_PREFIX | P66 | BYTE);
    table = fill(table, 0xad, 0xad, NO_PREFIX | P66);
    table = fill(table, 0xaf, 0xb1, NO_PREFIX | P66);
    table = fill(table, 0xb3, 0xb3, NO_PREFIX | P66);
    table = fill(table, 0xb6, 0xb7, NO_PREFIX | P66);
    table = fill(table, 0xba, 0xba, NO_PREFIX | P66 | BYTE | SPECIAL);
    table = fill(table, 0xbb, 0xbb, NO_PREFIX | P66);
    table = fill(table, 0xbc, 0xbd, NO_PREFIX | P66 | PF3);
    table = fill(table, 0xbe, 0xc1, NO_PREFIX | P66);
    table = fill(table, 0xc2, 0xc2, ALL | BYTE);
    table = fill(table, 0xc6, 0xc6, NO_PREFIX | P66 | BYTE);
    table = fill(table, 0xd1, 0xd5, NO_PREFIX | P66);
    table = fill(table, 0xd6, 0xd6, P66);
    table = fill(table, 0xd8, 0xe5, NO_PREFIX | P66);
    table = fill(table, 0xe6, 0xe6, P66 | PF3 | PF2);
    table = fill(table, 0xe8, 0xef, NO_PREFIX | P66);
    table = fill(table, 0xf1, 0xf6, NO_PREFIX | P66);
    fill(table, 0xf8, 0xfe, NO_PREFIX | P66)
};

/// Bits of a ModRM byte's entry: the length of it and of the following bytes, unless a SIB byte
/// changes that.
const LEN: u8 = 0x0f;
/// A SIB byte follows, which may change the length.
const SIB: u8 = 0x10;
/// There is a displacement of four bytes…
const FAR_DISPLACEMENT: u8 = 0x20;
/// …which counts from the instruction's end.
const IP: u8 = 0x40;

/// The form by ModRM byte.
static FORMS: [u8; 256] = {
    let mut forms = [1; 256];
    let mut modrm = 0;
    while modrm < 0xc0 {
        let (mode, base) = (modrm >> 6, modrm & 7);
        let sib = if base == 4 { 1 } else { 0 };
        forms[modrm] = match mode {
            0 if base == 5 => FAR_DISPLACEMENT | IP | 5,
            0 => (sib * SIB) | (1 + sib),
            1 => 2 + sib,
            _ => FAR_DISPLACEMENT | (5 + sib),
        };
        modrm += 1;
    }
    forms
};

const ESCAPE: u8 = 0x0f;
const REX: u8 = 0x40;
const LEA: u8 = 0x8d;
const ENDBR64: u32 = u32::from_le_bytes([0xf3, 0x0f, 0x1e, 0xfa]);

/// Bits of an opcode that [`bare_len`] knows. `OPERAND`: a ModRM byte follows. `BYTES`: number of
/// bytes of the opcode and its constant.
const OPERAND: u8 = 0x80;
const BYTES: u8 = 0x03;

/// The bits by one-byte opcode; 0 if it is none of these.
static SHORT: [u8; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let fact = ONE[n];
        if fact & KNOWN_OPCODE != 0 && fact & (SPECIAL | LONG_CONSTANT) == 0 {
            table[n] = if fact & MODRM != 0 { OPERAND } else { 0 } | (1 + (fact & BYTE));
        }
        n += 1;
    }
    table
};

/// Length of the instruction at the start of `code`, if it is one of the most frequent ones:
/// control continues after it, and it has no four-byte number and no prefix except REX. Otherwise
/// 0, and [`skim`] has to be used.
#[inline(always)]
pub fn bare_len(code: &[u8; WINDOW]) -> usize {
    let at = usize::from(code[0] & 0xf0 == REX);
    let fact = SHORT[usize::from(code[at])];
    let form = if fact & OPERAND != 0 {
        FORMS[usize::from(code[at + 1])]
    } else {
        0
    };
    if fact == 0 || form & (SIB | FAR_DISPLACEMENT) != 0 {
        0
    } else {
        at + usize::from(fact & BYTES) + usize::from(form & LEN)
    }
}

/// Examines the instruction at the start of `code`. The bytes after a function's code may have any
/// values, so the caller must check that the instruction ends inside.
#[inline(always)]
pub fn skim(code: &[u8; WINDOW]) -> Skimmed {
    let first = code[0];
    if first & 0xf0 == REX {
        with_opcode(code, 1, NO_PREFIX, first)
    } else if ONE[usize::from(first)] == PREFIX {
        prefixed(code)
    } else {
        with_opcode(code, 0, NO_PREFIX, 0)
    }
}

/// Examines an instruction with prefixes other than REX.
fn prefixed(code: &[u8; WINDOW]) -> Skimmed {
    let (mut at, mut prefix) = (0, NO_PREFIX);
    while at < 4 {
        prefix = match code[at] {
            0x66 if prefix == NO_PREFIX => P66,
            0x66 | 0x2e | 0x3e | 0x64 => prefix,
            0xf3 if prefix != PF2 => PF3,
            0xf2 if prefix != PF3 => PF2,
            rex if rex & 0xf0 == REX => return within(with_opcode(code, at + 1, prefix, rex)),
            _ => return within(with_opcode(code, at, prefix, 0)),
        };
        at += 1;
    }
    Skimmed::UNKNOWN
}

/// Examines an instruction whose opcode is at `at`, after a REX prefix (if any) and others. With
/// others, the caller must check its length.
#[inline(always)]
fn with_opcode(code: &[u8; WINDOW], at: usize, prefix: u8, rex: u8) -> Skimmed {
    // (No position used here is beyond the window.)
    let byte = |at: usize| code[at % WINDOW];
    let (opcode, modrm, wide, is_bare) = (byte(at), byte(at + 1), rex & 8 != 0, at == 0);
    let at = at + 1;
    if opcode == ESCAPE {
        return two(code, at, prefix, is_bare);
    }
    let fact = ONE[usize::from(opcode)];
    if fact & KNOWN_OPCODE == 0 || prefix & (PF2 | PF3) != 0 {
        return Skimmed::UNKNOWN;
    }
    let mut constant = usize::from(fact & (BYTE | LONG_CONSTANT));
    if constant == usize::from(LONG_CONSTANT) && (wide || prefix == NO_PREFIX) {
        constant = 4;
    }
    if fact & SPECIAL != 0 {
        let reg = modrm >> 3 & 7;
        let near = i32::from(modrm as i8);
        match opcode {
            0x70..=0x7f if is_bare => return Skimmed::leading(What::Branch, at + 1, near),
            0xeb if is_bare => return Skimmed::leading(What::Jump, at + 1, near),
            0xe8 if is_bare => return Skimmed::leading(What::Call, at + 4, four(code, at) as i32),
            0xe9 if is_bare => return Skimmed::leading(What::Jump, at + 4, four(code, at) as i32),
            0xc3 if is_bare => return Skimmed::of(What::Return, at),
            LEA if modrm < 0xc0 => {}
            // (An instruction with a constant of eight bytes must be decoded.)
            0xb8..=0xbf if !wide => {}
            0xc6 | 0xc7 if reg == 0 => {}
            0xf6 if reg < 2 => constant = 1,
            0xf7 if reg < 2 => constant = if wide || prefix == NO_PREFIX { 4 } else { 2 },
            0xf6 | 0xf7 => {}
            0xfe | 0xff if reg < 2 => {}
            0xff if reg == 6 => {}
            _ => return Skimmed::UNKNOWN,
        }
    }
    let mut found = if fact & MODRM != 0 {
        with_operand(code, at, constant)
    } else {
        Skimmed::of(What::Plain, at + constant)
    };
    if constant == 4 {
        found.constant = found.len - 4;
    }
    Skimmed {
        opcode,
        modrm,
        wide,
        ..found
    }
}

/// As `with_opcode`, for an opcode of two bytes, whose second is at `at`.
fn two(code: &[u8; WINDOW], at: usize, prefix: u8, is_bare: bool) -> Skimmed {
    let opcode = code[at % WINDOW];
    let at = at + 1;
    if opcode & 0xf0 == 0x80 && is_bare {
        return Skimmed::leading(What::Branch, at + 4, four(code, at) as i32);
    }
    let fact = TWO[usize::from(opcode)];
    if fact & prefix == 0 {
        return if four(code, 0) == ENDBR64 {
            Skimmed::of(What::Plain, 4)
        } else {
            Skimmed::UNKNOWN
        };
    }
    // bt, bts, btr, btc.
    if fact & SPECIAL != 0 && code[at % WINDOW] >> 3 & 7 < 4 {
        return Skimmed::UNKNOWN;
    }
    Skimmed {
        // movups, movaps, punpcklqdq, movq, movdqa, movq, and those with other prefixes.
        fills_vector: matches!(opcode, 0x10 | 0x28 | 0x6c | 0x6e | 0x6f | 0x7e),
        ..with_operand(code, at, usize::from(fact & BYTE))
    }
}

/// Examines an instruction whose ModRM byte is at `at`, and that ends with a constant of this many
/// bytes.
#[inline(always)]
fn with_operand(code: &[u8; WINDOW], at: usize, constant: usize) -> Skimmed {
    let form = FORMS[usize::from(code[at % WINDOW])];
    let mut end = at + usize::from(form & LEN);
    let mut found = Skimmed::of(What::Plain, 0);
    let mut is_far = form & FAR_DISPLACEMENT != 0;
    found.ip_relative = form & IP != 0;
    if form & SIB != 0 && code[(at + 1) % WINDOW] & 7 == 5 {
        end += 4;
        is_far = true;
        found.no_base = true;
    }
    if is_far {
        found.displacement = end as u8 - 4;
    }
    found.len = (end + constant) as u8;
    found
}

/// Checks the limit of fifteen bytes.
#[inline]
fn within(found: Skimmed) -> Skimmed {
    if usize::from(found.len) < WINDOW {
        found
    } else {
        Skimmed::UNKNOWN
    }
}

/// The four bytes at `at`.
#[inline]
pub fn four(code: &[u8; WINDOW], at: usize) -> u32 {
    code.get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::flow::direct_target;
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

    const AT: u64 = 0x40_1000;

    /// Compares a result with iced's.
    fn check(code: &[u8; WINDOW]) -> bool {
        let skimmed = skim(code);
        let bare = bare_len(code);
        assert!(
            bare == 0 || skimmed.is_bare() && bare == usize::from(skimmed.len),
            "{code:02x?}: {bare} bytes"
        );
        if skimmed.what == What::Unknown {
            return false;
        }
        let inst = Decoder::with_ip(64, code, AT, DecoderOptions::NONE).decode();
        let context = || format!("{code:02x?}: {inst} is {skimmed:?}");
        assert!(
            !inst.is_invalid() && inst.len() == usize::from(skimmed.len),
            "{}",
            context()
        );
        let what = match inst.flow_control() {
            FlowControl::UnconditionalBranch => What::Jump,
            FlowControl::ConditionalBranch => What::Branch,
            FlowControl::Call => What::Call,
            FlowControl::Return => What::Return,
            FlowControl::Next => What::Plain,
            other => panic!("{other:?}: {}", context()),
        };
        assert_eq!(skimmed.what, what, "{}", context());
        assert_eq!(
            skimmed.distance as i64 as u64,
            direct_target(&inst).map_or(0, |t| t.wrapping_sub(inst.next_ip())),
            "{}",
            context()
        );
        assert_eq!(
            skimmed.is_bare(),
            what == What::Plain && skimmed.displacement == 0 && skimmed.constant == 0
        );
        assert_ne!(inst.mnemonic(), Mnemonic::Hlt);
        assert!(
            inst.segment_prefix() != Register::GS
                && (0..inst.op_count()).all(|o| !is_special(&inst, o)),
            "{}",
            context()
        );
        check_operands(code, &inst, &skimmed, &context);
        true
    }

    /// True for operands that this decoder does not describe.
    fn is_special(inst: &Instruction, op: u32) -> bool {
        match inst.op_kind(op) {
            OpKind::Register => inst.op_register(op).is_segment_register(),
            OpKind::Memory | OpKind::NearBranch64 => false,
            OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64 => false,
            OpKind::Immediate16 | OpKind::Immediate32 | OpKind::Immediate32to64 => false,
            _ => true,
        }
    }

    fn check_operands(
        code: &[u8; WINDOW],
        inst: &Instruction,
        skimmed: &Skimmed,
        context: &dyn Fn() -> String,
    ) {
        let has_memory = (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory);
        let displacement = if skimmed.displacement == 0 {
            0
        } else {
            four(code, skimmed.displacement.into()) as i32 as u64
        };
        let is_far = has_memory && matches!(inst.memory_displ_size(), 4 | 8);
        assert_eq!(skimmed.displacement != 0, is_far, "{}", context());
        assert_eq!(
            skimmed.ip_relative,
            inst.is_ip_rel_memory_operand(),
            "{}",
            context()
        );
        if is_far {
            let base = if skimmed.ip_relative {
                inst.next_ip()
            } else {
                0
            };
            assert_eq!(
                inst.memory_displacement64(),
                base.wrapping_add(displacement),
                "{}",
                context()
            );
        }
        assert_eq!(
            skimmed.no_base,
            has_memory && inst.memory_base() == Register::None,
            "{}",
            context()
        );
        assert_eq!(
            skimmed.takes_address(),
            inst.mnemonic() == Mnemonic::Lea,
            "{}",
            context()
        );
        let loads = matches!(inst.mnemonic(), Mnemonic::Mov | Mnemonic::Add)
            && inst.op0_register().is_gpr64()
            && inst.op1_kind() == OpKind::Memory;
        assert!(skimmed.loaded_words() > 0 || !loads, "{}", context());
        if let Some((words, _)) = crate::discover::code_or_data::read(inst) {
            let size = words.end.wrapping_sub(words.start);
            assert!(size <= 8 * skimmed.loaded_words(), "{}", context());
        }
        let last = inst.op_count().wrapping_sub(1);
        let constant = if last < 5 {
            inst.op_kind(last)
        } else {
            OpKind::Register
        };
        let long = matches!(constant, OpKind::Immediate32 | OpKind::Immediate32to64);
        assert_eq!(skimmed.constant != 0, long, "{}", context());
        if long {
            assert_eq!(
                four(code, skimmed.constant.into()),
                inst.immediate(last) as u32,
                "{}",
                context()
            );
        }
        let takes = long
            && matches!(
                inst.mnemonic(),
                Mnemonic::Mov | Mnemonic::Push | Mnemonic::Add | Mnemonic::Sub
            );
        assert!(skimmed.takes_constant() || !takes, "{}", context());
    }

    /// Tests every opcode of one and two bytes with every ModRM byte, after every prefix and pairs
    /// of them.
    #[test]
    fn what_is_said_is_as_iced_says() {
        let single = (0x40..0x50)
            .chain([0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3])
            .map(|p| vec![p]);
        let pairs = [0x2e, 0x3e, 0x64, 0x66, 0x67, 0xf2, 0xf3, 0x48]
            .map(|second| [0x66, 0xf2, 0xf3, 0x64, 0x48].map(|first| vec![first, second]));
        let longer = [
            &[0x66, 0x2e, 0x64, 0x48][..],
            &[0x66, 0x66, 0x2e, 0x4f],
            &[0x66, 0x66, 0x66, 0x66, 0x2e],
            &[0xf3, 0x66, 0x49],
            &[0x66, 0xf2, 0x44],
        ]
        .map(<[u8]>::to_vec);
        let mut known = 0;
        for prefix in [vec![]]
            .into_iter()
            .chain(single)
            .chain(pairs.into_iter().flatten())
            .chain(longer)
        {
            for (escape, opcode) in (0..=255)
                .map(|o| (&[][..], o))
                .chain((0..=255).map(|o| (&[0x0f][..], o)))
            {
                for modrm in 0..=255 {
                    // Also as a SIB byte, with and without base and index.
                    for behind in [0x24, 0xcd, 0x25, 0x9d, 0xfa] {
                        let mut code = [0x87; WINDOW];
                        let bytes =
                            [&prefix, escape, &[opcode, modrm, behind, 0x81, 2, 0x93, 4]].concat();
                        code[..bytes.len()].copy_from_slice(&bytes);
                        known += u32::from(check(&code));
                    }
                }
            }
        }
        assert!(known > 1_000_000, "{known}");
    }

    #[test]
    fn any_bytes_do() {
        let (mut random, mut known) = (1u64, 0);
        for _ in 0..2_000_000 {
            let code: [u8; WINDOW] = std::array::from_fn(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 56) as u8
            });
            known += u32::from(check(&code));
        }
        assert!(known > 800_000, "{known}");
    }
}
