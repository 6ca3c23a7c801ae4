//! Where one register holds the cursor across blocks.
//!
//! A region that stands alone loads the cursor, advances it and stores it; in a short loop, each pass then waits for the store of
//! the last. A *stay* is a set of blocks without calls in which one register keeps the cursor: it is loaded where control
//! enters, and regions inside only advance and store it. The cursor in memory is therefore right all the time, and
//! what interrupts a stay finds the same as in a region: the register is the slot base ([`ProbeState::base_reg`]).
//! In loops, where one pass follows the other, regions do not even store it: that is done where control leaves ([`STATE_LATE`]).
//! A second register may be set aside for addresses that have a base and an index. Most stays are loops; [`trees`] and [`areas`] are the others.
//!
//! The registers are such that are dead all through the stay, or that nothing in it uses: these are saved where control
//! enters and restored where it leaves. rbp is never borrowed unless the function itself has saved it, because a debugger
//! or profiler may find the callers' frames by it, and unwind tables cannot tell them of the `%gs` places.

mod areas;
mod trees;

use crate::ir::{Block, BlockId, BlockIds, Gpr, Insn, JumpTable, RegSet};
use crate::operands::{AccessList, Form};
use crate::regs::RegUse;
use iced_x86::{FlowControl, Mnemonic};
use mgz_annotations_schema::abi::{ProbeState, STATE_LATE};

/// Spill place of a stay's cursor register.
pub const PLACE_STAY: u8 = 2;
/// Spill place of a stay's address register.
pub const PLACE_SCRATCH: u8 = 3;

/// rbp.
const RBP: RegSet = RegSet(1 << 5);
/// rbx, rbp, r12–r15.
const CALLEE_SAVED: RegSet = RegSet(1 << 3 | 1 << 5 | 0xf << 12);
/// Everything but rsp.
const USABLE: RegSet = RegSet(!(1 << 4));

/// A register that a stay keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The register.
    pub reg: Gpr,
    /// It is borrowed: saved where control enters the stay, restored where it leaves.
    pub spilled: bool,
}

/// A set of blocks with the cursor in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Holds the cursor.
    pub cursor: Kept,
    /// Free for addresses.
    pub scratch: Option<Kept>,
    /// The cursor is stored where control leaves, and not by each region.
    pub late: bool,
}

impl Stay {
    /// Borrowed registers and their places, in the order in which they are saved.
    pub fn borrowed(self) -> impl DoubleEndedIterator<Item = (Gpr, u8)> {
        let all = [(Some(self.cursor), PLACE_STAY), (self.scratch, PLACE_SCRATCH)];
        all.into_iter().filter_map(|(kept, place)| kept.filter(|k| k.spilled).map(|k| (k.reg, place)))
    }

    /// What holds between the regions of the stay.
    pub fn state(self) -> ProbeState {
        let flags = if self.late { STATE_LATE } else { 0 };
        let mut state = ProbeState { base_reg: self.cursor.reg.0, flags, ..ProbeState::IDLE };
        self.borrowed().zip(&mut state.saved).for_each(|((reg, place), saved)| *saved = [reg.0, place]);
        state
    }
}

/// Number of a stay, or none.
pub type Place = Option<u16>;

/// The stays of a function. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Stays {
    /// First instructions of the pieces, see [`pieces`].
    starts: Vec<u32>,
    all: Vec<Stay>,
    of_block: Vec<Place>,
    before: Vec<Option<Place>>,
    /// Pieces of a stay that end outside of it.
    ends: Vec<bool>,
}

impl Stays {
    /// Stays made elsewhere: all of them; per block, none of which has a call, the stay that it is in; and what stands before it, see
    /// [`Stays::before`].
    pub fn of_parts(all: Vec<Stay>, of_block: Vec<Place>, before: Vec<Option<Place>>) -> Stays {
        Stays { all, of_block, before, ..Stays::default() }
    }

