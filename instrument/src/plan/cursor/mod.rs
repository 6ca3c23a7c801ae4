//! Places where one register holds the cursor across blocks.
//!
//! A region outside of residencies loads the cursor, advances it and stores it. In a short loop,
//! each iteration then waits for the store of the previous one. A *residency* is a set of blocks
//! without calls in which one register keeps the cursor: it is loaded where control enters, and
//! regions inside only advance and store it. The cursor in memory is therefore always correct, and
//! code that interrupts a residency sees the same state as in a region: the register is the slot
//! base ([`ProbeState::base_reg`]). In loops, regions do not store it at all: it is stored where
//! control leaves ([`STATE_LATE`]). A second register may be reserved for addresses that have a
//! base and an index. Most residencies are loops; [`trees`] and [`areas`] are the others.
//!
//! The registers are dead in the whole residency, or unused in it. Unused ones are saved where
//! control enters and restored where it leaves. rbp is borrowed only if the function itself has
//! saved it, because a debugger or profiler may find the callers' frames by it, and unwind tables
//! cannot describe the `%gs` places.

pub(crate) mod areas;
pub(crate) mod trees;

use crate::ir::Block;
use crate::ir::jump_table::JumpTable;
use crate::x86::insn::Insn;
use crate::x86::operands::{AccessList, Form, OperandAccess};
use crate::x86::regs::{Gpr, RSP, RegSet, RegUse};
use iced_x86::{Code, FlowControl, Mnemonic};
use mgz_abi::address_map::{ProbeState, STATE_LATE};

/// Spill place of a residency's cursor register.
pub const PLACE_RESIDENCY: u8 = 2;
/// Spill place of a residency's address register.
pub const PLACE_SCRATCH: u8 = 3;

const RBP_SET: RegSet = RegSet(1 << 5);
/// rbx, rbp, r12–r15.
const CALLEE_SAVED: RegSet = RegSet(1 << 3 | 1 << 5 | 0xf << 12);
/// Everything but rsp.
const USABLE_REGISTERS: RegSet = RegSet(!(1 << 4));

/// A register that a residency keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The register.
    pub reg: Gpr,
    /// True if it is borrowed: it is saved where control enters the residency, and restored where
    /// it leaves.
    pub spilled: bool,
}

/// A set of blocks with the cursor in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Register that holds the cursor.
    pub cursor: Kept,
    /// Register for addresses.
    pub scratch: Option<Kept>,
    /// True if the cursor is stored where control leaves, and not by each region.
    pub late: bool,
}

impl Residency {
    /// Borrowed registers and their places, in the order in which they are saved.
    pub fn borrowed(self) -> impl DoubleEndedIterator<Item = (Gpr, u8)> {
        let all = [
            (Some(self.cursor), PLACE_RESIDENCY),
            (self.scratch, PLACE_SCRATCH),
        ];
        all.into_iter()
            .filter_map(|(kept, place)| kept.filter(|k| k.spilled).map(|k| (k.reg, place)))
    }

    /// State that holds between the regions of the residency.
    pub fn state(self) -> ProbeState {
        let flags = if self.late { STATE_LATE } else { 0 };
        let mut state = ProbeState {
            base_reg: self.cursor.reg.0,
            flags,
            ..ProbeState::IDLE
        };
        self.borrowed()
            .zip(&mut state.saved)
            .for_each(|((reg, place), saved)| *saved = [reg.0, place]);
        state
    }
}

/// Number of a residency; `None` outside of residencies.
pub type ResidencyId = Option<u16>;

/// The residencies of a function. The default has none.
///
/// The units that may be in a residency are *stretches*: blocks, cut behind each call. Code that
/// leads anywhere but into the next stretch, landing pads included, belongs to a block's last
/// stretch.
#[derive(Clone, Debug, Default)]
pub struct Residencies {
    /// First instructions of the stretches.
    starts: Vec<u32>,
    all: Vec<Residency>,
    of_piece: Vec<ResidencyId>,
    before: Vec<Option<ResidencyId>>,
    /// Stretches of a residency that end outside of it.
    ends: Vec<bool>,
}

impl Residencies {
    /// Residencies given by parts: all of them; per block, none of which has a call, its residency;
    /// and the place from which control reaches the code before its label, see
    /// [`Residencies::before`].
    pub fn of_parts(
        all: Vec<Residency>,
        of_piece: Vec<ResidencyId>,
        before: Vec<Option<ResidencyId>>,
    ) -> Residencies {
        Residencies {
            all,
            of_piece,
            before,
            ..Residencies::default()
        }
    }

    /// First instructions of the stretches; empty if stretches are blocks, as in functions without
    /// residencies.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The residency that a stretch is in.
    pub fn of(&self, piece: usize) -> ResidencyId {
        self.of_piece.get(piece).copied().flatten()
    }

