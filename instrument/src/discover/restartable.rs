//! Functions with restartable sequences (`rseq`), which stay as they are.
//!
//! The kernel restarts such a sequence if it interrupts the thread between two addresses. A
//! *descriptor* holds both addresses and that of the continuation. The addresses are the
//! original's, so a clone's copy of the sequence would go on after an interruption, with a lost
//! result.
//!
//! An interrupted sequence continues at its *abort address*. In front of it is the signature with
//! which the thread registered. The C library registers with [`SIGNATURE`]. So the abort addresses
//! of a file are after each such number in code. A file that registers by a system call of its own
//! may use another number; candidates are the numbers in this code.
//!
//! These functions stay unchanged:
//! * functions that a descriptor in data names, in its section or elsewhere;
//! * the function around an abort address, and functions that control reaches from there;
//! * functions that take an abort address, to make a descriptor at run time, and all code whose
//!   addresses they take;
//! * in a file that registers with an unknown number: functions that take addresses inside of
//!   functions, and the functions there.

use crate::common::skip_reason::LeftReason;
use crate::discover::self_reads;
use crate::program::section_bounds::KnownFunction;
use crate::program::{Input, Program};
use crate::x86::flow::{direct_target, ends_flow};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Signature with which glibc registers on x86 (`RSEQ_SIG`). librseq and tcmalloc use it too where
/// they register.
const SIGNATURE: u32 = 0x5305_3053;
/// Number of the system call `rseq`.
const RSEQ_CALL: u32 = 334;
/// `ud1 SIGNATURE(%rip), %edi` without its last four bytes, the usual instruction around a
/// signature.
const UD1: [u8; 3] = [0x0f, 0xb9, 0x3d];
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 32;
/// Longer sequences are rejected. Source: Chosen.
const MAX_SEQUENCE_BYTES: u64 = 1 << 16;
/// Addresses that one function takes may belong to one sequence up to this distance, bytes. Source:
/// Chosen.
const MAX_ADDRESS_DISTANCE: u64 = 4096;
/// Maximum number of instructions followed from an abort address. Source: Chosen.
const MAX_FOLLOWED_INSTRUCTIONS: usize = 64;
/// Maximum number of instructions between the number of a system call and the call. Source: Chosen.
const MAX_INSTRUCTIONS_TO_CALL: usize = 24;
/// Smaller numbers may be lengths or flags, and are no signatures. Source: Chosen.
const MIN_SIGNATURE: u64 = 1 << 16;
/// Bytes on both sides of a word with an abort address that may hold the other addresses. Source:
/// Chosen.
const BYTES_AROUND_ABORT: u64 = 64;

/// Leaves functions with restartable sequences unchanged. `Input::excluded` has those of the
/// section `__rseq_cs` already.
pub fn leave(input: &Input, program: &mut Program) {
    let calls = calls_by_number(input, program, RSEQ_CALL);
    let foreign: Vec<u64> = calls
        .iter()
        .filter(|&&at| !holds(input, program, at, SIGNATURE))
        .copied()
        .collect();
    let mut signatures = BTreeSet::from([SIGNATURE]);
    signatures.extend(candidates(input, program, &foreign));
    let mut found = Found {
        input,
        program,
        functions: BTreeSet::new(),
    };
    let aborts = found.aborts(&signatures);
    found.around_aborts(&aborts);
    found.take_aborts(&aborts);
    found.described(&aborts, !foreign.is_empty());
    if !foreign.is_empty() {
        found.take_inner_addresses();
    }
    let functions = found.functions;
    for index in functions {
        program.functions[index]
            .left
            .get_or_insert(LeftReason::RestartableSequence);
    }
}

/// Functions found so far.
struct Found<'f, 'a> {
    input: &'f Input<'a>,
    program: &'f Program,
    functions: BTreeSet<usize>,
}

impl Found<'_, '_> {
    /// Adds the function around an address.
    fn add(&mut self, at: u64) {
        let found = self.program.function_at(at);
        self.functions.extend(found.map(|id| id.0 as usize));
    }

    /// Adds all functions from one address to another.
    fn add_range(&mut self, range: &Range<u64>) {
        let functions = &self.program.functions;
        let first = functions.partition_point(|f| f.range.end <= range.start);
        let last = functions.partition_point(|f| f.range.start < range.end);
        self.functions.extend(first..last);
    }

