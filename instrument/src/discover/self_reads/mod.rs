//! What of its own code a program reads as data: to sum it up, to copy it, to decrypt it.
//!
//! Entry jumps change the bytes of the original: in the file (`pt`), or in memory as long as a
//! program is recorded in `full` or `ring`. A program that reads these bytes finds something else
//! there. So functions that take addresses of code which they do not just call, and those that look
//! at the program's segments, are followed: where an address goes to, by registers, the frame and
//! calls, and whether memory is read (or written) there. What is read in part gets no entry jumps
//! ([`Program::data`]); who reads most of the code ([`Program::reads_code`]) needs a mode that
//! leaves the original as it is.
//!
//! How far a read goes follows from what its address is compared with or subtracted from, or what
//! length goes to a callee with it. Addresses that are computed from elsewhere (from
//! `/proc/self/maps`, say) are not seen.
//!
//! * [`search`]: what functions do with addresses, through calls.
//! * [`walk`]: one function, instruction by instruction.
//! * [`value`]: what registers and the frame hold meanwhile.

mod search;
mod value;
mod walk;

use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data::Used;
use crate::discover::self_reads::search::Search;
use crate::program::section_bounds::Known;
use crate::program::{Input, Program};
use crate::x86::effects::uses;
use crate::x86::flow::direct_target;
use crate::x86::regs::{Gpr, RegSet, gpr};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Argument registers in order, by hardware number: rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Addresses that are followed in one function.
const MOST: usize = 48;
/// The bit of the first argument in [`value::Value::from`].
const FIRST: u32 = 56;
/// That of the first word where the first argument points to; the others of such an object follow, and those of the next argument's.
const DEEP: u32 = MOST as u32;
/// Words of an object that are told apart, and arguments that may point to one.
const WORDS: usize = 4;
const OBJECTS: usize = 2;
const _: () = assert!(DEEP as usize + WORDS * OBJECTS == FIRST as usize);
/// Words of a table of functions that are looked at.
const LONGEST_TABLE: u64 = 4096;
/// Calls through which arguments are followed.
const DEPTH: usize = 4;
/// Times that a function is gone through, for what loops bring round.
const ROUNDS: usize = 6;
/// Longest range that a number tells.
const LONGEST: u64 = 1 << 24;
/// Share of the code from where on reading it is reading all of it: one in so many.
const LARGE: u64 = 4;

/// Of [`value::Value::kind`]: what `dl_iterate_phdr` hands out.
const INFO: u8 = 1;
/// A program header.
const HEADER: u8 = 2;
/// Made of a word of one: an address in a segment.
const SEGMENT: u8 = 4;
/// The flags of one.
const FLAGS: u8 = 8;

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

/// Whether an address of code that is used so may be read at, as far as a glance tells.
pub fn may_be_read(input: &Input, used: &Used) -> bool {
    let given = |(callee, held): (u64, RegSet)| {
        let arguments = (0..6).filter(|&n| held.contains(Gpr(ARGUMENTS[n] as u8)));
        let arguments: u8 = arguments.map(|n| 1 << n).sum();
        match input.bounds.functions.get(&callee) {
            Some(Known::Reads(read)) => read & arguments != 0,
            Some(Known::Protects | Known::Segments) => true,
            Some(Known::Auxiliary | Known::Harmless | Known::Opens | Known::SetsBases) => false,
            // (Which call it is, is not looked at: `write` may be one.)
            Some(Known::AnyCall) => false,
            None => arguments != 0 && reads_at_once(input, callee, held),
        }
    };
    used.read || used.changed || used.kept || used.given.is_some_and(given)
}

/// Whether a function begins with reading through one of these registers, or with putting them into
/// its frame, as code without optimisation does.
fn reads_at_once(input: &Input, function: u64, mut held: RegSet) -> bool {
    const GLANCE: usize = 24;
    let bytes = match input.bytes_at(function) {
        Some(bytes) if input.is_code(function) => bytes,
        _ => return false,
    };
    let mut factory = InstructionInfoFactory::new();
    for inst in Decoder::with_ip(64, bytes, function, DecoderOptions::NONE)
        .into_iter()
        .take(GLANCE)
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
            return matches!(known, Some(Known::Reads(_) | Known::Protects));
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
    /// Where the reader begins.
    by: u64,
    range: Range<u64>,
    /// It is written as well.
    written: bool,
}

/// Finds what is read, and has it left without entry jumps; what is written as well is left as it
/// is. `takers`: functions that take addresses of code, or look at segments.
pub fn find(input: &Input, program: &mut Program, takers: &[Range<u64>]) {
    let known: &Program = program;
    let search = || Search {
        input,
        program: known,
        factory: RefCell::new(InstructionInfoFactory::new()),
        params: RefCell::default(),
    };
    let relocator = input.bounds.relocator;
    let mut found: Vec<Reading> = takers
        .par_iter()
        .filter(|range| relocator.is_none_or(|at| !range.contains(&at)))
        .map_init(search, |search, range| search.readings(range))
        .flatten()
        .collect();
    found.extend(input.bounds.table.clone().map(|(by, range)| Reading {
        by,
        range,
        written: false,
    }));
    // What is left anyway does not matter to who reads it.
    found.sort_by_key(|reading| !reading.written);
    for reading in found {
        if reading.written {
            // Neither clones nor jumps: what stands there when the program runs is not what is in
            // the file.
            let first = program
                .functions
                .partition_point(|f| f.range.end <= reading.range.start);
            let touched = program.functions[first..]
                .iter_mut()
                .take_while(|f| f.range.start < reading.range.end);
            for f in touched {
                f.left
                    .get_or_insert(LeftReason::Unsupported("its bytes are written"));
            }
            continue;
        }
        let jumped = program.functions.iter().filter(|f| f.left.is_none());
        let (mut size, mut code) = (0, 0);
        for r in jumped.map(|f| &f.range) {
            let end = r.end.min(reading.range.end);
            size += end.saturating_sub(r.start.max(reading.range.start));
            code += r.end - r.start;
        }
        if size >= code / LARGE && size > 0 {
            program.reads_code.get_or_insert(reading.by);
        } else {
            program.data.push(reading.range);
        }
    }
}

/// Where the program opens its own file by the name that the kernel has for it. (To read that link
/// is something else, and common.)
pub fn opens_itself(input: &Input) -> Option<u64> {
    opens(input, b"/proc/self/exe\0")
}

/// Where it opens the list of its mappings, in which it finds the addresses of its code.
pub fn opens_maps(input: &Input) -> Option<u64> {
    [&b"/proc/self/maps\0"[..], b"/proc/self/smaps\0"]
        .into_iter()
        .find_map(|name| opens(input, name))
}

/// Where the program opens a file of this name.
fn opens(input: &Input, name: &[u8]) -> Option<u64> {
    let opens = |k: &Known| *k == Known::Opens;
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
                // What follows the instruction that takes the name.
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

/// Whether the next call is of such a function.
fn goes_to(input: &Input, at: u64, fits: impl Fn(&Known) -> bool) -> bool {
    const GLANCE: usize = 16;
    let Some(bytes) = input.bytes_at(at) else {
        return false;
    };
    let call = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
        .into_iter()
        .take(GLANCE)
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

/// Whether a table of functions begins at an address of data.
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
    DEEP + (argument * WORDS + word) as u32
}

/// The bits of a set.
fn ones(set: u64) -> impl Iterator<Item = usize> + Clone {
    (0..64).filter(move |bit| set >> bit & 1 == 1)
}
