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

use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data::Used;
use crate::program::section_bounds::Known;
use crate::program::{Input, Program};
use crate::x86::decode::Source;
use crate::x86::effects::uses;
use crate::x86::flow::{direct_target, is_call, is_padding};
use crate::x86::insn::Insn;
use crate::x86::regs::{CALLER_SAVED, Gpr, RAX, RSP, RegSet, gpr, registers};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Argument registers in order, by hardware number: rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Addresses that are followed in one function.
const MOST: usize = 48;
/// The bit of the first argument in [`Value::from`].
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

/// Of [`Value::kind`]: what `dl_iterate_phdr` hands out.
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

/// What a register or a word of the frame may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Value {
    /// Addresses of code that it may be made of: a bit each; arguments from bit [`FIRST`] on.
    from: u64,
    kind: u8,
    /// The number that it is.
    number: Option<u64>,
    /// It points into a table of functions, which begins there.
    table: Option<u64>,
    /// It is the address of this word of the frame.
    frame: Option<i64>,
}

impl Value {
    fn join(self, other: Value) -> Value {
        // (What a call leaves is not known; it may be what was there.)
        let number = match (self.number, other.number) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => a.or(b),
        };
        let same = |a: Option<i64>, b: Option<i64>| {
            if a.is_some() && b.is_some() && a != b {
                None
            } else {
                a.or(b)
            }
        };
        Value {
            number,
            frame: same(self.frame, other.frame),
            ..self.with(other)
        }
    }

    /// Made of both.
    fn with(self, other: Value) -> Value {
        Value {
            from: self.from | other.from,
            kind: self.kind | other.kind,
            number: None,
            table: match (self.table, other.table) {
                (Some(a), Some(b)) if a != b => None,
                (a, b) => a.or(b),
            },
            frame: None,
        }
    }

    fn is_followed(self) -> bool {
        self.from != 0 || self.kind != 0 || self.frame.is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    regs: [Value; 16],
    /// Vector registers, in which two addresses may be on their way to the frame.
    vectors: [Value; 16],
    /// Words of the frame, by their distance from where the return address lies.
    slots: BTreeMap<i64, Value>,
    /// How far the stack pointer is below that, if that is known.
    depth: Option<i64>,
}

impl State {
    /// Where a function begins.
    fn entry() -> State {
        let mut state = State {
            depth: Some(0),
            ..State::default()
        };
        for (n, &register) in ARGUMENTS.iter().enumerate() {
            state.regs[register].from = 1 << (FIRST + n as u32);
        }
        state
    }

    /// Takes in another way to get here.
    fn join(&mut self, other: &State) {
        for (own, other) in self.regs.iter_mut().zip(&other.regs) {
            *own = own.join(*other);
        }
        for (own, other) in self.vectors.iter_mut().zip(&other.vectors) {
            *own = own.join(*other);
        }
        if self.depth != other.depth {
            self.depth = None;
        }
        for (slot, value) in &other.slots {
            // What is not known on one way may be what is known on the other.
            let own = self.slots.entry(*slot).or_insert(*value);
            *own = own.join(*value);
        }
    }
}

/// A call with something that is followed.
#[derive(Clone, Debug)]
struct Given {
    /// What it leads to, if that is known.
    callee: Option<u64>,
    args: [Value; 6],
    /// What the words of the frame hold that the first of them point to.
    deep: [[u64; WORDS]; OBJECTS],
}

/// What a function does with its arguments, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Params {
    /// It reads, or writes, where they point to…
    read: u8,
    written: u8,
    /// …and where the first words point to that lie there.
    read_deep: u8,
    written_deep: u8,
}

/// What one function does with addresses.
#[derive(Debug, Default)]
struct Uses {
    /// The addresses, by bit.
    origins: Vec<u64>,
    /// Read through, or written.
    read: u64,
    written: u64,
    /// Put into memory that is not followed.
    stored: u64,
    /// Compared with each other, or subtracted.
    pairs: Vec<(u64, u64)>,
    calls: Vec<Given>,
    /// The flags of program headers are asked for executable ones…
    asks_flags: bool,
    /// …and what lies in a segment is read.
    reads_segment: bool,
}

