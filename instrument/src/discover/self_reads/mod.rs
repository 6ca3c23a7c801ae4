//! Finds the parts of its own code that a program reads as data, for a checksum, a copy or a
//! decryption.
//!
//! Entry jumps change the bytes of the original: in the file (`pt`), or in memory as long as a
//! program is recorded in `full` or `ring`. A program that reads these bytes would find other
//! content. So the analysis follows functions that take addresses of code other than to call it,
//! and functions that examine the program's segments. It tracks these addresses through registers,
//! the frame and calls, and checks for reads and writes through them. Parts of the code that are
//! read get no entry jumps ([`Program::data`]). A program that reads most of the code
//! ([`Program::reads_code`]) needs a mode that leaves the original unchanged.
//!
//! The extent of a read follows from comparisons or subtractions of its address, or from a length
//! that is passed to a callee with it. Addresses that are computed from other sources (from
//! `/proc/self/maps`, say) are not seen.
//!
//! A value may differ on another path, or at its use: a word may hold a function or a buffer, and a
//! callee may have overwritten a word of the frame. A write through such a value does not count as
//! a write to code, unless the memory is made writable. A read may be one of code.
//!
//! * [`search`]: uses of addresses by each function.
//! * [`callees`]: uses by their callees, and the resulting reads of code.
//! * [`walk`]: one function, instruction by instruction.
//! * [`value`]: abstract contents of registers and the frame.

mod callees;
mod search;
mod value;
mod walk;

use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data::Used;
use crate::discover::self_reads::callees::Callees;
use crate::discover::self_reads::search::{Search, Taker};
use crate::program::section_bounds::KnownFunction;
use crate::program::{Input, Program};
use crate::x86::effects::uses;
use crate::x86::flow::direct_target;
use crate::x86::regs::{Gpr, RegSet, gpr};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};
use rayon::prelude::*;
use std::ops::Range;

/// Argument registers in order, by hardware number: rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Maximum number of addresses followed in one function. Source: Chosen.
const MAX_ADDRESSES: usize = 48;
/// The bit of the first argument in [`value::Value::sources`].
const FIRST_ARGUMENT_BIT: u32 = 56;
/// The bit of the first word where the first argument points to. The other words of that object
/// follow, then those of the next argument's.
const FIRST_WORD_BIT: u32 = MAX_ADDRESSES as u32;
/// Number of words distinguished in an object, and of arguments that may point to one.
const WORDS: usize = 4;
const OBJECTS: usize = 2;
const _: () = assert!(FIRST_WORD_BIT as usize + WORDS * OBJECTS == FIRST_ARGUMENT_BIT as usize);
/// Maximum number of words examined in a table of functions.
const LONGEST_TABLE: u64 = 4096;
/// Source: Chosen.
const MAX_CALL_DEPTH: usize = 4;
/// Maximum number of passes over a function, for values that loops carry back. Source: Chosen.
const MAX_ROUNDS: usize = 6;
/// Longest range given by a number. Source: Chosen.
const MAX_RANGE_BYTES: u64 = 1 << 24;
/// Reading one part in this many of the code, or more, counts as reading all of it. Source: Chosen.
const WHOLE_CODE_DIVISOR: u64 = 4;

/// A kind for [`value::Value::kind`]: a pointer that `dl_iterate_phdr` passes to its callback.
const INFO: u8 = 1;
/// A program header.
const HEADER: u8 = 2;
/// An address in a segment, made of a word of a program header.
const SEGMENT: u8 = 4;
/// The flags of a program header.
const FLAGS: u8 = 8;

/// The reason to leave functions whose bytes the program writes.
pub const WRITTEN: LeftReason = LeftReason::Unsupported("its bytes are written");

/// The numbers that an instruction holds, or takes from memory, and that may be addresses in code.
pub fn numbers(input: &Input, inst: &Instruction) -> impl Iterator<Item = u64> {
    let takes = inst.mnemonic() == Mnemonic::Lea;
    let fixed =
        inst.memory_base() == Register::RIP || inst.memory_base() == Register::None && !input.pie;
    let at = inst.memory_displacement64();
    let in_place = (fixed && takes).then_some(at);
    let word = (fixed && !takes).then(|| input.bounds.word(at)).flatten();
    let last = inst.op_count().checked_sub(1).filter(|_| !input.pie);
    let number = last.and_then(|o| inst.try_immediate(o).ok());
    [in_place, word, number].into_iter().flatten()
}

