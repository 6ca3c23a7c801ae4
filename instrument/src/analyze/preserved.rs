//! Registers whose values callers may use after a function returns.
//!
//! The ABI lets a function change nine registers, but not all code follows it: `preserve_most`,
//! `preserve_all`, `no_caller_saved_registers`, `ms_abi`, hand-written helpers, and functions of
//! one file that the compiler optimizes together. So a register counts as lost to the callers only
//! if the function shows it. There are two signs:
//!
//! - The function overwrites the register, and some path to a `ret` does not restore the old value.
//! - The function calls something that changes the register. Imports of the C and C++ runtime
//!   libraries follow the ABI ([`Import::Abi`]). Other imports are unknown, unless the function
//!   keeps a value of its own in a callee-saved register across the call: it would not save and
//!   restore that register if the callee preserved a caller-saved one.
//!
//! A register that the function has written and not read before a `ret` may be a result in any
//! convention. A function that reads callee-saved registers (or r11) as inputs has a convention of
//! its own: it counts as returning everything.

use crate::analyze::imported_calls::imported;
use crate::analyze::stack_frame::is_call;
use crate::ir::cfg::Cfg;
use crate::program::{Import, Input};
use crate::x86::insn::Insn;
use crate::x86::regs::{
    ALL, CALLEE_SAVED_BUT_RBP, CALLER_SAVED, Gpr, R10, R11, RAX, RBP, RDI, RDX, RSI, RSP, RegSet,
    RegUse, gpr, gpr64,
};
use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};
use smallvec::SmallVec;

/// Registers in which a function that follows the ABI gets no arguments. Callee-saved ones must be
/// preserved.
const NEVER_PASSED: u16 = CALLEE_SAVED_BUT_RBP.0 | 1 << RBP.0 | 1 << R11.0;
/// Caller-saved registers that `ms_abi` functions keep.
const KEPT_BY_MS_ABI: u16 = 1 << RSI.0 | 1 << RDI.0;

/// Registers that callers may use after each return.
#[derive(Debug, Default)]
pub struct Returned {
    /// Each block that ends in `ret`, with the registers that a caller may read.
    live: Vec<(usize, u16)>,
}

impl Returned {
    /// Registers that a caller may read after the `ret` of a block.
    pub fn live(&self, block: usize) -> u16 {
        self.live
            .binary_search_by_key(&block, |l| l.0)
            .map_or(ALL.0, |n| self.live[n].1)
    }
}

/// Target of a copy of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyTarget {
    /// The stack at any depth: memory based on rsp, rbp or a register made from rsp.
    Stack,
    /// Memory with this base, index, scale, displacement and segment.
    Memory(Register, Register, u32, u64, Register),
    /// Another register.
    Register(Gpr),
    /// A vector or mask register.
    Vector,
}

/// An instruction that copies a general purpose register to a target, or restores it from there.
#[derive(Clone, Copy)]
struct Copied {
    insn: usize,
    register: Gpr,
    place: CopyTarget,
}

/// Three sets of registers: those that may hold their old value, those that may hold another one,
/// and those that the function has written and not read.
type State = u64;
const OTHER_SHIFT: u32 = 16;
const UNREAD_SHIFT: u32 = 32;

/// Effect of one or several instructions on the state.
#[derive(Clone, Copy)]
struct Transfer {
    keeps: State,
    adds: State,
}

impl Transfer {
    const NO_EFFECT: Transfer = Transfer {
        keeps: State::MAX,
        adds: 0,
    };

    /// `old`: registers that keep the old value; `back`: registers that get it back; `unread`:
    /// registers that stay unread, and those that become unread.
    #[inline]
    fn of(old: u16, back: u16, unread: (u16, u16)) -> Transfer {
        let join = |old: u16, other: u16, unread: u16| {
            State::from(old)
                | State::from(other) << OTHER_SHIFT
                | State::from(unread) << UNREAD_SHIFT
        };
        Transfer {
            keeps: join(old, !back, unread.0),
            adds: join(back, !old & !back, unread.1 & !back),
        }
    }

    #[inline]
    fn then(self, next: Transfer) -> Transfer {
        Transfer {
            keeps: self.keeps & next.keeps,
            adds: self.adds & next.keeps | next.adds,
        }
    }

    #[inline]
    fn from(self, state: State) -> State {
        state & self.keeps | self.adds
    }
}