    /// Adds all code that may be part of a sequence whose start or end is among these addresses.
    fn add_near(&mut self, mut addresses: Vec<u64>) {
        addresses.sort_unstable();
        for pair in addresses.windows(2) {
            if pair[1] - pair[0] <= MAX_ADDRESS_DISTANCE {
                self.add_range(&(pair[0]..pair[1] + 1));
            }
        }
        addresses.into_iter().for_each(|at| self.add(at));
    }

    /// The addresses behind these signatures in code, except where an instruction has one as an
    /// immediate and nothing refers to the address behind it.
    fn aborts(&self, signatures: &BTreeSet<u32>) -> BTreeSet<u64> {
        let behind = |range: &Range<u64>, signature: u32| {
            let (start, code) = (range.start, self.input.slice(range).unwrap_or(&[]));
            let bytes = signature.to_le_bytes();
            memmem::find_iter(code, &bytes)
                .map(|at| (start + at as u64 + 4, signature))
                .collect::<Vec<_>>()
        };
        let ranges = self.input.exec_ranges.iter();
        let found: BTreeMap<u64, u32> = ranges
            .flat_map(|range| {
                signatures
                    .iter()
                    .flat_map(|&s| behind(range, s))
                    .collect::<Vec<_>>()
            })
            .collect();
        let all: BTreeSet<u64> = found.keys().copied().collect();
        // (A branch may also lead behind an immediate.)
        let taken = self.references(&all).into_iter();
        let mut referred: BTreeSet<u64> = taken
            .filter(|&(at, _)| takes_address(self.input, at))
            .map(|(_, abort)| abort)
            .collect();
        if !all.is_empty() {
            let held = words(self.input).map(|(_, word)| word);
            referred.extend(held.filter(|word| all.contains(word)));
        }
        let is_number = |at: u64, signature: u32| {
            !referred.contains(&at) && is_immediate(self.input, self.program, at, signature)
        };
        let aborts = found.into_iter().filter(|&(at, s)| !is_number(at, s));
        aborts.map(|(at, _)| at).collect()
    }

    /// `(where, what)`: addresses in code after displacements or immediates that equal a wanted
    /// address.
    fn references(&self, wanted: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let (Some(&low), Some(&high)) = (wanted.first(), wanted.last()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let is_wanted = |at: u64| (low..=high).contains(&at) && wanted.contains(&at);
        for range in &self.input.exec_ranges {
            let code = self.input.slice(range).unwrap_or(&[]);
            for (number, at) in code.windows(4).zip(range.start..) {
                let number = i32::from_le_bytes(number.try_into().unwrap_or_default());
                let relative = (at + 4).wrapping_add_signed(number.into());
                if is_wanted(relative) {
                    found.push((at, relative));
                }
                let fixed = u64::from(number as u32);
                if !self.input.pie && is_wanted(fixed) {
                    found.push((at, fixed));
                }
            }
        }
        found
    }

    fn around_aborts(&mut self, aborts: &BTreeSet<u64>) {
        for &abort in aborts {
            self.add(abort);
            // (Hand-written code may begin a function at the abort address. The sequence is before
            // it then.)
            self.add(abort.saturating_sub(5));
            let bytes = self.input.bytes_at(abort).unwrap_or(&[]);
            let code = Decoder::with_ip(64, bytes, abort, DecoderOptions::NONE);
            for inst in code.into_iter().take(MAX_FOLLOWED_INSTRUCTIONS) {
                if inst.is_invalid() {
                    break;
                }
                let jumps = inst.flow_control() != FlowControl::Call;
                if let Some(target) = direct_target(&inst).filter(|_| jumps) {
                    self.add(target);
                }
                if ends_flow(&inst) {
                    break;
                }
            }
        }
    }

    /// Adds functions that take abort addresses, and the other code whose addresses they take.
    fn take_aborts(&mut self, aborts: &BTreeSet<u64>) {
        for (by, abort) in self.references(aborts) {
            let Some(id) = self.program.function_at(by) else {
                continue;
            };
            self.functions.insert(id.0 as usize);
            let range = &self.program.function(id).range;
            self.add_near(taken(self.input, range).chain([abort]).collect());
        }
        if aborts.is_empty() {
            return;
        }
        // A table from which descriptors are made has the other addresses nearby.
        let held: Vec<u64> = words(self.input)
            .filter(|(_, word)| aborts.contains(word))
            .map(|(at, _)| at)
            .collect();
        for at in held {
            let around = (at.saturating_sub(BYTES_AROUND_ABORT)
                ..=at.saturating_add(BYTES_AROUND_ABORT))
                .step_by(8);
            let code = around.filter_map(|at| self.input.word(at));
            self.add_near(code.filter(|&to| self.input.is_code(to)).collect());
        }
    }

    /// Adds the functions that descriptors in data name.
    fn described(&mut self, aborts: &BTreeSet<u64>, any_signature: bool) {
        let start = |at: u64| {
            let id = self.program.function_at(at);
            id.is_some_and(|id| self.program.function(id).range.start == at)
        };
        let is_abort = |at: u64| {
            let before = at.checked_sub(7).and_then(|b| self.input.bytes_at(b));
            aborts.contains(&at)
                || any_signature
                || before.is_some_and(|b| b.starts_with(&UD1))
                || !start(at)
        };
        let found: Vec<(Range<u64>, u64)> = words(self.input)
            .filter_map(|(at, start)| descriptor(self.input, at.checked_sub(8)?, start))
            .filter(|(_, abort)| is_abort(*abort))
            .collect();
        for (sequence, abort) in found {
            self.add_range(&sequence);
            self.add(abort);
        }
    }

    /// Adds functions that take addresses inside of functions, and the functions there.
    fn take_inner_addresses(&mut self) {
        for (index, f) in self.program.functions.iter().enumerate() {
            let inner = |&at: &u64| {
                let id = self.program.function_at(at);
                id.is_none_or(|id| self.program.function(id).range.start != at)
            };
            let inner: Vec<u64> = taken(self.input, &f.range).filter(inner).collect();
            if !inner.is_empty() {
                self.functions.insert(index);
                self.add_near(inner);
            }
        }
    }
}

/// `(where, what)`: words of data that may hold addresses of code.
fn words<'i>(input: &'i Input) -> impl Iterator<Item = (u64, u64)> + 'i {
    let relocated = input.relative_targets.iter().copied();
    let fixed = input.segments.iter().filter(|_| !input.pie).flat_map(|s| {
        let skip = (s.vaddr.wrapping_neg() % 8) as usize;
        let words = s.bytes.get(skip..).unwrap_or(&[]).chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .zip((s.vaddr + skip as u64..).step_by(8))
            .filter(|&(word, _)| word != 0 && input.is_code(word))
            .map(|(word, at)| (at, word))
    });
    // (Relocations of a fixed file at most repeat its words.)
    relocated.chain(fixed)
}

