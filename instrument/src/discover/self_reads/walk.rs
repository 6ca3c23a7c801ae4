//! One path through a function, instruction by instruction.

use crate::discover::self_reads::search::{Given, Search, Uses};
use crate::discover::self_reads::value::{Fact, JOINED, Lanes, State, Value, mixed};
use crate::discover::self_reads::{
    ARGUMENTS, FIRST_ARGUMENT_BIT, FLAGS, HEADER, INFO, MAX_ADDRESSES, OBJECTS, SEGMENT, WORDS,
    deep_bit, functions_in, is_table,
};
use crate::program::section_bounds::KnownFunction;
use crate::x86::effects::uses;
use crate::x86::flow::{direct_target, is_call};
use crate::x86::insn::Insn;
use crate::x86::regs::{CALLER_SAVED, RAX, RSP, gpr, registers};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register};
use std::ops::Range;

/// Key that makes `getauxval` return the address of the program headers.
const AT_PHDR: u64 = 3;

/// One path through a function.
pub(super) struct Walk<'w, 's, 'a> {
    pub(super) search: &'w Search<'s, 'a>,
    pub(super) range: Range<u64>,
    /// True if rbp points to the frame.
    pub(super) framed: bool,
    pub(super) uses: Uses,
    pub(super) state: State,
}