/// Effects of a function's blocks.
#[derive(Default)]
struct Blocks {
    steps: Vec<Transfer>,
    /// Per block: registers of [`NEVER_PASSED`] that it reads before it changes them, other than to
    /// save them.
    reads: Vec<u16>,
    /// Instructions that may be copies, see [`copied`].
    copies: Vec<u32>,
    /// rbp, and registers that are somewhere made from rsp.
    frame: RegSet,
    /// True if there are calls whose effect [`Finder::evidence`] may show.
    unknown_calls: bool,
}

/// Facts about a function during the search.
struct Finder<'g> {
    input: &'g Input<'g>,
    graph: &'g Cfg,
    uses: &'g [RegUse],
    /// Registers that imports without a known convention change, as the function's own code shows.
    shown: u16,
}

/// Finds the registers that callers may use. `saved`: callee-saved registers that the function
/// pushes.
pub fn find_preserved_registers(
    input: &Input,
    graph: &Cfg,
    uses: &[RegUse],
    saved: RegSet,
) -> Returned {
    if !graph.exits.iter().any(|e| e.returns) {
        return Returned::default();
    }
    let mut finder = Finder {
        input,
        graph,
        uses,
        shown: 0,
    };
    let mut blocks = finder.blocks();
    let mut state = finder.solve(&blocks.steps);
    let has_own_rules = |(state, reads): (&Option<State>, &u16)| {
        state.is_some_and(|s| s as u16 & reads & NEVER_PASSED != 0)
    };
    if state.iter().zip(&blocks.reads).any(has_own_rules) {
        return Returned::default();
    }
    let restores = finder.restores(&blocks, &state);
    if !restores.is_empty() {
        finder.put_back(&mut blocks.steps, &restores);
        state = finder.solve(&blocks.steps);
    }
    if blocks.unknown_calls {
        finder.shown = finder.evidence(RegSet(saved.0 & !blocks.frame.0), &restores, &state);
        if finder.shown != 0 {
            blocks = finder.blocks();
            finder.put_back(&mut blocks.steps, &restores);
            state = finder.solve(&blocks.steps);
        }
    }
    let returns = (0..graph.blocks.len()).filter(|&b| graph.exits[b].returns);
    let states: Vec<(usize, State)> = returns
        .filter_map(|b| Some((b, blocks.steps[b].from(state[b]?))))
        .collect();
    let lost = states
        .iter()
        .fold(0, |lost, (_, s)| lost | (s >> OTHER_SHIFT) as u16)
        & CALLER_SAVED.0;
    let live = !lost | RegSet::EMPTY.with(RAX).with(RDX).0;
    Returned {
        live: states
            .iter()
            .map(|&(b, s)| (b, live | (s >> UNREAD_SHIFT) as u16))
            .collect(),
    }
}

