//! Reads of the code by functions and their callees.

use crate::discover::self_reads::search::{Given, Search, Taker, Uses};
use crate::discover::self_reads::value::State;
use crate::discover::self_reads::{
    FIRST_ARGUMENT_BIT, FIRST_WORD_BIT, MAX_CALL_DEPTH, MAX_RANGE_BYTES, OBJECTS, Reading, SEGMENT,
    WORDS, deep_bit, functions_in, ones,
};
use crate::ir::FunctionId;
use crate::program::section_bounds::KnownFunction;
use crate::program::{Input, Program};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of bits of a demand: arguments, and the first words where the first arguments point.
const DEMANDS: u32 = 6 + (OBJECTS * WORDS) as u32;
/// Longest range between two functions whose addresses were in the frame before a call that may
/// have replaced them. (Functions that are read as a range are in one object file, which is seldom
/// longer.)
const LONGEST_STALE: u64 = 1 << 16;
/// Numbers of the system calls that change page protection.
const MPROTECT: u64 = 10;
const PKEY_MPROTECT: u64 = 329;

/// Uses of a function's arguments, with one bit for each argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Params {
    /// Arguments through which it reads or writes, or whose memory it makes writable…
    read: u8,
    written: u8,
    unprotected: u8,
    /// …and the same for pointers in the first words of that memory.
    read_deep: u8,
    written_deep: u8,
    unprotected_deep: u8,
    /// It compares or subtracts arguments n and m: bit 8·n + m.
    pairs: u64,
}

/// Uses of addresses by a function and its callees.
#[derive(Debug, Default)]
struct Resolved {
    read: u64,
    written: u64,
    /// Addresses whose memory is made writable.
    unprotected: u64,
    pairs: Vec<(u64, u64, bool)>,
    /// Addresses with the lengths that are passed to callees with them.
    lengths: Vec<(u64, u64)>,
}

/// Functions that get followed values.
pub(super) struct Callees<'s, 'a> {
    input: &'s Input<'a>,
    program: &'s Program,
    uses: BTreeMap<FunctionId, Uses>,
    params: BTreeMap<FunctionId, Params>,
}

impl<'s, 'a> Callees<'s, 'a> {
    /// The callees of all takers and, in turn, their callees, each followed once.
    pub(super) fn of(input: &'s Input<'a>, program: &'s Program, takers: &[Taker]) -> Self {
        let mut callees = Callees {
            input,
            program,
            uses: BTreeMap::new(),
            params: BTreeMap::new(),
        };
        let mut demands: BTreeMap<FunctionId, u32> = BTreeMap::new();
        let mut next: BTreeMap<FunctionId, u32> = BTreeMap::new();
        for taker in takers {
            let own = (1 << FIRST_WORD_BIT) - 1;
            let all = taker.callbacks.iter().map(|c| &c.1).chain([&taker.uses]);
            all.for_each(|uses| callees.demand(uses, own, &mut next));
        }
        for _ in 0..MAX_CALL_DEPTH {
            let fresh: Vec<FunctionId> = next
                .keys()
                .copied()
                .filter(|id| !callees.uses.contains_key(id))
                .collect();
            let followed: Vec<Uses> = fresh
                .par_iter()
                .map_init(
                    || Search::new(input, program),
                    |search, &id| {
                        let range = &program.function(id).range;
                        search.follow(range, State::entry()).unwrap_or_default()
                    },
                )
                .collect();
            callees.uses.extend(fresh.into_iter().zip(followed));
            let mut further = BTreeMap::new();
            for (&id, &asked) in &next {
                let known = demands.entry(id).or_default();
                let new = asked & !*known;
                *known |= new;
                if new != 0
                    && let Some(uses) = callees.uses.get(&id)
                {
                    callees.demand(uses, demanded(new), &mut further);
                }
            }
            next = further;
        }
        callees.settle();
        callees
    }

    /// Notes the callees whose use of their arguments matters, since they get values made of
    /// `relevant` addresses.
    fn demand(&self, uses: &Uses, relevant: u64, out: &mut BTreeMap<FunctionId, u32>) {
        for call in &uses.calls {
            if call.known(self.input).is_some() {
                continue;
            }
            let Some(id) = call.callee.and_then(|at| self.program.function_at(at)) else {
                continue;
            };
            let mut asked = 0;
            for (n, arg) in call.args.iter().enumerate() {
                if arg.sources & relevant != 0 || arg.kind & SEGMENT != 0 {
                    asked |= 1 << n;
                }
            }
            for (n, word, held) in held_words(call) {
                if held & relevant != 0 {
                    asked |= 1 << (6 + n * WORDS + word);
                }
            }
            if asked != 0 {
                *out.entry(id).or_default() |= asked;
            }
        }
    }

