//! Finds the bytes of a function that are certain to be code.
//!
//! Hand-written functions have data between their instructions, and some of it looks like
//! instructions. An entry jump over it would change data that the program reads. So one is written
//! only over bytes that control is known to reach: from the function's start, from targets of other
//! code's calls and branches, from landing pads and jump tables, and from addresses whose path to a
//! jump is known. If code only takes an address, or only a data word holds it, the bytes there may
//! be data. The same applies after a call or system call, which may never return.

use crate::discover::jump_tables::is_indirect_jump;
use crate::ir::cfg::Cfg;
use crate::ir::jump_table::IndirectJumpFacts;
use crate::program::FunctionInfo;
use crate::util::ranges::overlaps;
use crate::x86::decode::make_insn;
use crate::x86::effects;
use crate::x86::flow::{direct_target, is_call, is_padding, taken};
use crate::x86::insn::Insn;
use crate::x86::regs::{CALLEE_SAVED_BUT_RBP, RegSet, gpr, registers};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Maximum number of instructions followed after the one that takes an address. Source: Chosen.
const MAX_FOLLOWING_INSTRUCTIONS: usize = 32;
/// Maximum length of a table of labels on the stack.
const MAX_BYTES: u64 = 1 << 14;

/// Per block: true if it is certain to be code. `data`: bytes of the function that are data.
pub fn sure(
    graph: &Cfg,
    info: &FunctionInfo,
    pads: &[(Range<u64>, u64)],
    data: &[Range<u64>],
    jumps: &Jumps,
    factory: &mut InstructionInfoFactory,
) -> Vec<bool> {
    if info.inner().doubted.is_empty() && info.inner().words.is_empty() && data.is_empty() {
        return vec![true; graph.blocks.len()];
    }
    let mut sure = vec![false; graph.blocks.len()];
    let lists = [
        &info.inner().called,
        &info.inner().branched,
        &info.inner().taken,
    ];
    let certain = lists
        .into_iter()
        .flatten()
        .copied()
        .chain(pads.iter().map(|p| p.1));
    certain
        .chain([info.range.start])
        .for_each(|at| reach(graph, info, data, &mut sure, at));
    if !jumps.sources.is_empty() {
        // A data word with an inner address is for a jump if one may read it, unless code is known
        // to read where it points.
        let read = if info.inner().words.is_empty() {
            Vec::new()
        } else {
            read_through(graph, factory)
        };
        let for_jumps = info
            .inner()
            .words
            .iter()
            .filter(|w| jumps.may_read(w.0) && !overlaps(&read, &(w.0..w.0 + 1)));
        for_jumps.for_each(|w| reach(graph, info, data, &mut sure, w.1));
        for &at in &info.inner().doubted {
            if graph.block_at(at).is_some_and(|b| {
                !sure[b.0 as usize] && !graph.insns_of(b.0 as usize).iter().any(|i| is_odd(&i.inst))
            }) && jumps.lead_to(graph, at, factory)
            {
                reach(graph, info, data, &mut sure, at);
            }
        }
    }
    sure
}

/// Marks the blocks that control reaches from `at`.
fn reach(graph: &Cfg, info: &FunctionInfo, data: &[Range<u64>], sure: &mut [bool], at: u64) {
    let is_doubted = |at: u64| {
        info.inner().doubted.binary_search(&at).is_ok()
            || info.inner().words.iter().any(|w| w.1 == at)
    };
    let mut work: Vec<usize> = graph
        .block_at(at)
        .map(|b| b.0 as usize)
        .into_iter()
        .collect();
    while let Some(b) = work.pop() {
        if std::mem::replace(&mut sure[b], true) {
            continue;
        }
        let insns = graph.insns_of(b);
        let last = &insns[insns.len() - 1];
        if overlaps(data, &(insns[0].ip..last.end())) {
            continue;
        }
        let done = insns.iter().rfind(|i| !is_padding(&i.inst)).unwrap_or(last);
        let returns = !is_call(done.flow) || !is_doubted(last.next());
        let begins = |b: usize| graph.insns[graph.blocks[b].insns.start as usize].ip;
        work.extend(
            graph.blocks[b]
                .succs
                .iter()
                .map(|s| s.0 as usize)
                .filter(|&s| returns || begins(s) != last.next()),
        );
    }
}

