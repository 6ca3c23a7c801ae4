//! Functions without loops all of whose addresses are Irregular: a look at each instruction shows it, and data flow need not be solved.
//!
//! Without loops an address is Constant or Irregular: Constant if it is a constant, or one atom that is fixed ([`Traits::FIXED`]), plus a constant.
//! So two traits of what registers and memory hold are followed forward, which say what a value of [`crate::dataflow`] may be at most. Where ways meet, and where a
//! value is not followed, data flow has an atom that is not fixed: a value without traits. So it is where control comes back and makes no loop, so that one pass in
//! reverse postorder does.

use crate::cfg::Graph;
use crate::frame::{Stack, THREAD_POINTER, is_call, static_address};
use crate::functions::Input;
use crate::ir::{Gpr, Insn, RegSet};
use crate::loops::Loops;
use crate::operands::{AccessList, Accesses, Form, Place, Segment};
use crate::regs::{CALLER_SAVED, RAX, RBP, RDX, RSP, RegUse, gpr};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use std::ops::BitOr;

/// What a value may be besides one atom that is not fixed, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits(u8);

impl Traits {
    const NONE: Traits = Traits(0);
    /// A constant, or one atom that is fixed plus a constant: the frame, the thread pointer, or what a table of fixed addresses holds.
    const FIXED: Traits = Traits(1);
    /// A sum of atoms, one of which at least is not fixed, with positive factors, all of them together below ten.
    const SUM: Traits = Traits(2);
    /// With both traits: anything.
    const ANY: Traits = Traits(3);

    fn has(self, other: Traits) -> bool {
        self.0 & other.0 != 0
    }

    /// Of a value plus another one, times at most eight.
    fn plus(self, other: Traits) -> Traits {
        if (self | other).has(Traits::SUM) || self.has(other) { Traits::ANY } else { Traits::SUM }
    }

    /// Of a value times at most eight.
    fn times(self) -> Traits {
        if self == Traits::NONE { Traits::SUM } else { Traits::ANY }
    }
}

impl BitOr for Traits {
    type Output = Traits;

    fn bitor(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }
}

/// What holds at a place.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Registers that may be fixed.
    fixed: RegSet,
    /// Registers that may be sums.
    sums: RegSet,
    /// Of all variables in memory.
    memory: Traits,
}

impl State {
    const ENTRY: State = State { fixed: RegSet::EMPTY, sums: RegSet::EMPTY, memory: Traits::NONE };

    fn join(&mut self, other: &State) {
        self.fixed.0 |= other.fixed.0;
        self.sums.0 |= other.sums.0;
        self.memory = self.memory | other.memory;
    }

    fn of(&self, r: Gpr) -> Traits {
        if r == RSP {
            return Traits::FIXED;
        }
        Traits((self.fixed.0 >> r.0 & 1) as u8 | ((self.sums.0 >> r.0 & 1) << 1) as u8)
    }

    fn lose(&mut self, registers: RegSet) {
        self.fixed.0 &= !registers.0;
        self.sums.0 &= !registers.0;
    }

    fn set(&mut self, r: Gpr, traits: Traits) {
        self.fixed.0 |= u16::from(traits.0 & 1) << r.0;
        self.sums.0 |= u16::from(traits.0 >> 1) << r.0;
    }

    /// Whether an address may be Constant.
    fn may_be_fixed(&self, form: &Form) -> bool {
        let (base, index) = match form {
            Form::Plain(place) if place.segment == Segment::Fs => return true,
            Form::Plain(place) => (place.base, place.index),
            Form::Step { pointer } => (Some(*pointer), None),
            _ => return false,
        };
        match (base.map(|r| self.of(r)), index.map(|r| self.of(r))) {
            (Some(a), Some(b)) => a == Traits::ANY || b == Traits::ANY || a == Traits::FIXED && b == Traits::FIXED,
            (Some(a), None) | (None, Some(a)) => a.has(Traits::FIXED),
            (None, None) => false,
        }
    }

    fn address(&self, place: &Place) -> Traits {
        match (place.base.map(|r| self.of(r)), place.index.map(|r| self.of(r))) {
            _ if place.segment == Segment::Fs => Traits::ANY,
            (None, None) => Traits::FIXED,
            (Some(a), None) => a,
            (None, Some(b)) => b.times(),
            (Some(a), Some(b)) => a.plus(b),
        }
    }

    /// What the memory holds that an instruction reads.
    fn load(&self, list: &Accesses, input: &Input) -> Traits {
        let Some(Form::Plain(place)) = list.iter().find(|a| a.read).map(|a| &a.form) else { return Traits::NONE };
        if !may_be_variable(place) {
            return Traits::NONE;
        }
        // What the variable holds at the function's entry may be fixed.
        let key = if place.base.is_none() { Stack::ENTRY.key(place) } else { None };
        let is_fixed = |key: i64| key == THREAD_POINTER || static_address(key).is_some_and(|a| input.is_got(a));
        if key.is_some_and(is_fixed) { self.memory | Traits::FIXED } else { self.memory }
    }

