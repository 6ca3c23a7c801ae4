//! Functions without loops in which all addresses are Irregular: a look at each instruction shows
//! it, so data flow need not be solved.
//!
//! In a function without loops an address is Constant or Irregular. It is Constant if it is a
//! constant, or one fixed atom ([`Traits::FIXED`]) plus a constant. So this pass propagates traits
//! of the contents of registers and memory forward. The traits are an upper bound for the values of
//! [`crate::analyze::dataflow`]. Data flow creates an atom that is not fixed if paths with
//! different values meet, or if it does not follow a value. Such a value has no traits. The same
//! holds if control comes back without forming a loop, so one pass in reverse postorder is enough.

use crate::analyze::params::MAX_VARIABLES_OF_STRAIGHT_LINE;
use crate::analyze::stack_frame::{Stack, THREAD_POINTER, is_call, is_frame, static_address};
use crate::ir::cfg::Cfg;
use crate::ir::loops::Loops;
use crate::program::Input;
use crate::x86::insn::Insn;
use crate::x86::operands::{AccessList, AccessSegment, Accesses, EffectiveAddress, Form};
use crate::x86::regs::{CALLER_SAVED, Gpr, RAX, RBP, RDX, RSP, RegSet, RegUse, gpr};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

/// Possible forms of a value besides the basic one: an atom that is not fixed, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits(u8);

impl Traits {
    const NONE: Traits = Traits(0);
    /// A constant, or one fixed atom plus a constant. Fixed are the frame, the thread pointer, and
    /// contents of a table of fixed addresses.
    const FIXED: Traits = Traits(1);
    /// A sum of atoms with positive factors, at least one of them not fixed. The factors add up to
    /// less than 2¹⁰. The next two bits stand for sums of factors up to 2²⁰ and 2³⁰, so that no sum
    /// gets lost by wrapping.
    const SUM: Traits = Traits(2);
    const LARGEST_SUM: Traits = Traits(0b1110);
    /// All traits: any value.
    const ANY: Traits = Traits(0b1111);

    fn has(self, other: Traits) -> bool {
        self.0 & other.0 != 0
    }

    /// True if the value may be both fixed and a sum: values computed from it are unknown.
    fn is_any(self) -> bool {
        self.has(Traits::FIXED) && self.has(Traits::SUM)
    }

    /// Traits of the sum of this value and another one. The other one may be scaled by at most
    /// eight.
    fn plus(self, other: Traits) -> Traits {
        let sum = (self.0 | other.0) & Traits::LARGEST_SUM.0;
        if self.is_any()
            || other.is_any()
            || sum == 0 && self.has(other)
            || sum == Traits::LARGEST_SUM.0
        {
            return Traits::ANY;
        }
        Traits(sum << 1 | Traits::SUM.0)
    }

    /// Traits of this value times at least one and at most 2⁹.
    fn times(self) -> Traits {
        if self.has(Traits::FIXED) {
            Traits::ANY
        } else {
            self.plus(Traits::NONE)
        }
    }
}

/// State at a point.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Traits of registers, four bits each.
    registers: u64,
    /// Variables in memory by trait, one bit for all variables with equal [`slot`]s.
    memory: [u64; 4],
    /// The stack state of [`crate::analyze::stack_frame`].
    stack: Stack,
}

/// All traits of some registers.
const fn all_of(set: u16) -> u64 {
    let mut bits = set as u64;
    bits = (bits | bits << 24) & 0x0000_00ff_0000_00ff;
    bits = (bits | bits << 12) & 0x000f_000f_000f_000f;
    bits = (bits | bits << 6) & 0x0303_0303_0303_0303;
    bits = (bits | bits << 3) & 0x1111_1111_1111_1111;
    bits * Traits::ANY.0 as u64
}

/// The bit of a variable in memory.
fn slot(key: i64) -> u64 {
    1 << (key >> 3 & 63)
}

/// Variables in memory that may have traits after a call, as found so far.
#[derive(Default)]
struct Keys {
    /// Keys of variables to which values with traits were stored.
    stored: Vec<i64>,
    /// Keys of variables of the frame whose addresses are taken.
    taken: Vec<i64>,
    /// True if further variables may have traits.
    more: bool,
}

impl Keys {
    fn add_stored(&mut self, key: i64) {
        if !self.stored.contains(&key) {
            self.more |= self.stored.len() == MAX_VARIABLES_OF_STRAIGHT_LINE;
            if !self.more {
                self.stored.push(key);
            }
        }
    }

    fn add_taken(&mut self, key: i64) {
        if self.taken.len() < MAX_VARIABLES_OF_STRAIGHT_LINE && !self.taken.contains(&key) {
            self.taken.push(key);
        }
    }