    /// The residency in which control leaves a stretch: that of the stretch, or none if its last
    /// instruction is outside.
    pub fn out(&self, piece: usize) -> ResidencyId {
        self.of(piece).filter(|_| !self.leaves(piece))
    }

    /// True if a residency ends before the last instruction of a stretch.
    pub fn leaves(&self, piece: usize) -> bool {
        self.ends.get(piece).is_some_and(|e| *e)
    }

    /// True if the function has no residencies.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Place from which control reaches the code before a stretch's label. That code leads to the
    /// stretch's own residency.
    pub fn before(&self, piece: usize) -> Option<ResidencyId> {
        self.before.get(piece).copied().flatten()
    }

    /// The residency of a place.
    pub fn at(&self, place: ResidencyId) -> Option<Residency> {
        place.map(|p| self.all[usize::from(p)])
    }

    /// True if going from one place to another takes code.
    pub fn needs_code(&self, from: ResidencyId, to: ResidencyId) -> bool {
        from != to
            && (to.is_some()
                || self
                    .at(from)
                    .is_some_and(|s| s.late || s.borrowed().next().is_some()))
    }

    /// State of a place between regions.
    pub fn state(&self, place: ResidencyId) -> ProbeState {
        self.at(place).map_or(ProbeState::IDLE, Residency::state)
    }
}

/// The cheapest member of a set to use in probes: rax, rcx, rdx, rsi, rdi and rbx, rbp need no REX
/// prefix; r12 and rsp need a SIB byte as a base.
pub fn cheapest(set: RegSet) -> Option<Gpr> {
    // rax, rcx, rdx; rsi, rdi; rbx, rbp; r8 to r11; r14, r15; r13; r12.
    const ORDER: [u16; 7] = [
        7,
        3 << 6,
        1 << 3 | 1 << 5,
        0xf << 8,
        3 << 14,
        1 << 13,
        1 << 12,
    ];
    ORDER
        .into_iter()
        .map(|group| set.0 & group)
        .find(|&found| found != 0)
        .map(|found| Gpr(found.trailing_zeros() as u8))
}

/// Facts about a function that are known before planning.
pub struct View<'a> {
    /// Instructions, with the registers and flags that are dead before them.
    pub insns: &'a [Insn],
    /// Blocks, with their external entries.
    pub blocks: &'a [Block],
    /// Jump tables that the clone gets copies of.
    pub tables: &'a [JumpTable],
    /// Per instruction.
    pub uses: &'a [RegUse],
    /// Per instruction.
    pub accesses: &'a AccessList,
    /// True if stores are recorded.
    pub stores: bool,
    /// True if regions have counters instead of records. Registers then hold the counters' address.
    pub counts: bool,
}

impl View<'_> {
    fn records(&self, access: &OperandAccess) -> bool {
        access.read || self.stores
    }
}

fn is_call(insn: &Insn) -> bool {
    matches!(insn.flow, FlowControl::Call | FlowControl::IndirectCall)
        && insn.inst.mnemonic() == Mnemonic::Call
}

/// Finds the residencies of a function.
pub fn find_residencies(view: &View) -> Residencies {
    let Some(finder) = Finder::new(view) else {
        return Residencies::default();
    };
    let mut allowed: Vec<bool> = finder.pieces.iter().map(|p| p.allowed).collect();
    // Each round forbids at least one more stretch.
    loop {
        let without_calls: Vec<bool> = allowed
            .iter()
            .zip(&finder.pieces)
            .map(|(a, p)| *a && !p.end.calls)
            .collect();
        let mut residencies = finder.choose(&without_calls);
        finder.trees(&without_calls, &mut residencies);
        finder.areas(&allowed, &mut residencies);
        if residencies.all.is_empty() {
            return Residencies::default();
        }
        let wrong = finder.complete(&mut residencies);
        if wrong.is_empty() {
            return Residencies {
                starts: finder.starts,
                ..residencies
            };
        }
        for b in wrong {
            allowed[b] = false;
        }
    }
}

/// True if an instruction other than a call may be in a residency: it can neither run other probes
/// nor end the process. (Residencies end before the call at a stretch's end.)
fn may_be_inside(insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Next => !matches!(
            insn.inst.code(),
            Code::Wrfsbase_r32
                | Code::Wrfsbase_r64
                | Code::Wrgsbase_r32
                | Code::Wrgsbase_r64
                | Code::Hlt
        ),
        FlowControl::ConditionalBranch
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return => true,
        _ => false,
    }
}

/// End of a stretch. It is read very often, so it has only a few bytes.
#[derive(Clone, Copy)]
struct End {
    /// True if the stretch ends with a call.
    calls: bool,
    /// True if it ends with a jump that can be redirected through other code. This is possible for
    /// conditional and unconditional jumps, but for no other branches.
    led: bool,
    /// True if control falls through to the next stretch.
    falls: bool,
    /// True if the stretch ends with an instruction outside of any area.
    parts: bool,
    /// Control flow of its last instruction.
    flow: FlowControl,
}