/// Tables in memory of addresses at which the code reads, each up to the next address taken.
/// Sorted, without overlaps.
fn read_through(graph: &Cfg, factory: &mut InstructionInfoFactory) -> Vec<Range<u64>> {
    let is_load = |i: &Insn| {
        i.inst.mnemonic() == Mnemonic::Mov
            && i.inst.op0_register().is_gpr64()
            && i.inst.op1_kind() == OpKind::Memory
    };
    let mut tables: Vec<(u64, bool)> = Vec::new();
    for (n, insn) in graph.insns.iter().enumerate() {
        let fixed = Slot::of(&insn.inst)
            .filter(|s| matches!(s.base, Register::RIP | Register::None))
            .map(|s| s.disp);
        let Some(table) = taken(&insn.inst).map(|t| t.0).or(fixed) else {
            continue;
        };
        let mut loads = is_load(insn).then_some(n).into_iter().chain(
            loads_by(&graph.insns, n, factory)
                .into_iter()
                .filter(|&n| is_load(&graph.insns[n])),
        );
        tables.push((
            table,
            loads.any(|n| fate(&graph.insns[n + 1..], &graph.insns[n].inst, factory) == Fate::Read),
        ));
    }
    tables.sort_unstable_by_key(|t| (t.0, !t.1));
    tables.dedup_by_key(|t| t.0);
    let ends = tables.iter().skip(1).map(|t| t.0).chain([u64::MAX]);
    tables
        .iter()
        .zip(ends)
        .filter(|(t, _)| t.1)
        .map(|(t, end)| t.0..end.min(t.0.saturating_add(MAX_BYTES)))
        .collect()
}

/// Instructions that read through the address that instruction `n` takes.
fn loads_by(insns: &[Insn], n: usize, factory: &mut InstructionInfoFactory) -> Vec<usize> {
    let mut found = Vec::new();
    let Some(register) =
        gpr(insns[n].inst.op0_register()).filter(|_| taken(&insns[n].inst).is_some())
    else {
        return found;
    };
    for (i, insn) in insns
        .iter()
        .enumerate()
        .skip(n + 1)
        .take(MAX_FOLLOWING_INSTRUCTIONS)
    {
        if [insn.inst.memory_base(), insn.inst.memory_index()]
            .into_iter()
            .any(|r| gpr(r) == Some(register))
        {
            found.push(i);
        }
        let goes_on = matches!(
            insn.flow,
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        if !goes_on
            || effects::uses(factory, &insn.inst)
                .clobber
                .contains(register)
        {
            break;
        }
    }
    found
}

/// True if compilers never emit such code.
pub fn is_odd(inst: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        inst.mnemonic(),
        In | Out | Insb | Insw | Insd | Outsb | Outsw | Outsd | Hlt | Cli | Sti | Iretq | Iretd
    )
}

/// Source of an indirect jump's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// This word, or an entry of a table that begins there.
    Slot(Slot),
    /// Unknown.
    Unknown,
}

/// A word in memory at an address that the instruction encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    base: Register,
    disp: u64,
    indexed: bool,
}

impl Slot {
    /// The memory operand, if it is in the frame or at a fixed address.
    fn of(inst: &Instruction) -> Option<Slot> {
        let base = inst.memory_base();
        let is_plain = matches!(
            base,
            Register::RSP | Register::RBP | Register::RIP | Register::None
        ) && inst.segment_prefix() == Register::None;
        (is_plain && (0..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory)).then(|| {
            Slot {
                base,
                disp: inst.memory_displacement64(),
                indexed: inst.memory_index() != Register::None,
            }
        })
    }