    /// First instructions of the pieces; none if pieces are blocks.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The stay that a piece is in.
    pub fn of(&self, piece: usize) -> Place {
        self.of_block.get(piece).copied().flatten()
    }

    /// The stay in which control leaves a piece: that of the piece, or none where its last instruction, which hands control on, stands outside.
    pub fn out(&self, piece: usize) -> Place {
        self.of(piece).filter(|_| !self.leaves(piece))
    }

    /// Whether a stay ends before the last instruction of a piece.
    pub fn leaves(&self, piece: usize) -> bool {
        self.ends.get(piece).is_some_and(|e| *e)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What stands before a piece's label, for the control that comes from there: the code that leads from that place to
    /// the piece's own.
    pub fn before(&self, piece: usize) -> Option<Place> {
        self.before.get(piece).copied().flatten()
    }

    /// The stay at a place.
    pub fn at(&self, place: Place) -> Option<Stay> {
        place.map(|p| self.all[usize::from(p)])
    }

    /// Whether going from one place to another takes code.
    pub fn needs_code(&self, from: Place, to: Place) -> bool {
        from != to && (to.is_some() || self.at(from).is_some_and(|s| s.late || s.borrowed().next().is_some()))
    }

    /// What holds at a place between regions.
    pub fn state(&self, place: Place) -> ProbeState {
        self.at(place).map_or(ProbeState::IDLE, Stay::state)
    }
}

/// The cheapest member of a set to use in probes: rax, rcx, rdx, rsi, rdi and rbx, rbp need no REX prefix; r12 and rsp need a
/// SIB byte as a base.
pub fn cheapest(set: RegSet) -> Option<Gpr> {
    const ORDER: [u8; 15] = [0, 1, 2, 6, 7, 3, 5, 8, 9, 10, 11, 14, 15, 13, 12];
    ORDER.into_iter().map(Gpr).find(|&r| set.contains(r))
}

/// What is known of a function before anything is planned.
pub struct View<'a> {
    /// Instructions, with what is dead before them.
    pub insns: &'a [Insn],
    /// [`pieces`], with their external entries.
    pub blocks: &'a [Block],
    /// Jump tables that the clone gets copies of.
    pub tables: &'a [JumpTable],
    /// Per instruction.
    pub uses: &'a [RegUse],
    /// Per instruction.
    pub accesses: &'a AccessList,
    /// Whether stores are recorded.
    pub stores: bool,
}

impl View<'_> {
    fn block_at(&self, ip: u64) -> Option<usize> {
        self.blocks.binary_search_by_key(&ip, |b| self.insns[b.insns.start as usize].ip).ok()
    }

}

fn is_call(insn: &Insn) -> bool {
    matches!(insn.flow, FlowControl::Call | FlowControl::IndirectCall) && insn.inst.mnemonic() == Mnemonic::Call
}

/// What may be in a stay or not: blocks, which are cut behind each call. What leads elsewhere than into the next piece, landing pads too, belongs to a block's last
/// piece.
pub fn pieces(insns: &[Insn], blocks: &[Block]) -> Vec<Block> {
    let mut first = Vec::with_capacity(blocks.len());
    let mut all: Vec<Block> = Vec::with_capacity(blocks.len());
    for block in blocks {
        first.push(BlockId(all.len() as u32));
        let mut start = block.insns.start;
        for i in block.insns.clone() {
            if i + 1 == block.insns.end || is_call(&insns[i as usize]) {
                all.push(Block { insns: start..i + 1, succs: BlockIds::new(), preds: BlockIds::new(), external_entry: start == block.insns.start && block.external_entry });
                start = i + 1;
            }
        }
    }
    let mut piece = 0;
    for block in blocks {
        while all[piece].insns.end < block.insns.end {
            all[piece].succs.push(BlockId(piece as u32 + 1));
            piece += 1;
        }
        all[piece].succs = block.succs.iter().map(|s| first[s.0 as usize]).collect();
        piece += 1;
    }
    for from in 0..all.len() {
        for s in 0..all[from].succs.len() {
            let to = all[from].succs[s].0 as usize;
            all[to].preds.push(BlockId(from as u32));
        }
    }
    all
}