    fn operand(&self, inst: &Instruction, op: u32, list: &Accesses, input: &Input) -> Traits {
        match inst.op_kind(op) {
            OpKind::Register => gpr(inst.op_register(op)).map_or(Traits::NONE, |r| self.of(r)),
            OpKind::Memory => self.load(list, input),
            _ => Traits::FIXED,
        }
    }

    /// Goes over an instruction.
    fn step(&mut self, insn: &Insn, u: &RegUse, list: &Accesses, input: &Input) {
        if is_call(insn) {
            // (Some lose more.)
            return self.lose(if insn.flow == FlowControl::Call { RegSet::EMPTY.with(RAX).with(RDX) } else { CALLER_SAVED });
        }
        if u.clobber == RegSet::EMPTY && list.is_empty() {
            return;
        }
        let inst = &insn.inst;
        if inst.mnemonic() == Mnemonic::Push {
            self.memory = self.memory | self.operand(inst, 0, list, input);
        }
        let is_string = list.first().is_some_and(|a| !matches!(a.form, Form::Plain(_))) && inst.is_string_instruction();
        let writes = list.iter().any(|a| a.write && matches!(&a.form, Form::Plain(place) if may_be_variable(place)));
        // Pointers of strings keep their traits.
        if u.clobber.without(RSP) == RegSet::EMPTY && !writes || is_string {
            return;
        }
        let result = self.result(inst, list, input);
        if writes && inst.op0_kind() == OpKind::Memory {
            self.memory = self.memory | result;
        }
        self.lose(u.clobber);
        let target = match inst.mnemonic() {
            Mnemonic::Cdqe | Mnemonic::Cwde => Some(RAX),
            _ if inst.op0_kind() == OpKind::Register => gpr(inst.op0_register()),
            _ => None,
        };
        if let Some(r) = target.filter(|&r| u.clobber.contains(r)) {
            self.set(r, result);
        }
    }

    /// What operand 0 becomes (rax for the sign extensions).
    fn result(&self, inst: &Instruction, list: &Accesses, input: &Input) -> Traits {
        let operand = |op: u32| self.operand(inst, op, list, input);
        let is_constant = |op: u32| !matches!(inst.op_kind(op), OpKind::Register | OpKind::Memory);
        match inst.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => operand(1),
            Mnemonic::Cdqe | Mnemonic::Cwde => self.of(RAX),
            Mnemonic::Lea => crate::operands::place_of(inst).map_or(Traits::NONE, |p| self.address(&p)),
            Mnemonic::Pop => self.memory,
            Mnemonic::Xor if inst.op0_kind() == OpKind::Register && inst.op1_kind() == OpKind::Register && inst.op0_register() == inst.op1_register() => Traits::FIXED,
            Mnemonic::Add | Mnemonic::Sub if is_constant(1) => operand(0),
            Mnemonic::Add => operand(0).plus(operand(1)),
            Mnemonic::Inc | Mnemonic::Dec => operand(0),
            Mnemonic::Shl | Mnemonic::Sal if is_constant(1) && inst.try_immediate(1).is_ok_and(|c| c & 63 <= 3) => operand(0).times(),
            Mnemonic::Shl | Mnemonic::Sal if is_constant(1) => Traits::ANY,
            Mnemonic::Sub | Mnemonic::Neg | Mnemonic::Not | Mnemonic::Imul => Traits::ANY,
            _ => Traits::NONE,
        }
    }
}

/// Whether memory at a place may be a variable of its own.
fn may_be_variable(place: &Place) -> bool {
    place.index.is_none() && place.base.is_none_or(|base| base == RSP || base == RBP)
}

/// Whether data flow would find that all addresses whose classes are asked for are Irregular: if so for sure. `stores`: classes of stores are asked for, too.
pub fn are_all(input: &Input, graph: &Graph, loops: &Loops, uses: &[RegUse], accesses: &AccessList, stores: bool) -> bool {
    if !loops.all.is_empty() {
        return false;
    }
    let mut starts = vec![State::ENTRY; graph.blocks.len()];
    for &b in &loops.order {
        let mut state = starts[b as usize];
        let block = &graph.blocks[b as usize];
        for i in block.insns.start as usize..block.insns.end as usize {
            let list = &accesses[i];
            if list.iter().any(|a| a.asks(stores) && state.may_be_fixed(&a.form)) {
                return false;
            }
            state.step(&graph.insns[i], &uses[i], list, input);
        }
        block.succs.iter().for_each(|s| starts[s.0 as usize].join(&state));
    }
    true
}
