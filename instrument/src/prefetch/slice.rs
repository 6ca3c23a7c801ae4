//! Finds the instructions that compute a load's address from values that are known some iterations
//! ahead.
//!
//! The search goes back from the load, through blocks that control must have passed, up to the head
//! of the loop. The result is used for prefetches only, so it may guess values.

use crate::ir::loops::{LoopId, NO_LOOP};
use crate::prefetch::assemble::address_registers;
use crate::prefetch::operation::Operation;
use crate::prefetch::params::{MAX_BLOCKS, MAX_SLICE};
use crate::prefetch::search::{PrefetchSearch, RegisterChange};
use crate::prefetch::{Load, Reason};
use crate::x86::flow::is_call;
use crate::x86::insn::Insn;
use crate::x86::operands::{AccessSegment, EffectiveAddress, Form};
use crate::x86::regs::{Gpr, RSP, RegSet};

/// The computation of an address.
#[derive(Default)]
pub struct AddressSlice {
    /// Instructions in order.
    pub operations: Vec<Operation>,
    /// The load that is made early, if there is one.
    pub early: Option<Early>,
    /// Registers that advance by a constant, with their values at the head of the loop.
    pub steps: Vec<(Gpr, i64)>,
    /// Registers that advance by the value of another register.
    pub sums: Vec<(Gpr, Gpr)>,
    /// Registers that do not change.
    pub fixed: RegSet,
}

/// A load that is made early.
#[derive(Clone, Copy)]
pub struct Early {
    /// Its instruction.
    pub insn: usize,
    /// Bytes.
    pub size: i64,
    /// Bytes per iteration.
    pub stride: i64,
    /// The loop in which it advances.
    carrier: LoopId,
}

/// The state of the search at one point.
struct Trace {
    slice: AddressSlice,
    needed: RegSet,
    /// True if the flags are needed, too.
    needs_flags: bool,
    blocks: usize,
    /// The register that made the search continue in the previous iteration.
    around: Option<Gpr>,
}

/// Continuation of the search at the head of a loop.
enum Onward {
    /// Everything is known.
    Nowhere,
    /// In the enclosing loop.
    Outward,
    /// At the end of the previous iteration.
    Around(usize),
}

fn named(r: Gpr) -> String {
    format!("{:?}", super::assemble::wide(r)).to_lowercase()
}

fn carried(r: Gpr) -> Reason {
    format!(
        "its address depends on {}, which each iteration computes from the one before (a search, a tree, a list or a state)",
        named(r)
    )
    .into()
}