impl Finder<'_> {
    fn blocks(&self) -> Blocks {
        let n = self.graph.blocks.len();
        let mut all = Blocks {
            steps: Vec::with_capacity(n),
            reads: Vec::with_capacity(n),
            frame: RegSet::EMPTY.with(RBP),
            ..Blocks::default()
        };
        for block in &self.graph.blocks {
            let (mut sum, mut reads, mut changed) = (Transfer::NO_EFFECT, 0, 0);
            for i in block.insns.start as usize..block.insns.end as usize {
                let (insn, u) = (&self.graph.insns[i], &self.uses[i]);
                if may_copy(insn.inst.code()) {
                    all.copies.push(i as u32);
                }
                let read = u.read.0 & NEVER_PASSED & !changed;
                if read != 0 && insn.flow == FlowControl::Next {
                    reads |= read & !never_passed_but_saved(&insn.inst);
                }
                if u.read.contains(RSP) && is_made_from_stack(&insn.inst) {
                    all.frame.0 |= u.kill.0;
                }
                changed |= u.kill.0 | u.clobber.0;
                sum = sum.then(self.step(insn, u, 0));
                all.unknown_calls |= self.is_unknown_call(insn);
            }
            all.steps.push(sum);
            all.reads.push(reads);
        }
        all
    }

    /// `back`: registers whose old value the instruction may put back.
    #[inline]
    fn step(&self, insn: &Insn, u: &RegUse, back: u16) -> Transfer {
        // Code that changes a part of a register that is never passed does not need its old value.
        let old = !(u.kill.0 | u.clobber.0 & NEVER_PASSED);
        if is_call(insn) {
            // (Registers written before are the call's arguments.)
            return Transfer::of(old & !self.changed_by(insn), back, (0, 0));
        }
        Transfer::of(old, back, (!u.read.0, u.kill.0 | u.clobber.0))
    }

    /// Recomputes the steps of blocks with these restoring instructions.
    fn put_back(&self, steps: &mut [Transfer], restores: &[(usize, Gpr)]) {
        let mut left = restores.iter().peekable();
        while let Some(&&(first, _)) = left.peek() {
            let b = self.graph.block_of(first);
            let block = &self.graph.blocks[b].insns;
            steps[b] =
                (block.start as usize..block.end as usize).fold(Transfer::NO_EFFECT, |sum, i| {
                    let mut back = 0;
                    while let Some((_, r)) = left.next_if(|r| r.0 == i) {
                        back |= 1 << r.0;
                    }
                    sum.then(self.step(&self.graph.insns[i], &self.uses[i], back))
                });
        }
    }

    /// True if the instruction calls an import with an unknown convention.
    #[inline]
    fn is_unknown_call(&self, insn: &Insn) -> bool {
        let unknown = |import| matches!(import, Some(Import::Lazy | Import::Unknown));
        is_call(insn) && unknown(imported(self.input, insn))
    }

    /// Registers that the callee of a call always changes.
    fn changed_by(&self, insn: &Insn) -> u16 {
        match imported(self.input, insn) {
            Some(Import::Abi) => CALLER_SAVED.0,
            Some(Import::Lazy) => self.shown | 1 << R10.0 | 1 << R11.0,
            Some(Import::Unknown) => self.shown,
            None => 0,
        }
    }

    /// The state at each block's start; `None` if no known path leads to the block.
    fn solve(&self, steps: &[Transfer]) -> Vec<Option<State>> {
        let graph = self.graph;
        let n = graph.blocks.len();
        let entered = |b: usize| {
            graph.roots.get(b).copied().unwrap_or(true) || graph.blocks[b].external_entry
        };
        // (A part of the function elsewhere may return with arguments that it got, or with values
        // that it made.)
        let mut state: Vec<Option<State>> = (0..n)
            .map(|b| entered(b).then_some(CALLER_SAVED.without(R11).0.into()))
            .collect();
        state[0] = Some(ALL.0.into());
        let mut queued = vec![false; n];
        let mut work: Vec<u32> = Vec::new();
        // First all blocks in order, then those with predecessors behind them, until nothing
        // changes.
        let mut first = 0..n;
        while let Some(b) = first.next().or_else(|| work.pop().map(|b| b as usize)) {
            queued[b] = false;
            let Some(out) = state[b].map(|s| steps[b].from(s)) else {
                continue;
            };
            for s in graph.blocks[b].succs.iter().map(|s| s.0 as usize) {
                let all = state[s].unwrap_or(0) | out;
                if state[s] != Some(all) {
                    state[s] = Some(all);
                    if s < first.start && !std::mem::replace(&mut queued[s], true) {
                        work.push(s as u32);
                    }
                }
            }
        }
        state
    }

    /// Instructions that may restore an old value, with the register.
    fn restores(&self, blocks: &Blocks, state: &[Option<State>]) -> Vec<(usize, Gpr)> {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for &insn in &blocks.copies {
            let insn = insn as usize;
            let copies = copied(&self.graph.insns[insn].inst, blocks.frame).into_iter();
            for (register, place, back) in copies.filter(|c| CALLER_SAVED.contains(c.0)) {
                let list = if back { &mut from } else { &mut to };
                list.push(Copied {
                    insn,
                    register,
                    place,
                });
            }
        }
        let pairs = |to: &Copied, from: &Copied| {
            from.register == to.register
                && (from.place == to.place || from.place == CopyTarget::Stack)
        };
        to.retain(|c| from.iter().any(|back| pairs(c, back)) && self.is_old(c, state));
        from.retain(|back| to.iter().any(|c| pairs(c, back)));
        from.iter().map(|c| (c.insn, c.register)).collect()
    }

    /// True if a register may hold its old value at the copy.
    fn is_old(&self, copy: &Copied, state: &[Option<State>]) -> bool {
        let b = self.graph.block_of(copy.insn);
        let first = self.graph.blocks[b].insns.start as usize;
        let kept = |i: usize| {
            let step = self.step(&self.graph.insns[i], &self.uses[i], 0);
            step.keeps >> copy.register.0 & 1 == 1
        };
        state[b].is_some_and(|s| s >> copy.register.0 & 1 == 1) && (first..copy.insn).all(kept)
    }

    /// Caller-saved registers that, as the function's code shows, imports without a known
    /// convention change. The sign is a value that the function keeps across such a call in a
    /// callee-saved register, which it must save and restore. `saved`: these registers, without a
    /// possible frame pointer. (Functions with landing pads show nothing, since values for landing
    /// pads must be in callee-saved registers.)
    fn evidence(&self, saved: RegSet, restores: &[(usize, Gpr)], state: &[Option<State>]) -> u16 {
        if !self.graph.pads.is_empty() || saved == RegSet::EMPTY {
            return 0;
        }
        let live = self.read_later();
        let (mut shown, mut contradicted) = (false, 0);
        let (mut passed, mut clobbers) = (0, 0);
        for (b, block) in self.graph.blocks.iter().enumerate() {
            let Some(at_start) = state[b] else { continue };
            // Registers that are read after each instruction, computed from the block's end.
            let mut behind = live[b];
            let mut calls = Vec::new();
            for i in (block.insns.start as usize..block.insns.end as usize).rev() {
                let insn = &self.graph.insns[i];
                if self.is_unknown_call(insn) {
                    calls.push((i, behind));
                }
                let u = &self.uses[i];
                behind = behind & !u.kill.0 | read_by(insn, u);
            }
            let mut old = at_start as u16;
            for i in block.insns.start as usize..block.insns.end as usize {
                let (insn, u) = (&self.graph.insns[i], &self.uses[i]);
                if calls.last().is_some_and(|c| c.0 == i) {
                    let behind = calls.pop().map_or(0, |c| c.1);
                    shown |= behind & saved.0 & !old != 0;
                    contradicted |= behind & CALLER_SAVED.0 & !RegSet::EMPTY.with(RAX).with(RDX).0;
                }
                passed |=
                    read_by(insn, u) & old & (u16::from(!is_save(&insn.inst)) * KEPT_BY_MS_ABI);
                clobbers |= u.kill.0;
                old &= !u.kill.0;
            }
        }
        if !shown || contradicted != 0 {
            return 0;
        }
        let restored = restores.iter().fold(0, |all, r| all | 1 << r.1.0);
        // Functions that preserve rsi and rdi get their arguments in other registers.
        let by_system_v = (passed | clobbers & !restored) & KEPT_BY_MS_ABI != 0;
        CALLER_SAVED.0 & !if by_system_v { 0 } else { KEPT_BY_MS_ABI }
    }

    /// Registers that instructions read after each block's end before they are overwritten. Reads
    /// by calls and callers are left out.
    fn read_later(&self) -> Vec<u16> {
        let graph = self.graph;
        let n = graph.blocks.len();
        let blocks: Vec<(u16, u16)> = graph
            .blocks
            .iter()
            .map(|block| {
                let range = block.insns.start as usize..block.insns.end as usize;
                range.fold((0, 0), |(read, kill), i| {
                    let (insn, u) = (&graph.insns[i], &self.uses[i]);
                    (read | read_by(insn, u) & !kill, kill | u.kill.0)
                })
            })
            .collect();
        let mut out = vec![0u16; n];
        let mut changed = true;
        while changed {
            changed = false;
            for b in (0..n).rev() {
                let all = graph.blocks[b].succs.iter().fold(0, |all, s| {
                    let (read, kill) = blocks[s.0 as usize];
                    all | read | out[s.0 as usize] & !kill
                });
                changed |= all != out[b];
                out[b] = all;
            }
        }
        out
    }
}