struct Search<'s, 'a> {
    input: &'s Input<'a>,
    program: &'s Program,
    factory: RefCell<InstructionInfoFactory>,
    /// By function.
    params: RefCell<HashMap<u64, Params>>,
}

impl Search<'_, '_> {
    /// What a function reads of the code.
    fn readings(&self, range: &Range<u64>) -> Vec<Reading> {
        let Some(mut uses) = self.follow(range, State::entry()) else {
            return Vec::new();
        };
        let bounds = &self.input.bounds;
        let all = |by: u64| Reading {
            by,
            range: bounds.around.clone(),
            written: false,
        };
        let callbacks: Vec<u64> = uses
            .calls
            .iter()
            .filter(|c| self.known_of(c) == Some(Known::Segments))
            .flat_map(|c| ones(c.args[0].from).filter_map(|bit| uses.origins.get(bit).copied()))
            .collect();
        for callback in callbacks {
            let mut state = State::default();
            state.regs[ARGUMENTS[0]].kind = INFO;
            let info = self
                .program
                .function_at(callback)
                .map(|id| self.program.function(id));
            let found = info.and_then(|f| self.follow(&f.range, state));
            if found.is_some_and(|mut f| self.reads_segments(&mut f)) {
                return vec![all(callback)];
            }
        }
        if self.reads_segments(&mut uses) {
            return vec![all(range.start)];
        }
        let (read, written, lengths) = self.resolve(&uses, 0);
        let reaches_end = |at: &u64| bounds.ends.contains(at);
        let address = |bit: usize| uses.origins[bit];
        let given: u64 = uses
            .calls
            .iter()
            .filter(|c| self.known_of(c) != Some(Known::Harmless))
            .flat_map(|c| &c.args)
            .fold(0, |set, arg| set | arg.from);
        let own = (1u64 << uses.origins.len()) - 1;
        // Headers are read by loaders, which write to places that they compute from where a file begins.
        let is_base = |at: &u64| bounds.starts.first() == Some(at);
        let base = uses.origins.iter().position(is_base);
        let code = own & !base.map_or(0, |bit| 1 << bit);
        let (starts, ends): (Vec<usize>, Vec<usize>) = (
            (0..uses.origins.len())
                .filter(|&b| bounds.starts.contains(&address(b)))
                .collect(),
            (0..uses.origins.len())
                .filter(|&b| reaches_end(&address(b)))
                .collect(),
        );
        let has = |set: u64, bits: &[usize]| bits.iter().any(|b| set >> b & 1 == 1);
        let mut found = Vec::new();
        let read_here = ones(read & own).filter(|&b| bounds.is_near(address(b)));
        // The functions of tables, each from its start on.
        let tables = ones(read & own).filter(|&b| !bounds.is_near(address(b)));
        for bit in tables {
            for at in functions_in(self.input, address(bit)) {
                let function = self.program.function_at(at);
                let whole = function.map(|id| self.program.function(id).range.clone());
                found.extend(whole.filter(|f| f.start == at).map(|range| Reading {
                    by: at,
                    range,
                    written: written >> bit & 1 == 1,
                }));
            }
        }
        if let Some(end) = ends.iter().map(|&b| address(b)).max()
            && (read & code != 0
                || has(given, &ends)
                || has(given & code, &starts)
                || has(uses.stored, &ends) && has(uses.stored & code, &starts)
                || uses.pairs.iter().any(|&(a, b)| {
                    has(b, &ends) && a & read != 0 || has(a, &ends) && b & read != 0
                }))
        {
            let low = read_here.clone().chain(starts.iter().copied()).map(address);
            let low = low
                .filter(|&at| at < end)
                .min()
                .unwrap_or(bounds.around.start);
            found.push(Reading {
                by: range.start,
                range: low..end,
                written: written & code != 0,
            });
        }
        for bit in read_here {
            let at = address(bit);
            // Who reads at its start may read all of a function; inside, it is data (see
            // `code_or_data`).
            let function = self
                .program
                .function_at(at)
                .map(|id| &self.program.function(id).range);
            let mut alone = function.filter(|f| f.start == at).cloned();
            if *range == function.cloned().unwrap_or_default() && at != range.start {
                // Its own code, from there on.
                alone = Some(at..range.end);
            }
            let mut reach = alone.clone().unwrap_or(at..at);
            for &(a, b) in &uses.pairs {
                // What may be one of several functions is no end of a range: it is compared as what is called.
                if (a & own).count_ones() > 1 || (b & own).count_ones() > 1 {
                    continue;
                }
                for (one, other) in [(a, b), (b, a)] {
                    if one >> bit & 1 == 1 {
                        for partner in ones(other & own)
                            .map(address)
                            .filter(|&p| bounds.is_near(p))
                        {
                            reach = reach.start.min(partner)..reach.end.max(partner);
                        }
                    }
                }
            }
            let length = lengths
                .iter()
                .filter(|l| l.0 >> bit & 1 == 1)
                .map(|l| l.1)
                .max();
            reach.end = reach.end.max(at + length.unwrap_or(0));
            if !reach.is_empty() {
                found.push(Reading {
                    by: range.start,
                    range: reach,
                    written: written >> bit & 1 == 1,
                });
            }
        }
        found
    }