/// The sequence and the abort address if the bytes at an address may be a descriptor: version 0,
/// flags, start, length, abort address.
fn descriptor(input: &Input, at: u64, start: u64) -> Option<(Range<u64>, u64)> {
    const FLAGS: u32 = 8;
    let bytes = input.bytes_at(at)?.get(..DESCRIPTOR as usize)?;
    let number = |from: usize| mgz_elf::bytes::u32(bytes, from);
    let length = mgz_elf::bytes::u64(bytes, 16)?;
    if number(0)? != 0 || number(4)? >= FLAGS || !(1..MAX_SEQUENCE_BYTES).contains(&length) {
        return None;
    }
    let sequence = start..start.checked_add(length)?;
    let abort = input.word(at.checked_add(24)?)?;
    let is_one = input.is_code(abort) && input.is_code(start) && !sequence.contains(&abort);
    is_one.then_some((sequence, abort))
}

/// True if the four bytes at an address of code may be an address that an instruction takes: after
/// a `lea` without a register, or after the opcode of a move or push of an immediate.
fn takes_address(input: &Input, at: u64) -> bool {
    let before = at.checked_sub(2).and_then(|start| input.bytes_at(start));
    let Some(&[first, second, ..]) = before else {
        return false;
    };
    let lea = first == 0x8d && second & 0xc7 == 0x05;
    let number = matches!(second, 0xb8..=0xbf | 0x68) || first == 0xc7;
    lea || number && !input.pie
}

/// The instructions of a range in order.
fn instructions<'i>(
    input: &'i Input,
    range: &Range<u64>,
) -> impl Iterator<Item = Instruction> + 'i {
    let code = input.slice(range).unwrap_or(&[]);
    let mut decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// The addresses of code that a function's instructions take.
fn taken<'i>(input: &'i Input, range: &Range<u64>) -> impl Iterator<Item = u64> + 'i {
    instructions(input, range)
        .filter(|inst| inst.flow_control() == FlowControl::Next)
        .flat_map(|inst| self_reads::numbers(input, &inst).collect::<Vec<_>>())
        .filter(|&at| input.is_code(at))
}

