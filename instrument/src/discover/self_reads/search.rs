//! What functions read of the code, their callees included.

use crate::discover::self_reads::value::{State, Value};
use crate::discover::self_reads::walk::Walk;
use crate::discover::self_reads::{
    ARGUMENTS, DEEP, DEPTH, FIRST, INFO, LONGEST, OBJECTS, ROUNDS, Reading, SEGMENT, WORDS,
    deep_bit, functions_in, ones,
};
use crate::program::section_bounds::Known;
use crate::program::{Input, Program};
use crate::x86::decode::Source;
use crate::x86::flow::{is_call, is_padding};
use iced_x86::{InstructionInfoFactory, Mnemonic, Register};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// A call with something that is followed.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// What it leads to, if that is known.
    pub(super) callee: Option<u64>,
    pub(super) args: [Value; 6],
    /// What the words of the frame hold that the first of them point to.
    pub(super) deep: [[u64; WORDS]; OBJECTS],
}

/// What a function does with its arguments, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Params {
    /// It reads, or writes, where they point to…
    pub(super) read: u8,
    pub(super) written: u8,
    /// …and where the first words point to that lie there.
    pub(super) read_deep: u8,
    pub(super) written_deep: u8,
}

/// What one function does with addresses.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The addresses, by bit.
    pub(super) origins: Vec<u64>,
    /// Read through, or written.
    pub(super) read: u64,
    pub(super) written: u64,
    /// Put into memory that is not followed.
    pub(super) stored: u64,
    /// Compared with each other, or subtracted.
    pub(super) pairs: Vec<(u64, u64)>,
    pub(super) calls: Vec<Given>,
    /// The flags of program headers are asked for executable ones…
    pub(super) asks_flags: bool,
    /// …and what lies in a segment is read.
    pub(super) reads_segment: bool,
}

pub(super) struct Search<'s, 'a> {
    pub(super) input: &'s Input<'a>,
    pub(super) program: &'s Program,
    pub(super) factory: RefCell<InstructionInfoFactory>,
    /// By function.
    pub(super) params: RefCell<HashMap<u64, Params>>,
}

impl Search<'_, '_> {
    /// What a function reads of the code.
    pub(super) fn readings(&self, range: &Range<u64>) -> Vec<Reading> {
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

    pub(super) fn reads_segments(&self, uses: &mut Uses) -> bool {
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

    pub(super) fn known_of(&self, call: &Given) -> Option<Known> {
        self.input.bounds.functions.get(&call.callee?).copied()
    }

    /// What is read and written when the callees are asked as well, and the lengths that go to
    /// those with an address.
    pub(super) fn resolve(&self, uses: &Uses, depth: usize) -> (u64, u64, Vec<(u64, u64)>) {
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
    pub(super) fn params(&self, function: u64, depth: usize) -> Params {
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
    pub(super) fn follow(&self, range: &Range<u64>, entry: State) -> Option<Uses> {
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
