//! Symbolic values along a straight chain of blocks, for jump tables.
//!
//! The values are exact: two equal ids mean two equal values at run time. 64-bit arithmetic is kept
//! as linear sums; narrower results are wrapped in the extension that the hardware applies. Memory
//! keeps its content between stores that may touch it (another thread that changes an index between
//! its check and its use would break the original as well).

use crate::util::fast_hash::{FastHasher, FastMap};
use crate::x86::insn::Insn;
use crate::x86::regs::{CALLER_SAVED, Gpr, RAX, gpr, reg_use};
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpKind, Register,
};
use std::hash::{Hash, Hasher};

/// Number of a value in [`Machine`].
pub type Id = u32;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A register at the chain's start.
    Start(Gpr),
    /// Something unknown, different from everything else.
    Opaque(u32),
    /// `constant + Σ factor·value`, 64 bits, no term of factor 0, sorted; a constant has no terms.
    Sum(u64, Vec<(Id, u64)>),
    /// The low `bits` of a value, zero-extended.
    Zext(Id, u8),
    /// The low `bits` of a value, sign-extended.
    Sext(Id, u8),
    /// Bitwise and with a constant.
    And(Id, u64),
    /// Logical shift right by a constant.
    Shr(Id, u8),
    /// Zero-extended content of memory. Fields: address, bytes, instruction (index + 1) or 0 for a
    /// tracked slot, version of the slot.
    Load(Id, u8, u32, u32),
}

/// Operands of a comparison, as the flags reflect them.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Left operand, zero-extended to 64 bits.
    pub left: Id,
    /// Right operand, zero-extended to 64 bits.
    pub right: Id,
}

/// Registers, tracked memory and flags.
#[derive(Debug, Default)]
pub struct Machine {
    values: Vec<Value>,
    /// The first value with each hash. Chains through large functions have thousands of values.
    numbers: FastMap<u64, Id>,
    regs: [Id; 16],
    memory: Vec<(Id, u8, Id)>,
    version: u32,
    /// The last comparison, if the flags still reflect it.
    pub compared: Option<Compared>,
}

impl Machine {
    /// A machine with all registers unknown.
    pub fn new() -> Machine {
        // Capacity for a chain of a few blocks.
        let mut m = Machine {
            values: Vec::with_capacity(64),
            numbers: FastMap::with_capacity_and_hasher(56, Default::default()),
            ..Machine::default()
        };
        for r in 0..16 {
            m.regs[r as usize] = m.intern(Value::Start(Gpr(r)));
        }
        m
    }

    /// Sets a register to a constant before the first step.
    pub fn preset(&mut self, r: Gpr, c: u64) {
        let c = self.constant(c);
        self.set(r, c);
    }