    /// The slots of variables that have traits and that calls do not change, see
    /// [`crate::analyze::dataflow`].
    fn lasting(&self) -> u64 {
        let lasts = |key: i64| !is_frame(key) || !self.taken.contains(&key);
        if self.more {
            u64::MAX
        } else {
            self.stored
                .iter()
                .filter(|&&key| lasts(key))
                .fold(0, |slots, &key| slots | slot(key))
        }
    }
}

/// True if the content of a variable at the function's entry is fixed. Calls do not change it.
fn is_fixed(key: i64, input: &Input) -> bool {
    key == THREAD_POINTER || static_address(key).is_some_and(|a| input.is_got(a))
}

impl State {
    const ENTRY: State = State {
        registers: 0,
        memory: [0; 4],
        stack: Stack::ENTRY,
    };

    /// Joins two paths. A value that differs between the paths has no traits. A value that is the
    /// same on all paths keeps the traits that it has on all.
    fn join(&mut self, other: &State) {
        self.registers &= other.registers;
        self.memory
            .iter_mut()
            .zip(&other.memory)
            .for_each(|(mine, theirs)| *mine &= theirs);
        if self.stack.rbp != other.stack.rbp {
            self.stack.rbp = None;
        }
    }

    /// Traits of a variable in memory.
    fn variable(&self, key: i64) -> Traits {
        let slot = slot(key);
        Traits(
            self.memory
                .iter()
                .rev()
                .fold(0, |traits, set| traits << 1 | u8::from(set & slot != 0)),
        )
    }

    fn store(&mut self, key: i64, traits: Traits, keys: &mut Keys) {
        if traits == Traits::NONE {
            return;
        }
        keys.add_stored(key);
        let slot = slot(key);
        for (bit, set) in self.memory.iter_mut().enumerate() {
            if traits.0 >> bit & 1 == 1 {
                *set |= slot;
            }
        }
    }

    fn of(&self, r: Gpr) -> Traits {
        if r == RSP {
            return Traits::FIXED;
        }
        Traits((self.registers >> (4 * r.0)) as u8 & Traits::ANY.0)
    }

    fn set(&mut self, r: Gpr, traits: Traits) {
        self.registers |= u64::from(traits.0) << (4 * r.0);
    }

    /// True if an address may be Constant.
    fn may_be_fixed(&self, form: &Form) -> bool {
        let (base, index) = match form {
            Form::Plain(place) if place.segment == AccessSegment::Fs => return true,
            Form::Plain(place) => (place.base, place.index),
            Form::Step { pointer } => (Some(*pointer), None),
            _ => return false,
        };
        match (base.map(|r| self.of(r)), index.map(|r| self.of(r))) {
            (Some(a), Some(b)) => {
                a.is_any() || b.is_any() || a == Traits::FIXED && b == Traits::FIXED
            }
            (Some(a), None) | (None, Some(a)) => a.has(Traits::FIXED),
            (None, None) => false,
        }
    }

    fn address(&self, place: &EffectiveAddress) -> Traits {
        match (
            place.base.map(|r| self.of(r)),
            place.index.map(|r| self.of(r)),
        ) {
            _ if place.segment == AccessSegment::Fs => Traits::ANY,
            (None, None) => Traits::FIXED,
            (Some(a), None) => a,
            (None, Some(b)) => b.times(),
            (Some(a), Some(b)) => a.plus(b),
        }
    }

    /// Traits of the memory that an instruction reads.
    fn load(&self, list: &Accesses, input: &Input) -> Traits {
        let Some(Form::Plain(place)) = list.iter().find(|a| a.read).map(|a| &a.form) else {
            return Traits::NONE;
        };
        let Some(key) = self.stack.key(place) else {
            return Traits::NONE;
        };
        let at_entry = if is_fixed(key, input) {
            Traits::FIXED
        } else {
            Traits::NONE
        };
        Traits(self.variable(key).0 | at_entry.0)
    }

    fn operand(&self, inst: &Instruction, op: u32, list: &Accesses, input: &Input) -> Traits {
        match inst.op_kind(op) {
            OpKind::Register => gpr(inst.op_register(op)).map_or(Traits::NONE, |r| self.of(r)),
            OpKind::Memory => self.load(list, input),
            _ => Traits::FIXED,
        }
    }