impl End {
    /// `next`: the instruction after it.
    fn of(last: &Insn, next: Option<&Insn>, calls: bool) -> End {
        let stops = matches!(
            last.flow,
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        );
        let is_branch = matches!(
            last.flow,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let led =
            is_branch && (last.inst.is_jcc_short_or_near() || last.inst.is_jmp_short_or_near());
        let parts = calls || matches!(last.flow, FlowControl::Return | FlowControl::IndirectBranch);
        End {
            calls,
            led,
            falls: !stops && next.is_some_and(|next| next.ip == last.next()),
            parts,
            flow: last.flow,
        }
    }
}

/// Effects of a set of stretches on registers.
#[derive(Clone, Copy)]
struct Registers {
    /// Registers that are dead before every instruction and never written.
    dead: RegSet,
    /// Registers that are read or written.
    used: RegSet,
    /// True if there are addresses with base and index, and too few dead registers to compute them.
    addresses: bool,
    /// True if a record has no dead register for the cursor.
    tight: bool,
}

impl Registers {
    const NONE: Registers = Registers {
        dead: USABLE_REGISTERS,
        used: RegSet::EMPTY,
        addresses: false,
        tight: false,
    };

    /// Adds the registers that the record of an access needs.
    fn record(&mut self, insn: &Insn, u: &RegUse, access: &OperandAccess) {
        let two = matches!(access.form, Form::Plain(p) if p.base.is_some() && p.index.is_some());
        let free = RegSet(insn.dead.0 & !u.clobber.0 & !u.kill.0 & !u.read.0 | insn.own.0);
        // (One or none.)
        self.addresses |= two && free.0 & free.0.wrapping_sub(1) == 0;
        self.tight |= insn.dead.0 & !u.clobber.0 | insn.own.0 == 0;
    }
}

/// Facts about a stretch.
#[derive(Clone, Copy)]
struct Stretch {
    registers: Registers,
    /// True if something in it is recorded.
    records: bool,
    /// True if it may be part of a residency.
    allowed: bool,
    /// True if it is entered from where no code can be put.
    external: bool,
    end: End,
}

/// Cuts a function into stretches, starting at its first instruction.
struct Cutter<'a> {
    view: &'a View<'a>,
    /// Instructions with accesses that are in no stretch yet.
    accesses: &'a [u32],
    /// Callee-saved registers that were pushed so far.
    saved: RegSet,
}

impl Cutter<'_> {
    /// The stretch that begins with the first of these instructions, which reach to a block's end,
    /// and the start of the next one.
    #[inline(never)]
    fn cut(&mut self, start: usize, limit: usize, external: bool) -> (Stretch, usize) {
        let (mut dead, mut read, mut written) = (USABLE_REGISTERS.0, 0u16, 0u16);
        let (mut allowed, mut calls, mut end) = (true, false, start);
        for (insn, u) in self.view.insns[start..limit]
            .iter()
            .zip(&self.view.uses[start..limit])
        {
            end += 1;
            dead &= insn.dead.0;
            read |= u.read.0;
            if u.clobber.contains(RSP) && insn.inst.mnemonic() == Mnemonic::Push {
                self.saved.0 |= u.read.0 & CALLEE_SAVED.0;
            }
            if !insn.simple {
                if is_call(insn) {
                    // The registers that a call writes do not matter, since the call is outside of
                    // the residency.
                    calls = true;
                    break;
                }
                allowed &= may_be_inside(insn);
            }
            written |= u.clobber.0 | u.kill.0;
        }
        let mut registers = Registers {
            dead: RegSet(dead & !written),
            used: RegSet(read | written),
            ..Registers::NONE
        };
        let records = self.records(start, end, &mut registers);
        let end_of = End::of(&self.view.insns[end - 1], self.view.insns.get(end), calls);
        (
            Stretch {
                registers,
                records,
                allowed,
                external,
                end: end_of,
            },
            end,
        )
    }

    /// True if something in a stretch is recorded. Adds the registers that its records need.
    fn records(&mut self, start: usize, end: usize, registers: &mut Registers) -> bool {
        let mut records = false;
        while let Some((&i, behind)) = self
            .accesses
            .split_first()
            .filter(|(i, _)| (**i as usize) < end)
        {
            let i = i as usize;
            self.accesses = behind;
            for access in self.view.accesses[i]
                .iter()
                .filter(|a| i >= start && self.view.records(a))
            {
                records = true;
                registers.record(&self.view.insns[i], &self.view.uses[i], access);
            }
        }
        records
    }
}

/// Successors or predecessors of each stretch. One list for all takes a fraction of the time of
/// separate lists.
struct Edges {
    /// Start and end in `to` of each stretch's list.
    spans: Vec<(u32, u32)>,
    to: Vec<u32>,
}

impl Edges {
    #[inline]
    fn of(&self, piece: usize) -> &[u32] {
        let (start, end) = self.spans[piece];
        &self.to[start as usize..end as usize]
    }

