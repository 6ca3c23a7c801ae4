//! Finds the parts of its own code that a program reads as data: to sum it up, to copy it, to
//! decrypt it.
//!
//! Entry jumps change the bytes of the original: in the file (`pt`), or in memory as long as a
//! program is recorded in `full` or `ring`. A program that reads these bytes finds something else
//! there. So functions that take addresses of code which they do not just call, and those that look
//! at the program's segments, are followed: where an address goes to, by registers, the frame and
//! calls, and whether memory is read (or written) there. Code that is read in part gets no entry
//! jumps ([`Program::data`]). A program that reads most of the code ([`Program::reads_code`]) needs
//! a mode that leaves the original as it is.
//!
//! The extent of a read follows from comparisons or subtractions of its address, or from the length
//! that goes to a callee with it. Addresses that are computed from other sources (from
//! `/proc/self/maps`, say) are not seen.
//!
//! A value may be something else on another path, or by the time that it is used: a word that holds
//! a function or a buffer, a place of the frame that a callee has filled anew. Then what is written
//! there is no code, unless it is made writable; what is read there may be.
//!
//! * [`search`]: what functions do with addresses, each by itself.
//! * [`callees`]: what their callees do, and what of the code is read by all that.
//! * [`walk`]: one function, instruction by instruction.
//! * [`value`]: what registers and the frame hold meanwhile.

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
/// Addresses that are followed in one function. Source: Chosen.
const MAX_ADDRESSES: usize = 48;
/// The bit of the first argument in [`value::Value::sources`].
const FIRST_ARGUMENT_BIT: u32 = 56;
/// The bit of the first word where the first argument points to; the others of such an object
/// follow, and those of the next argument's.
const FIRST_WORD_BIT: u32 = MAX_ADDRESSES as u32;
/// Words of an object that are told apart, and arguments that may point to one.
const WORDS: usize = 4;
const OBJECTS: usize = 2;
const _: () = assert!(FIRST_WORD_BIT as usize + WORDS * OBJECTS == FIRST_ARGUMENT_BIT as usize);
/// Words of a table of functions that are looked at.
const LONGEST_TABLE: u64 = 4096;
/// Source: Chosen.
const MAX_CALL_DEPTH: usize = 4;
/// Times that a function is gone through, for what loops bring round. Source: Chosen.
const MAX_ROUNDS: usize = 6;
/// Longest range that a number tells. Source: Chosen.
const MAX_RANGE_BYTES: u64 = 1 << 24;
/// Reading one part in this many of the code, or more, is reading all of it. Source: Chosen.
const WHOLE_CODE_DIVISOR: u64 = 4;

/// A kind for [`value::Value::kind`]: a pointer that `dl_iterate_phdr` passes to its callback.
const INFO: u8 = 1;
/// A program header.
const HEADER: u8 = 2;
/// Made of a word of one: an address in a segment.
const SEGMENT: u8 = 4;
/// The flags of one.
const FLAGS: u8 = 8;

/// The reason of functions whose bytes the program writes.
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

/// True if code may read at an address of code that is used so, as far as a quick look tells.
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
            // (Which call it is, is not looked at: `write` may be one.)
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

/// Code that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    /// Start of the function that reads.
    by: u64,
    range: Range<u64>,
    /// It is written as well.
    written: bool,
    /// Its ends may have been something else when they were compared.
    doubted: bool,
}

/// Finds what is read, and has it left without entry jumps; what is written as well is left as it
/// is. `takers`: functions that take addresses of code, or look at segments.
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
    // A read of functions that stay unchanged anyway needs no care.
    let (written, read): (Vec<Reading>, Vec<Reading>) =
        found.into_iter().partition(|reading| reading.written);
    for reading in written {
        // Neither clones nor jumps: what stands there when the program runs is not what is in the
        // file.
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
        // (Without entry jumps it is as it was, however much it is.)
        if size >= code.all() / WHOLE_CODE_DIVISOR && size > 0 && !reading.doubted {
            program.reads_code.get_or_insert(reading.by);
        } else {
            program.data.push(reading.range);
        }
    }
}

/// Amount of code by address, of functions that do not stay unchanged.
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

/// Address at which the program opens its own file by the kernel's name for it. (A read of that
/// link is something else, and common.)
pub fn opens_itself(input: &Input) -> Option<u64> {
    opens(input, b"/proc/self/exe\0")
}

/// Address at which the program opens the list of its mappings. The list tells the addresses of its
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

/// The functions that the words from an address on hold, one behind the other.
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