/// Finds the stays of a function.
pub fn find(view: &View) -> Stays {
    let (finder, mut allowed) = Finder::new(view);
    if !finder.records.contains(&true) {
        return Stays::default();
    }
    // Each turn forbids at least one more piece.
    loop {
        let without_calls: Vec<bool> = allowed.iter().zip(&finder.ends).map(|(a, end)| *a && !end.calls).collect();
        let mut stays = finder.choose(&without_calls);
        finder.trees(&without_calls, &mut stays);
        finder.areas(&allowed, &mut stays);
        let wrong = finder.complete(&mut stays);
        if wrong.is_empty() {
            return stays;
        }
        for b in wrong {
            allowed[b] = false;
        }
    }
}

/// Whether an instruction may be in a stay: it can neither run other probes nor end the process, but for the call at a piece's end, before which a stay
/// ends.
fn allowed(insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Next => !matches!(insn.inst.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Hlt),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => true,
        _ => is_call(insn),
    }
}

/// How a piece ends: what is asked again and again, of few bytes.
#[derive(Clone, Copy)]
struct End {
    /// With a call.
    calls: bool,
    /// With a jump that can be led through code: conditional and unconditional ones can, all other branches cannot.
    led: bool,
    /// Control runs from it into the piece behind it.
    falls: bool,
    /// Its last instruction's.
    flow: FlowControl,
}

impl End {
    /// `next`: the address of the piece behind it.
    fn of(last: &Insn, next: Option<u64>) -> End {
        let stops =
            matches!(last.flow, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception);
        let is_branch = matches!(last.flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        End {
            calls: is_call(last),
            led: is_branch && (last.inst.is_jcc_short_or_near() || last.inst.is_jmp_short_or_near()),
            falls: !stops && next == Some(last.next()),
            flow: last.flow,
        }
    }
}

/// What a set of blocks does to registers.
#[derive(Clone, Copy)]
struct Registers {
    /// Dead before every instruction, and written by none.
    dead: RegSet,
    /// Read or written.
    used: RegSet,
    /// There are addresses with base and index, and not enough dead registers to compute them.
    addresses: bool,
    /// A record has no dead register for the cursor.
    tight: bool,
}

struct Finder<'a> {
    view: &'a View<'a>,
    /// Per block.
    registers: Vec<Registers>,
    /// Per block: something in it is recorded.
    records: Vec<bool>,
    /// Per block.
    ends: Vec<End>,
    /// Entered from where no code can be put.
    external: Vec<bool>,
    /// Callee-saved registers that the function pushes.
    saved: RegSet,
}

impl<'a> Finder<'a> {
    /// Together with the blocks that may be part of a stay.
    fn new(view: &'a View<'a>) -> (Finder<'a>, Vec<bool>) {
        let n = view.blocks.len();
        let mut f = Finder {
            view,
            registers: Vec::with_capacity(n),
            records: Vec::with_capacity(n),
            ends: Vec::with_capacity(n),
            external: view.blocks.iter().map(|b| b.external_entry).collect(),
            saved: RegSet::EMPTY,
        };
        let mut all_allowed = Vec::with_capacity(n);
        f.external.iter_mut().take(1).for_each(|first| *first = true);
        for (b, block) in view.blocks.iter().enumerate() {
            let mut r = Registers { dead: USABLE, used: RegSet::EMPTY, addresses: false, tight: false };
            let mut written = RegSet::EMPTY;
            let (mut records, mut may) = (false, true);
            let insns = &view.insns[block.insns.start as usize..block.insns.end as usize];
            for (i, insn) in (block.insns.start as usize..).zip(insns) {
                let u = &view.uses[i];
                may &= allowed(insn);
                r.dead.0 &= insn.dead.0;
                // What a call writes it writes outside.
                let writes = if is_call(insn) { 0 } else { u.clobber.0 | u.kill.0 };
                written.0 |= writes;
                r.used.0 |= u.read.0 | writes;
                for access in view.accesses[i].iter().filter(|a| a.read || view.stores) {
                    records = true;
                    let two = matches!(access.form, Form::Plain(p) if p.base.is_some() && p.index.is_some());
                    let free = RegSet(insn.dead.0 & !u.clobber.0 & !u.kill.0 & !u.read.0 | insn.own.0);
                    r.addresses |= two && free.iter().nth(1).is_none();
                    r.tight |= insn.dead.0 & !u.clobber.0 | insn.own.0 == 0;
                }
                // (Most that read one of these are no pushes.)
                if u.read.0 & CALLEE_SAVED.0 != 0 && insn.inst.mnemonic() == Mnemonic::Push {
                    f.saved.0 |= u.read.0 & CALLEE_SAVED.0;
                }
            }
            r.dead.0 &= !written.0;
            f.registers.push(r);
            f.records.push(records);
            let next = view.blocks.get(b + 1).map(|next| view.insns[next.insns.start as usize].ip);
            f.ends.push(End::of(&insns[insns.len() - 1], next));
            all_allowed.push(may);
        }
        (f, all_allowed)
    }