    /// The reversed edges, sorted by their sources.
    fn reversed(&self) -> Edges {
        let mut spans = vec![(0u32, 0u32); self.spans.len()];
        self.to.iter().for_each(|&t| spans[t as usize].1 += 1);
        let mut next = 0;
        for span in &mut spans {
            let count = span.1;
            *span = (next, next);
            next += count;
        }
        let mut to = vec![0; self.to.len()];
        for from in 0..spans.len() {
            for &t in self.of(from) {
                let end = &mut spans[t as usize].1;
                to[*end as usize] = from as u32;
                *end += 1;
            }
        }
        Edges { spans, to }
    }
}

struct Finder<'a> {
    view: &'a View<'a>,
    /// First instructions of the stretches.
    starts: Vec<u32>,
    pieces: Vec<Stretch>,
    succs: Edges,
    preds: Edges,
    /// True if some stretch is followed by itself or an earlier one.
    goes_back: bool,
    /// Callee-saved registers that the function pushes.
    saved: RegSet,
}

impl<'a> Finder<'a> {
    /// `None` if there can be no residency, because nothing is recorded, or only in one stretch
    /// outside of loops.
    fn new(view: &'a View<'a>) -> Option<Finder<'a>> {
        if !view.accesses.iter().any(|a| view.records(a)) {
            return None;
        }
        let (mut edges, mut goes_back) = (0, false);
        for (b, block) in view.blocks.iter().enumerate() {
            edges += block.succs.len();
            goes_back |= block.succs.iter().any(|s| s.0 as usize <= b);
        }
        if !goes_back && view.accesses.insns().len() == 1 {
            return None;
        }
        let (mut starts, mut pieces) = (
            Vec::with_capacity(view.blocks.len() * 2),
            Vec::with_capacity(view.blocks.len() * 2),
        );
        // First stretches of the blocks.
        let mut firsts = Vec::with_capacity(view.blocks.len());
        let mut cutter = Cutter {
            view,
            accesses: view.accesses.insns(),
            saved: RegSet::EMPTY,
        };
        let mut recorded = 0;
        for block in view.blocks {
            firsts.push(pieces.len() as u32);
            let mut external = block.external_entry || pieces.is_empty();
            let (mut start, limit) = (block.insns.start as usize, block.insns.end as usize);
            while start < limit {
                starts.push(start as u32);
                let (piece, end) = cutter.cut(start, limit, external);
                recorded += usize::from(piece.records);
                pieces.push(piece);
                (start, external) = (end, false);
            }
        }
        if recorded == 0 || recorded == 1 && !goes_back {
            return None;
        }
        let mut succs = Edges {
            spans: Vec::with_capacity(pieces.len()),
            to: Vec::with_capacity(edges + pieces.len() - view.blocks.len()),
        };
        for (b, block) in view.blocks.iter().enumerate() {
            let last = firsts
                .get(b + 1)
                .map_or(pieces.len(), |&next| next as usize) as u32
                - 1;
            for piece in firsts[b]..last {
                let at = succs.to.len() as u32;
                succs.to.push(piece + 1);
                succs.spans.push((at, at + 1));
            }
            let at = succs.to.len() as u32;
            succs
                .to
                .extend(block.succs.iter().map(|s| firsts[s.0 as usize]));
            succs.spans.push((at, succs.to.len() as u32));
        }
        let preds = succs.reversed();
        Some(Finder {
            view,
            starts,
            pieces,
            succs,
            preds,
            goes_back,
            saved: cutter.saved,
        })
    }

    fn records(&self, piece: u32) -> bool {
        self.pieces[piece as usize].records
    }

    /// The stretch that begins at an address.
    fn piece_at(&self, ip: u64) -> Option<usize> {
        self.starts
            .binary_search_by_key(&ip, |&start| self.view.insns[start as usize].ip)
            .ok()
    }

    /// Residencies for loops without calls, the largest loops for which there is a register. Only
    /// the stretches' residencies are set.
    fn choose(&self, allowed: &[bool]) -> Residencies {
        let n = allowed.len();
        let mut residencies = Residencies {
            of_piece: vec![None; n],
            ..Residencies::default()
        };
        let candidates = if self.goes_back {
            self.on_ways_back(allowed)
        } else {
            Vec::new()
        };
        if candidates.is_empty() {
            return residencies;
        }
        let mut search = Search::new(&self.succs, n);
        let mut work = search.cycles(&candidates);
        while let Some(set) = work.pop() {
            if set.iter().all(|&b| !self.records(b))
                || residencies.all.len() >= usize::from(u16::MAX)
            {
                continue;
            }
            if let Some(residency) = self.register(&set) {
                let number = residencies.all.len() as u16;
                residencies.all.push(residency);
                set.iter()
                    .for_each(|&b| residencies.of_piece[b as usize] = Some(number));
                continue;
            }
            // If the stretches through which the cycle is entered are removed, the inner cycles
            // remain.
            search.begin(&set);
            let inner: Vec<u32> = set
                .iter()
                .copied()
                .filter(|&b| {
                    !self.pieces[b as usize].external
                        && self
                            .preds
                            .of(b as usize)
                            .iter()
                            .all(|&p| search.contains(p))
                })
                .collect();
            if inner.len() < set.len() {
                work.extend(search.cycles(&inner));
            }
        }
        residencies
    }

    /// Finds the allowed stretches that may be on a cycle, in ascending order. Each lies between
    /// the target and the source of some back edge.
    fn on_ways_back(&self, allowed: &[bool]) -> Vec<u32> {
        let mut least = u32::MAX;
        let mut found = Vec::new();
        for b in (0..allowed.len()).rev().filter(|&b| allowed[b]) {
            for &s in self.succs.of(b) {
                if s as usize <= b && allowed[s as usize] {
                    least = least.min(s);
                }
            }
            if least as usize <= b {
                found.push(b as u32);
            }
        }
        found.reverse();
        found
    }

    /// Registers for a residency of these stretches.
    fn register(&self, set: &[u32]) -> Option<Residency> {
        let mut all = Registers::NONE;
        for &b in set {
            let r = self.pieces[b as usize].registers;
            all.dead.0 &= r.dead.0;
            all.used.0 |= r.used.0;
            all.addresses |= r.addresses;
        }
        let cursor = self.keep(&all, None)?;
        let scratch = if all.addresses && !self.view.counts {
            self.keep(&all, Some(cursor.reg))
        } else {
            None
        };
        Some(Residency {
            cursor,
            scratch,
            late: !self.view.counts,
        })
    }

    /// The cheapest register to keep, but not `other`.
    fn keep(&self, all: &Registers, other: Option<Gpr>) -> Option<Kept> {
        let not = other.map_or(0, |r| 1 << r.0);
        if let Some(reg) = cheapest(RegSet(all.dead.0 & !not)) {
            return Some(Kept {
                reg,
                spilled: false,
            });
        }
        let unused = USABLE_REGISTERS.0 & !all.used.0 & !not;
        let sets = [
            unused & !CALLEE_SAVED.0,
            unused & self.saved.0,
            unused & !RBP_SET.0,
        ];
        sets.into_iter()
            .find_map(|set| cheapest(RegSet(set)))
            .map(|reg| Kept { reg, spilled: true })
    }

    fn is_indirect(&self, piece: usize) -> bool {
        self.pieces[piece].end.flow == FlowControl::IndirectBranch
    }

    /// True if the residency of a stretch ends before its last instruction: a call, or an indirect
    /// jump out of the residency.
    fn ends(&self, piece: usize, residencies: &Residencies) -> bool {
        let code = |&t: &u32| {
            residencies.needs_code(
                residencies.of_piece[piece],
                residencies.of_piece[t as usize],
            )
        };
        self.pieces[piece].end.calls
            || self.is_indirect(piece) && self.succs.of(piece).iter().any(code)
    }

    /// Decides on the code before the stretches' labels, and on the stretches that end outside.
    /// Returns stretches that can be in no residency, because control enters or leaves them where
    /// no code can be put.
    fn complete(&self, residencies: &mut Residencies) -> Vec<usize> {
        let mut wrong = Vec::new();
        residencies.ends = (0..self.pieces.len())
            .map(|u| residencies.of_piece[u].is_some() && self.ends(u, residencies))
            .collect();
        residencies.before = vec![None; self.pieces.len()];
        let out: Vec<ResidencyId> = residencies
            .of_piece
            .iter()
            .zip(&residencies.ends)
            .map(|(&place, ends)| place.filter(|_| !ends))
            .collect();
        for (t, piece) in self.pieces.iter().enumerate() {
            let to = residencies.of_piece[t];
            let falling = t
                .checked_sub(1)
                .filter(|&before| self.pieces[before].end.falls)
                .map(|before| out[before]);
            if piece.external && to.is_some() {
                if falling.is_some_and(|from| from.is_some()) {
                    wrong.push(t);
                }
                residencies.before[t] = Some(None);
                continue;
            }
            residencies.before[t] = match falling {
                Some(from) => Some(from).filter(|&from| residencies.needs_code(from, to)),
                None => {
                    let preds = || self.preds.of(t).iter().map(|&p| p as usize);
                    // An indirect jump goes to the code before the label, or needs none.
                    let jumped = preds().find(|&p| self.is_indirect(p)).map(|p| out[p]);
                    jumped
                        .into_iter()
                        .chain(preds().map(|p| out[p]))
                        .find(|&from| residencies.needs_code(from, to))
                }
            };
        }
        for (u, piece) in self.pieces.iter().enumerate() {
            let end = piece.end;
            if end.led {
                continue;
            }
            let next = end.falls.then_some(u + 1);
            for t in self.succs.of(u).iter().map(|&t| t as usize) {
                // (A branch to the very next stretch is no different from another.)
                let jumped = Some(t) != next || end.flow != FlowControl::Next && !end.calls;
                if !jumped || !residencies.needs_code(out[u], residencies.of_piece[t]) {
                    continue;
                }
                // Unwinders and copied tables lead control from outside to this code.
                if out[u].is_none()
                    && residencies.before[t] == Some(None)
                    && (self.pieces[t].external || self.is_indirect(u))
                {
                    continue;
                }
                wrong.extend(
                    [u, t]
                        .into_iter()
                        .filter(|&b| residencies.of_piece[b].is_some()),
                );
            }
        }
        // A table's targets in other functions are in no residency. A table has one entry per
        // stretch, which is the code before the label if that serves control from outside of
        // residencies.
        for table in self.view.tables {
            let u = self.starts.partition_point(|&start| start <= table.jump.0) - 1;
            for target in &table.targets {
                match self.piece_at(*target) {
                    None if residencies.needs_code(out[u], None) => wrong.push(u),
                    Some(t) if residencies.of_piece[t].is_some() => {
                        let entry = if residencies.before[t] == Some(None) {
                            None
                        } else {
                            residencies.of_piece[t]
                        };
                        if out[u] != entry {
                            wrong.push(t);
                        }
                    }
                    _ => {}
                }
            }
        }
        wrong.sort_unstable();
        wrong.dedup();
        wrong
    }
}