    /// The value with this number.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id as usize]
    }

    /// A register's value.
    pub fn reg(&self, r: Gpr) -> Id {
        self.regs[usize::from(r.0)]
    }

    fn intern(&mut self, v: Value) -> Id {
        let mut hasher = FastHasher::default();
        v.hash(&mut hasher);
        let number = self.values.len() as Id;
        let first = *self.numbers.entry(hasher.finish()).or_insert(number);
        if first < number {
            let known = if self.values[first as usize] == v {
                Some(first as usize)
            } else {
                self.values.iter().position(|o| *o == v)
            };
            if let Some(known) = known {
                return known as Id;
            }
        }
        self.values.push(v);
        number
    }

    fn opaque(&mut self) -> Id {
        let n = self.values.len() as u32;
        self.values.push(Value::Opaque(n));
        n
    }

    /// A constant.
    pub fn constant(&mut self, c: u64) -> Id {
        self.intern(Value::Sum(c, Vec::new()))
    }

    /// The value as a constant, if it is one.
    pub fn as_constant(&self, id: Id) -> Option<u64> {
        match self.value(id) {
            Value::Sum(c, terms) if terms.is_empty() => Some(*c),
            _ => None,
        }
    }

    /// A value as a sum.
    pub fn sum_of(&self, id: Id) -> (u64, Vec<(Id, u64)>) {
        match self.value(id) {
            Value::Sum(c, terms) => (*c, terms.clone()),
            _ => (0, vec![(id, 1)]),
        }
    }

    fn add_scaled(&mut self, a: Id, b: Id, factor: u64) -> Id {
        let (mut c, mut terms) = self.sum_of(a);
        let (c2, terms2) = self.sum_of(b);
        c = c.wrapping_add(c2.wrapping_mul(factor));
        for (id, f) in terms2 {
            let f = f.wrapping_mul(factor);
            match terms.iter_mut().find(|t| t.0 == id) {
                Some(t) => t.1 = t.1.wrapping_add(f),
                None => terms.push((id, f)),
            }
        }
        terms.retain(|t| t.1 != 0);
        terms.sort_unstable();
        if let [(id, 1)] = terms[..]
            && c == 0
        {
            return id;
        }
        self.intern(Value::Sum(c, terms))
    }

    /// The low `bits`, zero-extended.
    pub fn zext(&mut self, id: Id, bits: u8) -> Id {
        if bits == 64 {
            return id;
        }
        match *self.value(id) {
            Value::Zext(inner, b) if b <= bits => self.intern(Value::Zext(inner, b)),
            Value::Zext(inner, _) | Value::Sext(inner, _) if self.width_of(id) >= bits => {
                self.zext(inner, bits)
            }
            Value::Load(_, bytes, ..) if bytes * 8 <= bits => id,
            Value::Sum(c, ref terms) if terms.is_empty() => self.constant(c & mask(bits)),
            Value::And(_, m) if m <= mask(bits) => id,
            Value::Sum(c, ref terms) => {
                // Inside a truncated sum, extensions from the same width or more have no effect.
                let terms = terms.clone();
                let mut sum = self.constant(c & mask(bits));
                for (t, f) in terms {
                    let inner = match *self.value(t) {
                        Value::Zext(i, b) | Value::Sext(i, b) if b >= bits => i,
                        _ => t,
                    };
                    sum = self.add_scaled(sum, inner, f);
                }
                self.intern(Value::Zext(sum, bits))
            }
            _ => self.intern(Value::Zext(id, bits)),
        }
    }

    fn width_of(&self, id: Id) -> u8 {
        match *self.value(id) {
            Value::Zext(_, b) | Value::Sext(_, b) => b,
            _ => 64,
        }
    }

    fn sext(&mut self, id: Id, bits: u8) -> Id {
        if bits == 64 {
            return id;
        }
        if let Some(c) = self.as_constant(id) {
            let shift = 64 - u32::from(bits);
            return self.constant(((c << shift) as i64 >> shift) as u64);
        }
        match *self.value(id) {
            Value::Zext(_, b) if b < bits => id,
            Value::Zext(inner, b) | Value::Sext(inner, b) if b == bits => {
                self.intern(Value::Sext(inner, bits))
            }
            _ => self.intern(Value::Sext(id, bits)),
        }
    }

    /// The address of the instruction's memory operand, without segment; `None` if it is not plain
    /// 64-bit addressing.
    pub fn address(&mut self, inst: &Instruction) -> Option<Id> {
        if inst.is_ip_rel_memory_operand() {
            return (inst.memory_base() == Register::RIP)
                .then(|| self.constant(inst.ip_rel_memory_address()));
        }
        let mut sum = self.constant(inst.memory_displacement64());
        for (register, scale) in [
            (inst.memory_base(), 1),
            (inst.memory_index(), inst.memory_index_scale()),
        ] {
            if register != Register::None {
                let r = crate::x86::regs::gpr64(register)?;
                let v = self.reg(r);
                sum = self.add_scaled(sum, v, u64::from(scale));
            }
        }
        Some(sum)
    }

    /// True for an address at a constant distance from a value, and for a static one. Memory there
    /// is assumed to keep its content until a store that may touch it. Indexed addresses do not
    /// qualify: each load of a table is separate.
    fn believable(&self, address: Id) -> bool {
        match self.value(address) {
            Value::Sum(_, terms) => matches!(terms[..], [] | [(_, 1)]),
            _ => true,
        }
    }

    fn load(&mut self, address: Id, bytes: u8, insn: usize) -> Id {
        if !self.believable(address) {
            return self.intern(Value::Load(address, bytes, insn as u32 + 1, 0));
        }
        if let Some(&(_, size, v)) = self.memory.iter().find(|m| m.0 == address) {
            if size >= bytes {
                return self.zext(v, bytes * 8);
            }
            return self.opaque();
        }
        let v = self.intern(Value::Load(address, bytes, 0, self.version));
        self.memory.push((address, bytes, v));
        v
    }

    fn store(&mut self, address: Option<Id>, bytes: u64, value: Option<Id>) {
        let Some(address) = address.filter(|&a| self.believable(a)) else {
            return self.forget_memory();
        };
        let mut memory = std::mem::take(&mut self.memory);
        memory.retain(|m| {
            self.distance(address, m.0).is_some_and(|between| {
                between as i64 >= bytes as i64 || between.wrapping_neg() as i64 >= i64::from(m.1)
            })
        });
        self.memory = memory;
        self.version += 1;
        if let Some(value) = value {
            self.memory.push((address, bytes as u8, value));
        }
    }

    /// Distance of the value `to` above the value `from`, if they differ only by constants.
    fn distance(&self, from: Id, to: Id) -> Option<u64> {
        let (own, other) = ([(from, 1)], [(to, 1)]);
        let sum = |id: Id| match self.value(id) {
            Value::Sum(c, terms) => Some((*c, &terms[..])),
            _ => None,
        };
        let ((from, terms), (to, others)) = (
            sum(from).unwrap_or((0, &own)),
            sum(to).unwrap_or((0, &other)),
        );
        (terms == others).then(|| to.wrapping_sub(from))
    }

    fn forget_memory(&mut self) {
        self.memory.clear();
        self.version += 1;
    }

    fn set(&mut self, r: Gpr, v: Id) {
        self.regs[usize::from(r.0)] = v;
    }

    /// Value of a register, immediate or memory operand, zero-extended from `bits`.
    fn operand(&mut self, insn: usize, inst: &Instruction, op: u32) -> Option<(Id, u8)> {
        match inst.op_kind(op) {
            OpKind::Register => {
                let register = inst.op_register(op);
                let r = gpr(register)?;
                let bits = general_bits(register)?;
                if matches!(
                    register,
                    Register::AH | Register::BH | Register::CH | Register::DH
                ) {
                    return None;
                }
                let v = self.reg(r);
                Some((self.zext(v, bits), bits))
            }
            OpKind::Memory => {
                let bytes = inst.memory_size().size();
                if !matches!(bytes, 1 | 2 | 4 | 8) || inst.segment_prefix() != Register::None {
                    return None;
                }
                let address = self.address(inst)?;
                Some((self.load(address, bytes as u8, insn), bytes as u8 * 8))
            }
            _ => {
                let c = inst.try_immediate(op).ok()?;
                Some((self.constant(c), 64))
            }
        }
    }

    /// The 8 bytes that an indirect jump through memory loads.
    pub fn jump_load(&mut self, inst: &Instruction, index: usize) -> Option<Id> {
        let address = self.address(inst)?;
        Some(self.load(address, 8, index))
    }

    /// Executes an instruction; `index` is its number in the function.
    pub fn step(&mut self, index: usize, insn: &Insn, factory: &mut InstructionInfoFactory) {
        let inst = &insn.inst;
        if matches!(
            inst.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            for r in CALLER_SAVED.iter() {
                let v = self.opaque();
                self.set(r, v);
            }
            self.forget_memory();
            self.compared = None;
            return;
        }
        if inst.mnemonic() == Mnemonic::Cdqe {
            let v = self.reg(RAX);
            let v = self.sext(v, 32);
            return self.set(RAX, v);
        }
        let flags = inst.rflags_modified() != 0;
        let compared = self.compare(index, inst);
        let result = self.result(index, inst);
        let register = inst.op0_register();
        match (inst.op0_kind(), result) {
            (OpKind::Register, Some(v)) if register.is_gpr32() || register.is_gpr64() => {
                if let (Some(r), Some(bits)) = (gpr(register), general_bits(register)) {
                    let v = self.zext(v, bits);
                    self.set(r, v);
                }
            }
            (OpKind::Memory, Some(v)) if inst.mnemonic() == Mnemonic::Mov => {
                let bytes = inst.memory_size().size();
                let address = self.address(inst);
                let v = self.zext(v, (bytes * 8).min(64) as u8);
                self.store(address, bytes as u64, Some(v));
            }
            _ if matches!(
                inst.mnemonic(),
                Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop
            ) => {}
            _ => self.unknown(inst, factory),
        }
        if flags {
            self.compared = compared;
        }
    }

    /// Drops registers, flags and memory that any other instruction changes.
    fn unknown(&mut self, inst: &Instruction, factory: &mut InstructionInfoFactory) {
        let info = factory.info(inst);
        let clobber = reg_use(info).clobber;
        let writes: bool = info.used_memory().iter().any(|m| {
            !matches!(
                m.access(),
                iced_x86::OpAccess::Read
                    | iced_x86::OpAccess::CondRead
                    | iced_x86::OpAccess::NoMemAccess
            )
        });
        if writes {
            let plain = inst.op0_kind() == OpKind::Memory
                && !matches!(inst.mnemonic(), Mnemonic::Pop | Mnemonic::Push);
            let address = if plain { self.address(inst) } else { None };
            let bytes = inst.memory_size().size() as u64;
            if bytes == 0 || inst.memory_size() == MemorySize::Unknown {
                self.forget_memory();
            } else {
                self.store(address, bytes, None);
            }
        }
        for r in clobber.iter() {
            let v = self.opaque();
            self.set(r, v);
        }
    }

    fn compare(&mut self, index: usize, inst: &Instruction) -> Option<Compared> {
        if !matches!(inst.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub) {
            return None;
        }
        let (left, bits) = self.operand(index, inst, 0)?;
        let (right, _) = self.operand(index, inst, 1)?;
        let right = self.zext(right, bits);
        Some(Compared { left, right })
    }

    /// The new value of operand 0.
    fn result(&mut self, index: usize, inst: &Instruction) -> Option<Id> {
        let bits = match inst.op0_kind() {
            OpKind::Register => general_bits(inst.op0_register())?,
            _ => 64,
        };
        match inst.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => Some(self.operand(index, inst, 1)?.0),
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let (v, from) = self.operand(index, inst, 1)?;
                Some(self.sext(v, from))
            }
            Mnemonic::Lea => self.address(inst),
            Mnemonic::Xor | Mnemonic::Sub
                if inst.op1_kind() == OpKind::Register
                    && inst.op0_kind() == OpKind::Register
                    && inst.op0_register() == inst.op1_register() =>
            {
                Some(self.constant(0))
            }
            Mnemonic::Add | Mnemonic::Sub => {
                if inst.op0_kind() != OpKind::Register {
                    return None;
                }
                let a = self.operand(index, inst, 0)?.0;
                let b = self.operand(index, inst, 1)?.0;
                let factor = if inst.mnemonic() == Mnemonic::Add {
                    1
                } else {
                    u64::MAX
                };
                Some(self.add_scaled(a, b, factor))
            }
            Mnemonic::Inc | Mnemonic::Dec if inst.op0_kind() == OpKind::Register => {
                let a = self.operand(index, inst, 0)?.0;
                let one = self.constant(1);
                let factor = if inst.mnemonic() == Mnemonic::Inc {
                    1
                } else {
                    u64::MAX
                };
                Some(self.add_scaled(a, one, factor))
            }
            Mnemonic::Shl if inst.op0_kind() == OpKind::Register => {
                let a = self.operand(index, inst, 0)?.0;
                let count = inst.try_immediate(1).ok()? & u64::from(bits.max(32) - 1);
                let zero = self.constant(0);
                Some(self.add_scaled(zero, a, 1 << count))
            }
            Mnemonic::And if inst.op0_kind() == OpKind::Register => {
                let a = self.operand(index, inst, 0)?.0;
                let m = inst.try_immediate(1).ok()? & mask(bits);
                Some(self.intern(Value::And(a, m)))
            }
            Mnemonic::Shr if inst.op0_kind() == OpKind::Register => {
                let a = self.operand(index, inst, 0)?.0;
                let count = inst.try_immediate(1).ok()? & u64::from(bits.max(32) - 1);
                Some(self.intern(Value::Shr(a, count as u8)))
            }
            _ => None,
        }
    }
}