    /// Finds how all callees use their arguments. Uses by further callees are added until nothing
    /// changes.
    fn settle(&mut self) {
        // (Each round covers one more call.)
        for _ in 0..=MAX_CALL_DEPTH {
            let found: Vec<Params> = self
                .uses
                .par_iter()
                .map(|(_, uses)| self.params_of(uses))
                .collect();
            let found: BTreeMap<FunctionId, Params> =
                self.uses.keys().copied().zip(found).collect();
            if found == self.params {
                break;
            }
            self.params = found;
        }
    }

    fn params_of(&self, uses: &Uses) -> Params {
        let all = self.resolve(uses);
        let arguments = |set: u64| (set >> FIRST_ARGUMENT_BIT) as u8;
        let words = |set: u64| (set >> FIRST_WORD_BIT) as u8;
        let mut pairs = 0;
        for (a, b, _) in uses.pairs.iter().chain(&all.pairs) {
            // (A sum of several arguments ends a range that begins at one of them.)
            for n in ones(u64::from(arguments(*a))) {
                for m in ones(u64::from(arguments(*b))) {
                    pairs |= 1 << (8 * n + m);
                }
            }
        }
        Params {
            read: arguments(all.read),
            written: arguments(all.written),
            unprotected: arguments(all.unprotected),
            read_deep: words(all.read),
            written_deep: words(all.written),
            unprotected_deep: words(all.unprotected),
            pairs,
        }
    }

    /// Known uses of the arguments by a call's callee.
    fn params_for(&self, call: &Given) -> Params {
        const WRITABLE: u64 = 2;
        let may_write = |n: usize| call.args[n].number().is_none_or(|n| n & WRITABLE != 0);
        // MAP_SHARED and MAP_FIXED.
        const IN_PLACE: u64 = 0x11;
        let maps_in_place = call.args[3]
            .number()
            .is_some_and(|n| n & IN_PLACE == IN_PLACE);
        let unprotects = |bit: u8| Params {
            read: bit,
            unprotected: bit,
            ..Params::default()
        };
        match call.known(self.input) {
            Some(KnownFunction::Reads(read)) => Params {
                read,
                ..Params::default()
            },
            Some(KnownFunction::Protects) if may_write(2) => unprotects(1),
            // Another mapping replaces the code, so the code can change.
            Some(KnownFunction::Maps) if maps_in_place => Params {
                written: 1,
                ..unprotects(1)
            },
            Some(KnownFunction::AnyCall)
                if matches!(call.args[0].number(), Some(MPROTECT | PKEY_MPROTECT))
                    && may_write(3) =>
            {
                unprotects(2)
            }
            Some(_) => Params::default(),
            None => {
                let id = call.callee.and_then(|at| self.program.function_at(at));
                let params = id.and_then(|id| self.params.get(&id));
                params.copied().unwrap_or_default()
            }
        }
    }

    fn resolve(&self, uses: &Uses) -> Resolved {
        let mut all = Resolved {
            read: uses.read,
            written: uses.written,
            ..Resolved::default()
        };
        for call in &uses.calls {
            let params = self.params_for(call);
            // (Protection changes apply to whole pages.)
            let whole_pages = params.unprotected != 0;
            let is_length = |n: &u64| {
                (2..MAX_RANGE_BYTES).contains(n)
                    && !whole_pages
                    && self.input.segment_at(*n).is_none()
            };
            let numbers = call.args.iter().filter_map(|a| a.number());
            let longest = numbers.filter(is_length).max();
            for (n, arg) in call.args.iter().enumerate() {
                if params.read >> n & 1 == 1 {
                    all.read |= arg.sources;
                    all.lengths
                        .extend(longest.map(|length| (arg.sources, length)));
                }
                if params.written >> n & 1 == 1 && arg.doubt == 0 {
                    all.written |= arg.sources;
                }
                if params.unprotected >> n & 1 == 1 {
                    all.unprotected |= arg.sources;
                }
            }
            for (n, word, held) in held_words(call) {
                let bit = n * WORDS + word;
                if params.read_deep >> bit & 1 == 1 {
                    all.read |= held;
                }
                if params.written_deep >> bit & 1 == 1 && call.deep[n].1 >> word & 1 == 0 {
                    all.written |= held;
                }
                if params.unprotected_deep >> bit & 1 == 1 {
                    all.unprotected |= held;
                }
            }
            for pair in ones(params.pairs) {
                let (a, b) = (call.args[pair / 8], call.args[pair % 8]);
                if a.sources != 0 && b.sources != 0 {
                    all.pairs
                        .push((a.sources, b.sources, a.is_stale() || b.is_stale()));
                }
            }
        }
        all
    }