impl PrefetchSearch<'_, '_, '_> {
    /// The computation of a load's address.
    pub fn slice(&mut self, load: &Load) -> Result<AddressSlice, Reason> {
        let mut trace = Trace {
            slice: AddressSlice::default(),
            needed: address_registers(&self.view.graph.insns[load.insn].inst),
            needs_flags: false,
            blocks: 0,
            around: None,
        };
        match self.go_back(load, &mut trace) {
            Ok(()) => finished(trace.slice),
            // If the previous iteration is not usable, the reason is that the address comes from
            // there.
            Err(why) => Err(trace.around.map_or(why, carried)),
        }
    }

    fn go_back(&mut self, load: &Load, trace: &mut Trace) -> Result<(), Reason> {
        let (mut block, mut end) = (load.block, load.insn);
        loop {
            let start = self.view.graph.blocks[block].insns.start as usize;
            for i in (start..end).rev() {
                let sets_flags = self.view.graph.insns[i].inst.rflags_modified() != 0;
                if self.changed(i).0 & trace.needed.0 != 0 || trace.needs_flags && sets_flags {
                    self.follow(i, block, trace)?;
                }
                if trace.needed == RegSet::EMPTY && !trace.needs_flags {
                    return Ok(());
                }
            }
            if trace.needs_flags {
                return Err("its address depends on a comparison in another block".into());
            }
            let l = self.loops().of_block[block];
            let is_head = l != NO_LOOP && self.loops().all[l as usize].header as usize == block;
            let onward = match is_head {
                true => self.resolve(l, trace)?,
                false => Onward::Outward,
            };
            block = match onward {
                Onward::Nowhere => return Ok(()),
                Onward::Outward => self.block_before(block, trace)?,
                Onward::Around(latch) => latch,
            };
            end = self.view.graph.blocks[block].insns.end as usize;
        }
    }

    /// Adds an instruction that changes a needed register.
    fn follow(&mut self, i: usize, block: usize, trace: &mut Trace) -> Result<(), Reason> {
        let insn = &self.view.graph.insns[i];
        let Some(operation) = Operation::of(&insn.inst) else {
            return Err(no_operation(insn));
        };
        if trace.slice.operations.len() >= MAX_SLICE {
            return Err(
                format!("its address takes more than {MAX_SLICE} instructions to compute").into(),
            );
        }
        if operation.loads {
            self.follow_load(i, block, trace)?;
        }
        trace.slice.operations.insert(0, operation);
        let others = match operation.is_test() {
            true => trace.needed,
            false => trace.needed.without(operation.to),
        };
        trace.needed = RegSet(others.0 | operation.reads.0);
        trace.needs_flags = operation.reads_flags || trace.needs_flags && !operation.flags;
        if let Some(early) = trace.slice.early {
            let needed = trace.needed.iter();
            for r in needed.collect::<Vec<_>>() {
                if self.change(early.carrier, r) == RegisterChange::Never {
                    trace.slice.fixed = trace.slice.fixed.with(r);
                    trace.needed = trace.needed.without(r);
                }
            }
        }
        Ok(())
    }

    /// Adds a load: it is repeated if it cannot fail, and made early if it is strided.
    fn follow_load(&mut self, i: usize, block: usize, trace: &mut Trace) -> Result<(), Reason> {
        let insn = &self.view.graph.insns[i];
        let facts = self.view.facts;
        let access = facts.accesses[i].iter().enumerate().find(|(_, a)| a.read);
        let Some((n, access)) = access else {
            return Err(no_operation(insn));
        };
        let Form::Plain(place) = &access.form else {
            return Err(no_operation(insn));
        };
        if is_sure(place) {
            return Ok(());
        }
        let class = self.flow.classify(block, i, n, access);
        let stride = class.stride.filter(|s| *s != 0);
        let carrier = self.carrier(i, block);
        let (Some(stride), Some(carrier), false) = (
            stride,
            carrier,
            place.addr32 || place.segment != AccessSegment::Flat,
        ) else {
            return Err(format!(
                "its address comes from the load at {:#x}, whose own address is not known ahead; name that load",
                insn.ip
            )
            .into());
        };
        if trace.slice.early.is_some() {
            return Err("its address comes from several loads".into());
        }
        trace.slice.early = Some(Early {
            insn: i,
            size: i64::from(access.size),
            stride,
            carrier,
        });
        Ok(())
    }

    /// The innermost loop in which the address of a load changes.
    fn carrier(&mut self, insn: usize, block: usize) -> Option<LoopId> {
        let registers = address_registers(&self.view.graph.insns[insn].inst);
        let mut l = self.loops().of_block[block];
        while l != NO_LOOP {
            if registers
                .iter()
                .any(|r| self.change(l, r) != RegisterChange::Never)
            {
                return Some(l);
            }
            l = self.loops().all[l as usize].parent;
        }
        None
    }

    /// Resolves the remaining registers at the head of a loop.
    fn resolve(&mut self, l: LoopId, trace: &mut Trace) -> Result<Onward, Reason> {
        let slice = &mut trace.slice;
        if slice.early.is_some_and(|e| e.carrier != l) {
            return Ok(Onward::Outward);
        }
        let (mut steps, mut sums) = (Vec::new(), Vec::new());
        let (mut fixed, mut other) = (slice.fixed, None);
        for r in trace.needed.iter() {
            match self.change(l, r) {
                RegisterChange::Never => fixed = fixed.with(r),
                RegisterChange::Step(step) => steps.push((r, step)),
                RegisterChange::Register(by) => {
                    sums.push((r, by));
                    fixed = fixed.with(by);
                }
                _ => other = other.or(Some(r)),
            }
        }
        let outer = self.loops().all[l as usize].parent != NO_LOOP;
        let advances = slice.early.is_some() || !steps.is_empty() || !sums.is_empty();
        match other {
            Some(_) if slice.early.is_none() && outer => Ok(Onward::Outward),
            Some(r) => {
                // Compilers load the next iteration's index at the end of a loop.
                let is_first = slice.early.is_none() && trace.around.is_none();
                let latch = self.latch(l).filter(|_| is_first);
                trace.around = trace.around.or(latch.map(|_| r));
                latch.map(Onward::Around).ok_or_else(|| carried(r))
            }
            None if !advances && outer => Ok(Onward::Outward),
            None if !advances => Err("its address does not change in the loop".into()),
            None => {
                (slice.steps, slice.sums, slice.fixed) = (steps, sums, fixed);
                Ok(Onward::Nowhere)
            }
        }
    }

    /// The only block with a back edge to the head of a loop.
    fn latch(&self, l: LoopId) -> Option<usize> {
        let header = self.loops().all[l as usize].header as usize;
        let preds = self.view.graph.blocks[header].preds.iter();
        let mut latches = preds.filter(|p| self.loops().contains(l, p.0));
        let latch = latches.next()?;
        latches.next().is_none().then_some(latch.0 as usize)
    }

    /// The last block that every path to this one has passed. Blocks in between must not change
    /// needed registers.
    fn block_before(&self, block: usize, trace: &mut Trace) -> Result<usize, Reason> {
        let position = |b: usize| self.loops().position[b];
        let ahead = |b: usize| {
            let preds = self.view.graph.blocks[b].preds.iter().map(|p| p.0 as usize);
            preds.filter(move |&p| position(p) < position(b))
        };
        let mut front: Vec<usize> = ahead(block).collect();
        loop {
            trace.blocks += 1;
            if trace.blocks > MAX_BLOCKS {
                return Err("its address is computed too far away".into());
            }
            front.sort_unstable_by_key(|&b| position(b));
            front.dedup();
            let Some(last) = front.pop() else {
                return Err("its address comes from outside of the loop".into());
            };
            if front.is_empty() {
                return Ok(last);
            }
            let insns = self.view.graph.blocks[last].insns.clone();
            let mut between = insns.map(|i| self.changed(i as usize).0);
            if between.any(|changed| changed & trace.needed.0 != 0) {
                return Err("its address is computed in different ways on different paths".into());
            }
            front.extend(ahead(last));
        }
    }
}

/// The result, unless the address does not depend on the iteration: the same line would be
/// prefetched again and again.
fn finished(slice: AddressSlice) -> Result<AddressSlice, Reason> {
    match slice.early.is_none() && slice.steps.is_empty() && slice.sums.is_empty() {
        true => Err("its address does not depend on the loop's counter or an array".into()),
        false => Ok(slice),
    }
}

fn no_operation(insn: &Insn) -> Reason {
    if is_call(insn.flow) {
        return format!("its address comes from the call at {:#x}", insn.ip).into();
    }
    let name = format!("{:?}", insn.inst.mnemonic()).to_lowercase();
    format!(
        "its address is computed by an instruction that cannot be executed early ({name} at {:#x})",
        insn.ip
    )
    .into()
}

/// True for a load that cannot fail where its function runs: at a fixed address, or in the frame.
fn is_sure(place: &EffectiveAddress) -> bool {
    place.segment == AccessSegment::Flat
        && !place.addr32
        && place.is_constant()
        && (place.base != Some(RSP) || place.disp >= 0)
}