    /// Loops without calls, the largest for which there is a register.
    fn choose(&self, allowed: &[bool]) -> Stays {
        let n = allowed.len();
        let starts = self.view.blocks.iter().map(|b| b.insns.start).collect();
        let mut stays = Stays { starts, all: Vec::new(), of_block: vec![None; n], before: vec![None; n], ends: vec![false; n] };
        let all: Vec<u32> = (0..allowed.len() as u32).filter(|&b| allowed[b as usize]).collect();
        let mut work = self.cycles(&all);
        while let Some(set) = work.pop() {
            if set.iter().all(|&b| !self.records[b as usize]) || stays.all.len() >= usize::from(u16::MAX) {
                continue;
            }
            if let Some(stay) = self.register(&set) {
                let number = stays.all.len() as u16;
                stays.all.push(stay);
                set.iter().for_each(|&b| stays.of_block[b as usize] = Some(number));
                continue;
            }
            // Without the blocks through which the cycle is entered, the inner ones remain.
            let inside = |b: &BlockId| set.binary_search(&b.0).is_ok();
            let inner: Vec<u32> = set
                .iter()
                .copied()
                .filter(|&b| !self.external[b as usize] && self.view.blocks[b as usize].preds.iter().all(inside))
                .collect();
            if inner.len() < set.len() {
                work.extend(self.cycles(&inner));
            }
        }
        stays
    }

    /// Registers for a stay of these blocks.
    fn register(&self, set: &[u32]) -> Option<Stay> {
        let mut all = Registers { dead: USABLE, used: RegSet::EMPTY, addresses: false, tight: false };
        for &b in set {
            let r = self.registers[b as usize];
            all.dead.0 &= r.dead.0;
            all.used.0 |= r.used.0;
            all.addresses |= r.addresses;
        }
        let cursor = self.keep(&all, None)?;
        let scratch = if all.addresses { self.keep(&all, Some(cursor.reg)) } else { None };
        Some(Stay { cursor, scratch, late: true })
    }

    /// The cheapest register to keep, but not `other`.
    fn keep(&self, all: &Registers, other: Option<Gpr>) -> Option<Kept> {
        let not = other.map_or(0, |r| 1 << r.0);
        if let Some(reg) = cheapest(RegSet(all.dead.0 & !not)) {
            return Some(Kept { reg, spilled: false });
        }
        let unused = USABLE.0 & !all.used.0 & !not;
        let sets = [unused & !CALLEE_SAVED.0, unused & self.saved.0, unused & !RBP.0];
        sets.into_iter().find_map(|set| cheapest(RegSet(set))).map(|reg| Kept { reg, spilled: true })
    }