    fn reads_segments(&self, uses: &mut Uses) -> bool {
        let calls = std::mem::take(&mut uses.calls);
        for call in &calls {
            let args = call.args.iter().enumerate();
            let segments: u8 = args
                .filter(|(_, a)| a.kind & SEGMENT != 0)
                .map(|(n, _)| 1 << n)
                .sum();
            uses.reads_segment |= segments != 0
                && match (self.known_of(call), call.callee) {
                    (Some(Known::Reads(arguments)), _) => segments & arguments != 0,
                    (Some(Known::AnyCall), _) => true,
                    (Some(_), _) => false,
                    (None, Some(callee)) if self.program.function_at(callee).is_some() => {
                        self.params(callee, 0).read & segments != 0
                    }
                    // A function of another file: not many but those of hashes take such addresses.
                    _ => true,
                };
        }
        uses.calls = calls;
        uses.asks_flags && uses.reads_segment
    }

    fn known_of(&self, call: &Given) -> Option<Known> {
        self.input.bounds.functions.get(&call.callee?).copied()
    }

    /// What is read and written when the callees are asked as well, and the lengths that go to
    /// those with an address.
    fn resolve(&self, uses: &Uses, depth: usize) -> (u64, u64, Vec<(u64, u64)>) {
        let (mut read, mut written, mut lengths) = (uses.read, uses.written, Vec::new());
        for call in &uses.calls {
            const WRITABLE: u64 = 2;
            let writable = call.args[2].number.is_none_or(|n| n & WRITABLE != 0);
            let known = self.known_of(call);
            let params = match (known, call.callee) {
                (Some(Known::Reads(read)), _) => Params {
                    read,
                    ..Params::default()
                },
                (Some(Known::Protects), _) if writable => Params {
                    read: 1,
                    written: 1,
                    ..Params::default()
                },
                (Some(_), _) | (None, None) => Params::default(),
                (None, Some(callee)) => self.params(callee, depth),
            };
            // (Pages are made writable as a whole.)
            let is_length = |n: &u64| {
                (2..LONGEST).contains(n)
                    && known != Some(Known::Protects)
                    && self.input.segment_at(*n).is_none()
            };
            let longest = call
                .args
                .iter()
                .filter_map(|a| a.number)
                .filter(is_length)
                .max();
            for (n, arg) in call.args.iter().enumerate() {
                if params.read >> n & 1 == 1 {
                    read |= arg.from;
                    lengths.extend(longest.map(|length| (arg.from, length)));
                }
                if params.written >> n & 1 == 1 {
                    written |= arg.from;
                }
                if n >= OBJECTS {
                    continue;
                }
                for (word, held) in call.deep[n].iter().enumerate() {
                    // (An argument that is handed on has its own words.)
                    let handed =
                        (0..OBJECTS).filter(|own| arg.from >> (FIRST + *own as u32) & 1 == 1);
                    let handed: u64 = handed.map(|own| 1 << deep_bit(own, word)).sum();
                    let bit = n * WORDS + word;
                    if params.read_deep >> bit & 1 == 1 {
                        read |= held | handed;
                    }
                    if params.written_deep >> bit & 1 == 1 {
                        written |= held | handed;
                    }
                }
            }
        }
        (read, written, lengths)
    }