    /// True if a value written to this slot may be read by `source`. Data after the value may be
    /// written with it.
    fn feeds(self, source: Source) -> bool {
        let Source::Slot(from) = source else {
            return false;
        };
        let distance = self.disp.wrapping_sub(from.disp);
        self.base == from.base
            && if from.indexed {
                distance < MAX_BYTES
            } else {
                distance == 0 && !self.indexed
            }
    }
}

/// Fate of an address that an instruction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is jumped to.
    Jump,
    /// It is stored there.
    Stored(Slot),
    /// It is pushed.
    Pushed,
    /// Another address is computed from it.
    Changed,
    /// Code reads at it.
    Read,
    /// Its further use is unknown.
    Other,
}

/// The indirect jumps of a function that may go beyond the targets in its tables.
#[derive(Clone, Debug, Default)]
pub struct Jumps {
    sources: Vec<Source>,
    /// True for a return that pops a value pushed directly before it.
    by_return: bool,
}

impl Jumps {
    /// The jumps of `graph`.
    pub fn of(graph: &Cfg, factory: &mut InstructionInfoFactory) -> Jumps {
        let mut jumps = Jumps::default();
        for (block, exit) in graph.blocks.iter().zip(&graph.exits) {
            let insns = &graph.insns[block.insns.start as usize..block.insns.end as usize];
            match insns {
                [before @ .., last] if exit.leaves && is_indirect_jump(last) => {
                    jumps.sources.push(source(before, last, factory))
                }
                [.., before, last]
                    if last.flow == FlowControl::Return
                        && before.inst.mnemonic() == Mnemonic::Push =>
                {
                    jumps.by_return = true;
                    jumps.sources.push(Source::Unknown);
                }
                _ => {}
            }
        }
        jumps
    }

    /// True if the function takes this address, and takes it only for jumps.
    fn lead_to(&self, graph: &Cfg, at: u64, factory: &mut InstructionInfoFactory) -> bool {
        let mut places = graph
            .insns
            .iter()
            .enumerate()
            .filter(|(_, i)| taken(&i.inst).is_some_and(|t| t.0 == at))
            .peekable();
        places.peek().is_some()
            && places.all(|(n, i)| self.fits(fate(&graph.insns[n + 1..], &i.inst, factory)))
    }

    /// True if one of the jumps may go to the address in the word at the fixed address `at`.
    fn may_read(&self, at: u64) -> bool {
        self.sources.iter().any(|&source| match source {
            Source::Slot(s) if matches!(s.base, Register::RIP | Register::None) => {
                Slot { disp: at, ..s }.feeds(source)
            }
            _ => true,
        })
    }

    fn fits(&self, fate: Fate) -> bool {
        match fate {
            Fate::Jump => true,
            Fate::Stored(slot) => self.sources.iter().any(|&s| slot.feeds(s)),
            Fate::Pushed => {
                self.by_return
                    || self
                        .sources
                        .iter()
                        .any(|s| matches!(s, Source::Slot(s) if s.base == Register::RSP))
            }
            Fate::Changed | Fate::Read | Fate::Other => false,
        }
    }

    /// True if the function computes targets from its own addresses, so that any instruction may be
    /// a target. Such a function takes an inner address and does more with it than jump, or stores
    /// it where code other than jumps reads it. (In a function without such jumps, a return or
    /// other code uses the address, unless the function only reads there.)
    pub fn compute(
        &self,
        graph: &Cfg,
        info: &FunctionInfo,
        found: &[IndirectJumpFacts],
        data: &[Range<u64>],
        factory: &mut InstructionInfoFactory,
    ) -> bool {
        if info.inner().doubted.is_empty() {
            return self.by_return;
        }
        let of_table = |at: u64| {
            found.iter().any(|t| {
                t.table == at
                    || matches!(t.form, crate::ir::jump_table::TableForm::Relative { anchor } if anchor == at)
            })
        };
        let is_inner = |at: u64| {
            info.range.contains(&at)
                && at != info.range.start
                && !of_table(at)
                && !overlaps(data, &(at..at + 1))
        };
        let takes = graph
            .insns
            .iter()
            .enumerate()
            .filter_map(|(n, i)| Some((n, taken(&i.inst).filter(|t| is_inner(t.0))?.1)));
        self.by_return || takes.into_iter().any(|(n, whole)| {
            let fate = if whole {
                fate(&graph.insns[n + 1..], &graph.insns[n].inst, factory)
            } else {
                Fate::Changed
            };
            if self.sources.is_empty() {
                return fate != Fate::Read;
            }
            !self.fits(fate)
                || matches!(fate, Fate::Stored(slot) if !self.only_jumped_to(graph, slot, factory))
        })
    }