impl Walk<'_, '_, '_> {
    /// The value of a number in code or memory, if it is a code address.
    pub(super) fn origin(&mut self, at: u64) -> Value {
        let input = self.search.input;
        if !self.search.mapped.contains(&at) {
            return Value::of_number(at);
        }
        let counts = input.bounds.contains(at) || input.is_code(at) && !input.is_object(at);
        if !counts {
            return Value {
                fact: match is_table(input, at) {
                    true => Fact::TableStart(at),
                    false => Fact::Number(at),
                },
                ..Value::default()
            };
        }
        self.bit(at)
    }

    /// The value for this address, with a bit of its own.
    pub(super) fn bit(&mut self, at: u64) -> Value {
        let bit = match self.uses.origins.iter().position(|o| *o == at) {
            Some(bit) => bit,
            None if self.uses.origins.len() < MAX_ADDRESSES => {
                self.uses.origins.push(at);
                self.uses.origins.len() - 1
            }
            None => return Value::default(),
        };
        Value {
            sources: 1 << bit,
            ..Value::default()
        }
    }

    /// The word at a fixed address.
    pub(super) fn word(&mut self, at: u64) -> Value {
        let input = self.search.input;
        let word = input
            .bounds
            .word(at)
            .or_else(|| input.word(at).filter(|w| input.is_code(*w)));
        let value = word.map_or(Value::default(), |w| self.origin(w));
        self.as_held(value, at)
    }

    /// A value loaded from a word of memory. A word that can be written may hold another value by
    /// then.
    fn as_held(&self, value: Value, word: u64) -> Value {
        let input = self.search.input;
        let changes = !input.is_got(word) && input.segment_at(word).is_some_and(|s| s.writable);
        let doubt = if changes && value.sources != 0 {
            JOINED
        } else {
            0
        };
        Value {
            doubt: value.doubt | doubt,
            ..value
        }
    }

    pub(super) fn reg(&self, register: Register) -> Value {
        gpr(register).map_or(Value::default(), |r| self.state.regs[usize::from(r.0)])
    }

    /// True if the displacement of an operand in memory is an address.
    pub(super) fn is_fixed(&self, inst: &Instruction) -> bool {
        inst.memory_base() == Register::RIP
            || inst.memory_base() == Register::None && !self.search.input.pie
    }

    /// The word of the frame at a memory operand.
    pub(super) fn slot(&self, inst: &Instruction) -> Option<i64> {
        let base = match inst.memory_base() {
            Register::RBP if self.framed => -8,
            Register::RSP => -self.state.depth?,
            // (The address of an object may be in a register.)
            register => self.reg(register).frame()?,
        };
        (inst.memory_index() == Register::None)
            .then(|| base.wrapping_add(inst.memory_displacement64() as i64))
    }

    /// Contents of the words of an object that a value may point to, with a bit for each word whose
    /// content is uncertain.
    pub(super) fn held_by(&self, value: Value) -> ([u64; WORDS], u8) {
        let word = |n: usize| {
            let at = value.frame()?.checked_add(8 * n as i64)?;
            self.state.slot(at)
        };
        let words: [Value; WORDS] = std::array::from_fn(|n| word(n).unwrap_or_default());
        let doubted = words.iter().enumerate().filter(|(_, word)| word.doubt != 0);
        (
            words.map(|word| word.sources),
            doubted.map(|(n, _)| 1 << n).sum(),
        )
    }

    /// Tracks the stack pointer.
    pub(super) fn move_stack(&mut self, inst: &Instruction) {
        use Mnemonic::*;
        let by = inst.try_immediate(1).map(|n| n as i64).ok();
        let depth = match (inst.mnemonic(), self.state.depth) {
            (Leave, _) if self.framed => Some(0),
            (_, None) => None,
            (Push, Some(depth)) => Some(depth + 8),
            (Pop, Some(depth)) => Some(depth - 8),
            (Sub, Some(depth)) => by.map(|by| depth.wrapping_add(by)),
            (Add, Some(depth)) => by.map(|by| depth.wrapping_sub(by)),
            // (Code that aligns its frame addresses all of it from the aligned pointer.)
            (And, Some(depth)) => by.filter(|by| *by < 0).map(|by| (depth - by - 1) & by),
            (Lea, Some(depth))
                if inst.memory_base() == Register::RSP && inst.memory_index() == Register::None =>
            {
                Some(depth.wrapping_sub(inst.memory_displacement64() as i64))
            }
            _ => None,
        };
        self.state.depth = depth;
        self.state.regs[usize::from(RSP.0)] = Value::default();
    }

    /// Content of an instruction's memory operand. Notes the use of the operand.
    pub(super) fn memory(&mut self, inst: &Instruction, access: OpAccess) -> Value {
        if let Some(slot) = self.slot(inst) {
            return self.state.slot(slot).unwrap_or_default();
        }
        let size = inst.memory_size().size();
        let at = inst.memory_displacement64() as i64;
        if self.is_fixed(inst) {
            let input = self.search.input;
            if inst.memory_index() == Register::None {
                return self.word(inst.memory_displacement64());
            }
            if size == 8 && is_table(input, at as u64) {
                let value = self.bit(at as u64);
                return self.as_held(value, at as u64);
            }
        }
        let address = self
            .reg(inst.memory_base())
            .combined_with(self.reg(inst.memory_index()));
        let writes = !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        self.touch(address, writes);
        if let Some(table) = address.table().filter(|_| size == 8 && !writes)
            && let Ok(nth) = usize::try_from(at / 8)
            && functions_in(self.search.input, table).nth(nth).is_some()
        {
            let value = self.bit(table);
            return self.as_held(value, table);
        }
        let kind = match address.kind {
            kind if kind & INFO != 0 && size == 8 && at == 16 => HEADER,
            kind if kind & HEADER != 0 && size == 8 => SEGMENT,
            kind if kind & HEADER != 0 => FLAGS,
            _ => 0,
        };
        // It may be a word where an argument points to.
        let word = usize::try_from(at)
            .ok()
            .filter(|at| at % 8 == 0)
            .map(|at| at / 8);
        let pointed =
            (0..OBJECTS).filter(|n| address.sources >> (FIRST_ARGUMENT_BIT + *n as u32) & 1 == 1);
        let sources = word
            .filter(|&word| size == 8 && word < WORDS)
            .map_or(0, |word| pointed.map(|n| 1 << deep_bit(n, word)).sum());
        Value {
            kind,
            sources,
            ..Value::default()
        }
    }

    pub(super) fn touch(&mut self, address: Value, writes: bool) {
        self.uses.read |= address.sources;
        // If the address may be a buffer on another path, the write is assumed to be to the buffer.
        if writes && address.doubt == 0 {
            self.uses.written |= address.sources;
        }
        self.uses.reads_segment |= address.kind & SEGMENT != 0;
    }

    /// The value of an operand.
    pub(super) fn operand(&mut self, inst: &Instruction, op: u32, access: OpAccess) -> Value {
        match inst.op_kind(op) {
            OpKind::Register => self.reg(inst.op_register(op)),
            OpKind::Memory => self.memory(inst, access),
            _ => match inst.try_immediate(op) {
                Ok(number) if !self.search.input.pie => self.origin(number),
                Ok(number) => Value::of_number(number),
                Err(_) => Value::default(),
            },
        }
    }

    pub(super) fn put(&mut self, inst: &Instruction, value: Value) {
        match inst.op0_kind() {
            OpKind::Register => {
                if let Some(r) = gpr(inst.op0_register()) {
                    self.state.regs[usize::from(r.0)] = value;
                }
            }
            OpKind::Memory => match self.slot(inst) {
                Some(slot) => self.state.keep(slot, value),
                None => self.store(value),
            },
            _ => {}
        }
    }

    /// Stores a value in memory that is not followed.
    fn store(&mut self, value: Value) {
        self.uses.stored |= value.sources;
        if let Some(slot) = value.frame() {
            self.state.escape(slot);
        }
    }

    pub(super) fn pair(&mut self, a: Value, b: Value) {
        if a.sources != 0 && b.sources != 0 {
            let is_stale = a.is_stale() || b.is_stale();
            let pair = (a.sources, b.sources, is_stale);
            self.uses.pairs.insert(pair);
        }
    }

    /// Executes an instruction.
    pub(super) fn step(&mut self, insn: &Insn) {
        use Mnemonic::*;
        let inst = &insn.inst;
        if insn.flow != FlowControl::Next && insn.flow != FlowControl::ConditionalBranch {
            return self.leave(insn);
        }
        if inst.is_string_instruction() {
            return self.string(inst);
        }
        if self.vector(inst) {
            return;
        }
        let moves_stack = inst.op_count() > 0
            && inst.op0_kind() == OpKind::Register
            && inst.op0_register() == Register::RSP
            && !matches!(inst.mnemonic(), Cmp | Test | Push | Pop);
        if moves_stack || inst.mnemonic() == Leave {
            return self.move_stack(inst);
        }
        let whole = inst.op0_register().size() >= 4 || inst.op0_kind() == OpKind::Memory;
        match inst.mnemonic() {
            Nop | Endbr64 | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchnta => {}
            Lea => self.load_address(inst),
            Mov | Movzx | Movsx | Movsxd if inst.op_count() == 2 => self.move_value(inst, whole),
            Push => self.push(inst),
            Pop => self.pop(inst),
            Cmp | Test | And => self.compare(inst),
            Add | Inc | Dec | Sub if whole => self.add(inst),
            _ if inst.condition_code() != iced_x86::ConditionCode::None && inst.op_count() == 2 => {
                let value = self.operand(inst, 1, OpAccess::Read);
                let own = self.operand(inst, 0, OpAccess::Read);
                self.put(inst, own.join(value));
            }
            _ => self.other(inst),
        }
    }

    fn load_address(&mut self, inst: &Instruction) {
        let mut value = self
            .reg(inst.memory_base())
            .combined_with(self.reg(inst.memory_index()));
        if self.is_fixed(inst) {
            let origin = self.origin(inst.memory_displacement64());
            value = value.combined_with(origin);
        } else if let Some(slot) = self.slot(inst) {
            value.fact = Fact::Frame(slot);
        }
        self.put(inst, value);
    }

    /// Copies a value. `whole`: all of it is copied.
    fn move_value(&mut self, inst: &Instruction, whole: bool) {
        let mut value = self.operand(inst, 1, OpAccess::Read);
        if inst.op1_kind() == OpKind::Register && inst.op1_register() == Register::RSP {
            let top = self.state.depth.map(|depth| -depth);
            value.fact = top.map_or(Fact::None, Fact::Frame);
        }
        if inst.op0_kind() == OpKind::Memory && self.slot(inst).is_none() {
            self.memory(inst, OpAccess::Write);
        }
        self.put(inst, if whole { value } else { Value::default() });
    }

    /// Puts a value on the stack.
    fn push(&mut self, inst: &Instruction) {
        let value = self.operand(inst, 0, OpAccess::Read);
        self.uses.stored |= value.sources;
        self.move_stack(inst);
        if let Some(depth) = self.state.depth {
            self.state.keep(-depth, value);
        }
    }

    /// Takes a value from the stack.
    fn pop(&mut self, inst: &Instruction) {
        let top = self.state.depth.map(|depth| -depth);
        let value = top.and_then(|top| self.state.slot(top));
        self.put(inst, value.unwrap_or_default());
        self.move_stack(inst);
    }

    /// Compares two values, or keeps some bits of one.
    fn compare(&mut self, inst: &Instruction) {
        let (a, b) = (
            self.operand(inst, 0, OpAccess::Read),
            self.operand(inst, 1, OpAccess::Read),
        );
        let bits = inst.try_immediate(1).unwrap_or(0);
        let at = inst.memory_displacement64();
        let is_flags = a.kind & FLAGS != 0;
        match inst.mnemonic() {
            Mnemonic::Cmp => {
                self.pair(a, b);
                // (Types of headers use the same numbers.)
                let in_place = inst.op0_kind() == OpKind::Memory && at % 56 == 4;
                self.uses.asks_flags |= is_flags && in_place && matches!(bits, 5 | 7);
            }
            _ => {
                // (The code tests both words at once.)
                let second = [a, b].iter().find_map(|v| v.number()).unwrap_or(0) >> 32;
                let both = (a.kind | b.kind) & SEGMENT != 0 && second & 1 == 1;
                self.uses.asks_flags |= is_flags && bits & 1 == 1 || both;
            }
        }
        if inst.mnemonic() == Mnemonic::And {
            // A rounded address is still an address.
            let rounded = (bits as i64) < 0 && (bits as i64) > -(1 << 21);
            let kept = if rounded || is_flags {
                a.with_unknown_offset()
            } else {
                Value::default()
            };
            self.put(inst, kept);
        }
    }

    /// Adds to a value, or subtracts from it.
    fn add(&mut self, inst: &Instruction) {
        let a = self.operand(inst, 0, OpAccess::ReadWrite);
        let value = if inst.op_count() < 2 {
            a.with_unknown_offset()
        } else {
            let b = self.operand(inst, 1, OpAccess::Read);
            if inst.mnemonic() == Mnemonic::Sub {
                self.pair(a, b);
            }
            match inst.mnemonic() {
                Mnemonic::Add => a.combined_with(b),
                _ if b.sources != 0 || inst.op1_kind() == OpKind::Register => Value::default(),
                _ => a.with_unknown_offset(),
            }
        };
        self.put(inst, value);
    }

    /// Executes an instruction whose results are not followed.
    fn other(&mut self, inst: &Instruction) {
        let memory = (0..inst.op_count()).find(|&o| inst.op_kind(o) == OpKind::Memory);
        let mut factory = self.search.factory.borrow_mut();
        let access = memory.map(|op| registers(&mut factory, inst).op_access(op));
        let clobber = uses(&mut factory, inst).clobber;
        drop(factory);
        self.spoil_vector(inst);
        if let Some(access) = access {
            self.memory(inst, access);
            if access != OpAccess::Read {
                self.put(inst, Value::default());
            }
        }
        clobber
            .iter()
            .for_each(|r| self.state.regs[usize::from(r.0)] = Value::default());
    }

    /// The words of an operand of a move into or out of vector registers.
    fn lanes(&mut self, inst: &Instruction, op: u32) -> Lanes {
        let register = inst.op_register(op);
        let mut lanes = Lanes::default();
        match inst.op_kind(op) {
            OpKind::Register => match vector_number(register) {
                Some(n) => lanes = self.state.vector(n),
                None => lanes[0] = self.reg(register),
            },
            OpKind::Memory => {
                lanes[0] = self.memory(inst, OpAccess::Read);
                let slot = self.slot(inst);
                let words = (inst.memory_size().size() / 8).min(lanes.len());
                for (word, lane) in lanes.iter_mut().enumerate().take(words).skip(1) {
                    let offset = 8 * word as u64;
                    *lane = match slot {
                        Some(slot) => self.state.slot(slot + offset as i64).unwrap_or_default(),
                        None if self.is_fixed(inst) => {
                            self.word(inst.memory_displacement64().wrapping_add(offset))
                        }
                        None => Value::default(),
                    };
                }
            }
            _ => {}
        }
        lanes
    }

    /// Follows moves of several words at a time, as compilers emit them to fill objects. True if
    /// the instruction is one.
    pub(super) fn vector(&mut self, inst: &Instruction) -> bool {
        use Mnemonic::*;
        let is_move = matches!(
            inst.mnemonic(),
            Movq | Vmovq
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
                | Movlps
                | Movlpd
        );
        let second = matches!(
            inst.mnemonic(),
            Punpcklqdq | Vpunpcklqdq | Unpcklpd | Vunpcklpd | Movhps | Movhpd | Vmovhps | Vmovhpd
        );
        let inserts = matches!(inst.mnemonic(), Pinsrq | Vpinsrq);
        if !is_move && !second && !inserts {
            return false;
        }
        if inst.op0_kind() == OpKind::Memory {
            let from = self.lanes(inst, 1);
            // (`movhps` stores the second word alone.)
            let first = usize::from(second);
            let words = from.into_iter().chain([Value::default(); 6]).skip(first);
            let words = words.take((inst.memory_size().size() / 8).max(1));
            match self.slot(inst) {
                Some(slot) => {
                    for (word, at) in words.zip((slot..).step_by(8)) {
                        self.state.keep(at, word);
                    }
                }
                None => {
                    self.memory(inst, OpAccess::Write);
                    words.for_each(|word| self.store(word));
                }
            }
            return true;
        }
        let Some(target) = vector_number(inst.op0_register()) else {
            let value = self.lanes(inst, 1)[0];
            self.put(inst, value);
            return true;
        };
        let last = inst.op_count() - 1 - u32::from(inserts);
        let (own, from) = (
            self.lanes(inst, if last > 1 { 1 } else { 0 }),
            self.lanes(inst, last),
        );
        let is_half = matches!(inst.mnemonic(), Movlps | Movlpd);
        let low = |first, second| [first, second, Value::default(), Value::default()];
        let value = match inserts {
            true if inst.try_immediate(last + 1).is_ok_and(|n| n & 1 == 0) => low(from[0], own[1]),
            true => low(own[0], from[0]),
            false if second => low(own[0], from[0]),
            false if is_half => low(from[0], own[1]),
            false => from,
        };
        self.state.put_vector(target, value);
        true
    }

    /// Drops the content of a vector register that another instruction writes.
    fn spoil_vector(&mut self, inst: &Instruction) {
        use Mnemonic::*;
        let Some(target) =
            vector_number(inst.op0_register()).filter(|_| inst.op0_kind() == OpKind::Register)
        else {
            return;
        };
        let clears = matches!(
            inst.mnemonic(),
            Xorps | Xorpd | Pxor | Vxorps | Vxorpd | Vpxor
        );
        let registers = (0..inst.op_count()).filter(|&op| inst.op_kind(op) == OpKind::Register);
        let value = registers
            .filter_map(|op| vector_number(inst.op_register(op)))
            .map(|n| self.state.vector(n))
            .fold(Lanes::default(), mixed);
        let value = if clears { Lanes::default() } else { value };
        self.state.put_vector(target, value);
    }

    pub(super) fn string(&mut self, inst: &Instruction) {
        use Mnemonic::*;
        let is_store = matches!(
            inst.mnemonic(),
            Movsb | Movsw | Movsd | Movsq | Stosb | Stosw | Stosd | Stosq
        );
        let (one_source, one_target) = (
            matches!(inst.mnemonic(), Lodsb | Lodsw | Lodsd | Lodsq),
            matches!(
                inst.mnemonic(),
                Stosb | Stosw | Stosd | Stosq | Scasb | Scasw | Scasd | Scasq
            ),
        );
        if !one_target {
            self.touch(self.reg(Register::RSI), false);
        }
        if !one_source {
            self.touch(self.reg(Register::RDI), is_store);
        }
    }

    /// Follows a call, or the end of a block without a conditional branch.
    pub(super) fn leave(&mut self, insn: &Insn) {
        let inst = &insn.inst;
        let target = direct_target(inst);
        let is_tail = target.is_some_and(|t| !self.range.contains(&t));
        let through = (inst.is_ip_rel_memory_operand()).then(|| inst.ip_rel_memory_address());
        let callee = target.or(through);
        if is_call(insn.flow)
            || is_tail
            || insn.flow == FlowControl::IndirectBranch && through.is_some()
        {
            let args = ARGUMENTS.map(|r| self.state.regs[r]);
            if args.iter().any(|a| a.is_followed()) {
                let deep = std::array::from_fn(|n| self.held_by(args[n]));
                let given = Given { callee, args, deep };
                if given.carries() {
                    self.uses.calls.push(given);
                }
            }
        }
        if is_call(insn.flow) {
            let known = callee.and_then(|c| self.search.input.bounds.functions.get(&c));
            let asks_headers = known == Some(&KnownFunction::Auxiliary)
                && self.state.regs[ARGUMENTS[0]].number() == Some(AT_PHDR);
            if known.is_none() {
                let frames = ARGUMENTS.map(|r| self.state.regs[r].frame());
                let lowest = frames
                    .into_iter()
                    .chain([self.state.escaped])
                    .flatten()
                    .min();
                if let Some(slot) = lowest {
                    self.state.doubt_from(slot);
                }
            }
            CALLER_SAVED
                .iter()
                .for_each(|r| self.state.regs[usize::from(r.0)] = Value::default());
            self.state.forget_vectors();
            if asks_headers {
                self.state.regs[usize::from(RAX.0)].kind = HEADER;
            }
        }
    }
}

/// The number of a vector register whose words are followed.
fn vector_number(register: Register) -> Option<usize> {
    let is_followed = register.is_xmm() || register.is_ymm();
    (is_followed && register.number() < 16).then(|| register.number())
}