    /// What a function does with its arguments.
    fn params(&self, function: u64, depth: usize) -> Params {
        if let Some(known) = self.params.borrow().get(&function) {
            return *known;
        }
        self.params.borrow_mut().insert(function, Params::default());
        let Some(info) = self.program.function_at(function).filter(|_| depth < DEPTH) else {
            return Params::default();
        };
        let range = &self.program.function(info).range;
        let found = self.follow(range, State::entry()).map(|uses| {
            let (read, written, _) = self.resolve(&uses, depth + 1);
            Params {
                read: (read >> FIRST) as u8,
                written: (written >> FIRST) as u8,
                read_deep: (read >> DEEP) as u8,
                written_deep: (written >> DEEP) as u8,
            }
        });
        let found = found.unwrap_or_default();
        self.params.borrow_mut().insert(function, found);
        found
    }

    /// Follows values through a function.
    fn follow(&self, range: &Range<u64>, entry: State) -> Option<Uses> {
        let bytes = self.input.slice(range)?;
        let body = Source {
            bytes,
            base: range.start,
            entries: Vec::new(),
        }
        .decode()
        .ok()?;
        let framed = body.insns.iter().take(8).any(|i| {
            i.inst.mnemonic() == Mnemonic::Mov
                && i.inst.op0_register() == Register::RBP
                && i.inst.op1_register() == Register::RSP
        });
        let mut walk = Walk {
            search: self,
            range: range.clone(),
            framed,
            uses: Uses::default(),
            state: entry.clone(),
        };
        // By target: what came there from further on, in the round before.
        let mut back: HashMap<u64, State> = HashMap::new();
        for _ in 0..ROUNDS {
            let (mut waiting, mut next) = (back.clone(), HashMap::new());
            walk.state = entry.clone();
            // (What the last round says, which knows of all ways.)
            walk.uses = Uses {
                origins: std::mem::take(&mut walk.uses.origins),
                ..Uses::default()
            };
            let (mut runs, mut called) = (true, false);
            // It is known what leads here.
            let mut is_known = true;
            for insn in &body.insns {
                match waiting.get(&insn.ip) {
                    Some(state) if runs && !called && is_known => walk.state.join(state),
                    // (A call before what branches lead to may be one that never returns.)
                    Some(state) => (walk.state, is_known) = (state.clone(), true),
                    // By a table, or a landing pad; or what leads there comes later.
                    None if !runs => {
                        (walk.state.regs, walk.state.vectors) = Default::default();
                        (walk.state.depth, is_known) = (None, false);
                    }
                    None => {}
                }
                walk.step(insn);
                if let Some(target) = insn
                    .direct_target()
                    .filter(|t| is_known && range.contains(t) && !is_call(insn.flow))
                {
                    let list = if target <= insn.ip {
                        &mut next
                    } else {
                        &mut waiting
                    };
                    match list.entry(target) {
                        Entry::Occupied(mut known) => known.get_mut().join(&walk.state),
                        Entry::Vacant(new) => {
                            new.insert(walk.state.clone());
                        }
                    }
                }
                runs = !insn.ends_flow();
                called = is_call(insn.flow) || called && is_padding(&insn.inst);
            }
            if next == back {
                break;
            }
            back = next;
        }
        Some(walk.uses)
    }
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

/// One way through a function.
struct Walk<'w, 's, 'a> {
    search: &'w Search<'s, 'a>,
    range: Range<u64>,
    /// rbp points to the frame.
    framed: bool,
    uses: Uses,
    state: State,
}