    fn reads_segments(&self, uses: &Uses) -> bool {
        let by_call = |call: &Given| {
            let args = call.args.iter().enumerate();
            let segments: u8 = args
                .filter(|(_, a)| a.kind & SEGMENT != 0)
                .map(|(n, _)| 1 << n)
                .sum();
            segments != 0
                && match (call.known(self.input), call.callee) {
                    (Some(KnownFunction::Reads(arguments)), _) => segments & arguments != 0,
                    (Some(KnownFunction::AnyCall), _) => true,
                    (Some(_), _) => false,
                    (None, Some(callee)) if self.program.function_at(callee).is_some() => {
                        self.params_for(call).read & segments != 0
                    }
                    // Few functions of other files except hashes take such addresses.
                    _ => true,
                }
        };
        uses.asks_flags && (uses.reads_segment || uses.calls.iter().any(by_call))
    }

    /// Reads of the code by a function.
    pub(super) fn readings(&self, taker: &Taker) -> Vec<Reading> {
        let bounds = &self.input.bounds;
        let all = |by: u64| Reading {
            by,
            range: bounds.around.clone(),
            written: false,
            doubted: false,
        };
        let (range, uses) = (&taker.range, &taker.uses);
        let by_callback = taker
            .callbacks
            .iter()
            .find(|(_, uses)| self.reads_segments(uses));
        if let Some((callback, _)) = by_callback {
            return vec![all(*callback)];
        }
        if self.reads_segments(uses) {
            return vec![all(range.start)];
        }
        let resolved = self.resolve(uses);
        let mut found = self.of_tables(uses, &resolved);
        found.extend(self.up_to_an_end(range.start, uses, &resolved));
        let own = (1u64 << uses.origins.len()) - 1;
        let read = resolved.read | resolved.unprotected;
        for bit in ones(read & own).filter(|&b| bounds.is_near(uses.origins[b])) {
            // A function that changes itself makes its code writable, unless the code is writable
            // from the start. (Interpreters take hundreds of addresses inside themselves, on paths
            // without visible branches.)
            let at = uses.origins[bit];
            let is_writable = |at| self.input.segment_at(at).is_some_and(|s| s.writable);
            let counts = !range.contains(&at) || is_writable(at);
            let written =
                resolved.unprotected >> bit & 1 == 1 || counts && resolved.written >> bit & 1 == 1;
            let certain = self.reach(range, uses, &resolved, bit, false);
            let possible = self.reach(range, uses, &resolved, bit, true);
            let doubted = (possible != certain).then_some((possible, true));
            for (reach, doubted) in [Some((certain, false)), doubted].into_iter().flatten() {
                if !reach.is_empty() {
                    found.push(Reading {
                        by: range.start,
                        range: reach,
                        written: written && !doubted,
                        doubted,
                    });
                }
            }
        }
        found
    }

    /// Reads of functions by tables, each from its start on.
    fn of_tables(&self, uses: &Uses, resolved: &Resolved) -> Vec<Reading> {
        let own = (1u64 << uses.origins.len()) - 1;
        let changed = resolved.written | resolved.unprotected;
        let tables =
            ones(resolved.read & own).filter(|&b| !self.input.bounds.is_near(uses.origins[b]));
        let mut found = Vec::new();
        for bit in tables {
            for at in functions_in(self.input, uses.origins[bit]) {
                let function = self.program.function_at(at);
                let whole = function.map(|id| self.program.function(id).range.clone());
                found.extend(whole.filter(|f| f.start == at).map(|range| Reading {
                    by: at,
                    range,
                    written: changed >> bit & 1 == 1,
                    doubted: false,
                }));
            }
        }
        found
    }