/// True if an instruction that reads rsp gives a register an address in the stack.
fn is_made_from_stack(inst: &Instruction) -> bool {
    inst.code() == Code::Lea_r64_m
        || matches!(inst.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64)
            && inst.op0_kind() == OpKind::Register
            && inst.op1_kind() == OpKind::Register
}

/// Registers that an instruction itself reads, without those that it only passes on.
fn read_by(insn: &Insn, u: &RegUse) -> u16 {
    match insn.flow {
        FlowControl::Return => 0,
        _ => u.read.without(RSP).0,
    }
}

/// True if an instruction stores a whole register to the stack.
fn is_save(inst: &Instruction) -> bool {
    let mut copies = copied(inst, RegSet::EMPTY).into_iter();
    copies.any(|(_, place, back)| !back && place == CopyTarget::Stack)
}

/// Registers that an instruction reads only to store them, or that do not affect its result.
fn never_passed_but_saved(inst: &Instruction) -> u16 {
    if matches!(
        inst.code(),
        Code::Sbb_r32_rm32 | Code::Sbb_r64_rm64 | Code::Sbb_rm32_r32 | Code::Sbb_rm64_r64
    ) && inst.op1_kind() == OpKind::Register
        && inst.op0_register() == inst.op1_register()
    {
        return ALL.0;
    }
    match copied(inst, RegSet::EMPTY)[..] {
        [(register, CopyTarget::Stack | CopyTarget::Memory(..), false)]
            if inst.memory_base() == Register::None
                || gpr(inst.memory_base()) != Some(register)
                    && gpr(inst.memory_index()) != Some(register) =>
        {
            1 << register.0
        }
        _ => 0,
    }
}