/// True if code may read at a code address with these uses, by a quick check.
pub fn may_be_read(input: &Input, used: &Used) -> bool {
    let given = |(callee, held): (u64, RegSet)| {
        let arguments = (0..6).filter(|&n| held.contains(Gpr(ARGUMENTS[n] as u8)));
        let arguments: u8 = arguments.map(|n| 1 << n).sum();
        match input.bounds.functions.get(&callee) {
            Some(KnownFunction::Reads(read)) => read & arguments != 0,
            Some(KnownFunction::Protects | KnownFunction::Maps | KnownFunction::Segments) => true,
            Some(
                KnownFunction::Auxiliary
                | KnownFunction::Harmless
                | KnownFunction::Opens
                | KnownFunction::SetsBases
                | KnownFunction::SetsProcess,
            ) => false,
            // (The check does not examine which call it is, so `write` may be one.)
            Some(KnownFunction::AnyCall) => false,
            Some(KnownFunction::Traces) | None => {
                arguments != 0 && reads_at_once(input, callee, held)
            }
        }
    };
    used.read || used.changed || used.kept || used.given.is_some_and(given)
}

/// True if a function begins with a read through one of these registers, or stores them into its
/// frame first, as code without optimization does.
fn reads_at_once(input: &Input, function: u64, mut held: RegSet) -> bool {
    const MAX_FIRST_INSTRUCTIONS: usize = 24;
    let bytes = match input.bytes_at(function) {
        Some(bytes) if input.is_code(function) => bytes,
        _ => return false,
    };
    let mut factory = InstructionInfoFactory::new();
    for inst in Decoder::with_ip(64, bytes, function, DecoderOptions::NONE)
        .into_iter()
        .take(MAX_FIRST_INSTRUCTIONS)
    {
        let holds = |r: Register| gpr(r).is_some_and(|r| held.contains(r));
        if inst.is_invalid() || held == RegSet::EMPTY {
            return false;
        }
        let is_moved = inst.mnemonic() == Mnemonic::Mov && holds(inst.op1_register());
        if holds(inst.memory_base()) || holds(inst.memory_index()) {
            return true;
        }
        if is_moved && inst.op0_kind() == OpKind::Memory && inst.memory_base() == Register::RBP {
            return true;
        }
        if !matches!(
            inst.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        ) {
            let known = direct_target(&inst).and_then(|t| input.bounds.functions.get(&t));
            return matches!(
                known,
                Some(KnownFunction::Reads(_) | KnownFunction::Protects | KnownFunction::Maps)
            );
        }
        held.0 &= !uses(&mut factory, &inst).clobber.0;
        if let Some(copy) = gpr(inst.op0_register()).filter(|_| is_moved) {
            held = held.with(copy);
        }
    }
    false
}

/// A read of code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    /// Start of the function that reads.
    by: u64,
    range: Range<u64>,
    /// True if it is written as well.
    written: bool,
    /// True if its ends were uncertain when they were compared.
    doubted: bool,
}

/// Finds the code that is read, and excludes it from entry jumps. Code that is also written stays
/// unchanged. `takers`: functions that take addresses of code, or examine segments.
pub fn find_self_reads(input: &Input, program: &mut Program, takers: &[Range<u64>]) {
    let known: &Program = program;
    let relocator = input.bounds.relocator;
    let takers: Vec<Taker> = takers
        .par_iter()
        .filter(|range| relocator.is_none_or(|at| !range.contains(&at)))
        .map_init(
            || Search::new(input, known),
            |search, range| search.taker(range),
        )
        .flatten()
        .collect();
    let callees = Callees::of(input, known, &takers);
    let mut found: Vec<Reading> = takers
        .par_iter()
        .flat_map_iter(|taker| callees.readings(taker))
        .collect();
    found.extend(input.bounds.table.clone().map(|(by, range)| Reading {
        by,
        range,
        written: false,
        doubted: false,
    }));
    // Reads of functions that stay unchanged anyway are harmless.
    let (written, read): (Vec<Reading>, Vec<Reading>) =
        found.into_iter().partition(|reading| reading.written);
    for reading in written {
        // Neither clones nor jumps are possible: the code at run time is not that in the file.
        let first = program
            .functions
            .partition_point(|f| f.range.end <= reading.range.start);
        let touched = program.functions[first..]
            .iter_mut()
            .take_while(|f| f.range.start < reading.range.end);
        for f in touched {
            f.left.get_or_insert(WRITTEN);
        }
    }
    let code = CodeBytes::of(program);
    for reading in read {
        let size = code.within(&reading.range);
        // (Without entry jumps the code is unchanged, whatever its size.)
        if size >= code.all() / WHOLE_CODE_DIVISOR && size > 0 && !reading.doubted {
            program.reads_code.get_or_insert(reading.by);
        } else {
            program.data.push(reading.range);
        }
    }
}