    /// True if only plain moves write a word in memory, and only jumps to its value read it. Tables
    /// are not changed in place.
    fn only_jumped_to(
        &self,
        graph: &Cfg,
        slot: Slot,
        factory: &mut InstructionInfoFactory,
    ) -> bool {
        if self
            .sources
            .iter()
            .any(|&s| slot.feeds(s) && matches!(s, Source::Slot(s) if s.indexed))
        {
            return true;
        }
        graph
            .insns
            .iter()
            .enumerate()
            .filter(|(_, i)| Slot::of(&i.inst) == Some(slot))
            .all(|(n, i)| match (i.inst.mnemonic(), i.inst.op0_kind()) {
                (Mnemonic::Jmp, _) | (Mnemonic::Mov, OpKind::Memory) => true,
                (Mnemonic::Mov, OpKind::Register) => {
                    fate(&graph.insns[n + 1..], &i.inst, factory) == Fate::Jump
                }
                _ => false,
            })
    }
}

/// True if the function computes another address from its start address. `takers`: the instructions
/// that take the start address.
pub fn computes_from(graph: &Cfg, takers: &[u32], factory: &mut InstructionInfoFactory) -> bool {
    takers.iter().any(|&n| {
        let (inst, behind) = (
            &graph.insns[n as usize].inst,
            &graph.insns[n as usize + 1..],
        );
        taken(inst).is_some_and(|t| !t.1) || fate(behind, inst, factory) == Fate::Changed
    })
}

/// An address that code takes, and its uses.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// The address.
    pub at: u64,
    /// True if another address is computed from it.
    pub changed: bool,
    /// True if it is only read from.
    pub read: bool,
    /// True if it is put into the frame, or held beyond a call or jump.
    pub kept: bool,
    /// Callee that gets the address, with the registers that hold it. The callee is the target of a
    /// direct call, or the word of a call through memory.
    pub given: Option<(u64, RegSet)>,
}

/// Uses of the address `at` that an instruction takes. `whole`: the instruction takes the address
/// itself, not a sum with it. `behind`: the code bytes that follow.
pub fn used(inst: &Instruction, at: u64, whole: bool, behind: &[u8]) -> Used {
    if !whole {
        return Used {
            at,
            changed: true,
            read: false,
            kept: false,
            given: None,
        };
    }
    let decoder = Decoder::with_ip(64, behind, inst.next_ip(), DecoderOptions::NONE);
    let insns: Vec<Insn> = decoder
        .into_iter()
        .take_while(|i| !i.is_invalid())
        .take(MAX_FOLLOWING_INSTRUCTIONS)
        .map(make_insn)
        .collect();
    let mut factory = InstructionInfoFactory::new();
    let fate_of = |n: usize, inst: &Instruction, factory: &mut InstructionInfoFactory| {
        fate(&insns[n..], inst, factory)
    };
    let (fate, end) = followed(&insns, inst, &mut factory);
    // After a call, the address may still be held. The search ends at a jump.
    let outlives = end.is_some_and(|(n, held)| match insns[n].flow {
        FlowControl::Call | FlowControl::IndirectCall => held.0 & CALLEE_SAVED_BUT_RBP.0 != 0,
        FlowControl::UnconditionalBranch => held != RegSet::EMPTY,
        _ => false,
    });
    let given = end.and_then(|(n, held)| {
        let inst = &insns[n].inst;
        let through = inst
            .is_ip_rel_memory_operand()
            .then(|| inst.ip_rel_memory_address());
        Some((direct_target(inst).or(through)?, held))
    });
    let kept = |slot: Slot| matches!(slot.base, Register::RBP | Register::RSP);
    let changed = match fate {
        // The address may be used in memory, or after it was loaded back.
        Fate::Stored(slot) => insns
            .iter()
            .enumerate()
            .filter(|(_, i)| Slot::of(&i.inst) == Some(slot))
            .any(|(n, i)| match i.inst.op0_kind() {
                OpKind::Memory => changes(&i.inst, &mut factory),
                _ => {
                    i.inst.mnemonic() == Mnemonic::Mov
                        && fate_of(n + 1, &i.inst, &mut factory) == Fate::Changed
                }
            }),
        _ => fate == Fate::Changed,
    };
    Used {
        at,
        changed,
        read: fate == Fate::Read,
        kept: matches!(fate, Fate::Stored(slot) if kept(slot)) || outlives,
        given,
    }
}