/// Bits of a general purpose register or a part of it. `None` for other registers, whose values are
/// not tracked.
fn general_bits(register: Register) -> Option<u8> {
    register.is_gpr().then(|| 8 * register.size() as u8)
}

fn mask(bits: u8) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::decode::decode_function;

    #[test]
    fn only_general_registers_have_values() {
        for (register, bits) in [
            (Register::AL, Some(8)),
            (Register::AH, Some(8)),
            (Register::R9W, Some(16)),
            (Register::EAX, Some(32)),
            (Register::R15, Some(64)),
            (Register::DS, None),
            (Register::K1, None),
            (Register::XMM0, None),
            (Register::YMM15, None),
            (Register::ZMM31, None),
            (Register::TMM0, None),
        ] {
            assert_eq!(general_bits(register), bits, "{register:?}");
        }
    }

    /// Registers of 32 bytes and more are ignored: their width in bits exceeds 8 bits.
    #[test]
    fn wide_registers_leave_general_ones_as_they_are() {
        // vmovdqu ymm0, [rdi]; vpaddd ymm0, ymm0, ymm1; vmovdqu [rsi], ymm0; vmovdqu64 zmm0, [rdi]
        let code = [
            0xc5, 0xfe, 0x6f, 0x07, 0xc5, 0xfd, 0xfe, 0xc1, 0xc5, 0xfe, 0x7f, 0x06, 0x62, 0xf1,
            0xfe, 0x48, 0x6f, 0x07,
        ];
        let (mut machine, mut factory) = (Machine::new(), InstructionInfoFactory::new());
        let before = machine.regs;
        let body = decode_function(&code, 0x1000, &[]).unwrap();
        assert_eq!(body.insns.len(), 4);
        for (i, insn) in body.insns.iter().enumerate() {
            machine.step(i, insn, &mut factory);
        }
        assert_eq!(machine.regs, before);
    }
}
