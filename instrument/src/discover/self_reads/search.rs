//! Uses of addresses by functions, each function by itself.

use crate::discover::self_reads::value::State;
use crate::discover::self_reads::value::Value;
use crate::discover::self_reads::walk::Walk;
use crate::discover::self_reads::{ARGUMENTS, INFO, MAX_ROUNDS, OBJECTS, WORDS, ones};
use crate::program::section_bounds::KnownFunction;
use crate::program::{Input, Program};
use crate::util::fast_hash::FastMap;
use crate::x86::decode::CodeSource;
use crate::x86::flow::{is_call, is_padding};
use iced_x86::{InstructionInfoFactory, Mnemonic, Register};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// A call with a followed value.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Target of the call, if it is known.
    pub(super) callee: Option<u64>,
    pub(super) args: [Value; 6],
    /// Contents of the words of the frame that the first arguments point to, with a bit for each
    /// word whose content is uncertain.
    pub(super) deep: [([u64; WORDS], u8); OBJECTS],
}

impl Given {
    /// True if a followed value goes to the callee.
    pub(super) fn carries(&self) -> bool {
        self.args.iter().any(|a| a.sources != 0 || a.kind != 0)
            || self.deep.iter().any(|(words, _)| *words != [0; WORDS])
    }

    /// Properties of the callee that follow from its name.
    pub(super) fn known(&self, input: &Input) -> Option<KnownFunction> {
        input.bounds.functions.get(&self.callee?).copied()
    }
}

/// Uses of addresses by one function.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The addresses, by bit.
    pub(super) origins: Vec<u64>,
    /// Addresses through which it reads, and those through which it writes without doubt.
    pub(super) read: u64,
    pub(super) written: u64,
    /// Addresses stored in memory that is not followed.
    pub(super) stored: u64,
    /// Pairs of values that are compared or subtracted, and true if one of them is uncertain.
    pub(super) pairs: BTreeSet<(u64, u64, bool)>,
    pub(super) calls: Vec<Given>,
    /// True if it tests the flags of program headers for executable ones…
    pub(super) asks_flags: bool,
    /// …and if it reads in a segment.
    pub(super) reads_segment: bool,
}

/// A function that takes addresses of code, or examines segments.
pub(super) struct Taker {
    pub(super) range: Range<u64>,
    pub(super) uses: Uses,
    /// The callbacks to which it has segments passed, and the uses by each.
    pub(super) callbacks: Vec<(u64, Uses)>,
}

pub(super) struct Search<'s, 'a> {
    pub(super) input: &'s Input<'a>,
    pub(super) program: &'s Program,
    pub(super) factory: RefCell<InstructionInfoFactory>,
    /// From the first byte of the file in memory to the last.
    pub(super) mapped: Range<u64>,
}

impl<'s, 'a> Search<'s, 'a> {
    pub(super) fn new(input: &'s Input<'a>, program: &'s Program) -> Search<'s, 'a> {
        let segments = || input.segments.iter();
        let end = segments().map(|s| s.vaddr + s.bytes.len() as u64).max();
        // (The end of a section is an address, too.)
        let end = end.unwrap_or(0).max(input.bounds.around.end);
        let low = segments().map(|s| s.vaddr).min().unwrap_or(0);
        let low = input.bounds.starts.first().map_or(low, |at| low.min(*at));
        Search {
            input,
            program,
            factory: RefCell::new(InstructionInfoFactory::new()),
            mapped: low..end,
        }
    }

    /// Follows the addresses that a function takes, and its callbacks for segments.
    pub(super) fn taker(&self, range: &Range<u64>) -> Option<Taker> {
        let uses = self.follow(range, State::entry())?;
        let given = uses
            .calls
            .iter()
            .filter(|c| c.known(self.input) == Some(KnownFunction::Segments))
            .flat_map(|c| ones(c.args[0].sources).filter_map(|bit| uses.origins.get(bit).copied()));
        let callbacks = given
            .filter_map(|callback| {
                let mut state = State::default();
                state.regs[ARGUMENTS[0]].kind = INFO;
                let id = self.program.function_at(callback)?;
                let range = &self.program.function(id).range;
                Some((callback, self.follow(range, state)?))
            })
            .collect();
        Some(Taker {
            range: range.clone(),
            uses,
            callbacks,
        })
    }

    /// Follows values through a function.
    pub(super) fn follow(&self, range: &Range<u64>, entry: State) -> Option<Uses> {
        let bytes = self.input.slice(range)?;
        let body = CodeSource {
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
        // By target: the state from later branches, in the round before.
        let mut back: FastMap<u64, State> = FastMap::default();
        for _ in 0..MAX_ROUNDS {
            let (mut waiting, mut next) = (back.clone(), FastMap::default());
            walk.state = entry.clone();
            // (The last round counts, since all paths are known then.)
            walk.uses = Uses {
                origins: std::mem::take(&mut walk.uses.origins),
                ..Uses::default()
            };
            let (mut runs, mut called) = (true, false);
            // True if the paths to this point are known.
            let mut is_known = true;
            for insn in &body.insns {
                match waiting.get(&insn.ip) {
                    Some(state) if runs && !called && is_known => walk.state.join(state),
                    // (The call before a branch target may be one that never returns.)
                    Some(state) => (walk.state, is_known) = (state.clone(), true),
                    // Control comes through a table or a landing pad, or from a later branch.
                    None if !runs => {
                        walk.state.regs = Default::default();
                        walk.state.forget_vectors();
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