/// The words at a fixed address that an instruction takes from memory, and true if it takes them
/// unchanged and not a sum with them. A vector register takes several.
pub fn read(inst: &Instruction) -> Option<(Range<u64>, bool)> {
    let is_vector = inst.op0_register().is_vector_register() && carries(inst.mnemonic());
    let is_whole = match inst.mnemonic() {
        Mnemonic::Mov => true,
        Mnemonic::Add => false,
        _ if is_vector => true,
        _ => return None,
    };
    let slot = Slot::of(inst)
        .filter(|s| matches!(s.base, Register::RIP | Register::None) && !s.indexed)?;
    let size = inst.memory_size().size() as u64;
    (is_vector || inst.op0_register().is_gpr64())
        .then(|| (slot.disp..slot.disp.saturating_add(size), is_whole))
}

/// True if the instruction copies words, into a register or out of it.
fn carries(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Mov | Movq
            | Vmovq
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
            | Vmovapd
            | Vmovupd
            | Punpcklqdq
            | Vpunpcklqdq
            | Pinsrq
            | Vpinsrq
            | Movhps
            | Vmovhps
            | Movlps
            | Vinserti128
            | Vinsertf128
    )
}

/// Source of the target of `jump`. `before`: the instructions before it in its block.
fn source(before: &[Insn], jump: &Insn, factory: &mut InstructionInfoFactory) -> Source {
    let slot = |inst: &Instruction| Slot::of(inst).map_or(Source::Unknown, Source::Slot);
    let Some(target) = gpr(jump.inst.op0_register()) else {
        return slot(&jump.inst);
    };
    let maker = before
        .iter()
        .rev()
        .find(|i| effects::uses(factory, &i.inst).clobber.contains(target));
    match maker.map(|i| (i.inst.mnemonic(), &i.inst)) {
        Some((Mnemonic::Mov, inst)) => slot(inst),
        Some((Mnemonic::Pop, _)) => Source::Slot(Slot {
            base: Register::RSP,
            disp: 0,
            indexed: false,
        }),
        _ => Source::Unknown,
    }
}

/// Registers that hold an address as it was taken, vector registers by number.
struct Held {
    general: RegSet,
    vectors: u32,
}

impl Held {
    fn has(&self, r: Register) -> bool {
        gpr(r).is_some_and(|r| self.general.contains(r))
            || r.is_vector_register() && self.vectors >> r.number() & 1 == 1
    }

    fn add(&mut self, r: Register) {
        match gpr(r) {
            Some(r) => self.general = self.general.with(r),
            None if r.is_vector_register() => self.vectors |= 1 << r.number(),
            None => {}
        }
    }
}

/// Fate of the address that `taker` takes, in the instructions behind it.
fn fate(behind: &[Insn], taker: &Instruction, factory: &mut InstructionInfoFactory) -> Fate {
    followed(behind, taker, factory).0
}