    /// Reads up to an end of code, by a function that begins at `by`.
    fn up_to_an_end(&self, by: u64, uses: &Uses, resolved: &Resolved) -> Option<Reading> {
        let bounds = &self.input.bounds;
        let address = |bit: usize| uses.origins[bit];
        let bits = 0..uses.origins.len();
        let ends: Vec<usize> = bits
            .clone()
            .filter(|&b| bounds.ends.contains(&address(b)))
            .collect();
        let end = ends.iter().map(|&b| address(b)).max()?;
        let starts: Vec<usize> = bits
            .clone()
            .filter(|&b| bounds.starts.contains(&address(b)))
            .collect();
        let given: u64 = uses
            .calls
            .iter()
            .filter(|c| c.known(self.input) != Some(KnownFunction::Harmless))
            .flat_map(|c| &c.args)
            .fold(0, |set, arg| set | arg.sources);
        let own = (1u64 << uses.origins.len()) - 1;
        // Loaders read headers, and write to addresses that they compute from the file's start.
        let is_base = |at: &u64| bounds.starts.first() == Some(at);
        let base = uses.origins.iter().position(is_base);
        let code = own & !base.map_or(0, |bit| 1 << bit);
        let has = |set: u64, bits: &[usize]| bits.iter().any(|b| set >> b & 1 == 1);
        let read = resolved.read | resolved.unprotected;
        let pairs = || uses.pairs.iter().chain(&resolved.pairs);
        let is_read = read & code != 0
            || has(given, &ends)
            || has(given & code, &starts)
            || has(uses.stored, &ends) && has(uses.stored & code, &starts)
            || pairs()
                .any(|&(a, b, _)| has(b, &ends) && a & read != 0 || has(a, &ends) && b & read != 0);
        if !is_read {
            return None;
        }
        let read_here = ones(read & own).filter(|&b| bounds.is_near(address(b)));
        let low = read_here.chain(starts).map(address);
        let low = low.filter(|&at| at < end).min();
        Some(Reading {
            by,
            range: low.unwrap_or(bounds.around.start)..end,
            written: (resolved.written | resolved.unprotected) & code != 0,
            doubted: false,
        })
    }

    /// Range that the function at `range` reads from one of its addresses on. `doubted`: the range
    /// may also end at an address from a comparison in which one of the two values is uncertain.
    fn reach(
        &self,
        range: &Range<u64>,
        uses: &Uses,
        resolved: &Resolved,
        bit: usize,
        doubted: bool,
    ) -> Range<u64> {
        let own = (1u64 << uses.origins.len()) - 1;
        let at = uses.origins[bit];
        // Code that reads at a function's start may read the whole function. Inside a function, the
        // bytes at the address are data (see `code_or_data`), unless the function is made writable.
        let is_unprotected = resolved.unprotected >> bit & 1 == 1;
        let function = self
            .program
            .function_at(at)
            .map(|id| &self.program.function(id).range);
        let mut alone = function
            .filter(|f| f.start == at || is_unprotected)
            .cloned();
        let is_own = *range == function.cloned().unwrap_or_default();
        if is_own && at != range.start && !is_unprotected {
            // Its own code from there on.
            alone = Some(at..range.end);
        }
        let mut reach = alone.unwrap_or(at..at);
        for &(a, b, is_stale) in uses.pairs.iter().chain(&resolved.pairs) {
            // A value that may be one of several functions ends no range: it is compared as a call
            // target.
            let several = (a & own).count_ones() > 1 || (b & own).count_ones() > 1;
            if several || is_stale && !doubted {
                continue;
            }
            for (one, other) in [(a, b), (b, a)] {
                if one >> bit & 1 == 0 {
                    continue;
                }
                let partners = ones(other & own)
                    .map(|bit| uses.origins[bit])
                    .filter(|&p| self.input.bounds.is_near(p))
                    .filter(|&p| !is_stale || p.abs_diff(at) <= LONGEST_STALE);
                for partner in partners {
                    reach = reach.start.min(partner)..reach.end.max(partner);
                }
            }
        }
        let lengths = resolved.lengths.iter().filter(|l| l.0 >> bit & 1 == 1);
        let length = lengths.map(|l| l.1).max();
        reach.end = reach.end.max(at.saturating_add(length.unwrap_or(0)));
        reach
    }
}

/// The address bits of a demand.
fn demanded(asked: u32) -> u64 {
    let bits = ones(u64::from(asked)).map(|bit| match bit as u32 {
        argument @ 0..6 => 1 << (FIRST_ARGUMENT_BIT + argument),
        word @ 6..DEMANDS => 1 << (FIRST_WORD_BIT + word - 6),
        _ => 0u64,
    });
    bits.fold(0, |set, bit| set | bit)
}

/// Contents of the words that a call's first arguments point to: argument, word, and addresses. (An
/// argument that is passed on has its own words.)
fn held_words(call: &Given) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
    let all = (0..OBJECTS).flat_map(|n| (0..WORDS).map(move |word| (n, word)));
    all.map(|(n, word)| {
        let from = call.args[n].sources;
        let handed = (0..OBJECTS).filter(|own| from >> (FIRST_ARGUMENT_BIT + *own as u32) & 1 == 1);
        let handed: u64 = handed.map(|own| 1 << deep_bit(own, word)).sum();
        (n, word, call.deep[n].0[word] | handed)
    })
}
