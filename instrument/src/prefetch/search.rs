//! Facts about loops and registers that all forms of prefetch need.

use crate::analyze::dataflow::Flow;
use crate::ir::loops::{LoopId, Loops};
use crate::prefetch::view::View;
use crate::util::fast_hash::FastMap;
use crate::x86::flow::is_call;
use crate::x86::regs::{CALLER_SAVED, Gpr, RegSet};
use iced_x86::{Mnemonic, OpKind};

/// The search for prefetches in one function.
pub struct PrefetchSearch<'v, 'f, 'a> {
    pub view: View<'v>,
    pub flow: &'f mut Flow<'a>,
    writes: FastMap<LoopId, Writes>,
}

/// Writes to each register in a loop.
#[derive(Clone, Copy, Default)]
struct Writes {
    count: [u32; 16],
    last: [u32; 16],
}

/// Change of a register in a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterChange {
    /// No change.
    Never,
    /// By a constant per iteration.
    Step(i64),
    /// By the value of a register that the loop does not change.
    Register(Gpr),
    /// By one instruction, in another way.
    Once(usize),
    /// By several instructions.
    Several,
}

impl<'v, 'f, 'a> PrefetchSearch<'v, 'f, 'a> {
    pub fn new(view: View<'v>, flow: &'f mut Flow<'a>) -> Self {
        PrefetchSearch {
            view,
            flow,
            writes: FastMap::default(),
        }
    }

    pub fn loops(&self) -> &'v Loops {
        self.view.loops
    }

    /// Registers that an instruction may change. For a call, those that its callee may change.
    pub fn changed(&self, insn: usize) -> RegSet {
        let own = self.view.facts.uses[insn].clobber;
        match is_call(self.view.graph.insns[insn].flow) {
            true => RegSet(own.0 | CALLER_SAVED.0),
            false => own,
        }
    }

    fn writes(&mut self, l: LoopId) -> Writes {
        if let Some(known) = self.writes.get(&l) {
            return *known;
        }
        let mut all = Writes::default();
        for (b, block) in self.view.graph.blocks.iter().enumerate() {
            if !self.view.loops.contains(l, b as u32) {
                continue;
            }
            for i in block.insns.clone() {
                for r in self.changed(i as usize).iter() {
                    all.count[usize::from(r.0)] += 1;
                    all.last[usize::from(r.0)] = i;
                }
            }
        }
        self.writes.insert(l, all);
        all
    }

    /// Change of a register in a loop.
    pub fn change(&mut self, l: LoopId, r: Gpr) -> RegisterChange {
        let writes = self.writes(l);
        let number = usize::from(r.0);
        match writes.count[number] {
            0 => return RegisterChange::Never,
            1 => {}
            _ => return RegisterChange::Several,
        }
        let at = writes.last[number] as usize;
        let inst = &self.view.graph.insns[at].inst;
        let own = inst.op_count() > 0
            && inst.op0_kind() == OpKind::Register
            && (inst.op0_register().is_gpr64() || inst.op0_register().is_gpr32())
            && crate::x86::regs::gpr(inst.op0_register()) == Some(r);
        if !own {
            return RegisterChange::Once(at);
        }
        let constant = |n| inst.try_immediate(n).ok().map(|c| c as i64);
        let step = match inst.mnemonic() {
            Mnemonic::Inc => Some(1),
            Mnemonic::Dec => Some(-1),
            Mnemonic::Add if inst.op1_kind() == OpKind::Register => {
                let by = crate::x86::regs::gpr(inst.op1_register());
                return match by.filter(|by| writes.count[usize::from(by.0)] == 0) {
                    Some(by) if inst.op0_register().is_gpr64() => RegisterChange::Register(by),
                    _ => RegisterChange::Once(at),
                };
            }
            Mnemonic::Add => constant(1),
            Mnemonic::Sub => constant(1).map(i64::wrapping_neg),
            Mnemonic::Lea => self.step_of_lea(at, r),
            _ => None,
        };
        step.map_or(RegisterChange::Once(at), RegisterChange::Step)
    }

    /// The step of `lea r, [r + constant]`.
    fn step_of_lea(&self, at: usize, r: Gpr) -> Option<i64> {
        let place = crate::x86::operands::place_of(&self.view.graph.insns[at].inst)?;
        (place.base == Some(r) && place.index.is_none()).then_some(place.disp)
    }

    /// True if code in front of an instruction may change the flags.
    pub fn may_change_flags(&self, insn: usize) -> bool {
        self.view.flags.get(insn).copied().unwrap_or(false)
    }

    /// Registers that code in front of an instruction may change.
    pub fn free(&self, insn: usize) -> RegSet {
        self.view.graph.insns[insn].dead
    }
}