/// Fate of the address and, where the search ends, the instruction there and the registers that
/// hold the address.
fn followed(
    behind: &[Insn],
    taker: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> (Fate, Option<(usize, RegSet)>) {
    use Mnemonic::*;
    let mut held = Held {
        general: RegSet::EMPTY,
        vectors: 0,
    };
    match (taker.mnemonic(), taker.op0_kind()) {
        (Push, _) => return (Fate::Pushed, None),
        (_, OpKind::Memory) => {
            return (Slot::of(taker).map_or(Fate::Other, Fate::Stored), None);
        }
        _ => held.add(taker.op0_register()),
    }
    let mut is_read = false;
    for (n, insn) in behind.iter().enumerate().take(MAX_FOLLOWING_INSTRUCTIONS) {
        let inst = &insn.inst;
        if held.has(inst.memory_base()) || held.has(inst.memory_index()) {
            if inst.mnemonic() == Lea {
                return (Fate::Changed, None);
            }
            is_read = true;
        }
        is_read |=
            inst.is_string_instruction() && (held.has(Register::RSI) || held.has(Register::RDI));
        // An address that is read from is no jump target, unless another address is computed from
        // it.
        let or_read = |fate| (if is_read { Fate::Read } else { fate }, None);
        let sources = 1.min(inst.op_count())..inst.op_count();
        let moved = sources
            .clone()
            .any(|o| inst.op_kind(o) == OpKind::Register && held.has(inst.op_register(o)));
        let here = inst.op_count() > 0
            && inst.op0_kind() == OpKind::Register
            && held.has(inst.op0_register());
        let chooses = inst.op_count() == 2 && inst.condition_code() != ConditionCode::None;
        let carries = chooses || carries(inst.mnemonic());
        let packs = matches!(inst.mnemonic(), Punpcklqdq | Pinsrq | Movhps);
        match inst.mnemonic() {
            Push if here => return or_read(Fate::Pushed),
            Jmp if here => return or_read(Fate::Jump),
            _ if moved && inst.op0_kind() == OpKind::Memory && carries => {
                return or_read(Slot::of(inst).map_or(Fate::Other, Fate::Stored));
            }
            Cmp | Test => {}
            // All instructions except copies count as arithmetic, since they may compute an address
            // from it.
            _ if moved && !carries => return (Fate::Changed, None),
            _ if here && inst.op_count() > 0 && !carries && changes(inst, factory) => {
                return (Fate::Changed, None);
            }
            _ => {}
        }
        if insn.flow != FlowControl::Next && insn.flow != FlowControl::ConditionalBranch {
            return (or_read(Fate::Other).0, Some((n, held.general)));
        }
        held.general.0 &= !effects::uses(factory, inst).clobber.0;
        if inst.op_count() > 0
            && inst.op0_kind() == OpKind::Register
            && inst.op0_register().is_vector_register()
            && !packs
        {
            held.vectors &= !(1 << inst.op0_register().number());
        }
        if (moved && carries || here && chooses) && inst.op0_kind() == OpKind::Register {
            held.add(inst.op0_register());
        }
        if held.general == RegSet::EMPTY && held.vectors == 0 {
            break;
        }
    }
    (if is_read { Fate::Read } else { Fate::Other }, None)
}

/// True if the instruction computes its first operand from the operand's old value.
fn changes(inst: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    matches!(
        registers(factory, inst).op0_access(),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::flow::taken_by;

    #[test]
    fn what_takes_no_address_is_known_by_its_code() {
        let mut takers = std::collections::HashSet::new();
        for prefix in [
            &[][..],
            &[0x48],
            &[0x41],
            &[0x66],
            &[0x67],
            &[0x66, 0x48],
            &[0xf0],
            &[0x64],
        ] {
            for (escape, opcode) in (0..=255)
                .map(|o| (&[][..], o))
                .chain((0..=255).map(|o| (&[0x0f][..], o)))
            {
                for modrm in 0..=255 {
                    let bytes = [
                        prefix,
                        escape,
                        &[opcode, modrm, 0x25, 1, 2, 3, 4, 5, 6, 7, 8, 9],
                    ]
                    .concat();
                    let inst = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                    if taken_by(&inst).is_some() {
                        takers.insert(inst.code());
                        assert!(taken(&inst) == taken_by(&inst), "{inst}");
                    }
                }
            }
        }
        assert_eq!(takers.len(), 16);
    }
}
