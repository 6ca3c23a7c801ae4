//! Places prefetches in front of loads.
//!
//! A prefetch never faults, so its address may be wrong. Two conditions must hold: the code changes
//! no register and no flag that is live, and an *early load* (of the index that leads to the
//! address) reads only memory that the program reads at the same point. See
//! docs/design/prefetch.md.

mod ahead;
mod assemble;
mod list;
mod operation;
mod params;
mod search;
mod slice;
mod strided;
pub mod view;

use crate::analyze::dataflow::Flow;
use crate::common::prefetch::{Kind, Outcome, Placed, Request, Wanted};
use crate::ir::loops::NO_LOOP;
use crate::plan::types::{Insertion, Piece};
use crate::prefetch::params::LINE;
use crate::prefetch::search::PrefetchSearch;
use crate::prefetch::view::View;
use crate::util::fast_hash::FastMap;
use crate::x86::insn::InsnId;
use crate::x86::operands::{AccessSegment, EffectiveAddress, Form};
use crate::x86::regs::Gpr;
use mgz_annotations_schema::sidecar::CLASS_STRIDED;
use std::borrow::Cow;
use std::ops::Range;

/// Why a load gets no prefetch.
pub type Reason = Cow<'static, str>;

/// A load that may be prefetched.
#[derive(Clone, Copy)]
struct Load<'v> {
    insn: usize,
    block: usize,
    place: &'v EffectiveAddress,
    stride: Option<i64>,
    is_strided: bool,
}

/// Code for one load.
struct Code {
    at: usize,
    pieces: Vec<Piece>,
    line: Line,
    disp: i64,
    placed: Placed,
}

/// Places the prefetches of a function at `range`. The insertions are in order.
pub fn place_prefetches(
    view: View,
    flow: &mut Flow,
    request: &Request,
    range: &Range<u64>,
) -> (Vec<Insertion>, Vec<Outcome>) {
    let mut search = PrefetchSearch::new(view, flow);
    let mut codes = Codes::default();
    match request {
        Request::Loads(loads) => {
            for (&address, &wanted) in loads.range(range.clone()) {
                let result = search.one(address, wanted, &mut codes);
                codes.outcomes.push(Outcome {
                    address,
                    result: result.map_err(Cow::into_owned),
                });
            }
        }
        Request::All { distance } => {
            let wanted = Wanted {
                kind: Kind::Gather,
                distance: *distance,
            };
            for &insn in view.facts.accesses.insns() {
                let address = view.graph.insns[insn as usize].ip;
                if let Ok(placed) = search.one(address, wanted, &mut codes) {
                    codes.outcomes.push(Outcome {
                        address,
                        result: Ok(placed),
                    });
                }
            }
        }
    }
    codes.insertions.sort_by_key(|i| i.at);
    (codes.insertions, codes.outcomes)
}

/// Code of the prefetches so far.
#[derive(Default)]
struct Codes {
    insertions: Vec<Insertion>,
    outcomes: Vec<Outcome>,
    /// Displacements of prefetches, by line.
    lines: FastMap<Line, Vec<(i64, Placed)>>,
}

/// Key of loads that share a prefetch if their displacements differ by less than a cache line.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Line {
    /// Addresses of the instructions that compute the address. For a strided load, the last change
    /// of the registers in its block.
    source: Vec<u64>,
    registers: [Option<Gpr>; 2],
    scale: u8,
}

impl Line {
    fn of(load: &Load, source: Vec<u64>) -> Line {
        Line {
            source,
            registers: [load.place.base, load.place.index],
            scale: load.place.scale,
        }
    }
}

impl<'v> PrefetchSearch<'v, '_, '_> {
    /// Places the prefetch of the load at an address.
    fn one(&mut self, address: u64, wanted: Wanted, codes: &mut Codes) -> Result<Placed, Reason> {
        if let Some(reader) = self.view.shows_returns {
            return Err(format!(
                "its function calls others, and {reader} looks at return addresses, which would be other ones"
            )
            .into());
        }
        let load = self.load(address)?;
        let code = self.code(&load, wanted)?;
        let same = codes.lines.entry(code.line).or_default();
        let near = |other: &&(i64, Placed)| other.0.abs_diff(code.disp) < LINE;
        if let Some((_, placed)) = same.iter().find(near) {
            return Ok(placed.clone());
        }
        same.push((code.disp, code.placed.clone()));
        codes.insertions.push(Insertion {
            at: InsnId(code.at as u32),
            pieces: code.pieces,
        });
        Ok(code.placed)
    }

    /// The load at an address, if it may be prefetched.
    fn load(&mut self, address: u64) -> Result<Load<'v>, Reason> {
        let graph = self.view.graph;
        let Some(insn) = graph.insn_at(address) else {
            return Err("no instruction of this function begins there".into());
        };
        let facts = self.view.facts;
        let all = facts.accesses[insn].iter().enumerate();
        let Some((n, access)) = all.into_iter().find(|(_, a)| a.read) else {
            return Err("the instruction loads nothing".into());
        };
        let Form::Plain(place) = &access.form else {
            return Err(match access.form {
                Form::Gather { .. } => "it is a vector gather, which has an address per lane",
                Form::Repeated { .. } | Form::Step { .. } => {
                    "it is a string instruction, which the processor's own prefetcher follows"
                }
                _ => "its address has a form that no prefetch has",
            }
            .into());
        };
        if place.segment != AccessSegment::Flat {
            return Err("it is relative to the segment of a thread".into());
        }
        if place.is_constant() {
            return Err("its address is always the same, or in the function's frame".into());
        }
        let other = |i: usize| graph.insns.get(i).is_some_and(|i| i.is_overlapped());
        if other(insn) || insn.checked_sub(1).is_some_and(other) {
            return Err("its bytes are part of two instructions".into());
        }
        let block = graph.block_of(insn);
        let class = self.flow.classify(block, insn, n, access);
        if self.view.loops.of_block[block] == NO_LOOP {
            return Err("it is in no loop of its function".into());
        }
        Ok(Load {
            insn,
            block,
            place,
            stride: class.stride.filter(|s| *s != 0),
            is_strided: class.class == CLASS_STRIDED,
        })
    }

    /// The code for a load. The wanted form is tried first.
    fn code(&mut self, load: &Load, wanted: Wanted) -> Result<Code, Reason> {
        let Wanted { kind, distance } = wanted;
        if kind == Kind::List
            && let Some(code) = self.list(load)?
        {
            return Ok(code);
        }
        if load.is_strided {
            return self.strided(load, distance);
        }
        match self.gather(load, distance) {
            Err(why) if kind == Kind::Auto => self.list(load)?.ok_or(why),
            Err(_) if kind == Kind::List => {
                Err("its loop does not go from node to node by one pointer of the node".into())
            }
            result => result,
        }
    }
}