    /// Strongly connected components of the graph of these blocks (in ascending order), without those that are no cycle.
    fn cycles(&self, blocks: &[u32]) -> Vec<Vec<u32>> {
        // Each cycle has a way back.
        let leads_back = |&b: &u32| self.view.blocks[b as usize].succs.iter().any(|s| s.0 <= b);
        if !blocks.iter().any(leads_back) {
            return Vec::new();
        }
        let n = blocks.len();
        let local = |b: BlockId| blocks.binary_search(&b.0).ok();
        let (mut index, mut low, mut on) = (vec![0u32; n], vec![0u32; n], vec![false; n]);
        let (mut stack, mut path, mut found, mut next) = (Vec::new(), Vec::new(), Vec::new(), 1);
        for root in 0..n {
            if index[root] != 0 {
                continue;
            }
            path.push((root, 0usize));
            while let Some(&mut (v, ref mut edge)) = path.last_mut() {
                if *edge == 0 && index[v] == 0 {
                    (index[v], low[v], on[v]) = (next, next, true);
                    next += 1;
                    stack.push(v);
                }
                let succs = &self.view.blocks[blocks[v] as usize].succs;
                if let Some(&to) = succs.get(*edge) {
                    *edge += 1;
                    match local(to) {
                        Some(w) if index[w] == 0 => path.push((w, 0)),
                        Some(w) if on[w] => low[v] = low[v].min(index[w]),
                        _ => {}
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent] = low[parent].min(low[v]);
                }
                if low[v] == index[v] {
                    let from = stack.iter().rposition(|&w| w == v).unwrap_or(0);
                    let mut set: Vec<u32> = stack.drain(from..).map(|w| blocks[w]).collect();
                    set.iter().for_each(|&b| on[blocks.binary_search(&b).unwrap_or(0)] = false);
                    let own = self.view.blocks[blocks[v] as usize].succs.contains(&BlockId(blocks[v]));
                    if set.len() > 1 || own {
                        set.sort_unstable();
                        found.push(set);
                    }
                }
            }
        }
        found
    }

    fn is_indirect(&self, piece: usize) -> bool {
        self.ends[piece].flow == FlowControl::IndirectBranch
    }

    /// Whether the stay of a piece ends before its last instruction: a call, or an indirect jump that leads out of it.
    fn ends(&self, piece: usize, stays: &Stays) -> bool {
        let code = |t: &BlockId| stays.needs_code(stays.of_block[piece], stays.of_block[t.0 as usize]);
        let jumps_out = || self.view.blocks[piece].succs.iter().any(code);
        self.ends[piece].calls || self.is_indirect(piece) && jumps_out()
    }