/// True if an instruction may be a copy, see [`copied`].
#[inline]
fn may_copy(code: Code) -> bool {
    matches!(
        code,
        Code::Push_r64
            | Code::Pop_r64
            | Code::Push_rm64
            | Code::Pop_rm64
            | Code::Mov_r64_rm64
            | Code::Mov_rm64_r64
            | Code::Xchg_rm64_r64
            | Code::Xchg_r64_RAX
            | Code::Movnti_m64_r64
            | Code::Movq_xmm_rm64
            | Code::Movq_rm64_xmm
            | Code::VEX_Vmovq_xmm_rm64
            | Code::VEX_Vmovq_rm64_xmm
            | Code::EVEX_Vmovq_xmm_rm64
            | Code::EVEX_Vmovq_rm64_xmm
            | Code::Pinsrq_xmm_rm64_imm8
            | Code::Pextrq_rm64_xmm_imm8
            | Code::VEX_Vpinsrq_xmm_xmm_rm64_imm8
            | Code::VEX_Vpextrq_rm64_xmm_imm8
            | Code::VEX_Kmovq_kr_r64
            | Code::VEX_Kmovq_r64_kr
    )
}

/// A register that is copied as a whole, the other side of the copy, and true if the register is
/// the destination.
type Copies = SmallVec<[(Gpr, CopyTarget, bool); 4]>;

/// Copies that an instruction makes. Registers of `frame` point to the stack. Copies between
/// registers are listed from both sides.
fn copied(inst: &Instruction, frame: RegSet) -> Copies {
    let mut copies = Copies::new();
    if !may_copy(inst.code()) {
        return copies;
    }
    let place = |n: u32| match inst.op_kind(n) {
        OpKind::Register => {
            Some(gpr64(inst.op_register(n)).map_or(CopyTarget::Vector, CopyTarget::Register))
        }
        OpKind::Memory => {
            let (base, segment) = (inst.memory_base(), inst.segment_prefix());
            let on_stack = gpr(base).is_some_and(|base| frame.with(RSP).contains(base));
            Some(match on_stack && segment == Register::None {
                true => CopyTarget::Stack,
                false => CopyTarget::Memory(
                    base,
                    inst.memory_index(),
                    inst.memory_index_scale(),
                    inst.memory_displacement64(),
                    segment,
                ),
            })
        }
        _ => None,
    };
    let (to, from) = match inst.code() {
        Code::Push_r64 | Code::Push_rm64 => (Some(CopyTarget::Stack), place(0)),
        Code::Pop_r64 | Code::Pop_rm64 => (place(0), Some(CopyTarget::Stack)),
        Code::VEX_Vpinsrq_xmm_xmm_rm64_imm8 => (place(0), place(2)),
        _ => (place(0), place(1)),
    };
    let (Some(to), Some(from)) = (to, from) else {
        return copies;
    };
    let swaps = matches!(inst.code(), Code::Xchg_rm64_r64 | Code::Xchg_r64_RAX);
    for (to, from, there) in [(to, from, true), (from, to, swaps)] {
        if !there {
            continue;
        }
        if let CopyTarget::Register(register) = from {
            copies.push((register, to, false));
        }
        if let CopyTarget::Register(register) = to {
            copies.push((register, from, true));
        }
    }
    copies
}