/// Number of code bytes by address, in functions that do not stay unchanged.
struct CodeBytes {
    /// End of each function, and the number of bytes up to there.
    ends: Vec<(u64, u64)>,
    functions: Vec<Range<u64>>,
}

impl CodeBytes {
    fn of(program: &Program) -> CodeBytes {
        let kept = program.functions.iter().filter(|f| f.left.is_none());
        let functions: Vec<Range<u64>> = kept.map(|f| f.range.clone()).collect();
        let mut sum = 0;
        let ends = functions.iter().map(|f| {
            sum += f.end - f.start;
            (f.end, sum)
        });
        CodeBytes {
            ends: ends.collect(),
            functions,
        }
    }

    fn all(&self) -> u64 {
        self.ends.last().map_or(0, |end| end.1)
    }

    /// Bytes below an address.
    fn below(&self, at: u64) -> u64 {
        let n = self.ends.partition_point(|end| end.0 <= at);
        let before = n.checked_sub(1).map_or(0, |n| self.ends[n].1);
        let part = self
            .functions
            .get(n)
            .map_or(0, |f| at.saturating_sub(f.start));
        before + part
    }

    fn within(&self, range: &Range<u64>) -> u64 {
        self.below(range.end)
            .saturating_sub(self.below(range.start))
    }
}

/// Address at which the program opens its own file by the kernel's name for it. (Reading that link
/// is different, and common.)
pub fn opens_itself(input: &Input) -> Option<u64> {
    opens(input, b"/proc/self/exe\0")
}

/// Address at which the program opens the list of its mappings, which shows the addresses of its
/// code.
pub fn opens_maps(input: &Input) -> Option<u64> {
    [&b"/proc/self/maps\0"[..], b"/proc/self/smaps\0"]
        .into_iter()
        .find_map(|name| opens(input, name))
}

/// Address at which the program opens a file of this name.
pub(crate) fn opens(input: &Input, name: &[u8]) -> Option<u64> {
    let opens = |k: &KnownFunction| *k == KnownFunction::Opens;
    if !input.bounds.functions.values().any(opens) {
        return None;
    }
    let names: Vec<u64> = input
        .segments
        .iter()
        .flat_map(|s| memchr::memmem::find_iter(s.bytes, name).map(|at| s.vaddr + at as u64))
        .collect();
    let code = input.exec_ranges.iter().filter(|_| !names.is_empty());
    code.filter_map(|range| Some((range.start, input.slice(range)?)))
        .flat_map(|(start, bytes)| {
            let places = bytes.windows(4).zip(start..);
            places.filter_map(|(number, at)| {
                let number = i32::from_le_bytes(number.try_into().ok()?);
                // End of the instruction that takes the name.
                let next = at + 4;
                let is_name = |name: &u64| {
                    next.wrapping_add_signed(number.into()) == *name
                        || !input.pie && u64::from(number as u32) == *name
                };
                names.iter().any(is_name).then_some(next)
            })
        })
        .find(|&next| goes_to(input, next, opens))
}

/// True if the next call goes to such a function.
fn goes_to(input: &Input, at: u64, fits: impl Fn(&KnownFunction) -> bool) -> bool {
    const MAX_INSTRUCTIONS_TO_CALL: usize = 16;
    let Some(bytes) = input.bytes_at(at) else {
        return false;
    };
    let call = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
        .into_iter()
        .take(MAX_INSTRUCTIONS_TO_CALL)
        .take_while(|i| !i.is_invalid())
        .find(|i| i.flow_control() != FlowControl::Next);
    let callee = call.and_then(|inst| {
        let through = inst
            .is_ip_rel_memory_operand()
            .then(|| inst.ip_rel_memory_address());
        direct_target(&inst).or(through)
    });
    callee
        .and_then(|c| input.bounds.functions.get(&c))
        .is_some_and(fits)
}

/// True if a table of functions begins at an address of data.
pub fn is_table(input: &Input, at: u64) -> bool {
    functions_in(input, at).next().is_some()
}

/// The functions whose addresses are in consecutive words from an address on.
fn functions_in(input: &Input, at: u64) -> impl Iterator<Item = u64> {
    let words = (0..LONGEST_TABLE).map_while(move |n| input.word(at.checked_add(8 * n)?));
    words.take_while(|&word| input.is_code(word) && !input.is_object(word))
}

/// The bit of a word where an argument points to.
fn deep_bit(argument: usize, word: usize) -> u32 {
    FIRST_WORD_BIT + (argument * WORDS + word) as u32
}

/// The bits of a set.
fn ones(set: u64) -> impl Iterator<Item = usize> + Clone {
    (0..64).filter(move |bit| set >> bit & 1 == 1)
}