    /// Processes an instruction.
    fn step(&mut self, insn: &Insn, u: &RegUse, list: &Accesses, input: &Input, keys: &mut Keys) {
        if is_call(insn) {
            // (Some calls lose more.)
            if self.memory[0] != 0 || self.memory[1] != 0 {
                let lasting = keys.lasting();
                self.memory.iter_mut().for_each(|set| *set &= lasting);
            }
            self.registers &= if insn.flow == FlowControl::Call {
                !all_of(1 << RAX.0 | 1 << RDX.0)
            } else {
                !all_of(CALLER_SAVED.0)
            };
            return;
        }
        let inst = &insn.inst;
        if inst.mnemonic() == Mnemonic::Push {
            self.store(
                self.stack.rsp.wrapping_sub(8),
                self.operand(inst, 0, list, input),
                keys,
            );
        }
        let is_string = list
            .first()
            .is_some_and(|a| !matches!(a.form, Form::Plain(_)))
            && inst.is_string_instruction();
        let written = written(list);
        // Pointers of string instructions keep their traits.
        if u.clobber.without(RSP) == RegSet::EMPTY && written.is_none() || is_string {
            return;
        }
        let result = self.result(inst, list, input);
        if let Some(key) = written
            .filter(|_| inst.op0_kind() == OpKind::Memory)
            .and_then(|place| self.stack.key(place))
        {
            self.store(key, result, keys);
        }
        self.registers &= !all_of(u.clobber.0);
        let target = match inst.mnemonic() {
            Mnemonic::Cdqe | Mnemonic::Cwde => Some(RAX),
            _ if inst.op0_kind() == OpKind::Register => gpr(inst.op0_register()),
            _ => None,
        };
        if let Some(r) = target.filter(|&r| u.clobber.contains(r)) {
            self.set(r, result);
        }
    }

    /// Traits of operand 0 after the instruction (of rax for the sign extensions).
    fn result(&self, inst: &Instruction, list: &Accesses, input: &Input) -> Traits {
        let operand = |op: u32| self.operand(inst, op, list, input);
        let is_constant = |op: u32| !matches!(inst.op_kind(op), OpKind::Register | OpKind::Memory);
        match inst.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => operand(1),
            Mnemonic::Cdqe | Mnemonic::Cwde => self.of(RAX),
            Mnemonic::Lea => {
                crate::x86::operands::place_of(inst).map_or(Traits::NONE, |p| self.address(&p))
            }
            Mnemonic::Pop => self.variable(self.stack.rsp),
            Mnemonic::Xor
                if inst.op0_kind() == OpKind::Register
                    && inst.op1_kind() == OpKind::Register
                    && inst.op0_register() == inst.op1_register() =>
            {
                Traits::FIXED
            }
            Mnemonic::Add | Mnemonic::Sub if is_constant(1) => operand(0),
            Mnemonic::Add => operand(0).plus(operand(1)),
            Mnemonic::Inc | Mnemonic::Dec => operand(0),
            Mnemonic::Shl | Mnemonic::Sal
                if is_constant(1) && inst.try_immediate(1).is_ok_and(|c| c & 63 <= 9) =>
            {
                operand(0).times()
            }
            Mnemonic::Shl | Mnemonic::Sal if is_constant(1) => Traits::ANY,
            Mnemonic::Imul
                if inst.op_count() == 3
                    && inst
                        .try_immediate(2)
                        .is_ok_and(|c| (1..=1 << 9).contains(&c)) =>
            {
                operand(1).times()
            }
            Mnemonic::Sub | Mnemonic::Neg | Mnemonic::Not | Mnemonic::Imul => Traits::ANY,
            _ => Traits::NONE,
        }
    }
}

/// True if a memory operand may be a separate variable.
fn may_be_variable(place: &EffectiveAddress) -> bool {
    place.index.is_none() && place.base.is_none_or(|base| base == RSP || base == RBP)
}

/// The operand of a variable that an instruction may write.
fn written(list: &Accesses) -> Option<&EffectiveAddress> {
    list.iter().filter(|a| a.write).find_map(|a| match &a.form {
        Form::Plain(place) if may_be_variable(place) => Some(place),
        _ => None,
    })
}

/// True if data flow is sure to find that all requested addresses are Irregular. `stores`: the
/// classes of stores are requested too.
pub fn are_all(
    input: &Input,
    graph: &Cfg,
    loops: &Loops,
    uses: &[RegUse],
    accesses: &AccessList,
    stores: bool,
) -> bool {
    if !loops.all.is_empty() {
        return false;
    }
    let mut keys = Keys::default();
    let mut starts: Vec<Option<State>> = vec![None; graph.blocks.len()];
    for &b in &loops.order {
        let mut state = starts[b as usize].unwrap_or(State::ENTRY);
        let block = &graph.blocks[b as usize];
        for i in block.insns.start as usize..block.insns.end as usize {
            let (u, list) = (&uses[i], &accesses[i]);
            if u.clobber == RegSet::EMPTY && list.is_empty() {
                continue;
            }
            if list
                .iter()
                .any(|a| a.asks(stores) && state.may_be_fixed(&a.form))
            {
                return false;
            }
            let insn = &graph.insns[i];
            if let Some(key) = state.stack.taken(insn) {
                keys.add_taken(key);
            }
            state.step(insn, u, list, input, &mut keys);
            state.stack.advance(insn, u);
        }
        for s in &block.succs {
            match &mut starts[s.0 as usize] {
                Some(start) => start.join(&state),
                none => *none = Some(state),
            }
        }
    }
    true
}