/// A stretch in a search for strongly connected components.
#[derive(Clone, Copy, Default)]
struct Node {
    /// The last set that contained it.
    set: u32,
    /// Its position in the search order, or 0 before that.
    index: u32,
    /// The smallest position reached from it.
    low: u32,
    /// True if it is in no component yet.
    is_open: bool,
}

/// A search for strongly connected components in sets of stretches.
struct Search<'a> {
    succs: &'a Edges,
    nodes: Vec<Node>,
    /// Number of the current set.
    current: u32,
}

impl<'a> Search<'a> {
    fn new(succs: &'a Edges, pieces: usize) -> Search<'a> {
        Search {
            succs,
            nodes: vec![Node::default(); pieces],
            current: 0,
        }
    }

    /// Makes this the current set.
    fn begin(&mut self, pieces: &[u32]) {
        self.current += 1;
        for &b in pieces {
            self.nodes[b as usize] = Node {
                set: self.current,
                ..Node::default()
            };
        }
    }

    fn contains(&self, piece: u32) -> bool {
        self.nodes[piece as usize].set == self.current
    }

    /// Strongly connected components of the graph of these stretches (in ascending order), without
    /// single stretches that are no cycle.
    fn cycles(&mut self, pieces: &[u32]) -> Vec<Vec<u32>> {
        self.begin(pieces);
        let current = self.current;
        let (mut stack, mut path, mut found, mut next) = (Vec::new(), Vec::new(), Vec::new(), 1);
        for &root in pieces {
            if self.nodes[root as usize].index != 0 {
                continue;
            }
            // The current stretch with its next edge. The stack has the stretches from which it was
            // reached.
            let (mut v, mut edge) = (root, 0);
            loop {
                if edge == 0 {
                    self.nodes[v as usize] = Node {
                        set: current,
                        index: next,
                        low: next,
                        is_open: true,
                    };
                    next += 1;
                    stack.push(v);
                }
                let mut low = self.nodes[v as usize].low;
                let mut down = None;
                for &to in &self.succs.of(v as usize)[edge..] {
                    edge += 1;
                    let w = self.nodes[to as usize];
                    if w.set == current {
                        if w.index == 0 {
                            down = Some(to);
                            break;
                        }
                        if w.is_open {
                            low = low.min(w.index);
                        }
                    }
                }
                self.nodes[v as usize].low = low;
                if let Some(to) = down {
                    path.push((v, edge));
                    (v, edge) = (to, 0);
                    continue;
                }
                if low == self.nodes[v as usize].index {
                    let from = stack.iter().rposition(|&w| w == v).unwrap_or(0);
                    stack[from..]
                        .iter()
                        .for_each(|&b| self.nodes[b as usize].is_open = false);
                    if stack.len() - from > 1 || self.succs.of(v as usize).contains(&v) {
                        let mut set = stack[from..].to_vec();
                        set.sort_unstable();
                        found.push(set);
                    }
                    stack.truncate(from);
                }
                let Some((parent, next_edge)) = path.pop() else {
                    break;
                };
                let node = &mut self.nodes[parent as usize];
                node.low = node.low.min(low);
                (v, edge) = (parent, next_edge);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::{Cfg, Entries};
    use crate::ir::jump_table::TableForm;
    use crate::program::Input;
    use crate::x86::decode::decode_function;
    use crate::x86::insn::InsnId;
    use crate::x86::operands::accesses;
    use crate::x86::regs::reg_use;
    use iced_x86::InstructionInfoFactory;

    /// The residencies of a function, and the residency of each block.
    pub(crate) fn residencies(parts: &[&[u8]]) -> (Residencies, Vec<Option<Residency>>) {
        let bytes = parts.concat();
        let body = decode_function(&bytes, 0x100, &[]).unwrap();
        let mut g = Cfg::build(
            body,
            &(0x100..0x100 + bytes.len() as u64),
            &Entries::default(),
            &[],
        );
        of(&mut g, &[])
    }

    fn of(g: &mut Cfg, tables: &[JumpTable]) -> (Residencies, Vec<Option<Residency>>) {
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = g
            .insns
            .iter()
            .map(|i| reg_use(factory.info(&i.inst)))
            .collect();
        let input = Input::default();
        let effects = crate::analyze::liveness::Effects::of(
            &input,
            g,
            &crate::ir::loops::Loops::find(g),
            &uses,
        );
        crate::analyze::liveness::mark(&input, g, &effects, &uses);
        let accesses: AccessList = g
            .insns
            .iter()
            .map(|i| accesses(&i.inst, factory.info(&i.inst)))
            .collect();
        let view = View {
            insns: &g.insns,
            blocks: &g.blocks,
            tables,
            uses: &uses,
            accesses: &accesses,
            stores: false,
            counts: false,
        };
        let residencies = find_residencies(&view);
        let pieces = Finder::new(&view).map_or(g.blocks.len(), |f| f.pieces.len());
        let of = (0..pieces)
            .map(|b| residencies.at(residencies.of(b)))
            .collect();
        (residencies, of)
    }

    pub(crate) fn kept(reg: u8, spilled: bool) -> Kept {
        Kept {
            reg: Gpr(reg),
            spilled,
        }
    }

    pub(crate) const XOR_ECX: &[u8] = &[0x31, 0xc9];
    pub(crate) const LOAD: &[u8] = &[0x8b, 0x07]; // mov eax, [rdi]
    const NEXT: &[u8] = &[0x48, 0x83, 0xc7, 0x04, 0x48, 0x39, 0xf7]; // add rdi, 4; cmp rdi, rsi
    pub(crate) const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    pub(crate) const RET: &[u8] = &[0xc3];

    /// jne back over the parts.
    fn back(parts: &[&[u8]]) -> Vec<u8> {
        vec![
            0x75,
            (-(parts.iter().map(|p| p.len() as i8).sum::<i8>()) - 2) as u8,
        ]
    }

    /// Makes the lists of edges. Each stretch's list ends where the next one's begins.
    fn edges(starts: &[u32], to: &[u32]) -> Edges {
        Edges {
            spans: starts.windows(2).map(|w| (w[0], w[1])).collect(),
            to: to.to_vec(),
        }
    }

    #[test]
    fn neighbours_are_the_same_both_ways() {
        let edges = edges(&[0, 2, 2, 5], &[1, 2, 0, 0, 2]);
        let back = edges.reversed();
        assert_eq!([0, 1, 2].map(|p| back.of(p)), [&[2, 2][..], &[0], &[0, 2]]);
    }

    #[test]
    fn cycles_are_found_with_their_members_only() {
        // 0 leads to 1; 1, 2, 3 are a cycle that 2 leaves for 4; 4 leads to itself; 5 leads back to
        // 0 and has no predecessor.
        let edges = edges(&[0, 1, 2, 4, 5, 6, 7], &[1, 2, 3, 4, 1, 4, 0]);
        let mut search = Search::new(&edges, 6);
        let mut cycles = search.cycles(&[0, 1, 2, 3, 4, 5]);
        cycles.sort_unstable();
        assert_eq!(cycles, [vec![1, 2, 3], vec![4]]);
        assert_eq!(search.cycles(&[1, 2, 4]), [[4]]);
        assert!(search.cycles(&[0, 1, 2]).is_empty());
    }

    #[test]
    fn the_cheapest_register_has_the_shortest_code() {
        let order = [0, 1, 2, 6, 7, 3, 5, 8, 9, 10, 11, 14, 15, 13, 12];
        for set in 0..=u16::MAX {
            assert_eq!(
                cheapest(RegSet(set)),
                order
                    .into_iter()
                    .map(Gpr)
                    .find(|&r| RegSet(set).contains(r))
            );
        }
    }

    #[test]
    fn a_loop_keeps_the_cursor_in_a_register_that_is_dead_in_it() {
        // (rcx is dead after the loop: it is no result, since it is read.)
        const TEST_ECX: &[u8] = &[0x85, 0xc9];
        let (residencies, of) =
            residencies(&[XOR_ECX, TEST_ECX, LOAD, NEXT, &back(&[LOAD, NEXT]), RET]);
        assert_eq!(
            of,
            [
                None,
                Some(Residency {
                    cursor: kept(1, false),
                    scratch: None,
                    late: true
                }),
                None
            ]
        );
        assert_eq!(
            residencies.before(1),
            Some(None),
            "the cursor is loaded where control falls into the loop"
        );
        assert_eq!(
            residencies.before(2),
            Some(Some(0)),
            "nothing is given back, but the cursor is stored"
        );
        assert_eq!(of[1].unwrap().state().flags, STATE_LATE);
    }

    #[test]
    fn else_it_borrows_one_that_the_loop_does_not_use() {
        let (residencies, of) = residencies(&[LOAD, NEXT, &back(&[LOAD, NEXT]), RET]);
        assert_eq!(
            of[0],
            Some(Residency {
                cursor: kept(1, true),
                scratch: None,
                late: true
            })
        );
        assert_eq!(residencies.before(0), Some(None), "callers enter here");
        assert_eq!(
            residencies.before(1),
            Some(Some(0)),
            "it is given back behind the loop"
        );
        assert_eq!(of[0].unwrap().state().saved[0], [1, PLACE_RESIDENCY]);
    }

    #[test]
    fn calls_end_stays() {
        assert_eq!(
            residencies(&[LOAD, CALL, NEXT, &back(&[LOAD, CALL, NEXT]), RET]).1,
            [None, None, None]
        );
        // An inner loop without calls still has a residency.
        let inner = back(&[LOAD, NEXT]);
        let (_, of) = residencies(&[
            LOAD,
            NEXT,
            &inner,
            CALL,
            &back(&[LOAD, NEXT, &inner, CALL]),
            RET,
        ]);
        assert!(
            of[0].is_some() && of[1].is_none() && of[2].is_none(),
            "{of:?}"
        );
    }

    #[test]
    fn loops_that_record_nothing_have_none() {
        assert_eq!(residencies(&[NEXT, &back(&[NEXT]), RET]).1, [None, None]);
    }

    #[test]
    fn an_address_of_two_registers_gets_a_register_of_its_own() {
        const INDEXED: &[u8] = &[0x8b, 0x04, 0x97]; // mov eax, [rdi+rdx*4]
        let (_, of) = residencies(&[INDEXED, NEXT, &back(&[INDEXED, NEXT]), RET]);
        assert_eq!(
            of[0],
            Some(Residency {
                cursor: kept(1, true),
                scratch: Some(kept(8, true)),
                late: true
            }),
            "rcx and r8 are the cheapest that nothing uses"
        );
    }

    #[test]
    fn rbp_is_not_borrowed_unless_it_was_saved() {
        // The loop reads every register but rbp and rsp.
        let mut all = Vec::new();
        for r in [0u8, 1, 2, 3, 6, 7] {
            all.extend_from_slice(&[0x48, 0x85, 0xc0 | r << 3 | r]); // test r, r
        }
        for r in 0..8u8 {
            all.extend_from_slice(&[0x4d, 0x85, 0xc0 | r << 3 | r]);
        }
        let (_, of) = residencies(&[LOAD, &all, NEXT, &back(&[LOAD, &all, NEXT]), RET]);
        assert_eq!(of[0], None);
        const PUSH_RBP: &[u8] = &[0x55];
        const POP_RBP: &[u8] = &[0x5d];
        let (_, of) = residencies(&[
            PUSH_RBP,
            LOAD,
            &all,
            NEXT,
            &back(&[LOAD, &all, NEXT]),
            POP_RBP,
            RET,
        ]);
        assert_eq!(
            of[1],
            Some(Residency {
                cursor: kept(5, true),
                scratch: None,
                late: true
            })
        );
    }

    #[test]
    fn a_tables_target_that_is_entered_from_outside_is_in_none() {
        // 100: mov eax,[rdi]; jmp *rax | 104: add rdi,4; cmp rdi,rsi; jne 100 | ret
        let bytes = [LOAD, &[0xff, 0xe0], NEXT, &[0x75, 0xf3], RET].concat();
        let residencies = |external: bool| {
            let body = decode_function(&bytes, 0x100, &[]).unwrap();
            let jump = crate::ir::cfg::KnownJump {
                ip: 0x102,
                targets: vec![0x104],
                closed: true,
            };
            let mut g = Cfg::build(
                body,
                &(0x100..0x100 + bytes.len() as u64),
                &Entries::default(),
                &[jump],
            );
            let block = g.block_at(0x104).unwrap();
            g.blocks[block.0 as usize].external_entry = external;
            let table = JumpTable {
                load: InsnId(0),
                jump: InsnId(1),
                table: 0x2000,
                form: TableForm::Absolute8,
                targets: vec![0x104],
            };
            of(&mut g, &[table]).1
        };
        assert!(residencies(false)[1].is_some());
        assert_eq!(residencies(true)[1], None);
    }

    #[test]
    fn a_loop_that_is_entered_by_a_branch_that_cannot_be_led_has_none() {
        // jrcxz to the loop's head, into which control also falls.
        assert_eq!(
            residencies(&[&[0xe3, 0x00], LOAD, NEXT, &back(&[LOAD, NEXT]), RET]).1,
            [None, None, None]
        );
    }
}