/// True if the signature in front of an address is an immediate operand of a function's
/// instruction.
fn is_immediate(input: &Input, program: &Program, after: u64, signature: u32) -> bool {
    let Some(id) = program.function_at(after - 1) else {
        return false;
    };
    let is_number = |o: u32, i: &Instruction| {
        i.op_kind(o) != OpKind::Memory && i.try_immediate(o).is_ok_and(|n| n as u32 == signature)
    };
    instructions(input, &program.function(id).range)
        .take_while(|i| i.ip() < after)
        .last()
        .is_some_and(|i| {
            !i.is_invalid()
                && i.next_ip() == after
                && i.mnemonic() == Mnemonic::Mov
                && (0..i.op_count()).any(|o| is_number(o, &i))
        })
}

/// Addresses at which the code may make a system call of this number.
pub(crate) fn calls_by_number(input: &Input, program: &Program, number: u32) -> Vec<u64> {
    let number = number.to_le_bytes();
    let places = input.exec_ranges.iter().flat_map(|range| {
        let code = input.slice(range).unwrap_or(&[]);
        memmem::find_iter(code, &number).map(move |at| range.start + at as u64)
    });
    places
        .filter(|&at| makes_call(input, program, at))
        .collect()
}

/// True if a system call soon follows the number at an address.
fn makes_call(input: &Input, program: &Program, number: u64) -> bool {
    // mov to eax, rax, edi and rdi.
    const SETS: [&[u8]; 4] = [&[0xb8], &[0x48, 0xc7, 0xc0], &[0xbf], &[0x48, 0xc7, 0xc7]];
    let before = |n: u64| input.slice(&(number.checked_sub(n)?..number));
    let sets = |bytes: &&[u8]| before(bytes.len() as u64) == Some(*bytes);
    if !SETS.iter().any(sets) {
        return false;
    }
    let end = program
        .function_at(number)
        .map_or(u64::MAX, |id| program.function(id).range.end);
    let rest = input.bytes_at(number + 4).unwrap_or(&[]);
    let mut code = Decoder::with_ip(64, rest, number + 4, DecoderOptions::NONE)
        .into_iter()
        .take(MAX_INSTRUCTIONS_TO_CALL)
        .take_while(|i| !i.is_invalid() && i.ip() < end);
    code.any(|inst| {
        let through = inst
            .is_ip_rel_memory_operand()
            .then(|| inst.ip_rel_memory_address());
        let callee = direct_target(&inst).or(through);
        let known = callee.and_then(|c| input.bounds.functions.get(&c));
        inst.mnemonic() == Mnemonic::Syscall
            || inst.flow_control() != FlowControl::Next && known == Some(&KnownFunction::AnyCall)
    })
}

/// True if the function around an address holds a number.
fn holds(input: &Input, program: &Program, at: u64, number: u32) -> bool {
    let range = match program.function_at(at) {
        Some(id) => program.function(id).range.clone(),
        None => at.saturating_sub(BYTES_AROUND_ABORT)..at.saturating_add(BYTES_AROUND_ABORT),
    };
    let bytes = input.slice(&range).unwrap_or(&[]);
    memmem::find(bytes, &number.to_le_bytes()).is_some()
}

/// Signatures that the functions around registrations may use: the immediates in these functions
/// and in their callers.
fn candidates(input: &Input, program: &Program, registrations: &[u64]) -> BTreeSet<u32> {
    let own: BTreeSet<usize> = registrations
        .iter()
        .filter_map(|&at| Some(program.function_at(at)?.0 as usize))
        .collect();
    if own.is_empty() {
        return BTreeSet::new();
    }
    let calls_one = |inst: &Instruction| {
        let target = direct_target(inst).and_then(|t| program.function_at(t));
        target.is_some_and(|id| own.contains(&(id.0 as usize)))
    };
    let callers = program.functions.iter().enumerate().filter(|(_, f)| {
        let mut code = instructions(input, &f.range);
        code.any(|inst| calls_one(&inst))
    });
    let all: BTreeSet<usize> = callers
        .map(|(index, _)| index)
        .chain(own.iter().copied())
        .collect();
    all.into_iter()
        .flat_map(|index| instructions(input, &program.functions[index].range))
        .filter(|inst| inst.flow_control() == FlowControl::Next)
        .flat_map(|inst| (0..inst.op_count()).filter_map(move |o| inst.try_immediate(o).ok()))
        .filter(|n| {
            *n >= MIN_SIGNATURE && *n <= u32::MAX.into() || *n as i64 as i32 as i64 == *n as i64
        })
        .map(|n| n as u32)
        .filter(|&n| u64::from(n) >= MIN_SIGNATURE)
        .filter(|&n| !input.is_code(n.into()) && n != u32::MAX)
        .collect()
}