    /// Decides what stands before the blocks' labels. Returns blocks that must be in no stay, because control enters or
    /// leaves them where no code can be put.
    fn complete(&self, stays: &mut Stays) -> Vec<usize> {
        let mut wrong = Vec::new();
        for u in 0..self.view.blocks.len() {
            stays.ends[u] = stays.of_block[u].is_some() && self.ends(u, stays);
        }
        for t in 0..self.view.blocks.len() {
            let to = stays.of_block[t];
            let falling = (t > 0 && self.ends[t - 1].falls).then(|| stays.out(t - 1));
            if self.external[t] && to.is_some() {
                if falling.is_some_and(|from| from.is_some()) {
                    wrong.push(t);
                }
                stays.before[t] = Some(None);
                continue;
            }
            stays.before[t] = match falling {
                Some(from) => Some(from).filter(|&from| stays.needs_code(from, to)),
                None => {
                    let preds = || self.view.blocks[t].preds.iter().map(|p| p.0 as usize);
                    // An indirect jump goes to the code before the label, or needs none.
                    let jumped = preds().find(|&p| self.is_indirect(p)).map(|p| stays.out(p));
                    jumped.into_iter().chain(preds().map(|p| stays.out(p))).find(|&from| stays.needs_code(from, to))
                }
            };
        }
        for (u, block) in self.view.blocks.iter().enumerate() {
            let end = self.ends[u];
            if end.led {
                continue;
            }
            let next = end.falls.then_some(u + 1);
            for t in block.succs.iter().map(|t| t.0 as usize) {
                // (A branch to the very next block is no different from another.)
                let jumped = Some(t) != next || end.flow != FlowControl::Next && !end.calls;
                if !jumped || !stays.needs_code(stays.out(u), stays.of_block[t]) {
                    continue;
                }
                // Unwinders and copied tables lead to the code for who comes from outside.
                if stays.out(u).is_none() && stays.before[t] == Some(None) && (self.external[t] || self.is_indirect(u)) {
                    continue;
                }
                wrong.extend([u, t].into_iter().filter(|&b| stays.of_block[b].is_some()));
            }
        }
        // A table's targets in other functions are idle; and it has one entry per piece, which is the code before the label if that is for control
        // from no stay.
        for table in self.view.tables {
            let u = self.view.blocks.partition_point(|b| b.insns.end <= table.jump.0);
            for target in &table.targets {
                match self.view.block_at(*target) {
                    None if stays.needs_code(stays.out(u), None) => wrong.push(u),
                    Some(t) if stays.of_block[t].is_some() => {
                        let entry = if stays.before[t] == Some(None) { None } else { stays.of_block[t] };
                        if stays.out(u) != entry {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::{Entries, Graph};
    use crate::disasm::decode;
    use crate::functions::Input;
    use crate::ir::{InsnId, TableForm};
    use crate::operands::accesses;
    use crate::regs::reg_use;
    use iced_x86::InstructionInfoFactory;

    /// The stays of a function, and the stay of each block.
    pub(super) fn stays(parts: &[&[u8]]) -> (Stays, Vec<Option<Stay>>) {
        let bytes = parts.concat();
        let body = decode(&bytes, 0x100, &[]).unwrap();
        let mut g = Graph::build(body, &(0x100..0x100 + bytes.len() as u64), &Entries::default(), &[]);
        of(&mut g, &[])
    }

    fn of(g: &mut Graph, tables: &[JumpTable]) -> (Stays, Vec<Option<Stay>>) {
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = g.insns.iter().map(|i| reg_use(factory.info(&i.inst))).collect();
        let input = Input::default();
        let effects = crate::liveness::Effects::of(&input, g, &crate::loops::Loops::find(g), &uses);
        crate::liveness::mark(g, &effects);
        let accesses: AccessList = g.insns.iter().map(|i| accesses(&i.inst, factory.info(&i.inst))).collect();
        let pieces = pieces(&g.insns, &g.blocks);
        let stays = find(&View { insns: &g.insns, blocks: &pieces, tables, uses: &uses, accesses: &accesses, stores: false });
        let of = (0..pieces.len()).map(|b| stays.at(stays.of(b))).collect();
        (stays, of)
    }

    pub(super) fn kept(reg: u8, spilled: bool) -> Kept {
        Kept { reg: Gpr(reg), spilled }
    }

    pub(super) const XOR_ECX: &[u8] = &[0x31, 0xc9];
    pub(super) const LOAD: &[u8] = &[0x8b, 0x07]; // mov eax, [rdi]
    const NEXT: &[u8] = &[0x48, 0x83, 0xc7, 0x04, 0x48, 0x39, 0xf7]; // add rdi, 4; cmp rdi, rsi
    pub(super) const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    pub(super) const RET: &[u8] = &[0xc3];

    /// jne back over the parts.
    fn back(parts: &[&[u8]]) -> Vec<u8> {
        vec![0x75, (-(parts.iter().map(|p| p.len() as i8).sum::<i8>()) - 2) as u8]
    }

    #[test]
    fn a_loop_keeps_the_cursor_in_a_register_that_is_dead_in_it() {
        let (stays, of) = stays(&[XOR_ECX, LOAD, NEXT, &back(&[LOAD, NEXT]), RET]);
        assert_eq!(of, [None, Some(Stay { cursor: kept(1, false), scratch: None, late: true }), None]);
        assert_eq!(stays.before(1), Some(None), "the cursor is loaded where control falls into the loop");
        assert_eq!(stays.before(2), Some(Some(0)), "nothing is given back, but the cursor is stored");
        assert_eq!(of[1].unwrap().state().flags, STATE_LATE);
    }

    #[test]
    fn else_it_borrows_one_that_the_loop_does_not_use() {
        let (stays, of) = stays(&[LOAD, NEXT, &back(&[LOAD, NEXT]), RET]);
        assert_eq!(of[0], Some(Stay { cursor: kept(1, true), scratch: None, late: true }));
        assert_eq!(stays.before(0), Some(None), "callers enter here");
        assert_eq!(stays.before(1), Some(Some(0)), "it is given back behind the loop");
        assert_eq!(of[0].unwrap().state().saved[0], [1, PLACE_STAY]);
    }

    #[test]
    fn calls_end_stays() {
        assert_eq!(stays(&[LOAD, CALL, NEXT, &back(&[LOAD, CALL, NEXT]), RET]).1, [None, None, None]);
        // An inner loop without calls has one all the same.
        let inner = back(&[LOAD, NEXT]);
        let (_, of) = stays(&[LOAD, NEXT, &inner, CALL, &back(&[LOAD, NEXT, &inner, CALL]), RET]);
        assert!(of[0].is_some() && of[1].is_none() && of[2].is_none(), "{of:?}");
    }

    #[test]
    fn loops_that_record_nothing_have_none() {
        assert_eq!(stays(&[NEXT, &back(&[NEXT]), RET]).1, [None, None]);
    }

    #[test]
    fn an_address_of_two_registers_gets_a_register_of_its_own() {
        const INDEXED: &[u8] = &[0x8b, 0x04, 0x97]; // mov eax, [rdi+rdx*4]
        let (_, of) = stays(&[INDEXED, NEXT, &back(&[INDEXED, NEXT]), RET]);
        assert_eq!(of[0], Some(Stay { cursor: kept(1, true), scratch: Some(kept(8, true)), late: true }), "rcx and r8 are the cheapest that nothing uses");
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
        let (_, of) = stays(&[LOAD, &all, NEXT, &back(&[LOAD, &all, NEXT]), RET]);
        assert_eq!(of[0], None);
        const PUSH_RBP: &[u8] = &[0x55];
        const POP_RBP: &[u8] = &[0x5d];
        let (_, of) = stays(&[PUSH_RBP, LOAD, &all, NEXT, &back(&[LOAD, &all, NEXT]), POP_RBP, RET]);
        assert_eq!(of[1], Some(Stay { cursor: kept(5, true), scratch: None, late: true }));
    }

    #[test]
    fn a_tables_target_that_is_entered_from_outside_is_in_none() {
        // 100: mov eax,[rdi]; jmp *rax | 104: add rdi,4; cmp rdi,rsi; jne 100 | ret
        let bytes = [LOAD, &[0xff, 0xe0], NEXT, &[0x75, 0xf3], RET].concat();
        let stays = |external: bool| {
            let body = decode(&bytes, 0x100, &[]).unwrap();
            let jump = crate::cfg::KnownJump { ip: 0x102, targets: vec![0x104], closed: true };
            let mut g = Graph::build(body, &(0x100..0x100 + bytes.len() as u64), &Entries::default(), &[jump]);
            let block = g.block_at(0x104).unwrap();
            g.blocks[block.0 as usize].external_entry = external;
            let table = JumpTable { load: InsnId(0), jump: InsnId(1), table: 0x2000, form: TableForm::Absolute8, targets: vec![0x104] };
            of(&mut g, &[table]).1
        };
        assert!(stays(false)[1].is_some());
        assert_eq!(stays(true)[1], None);
    }

    #[test]
    fn a_loop_that_is_entered_by_a_branch_that_cannot_be_led_has_none() {
        // jrcxz to the loop's head, which control falls into as well.
        assert_eq!(stays(&[&[0xe3, 0x00], LOAD, NEXT, &back(&[LOAD, NEXT]), RET]).1, [None, None, None]);
    }
}