impl Walk<'_, '_, '_> {
    /// The value of a number in the code or in memory, if it is an address of code.
    fn origin(&mut self, at: u64) -> Value {
        let input = self.search.input;
        let counts = input.bounds.contains(at) || input.is_code(at) && !input.is_object(at);
        if !counts {
            return Value {
                number: Some(at),
                table: Some(at).filter(|_| is_table(input, at)),
                ..Value::default()
            };
        }
        self.bit(at)
    }

    /// A value that is made of this address.
    fn bit(&mut self, at: u64) -> Value {
        let bit = match self.uses.origins.iter().position(|o| *o == at) {
            Some(bit) => bit,
            None if self.uses.origins.len() < MOST => {
                self.uses.origins.push(at);
                self.uses.origins.len() - 1
            }
            None => return Value::default(),
        };
        Value {
            from: 1 << bit,
            ..Value::default()
        }
    }

    /// The word at a fixed address.
    fn word(&mut self, at: u64) -> Value {
        let input = self.search.input;
        let word = input
            .bounds
            .word(at)
            .or_else(|| input.word(at).filter(|w| input.is_code(*w)));
        word.map_or(Value::default(), |w| self.origin(w))
    }

    fn reg(&self, register: Register) -> Value {
        gpr(register).map_or(Value::default(), |r| self.state.regs[usize::from(r.0)])
    }

    /// Whether the displacement of an operand in memory is an address.
    fn is_fixed(&self, inst: &Instruction) -> bool {
        inst.memory_base() == Register::RIP
            || inst.memory_base() == Register::None && !self.search.input.pie
    }

    /// The word of the frame that an operand in memory is.
    fn slot(&self, inst: &Instruction) -> Option<i64> {
        let base = match inst.memory_base() {
            Register::RBP if self.framed => -8,
            Register::RSP => -self.state.depth?,
            // (The address of an object may be in a register.)
            register => self.reg(register).frame?,
        };
        (inst.memory_index() == Register::None)
            .then(|| base.wrapping_add(inst.memory_displacement64() as i64))
    }

    /// What the words of an object hold at whose beginning a value may point.
    fn held_by(&self, value: Value) -> [u64; WORDS] {
        let word = |n: usize| {
            let at = value.frame?.checked_add(8 * n as i64)?;
            self.state.slots.get(&at).map(|word| word.from)
        };
        std::array::from_fn(|n| word(n).unwrap_or(0))
    }

    /// Keeps account of the stack pointer.
    fn move_stack(&mut self, inst: &Instruction) {
        use Mnemonic::*;
        let by = inst.try_immediate(1).map(|n| n as i64).ok();
        let depth = match (inst.mnemonic(), self.state.depth) {
            (Leave, _) if self.framed => Some(0),
            (_, None) => None,
            (Push, Some(depth)) => Some(depth + 8),
            (Pop, Some(depth)) => Some(depth - 8),
            (Sub, Some(depth)) => by.map(|by| depth.wrapping_add(by)),
            (Add, Some(depth)) => by.map(|by| depth.wrapping_sub(by)),
            (Lea, Some(depth))
                if inst.memory_base() == Register::RSP && inst.memory_index() == Register::None =>
            {
                Some(depth.wrapping_sub(inst.memory_displacement64() as i64))
            }
            _ => None,
        };
        self.state.depth = depth;
        self.state.regs[usize::from(RSP.0)] = Value::default();
    }

    /// What the operand in memory of an instruction holds. Notes that it is used.
    fn memory(&mut self, inst: &Instruction, access: OpAccess) -> Value {
        if let Some(slot) = self.slot(inst) {
            return self.state.slots.get(&slot).copied().unwrap_or_default();
        }
        let size = inst.memory_size().size();
        let at = inst.memory_displacement64() as i64;
        if self.is_fixed(inst) {
            let input = self.search.input;
            if inst.memory_index() == Register::None {
                return self.word(inst.memory_displacement64());
            }
            if size == 8 && is_table(input, at as u64) {
                return self.bit(at as u64);
            }
        }
        let address = self
            .reg(inst.memory_base())
            .with(self.reg(inst.memory_index()));
        let writes = !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        self.touch(address, writes);
        if let Some(table) = address.table.filter(|_| size == 8 && !writes) {
            let length = 8 * functions_in(self.search.input, table).count() as u64;
            if (0..length as i64).contains(&at) {
                return self.bit(table);
            }
        }
        let kind = match address.kind {
            kind if kind & INFO != 0 && size == 8 && at == 16 => HEADER,
            kind if kind & HEADER != 0 && size == 8 => SEGMENT,
            kind if kind & HEADER != 0 => FLAGS,
            _ => 0,
        };
        // A word of what an argument points to.
        let word = usize::try_from(at)
            .ok()
            .filter(|at| at % 8 == 0)
            .map(|at| at / 8);
        let pointed = (0..OBJECTS).filter(|n| address.from >> (FIRST + *n as u32) & 1 == 1);
        let from = word
            .filter(|&word| size == 8 && word < WORDS)
            .map_or(0, |word| pointed.map(|n| 1 << deep_bit(n, word)).sum());
        Value {
            kind,
            from,
            ..Value::default()
        }
    }

    fn touch(&mut self, address: Value, writes: bool) {
        self.uses.read |= address.from;
        if writes {
            self.uses.written |= address.from;
        }
        self.uses.reads_segment |= address.kind & SEGMENT != 0;
    }

    /// The value of an operand.
    fn operand(&mut self, inst: &Instruction, op: u32, access: OpAccess) -> Value {
        match inst.op_kind(op) {
            OpKind::Register => self.reg(inst.op_register(op)),
            OpKind::Memory => self.memory(inst, access),
            _ => match inst.try_immediate(op) {
                Ok(number) if !self.search.input.pie => self.origin(number),
                Ok(number) => Value {
                    number: Some(number),
                    ..Value::default()
                },
                Err(_) => Value::default(),
            },
        }
    }

    fn put(&mut self, inst: &Instruction, value: Value) {
        match inst.op0_kind() {
            OpKind::Register => {
                if let Some(r) = gpr(inst.op0_register()) {
                    self.state.regs[usize::from(r.0)] = value;
                }
            }
            OpKind::Memory => match self.slot(inst) {
                Some(slot) => {
                    self.keep(slot, value);
                }
                None => self.uses.stored |= value.from,
            },
            _ => {}
        }
    }

    /// Puts a value into the frame. What may lie elsewhere, in an object that a register points to, is added to what is there.
    fn keep(&mut self, slot: i64, value: Value) {
        self.state.slots.insert(slot, value);
    }

    fn pair(&mut self, a: Value, b: Value) {
        if a.from != 0 && b.from != 0 {
            self.uses.pairs.push((a.from, b.from));
        }
    }

    fn step(&mut self, insn: &Insn) {
        use Mnemonic::*;
        let inst = &insn.inst;
        if insn.flow != FlowControl::Next && insn.flow != FlowControl::ConditionalBranch {
            return self.leave(insn);
        }
        if inst.is_string_instruction() {
            return self.string(inst);
        }
        if self.vector(inst) {
            return;
        }
        let moves_stack = inst.op_count() > 0
            && inst.op0_kind() == OpKind::Register
            && inst.op0_register() == Register::RSP
            && !matches!(inst.mnemonic(), Cmp | Test | Push | Pop);
        if moves_stack || inst.mnemonic() == Leave {
            return self.move_stack(inst);
        }
        let whole = inst.op0_register().size() >= 4 || inst.op0_kind() == OpKind::Memory;
        match inst.mnemonic() {
            Nop | Endbr64 | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchnta => {}
            Lea => {
                let mut value = self
                    .reg(inst.memory_base())
                    .with(self.reg(inst.memory_index()));
                if self.is_fixed(inst) {
                    let origin = self.origin(inst.memory_displacement64());
                    value = value.with(origin);
                } else if let Some(slot) = self.slot(inst) {
                    value.frame = Some(slot);
                }
                self.put(inst, value);
            }
            Mov | Movzx | Movsx | Movsxd if inst.op_count() == 2 => {
                let mut value = self.operand(inst, 1, OpAccess::Read);
                if inst.op1_kind() == OpKind::Register && inst.op1_register() == Register::RSP {
                    value.frame = self.state.depth.map(|depth| -depth);
                }
                if inst.op0_kind() == OpKind::Memory && self.slot(inst).is_none() {
                    self.memory(inst, OpAccess::Write);
                }
                self.put(inst, if whole { value } else { Value::default() });
            }
            Push => {
                let value = self.operand(inst, 0, OpAccess::Read);
                self.uses.stored |= value.from;
                self.move_stack(inst);
                if let Some(depth) = self.state.depth {
                    self.keep(-depth, value);
                }
            }
            Pop => {
                let top = self.state.depth.map(|depth| -depth);
                let value = top.and_then(|top| self.state.slots.get(&top).copied());
                self.put(inst, value.unwrap_or_default());
                self.move_stack(inst);
            }
            Cmp | Test | And => {
                let (a, b) = (
                    self.operand(inst, 0, OpAccess::Read),
                    self.operand(inst, 1, OpAccess::Read),
                );
                let bits = inst.try_immediate(1).unwrap_or(0);
                let at = inst.memory_displacement64();
                let is_flags = a.kind & FLAGS != 0;
                match inst.mnemonic() {
                    Cmp => {
                        self.pair(a, b);
                        // (The same numbers are kinds of headers.)
                        let in_place = inst.op0_kind() == OpKind::Memory && at % 56 == 4;
                        self.uses.asks_flags |= is_flags && in_place && matches!(bits, 5 | 7);
                    }
                    _ => {
                        // (Both words are looked at together.)
                        let second = [a, b].iter().find_map(|v| v.number).unwrap_or(0) >> 32;
                        let both = (a.kind | b.kind) & SEGMENT != 0 && second & 1 == 1;
                        self.uses.asks_flags |= is_flags && bits & 1 == 1 || both;
                    }
                }
                if inst.mnemonic() == And {
                    // Rounded down, it is an address still.
                    let rounded = (bits as i64) < 0 && (bits as i64) > -(1 << 21);
                    let kept = if rounded || is_flags {
                        Value { number: None, ..a }
                    } else {
                        Value::default()
                    };
                    self.put(inst, kept);
                }
            }
            Add | Inc | Dec | Sub if whole => {
                let a = self.operand(inst, 0, OpAccess::ReadWrite);
                let value = if inst.op_count() < 2 {
                    Value { number: None, ..a }
                } else {
                    let b = self.operand(inst, 1, OpAccess::Read);
                    if inst.mnemonic() == Sub {
                        self.pair(a, b);
                    }
                    match inst.mnemonic() {
                        Add => a.with(b),
                        _ if b.from != 0 || inst.op1_kind() == OpKind::Register => Value::default(),
                        _ => Value { number: None, ..a },
                    }
                };
                self.put(inst, value);
            }
            _ if inst.condition_code() != iced_x86::ConditionCode::None && inst.op_count() == 2 => {
                let value = self.operand(inst, 1, OpAccess::Read);
                let own = self.operand(inst, 0, OpAccess::Read);
                self.put(inst, own.join(value));
            }
            _ => {
                let memory = (0..inst.op_count()).find(|&o| inst.op_kind(o) == OpKind::Memory);
                let mut factory = self.search.factory.borrow_mut();
                let access = memory.map(|op| registers(&mut factory, inst).op_access(op));
                let clobber = uses(&mut factory, inst).clobber;
                drop(factory);
                if let Some(access) = access {
                    self.memory(inst, access);
                    if access != OpAccess::Read {
                        self.put(inst, Value::default());
                    }
                }
                clobber
                    .iter()
                    .for_each(|r| self.state.regs[usize::from(r.0)] = Value::default());
            }
        }
    }

    /// Moves of two words at a time, as compilers fill objects. Returns whether it was one.
    fn vector(&mut self, inst: &Instruction) -> bool {
        use Mnemonic::*;
        let number = |r: Register| (r.is_xmm() && r.number() < 16).then(|| r.number());
        let is_move = matches!(
            inst.mnemonic(),
            Movq | Vmovq
                | Movaps
                | Movups
                | Movdqa
                | Movdqu
                | Movapd
                | Movupd
                | Vmovaps
                | Vmovups
                | Vmovdqa
                | Vmovdqu
        );
        let packs = matches!(
            inst.mnemonic(),
            Punpcklqdq | Vpunpcklqdq | Pinsrq | Vpinsrq | Movhps | Vmovhps | Unpcklpd
        );
        if !is_move && !packs {
            return false;
        }
        let last = (1..inst.op_count()).filter(|&o| !matches!(inst.op_kind(o), OpKind::Immediate8));
        let mut value = Value::default();
        for op in last {
            let part = match inst.op_kind(op) {
                OpKind::Memory => {
                    let first = self.memory(inst, OpAccess::Read);
                    let slot = self.slot(inst).filter(|_| inst.memory_size().size() == 16);
                    let second = slot.and_then(|slot| self.state.slots.get(&(slot + 8)).copied());
                    let fixed = inst.memory_displacement64();
                    let is_wide = self.is_fixed(inst) && inst.memory_size().size() == 16;
                    let behind = is_wide.then(|| self.word(fixed.wrapping_add(8)));
                    first
                        .with(second.unwrap_or_default())
                        .with(behind.unwrap_or_default())
                }
                OpKind::Register => match number(inst.op_register(op)) {
                    Some(n) => self.state.vectors[n],
                    None => self.reg(inst.op_register(op)),
                },
                _ => Value::default(),
            };
            value = value.with(part);
        }
        match inst.op0_kind() {
            OpKind::Register => match number(inst.op0_register()) {
                Some(n) if packs => self.state.vectors[n] = self.state.vectors[n].with(value),
                Some(n) => self.state.vectors[n] = value,
                None => self.put(inst, value),
            },
            OpKind::Memory => match self.slot(inst) {
                Some(slot) => {
                    self.keep(slot, value);
                    if inst.memory_size().size() == 16 {
                        self.keep(slot + 8, value);
                    }
                }
                None => {
                    self.memory(inst, OpAccess::Write);
                    self.uses.stored |= value.from;
                }
            },
            _ => {}
        }
        true
    }

    fn string(&mut self, inst: &Instruction) {
        use Mnemonic::*;
        let is_store = matches!(
            inst.mnemonic(),
            Movsb | Movsw | Movsd | Movsq | Stosb | Stosw | Stosd | Stosq
        );
        let (one_source, one_target) = (
            matches!(inst.mnemonic(), Lodsb | Lodsw | Lodsd | Lodsq),
            matches!(
                inst.mnemonic(),
                Stosb | Stosw | Stosd | Stosq | Scasb | Scasw | Scasd | Scasq
            ),
        );
        if !one_target {
            self.touch(self.reg(Register::RSI), false);
        }
        if !one_source {
            self.touch(self.reg(Register::RDI), is_store);
        }
    }

    /// A call, or the end of a block that no branch ends on a condition.
    fn leave(&mut self, insn: &Insn) {
        let inst = &insn.inst;
        let target = direct_target(inst);
        let is_tail = target.is_some_and(|t| !self.range.contains(&t));
        let through = (inst.is_ip_rel_memory_operand()).then(|| inst.ip_rel_memory_address());
        let callee = target.or(through);
        if is_call(insn.flow)
            || is_tail
            || insn.flow == FlowControl::IndirectBranch && through.is_some()
        {
            let args = ARGUMENTS.map(|r| self.state.regs[r]);
            if args.iter().any(|a| a.is_followed()) {
                for (n, &a) in args.iter().enumerate() {
                    args[..n].iter().for_each(|&b| self.pair(a, b));
                }
                let deep = std::array::from_fn(|n| self.held_by(args[n]));
                self.uses.calls.push(Given { callee, args, deep });
            }
        }
        if is_call(insn.flow) {
            let known = callee.and_then(|c| self.search.input.bounds.functions.get(&c));
            let asks_headers = known == Some(&Known::Auxiliary)
                && self.state.regs[ARGUMENTS[0]].number == Some(AT_PHDR);
            CALLER_SAVED
                .iter()
                .for_each(|r| self.state.regs[usize::from(r.0)] = Value::default());
            self.state.vectors = Default::default();
            if asks_headers {
                self.state.regs[usize::from(RAX.0)].kind = HEADER;
            }
        }
    }
}

/// What `getauxval` is asked for to learn where the program headers are.
const AT_PHDR: u64 = 3;
