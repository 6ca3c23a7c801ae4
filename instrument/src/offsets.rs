//! Registers that differ by a known constant: a register is a symbol plus a constant, and copies, additions of constants and stack
//! pushes keep the symbol.
//!
//! Exact, unlike the sums of [`crate::values`], which are for classes only: what is recorded of one register stands for another.
//! Inside a block every instruction is followed ([`Registers::advance`]). Across blocks only the differences are kept: two registers have
//! the same symbol at a block's start if all ways there agree on their difference ([`at_starts`]), be it four pointers into one array or two that a
//! loop moves in step. Nothing is taken from callees: behind a call all registers are new.

use crate::cfg::Graph;
use crate::ir::{Block, Gpr};
use crate::operands::is_repeated_string;
use crate::regs::{RDI, RSI, RSP, RegUse, gpr64};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A register's value: a symbol plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Number of the symbol.
    pub symbol: u32,
    /// The constant.
    pub delta: i64,
}

/// What registers hold at a place.
#[derive(Clone, Debug)]
pub struct Registers {
    next_symbol: u32,
    values: [Known; 16],
    /// Some instruction of the function sets the direction flag.
    backward: bool,
}

impl Registers {
    /// Nothing is known. `backward`: string instructions may go down.
    pub fn new(backward: bool) -> Registers {
        let mut all = Registers { next_symbol: 0, values: [Known { symbol: 0, delta: 0 }; 16], backward };
        all.forget();
        all
    }

    fn fresh(&mut self) -> Known {
        self.next_symbol += 1;
        Known { symbol: self.next_symbol, delta: 0 }
    }

    /// From here on nothing is known.
    pub fn forget(&mut self) {
        for r in 0..16 {
            self.values[r] = self.fresh();
        }
    }

    /// New symbols for new values that differ as these do.
    pub fn start(&mut self, differences: &Differences) {
        let first = self.next_symbol + 1;
        self.next_symbol += 16;
        self.values = std::array::from_fn(|r| {
            let (leader, delta) = differences.0[r];
            Known { symbol: first + u32::from(leader), delta }
        });
    }

    /// What a register holds.
    pub fn value(&self, r: Gpr) -> Known {
        self.values[usize::from(r.0)]
    }

    /// What an instruction does.
    pub fn advance(&mut self, inst: &Instruction, u: &RegUse) {
        if hands_over(inst) {
            return self.forget();
        }
        let target = gpr64(inst.op0_register());
        // Old values of what may be read; a copy of all would take longer than the rest.
        let (stack, pointers) = (self.value(RSP), [RSI, RDI].map(|r| self.value(r)));
        let source = match inst.mnemonic() {
            Mnemonic::Mov if inst.op1_kind() == OpKind::Register => gpr64(inst.op1_register()),
            Mnemonic::Lea if inst.memory_index() == Register::None => gpr64(inst.memory_base()),
            _ => target,
        };
        let source = source.map(|r| self.value(r));
        for r in u.clobber.iter() {
            self.values[usize::from(r.0)] = self.fresh();
        }
        if matches!(inst.mnemonic(), Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq)
            && target != Some(RSP)
        {
            let delta = stack.delta.wrapping_add(i64::from(inst.stack_pointer_increment()));
            self.values[usize::from(RSP.0)] = Known { delta, ..stack };
            return;
        }
        if inst.is_string_instruction() && !is_repeated_string(inst) && !self.backward {
            self.step_pointers(inst, pointers);
            return;
        }
        let Some(target) = target else { return };
        let Some(old) = source.filter(|_| inst.op0_kind() == OpKind::Register) else { return };
        let plus = |c: i64| Some(Known { delta: old.delta.wrapping_add(c), ..old });
        let constant = |op: u32| {
            let is_imm = !matches!(inst.op_kind(op), OpKind::Register | OpKind::Memory);
            is_imm.then(|| inst.try_immediate(op).ok()).flatten().map(|c| c as i64)
        };
        let new = match inst.mnemonic() {
            Mnemonic::Add if inst.op_count() == 2 => constant(1).and_then(plus),
            Mnemonic::Sub if inst.op_count() == 2 => constant(1).and_then(|c| plus(c.wrapping_neg())),
            Mnemonic::Inc => plus(1),
            Mnemonic::Dec => plus(-1),
            Mnemonic::Mov if inst.op1_kind() == OpKind::Register => Some(old),
            Mnemonic::Lea if inst.memory_index() == Register::None => plus(inst.memory_displacement64() as i64),
            _ => None,
        };
        if let Some(new) = new {
            self.values[usize::from(target.0)] = new;
        }
    }

    /// After a string instruction without `rep`; the pointers' values before it.
    fn step_pointers(&mut self, inst: &Instruction, [rsi, rdi]: [Known; 2]) {
        for op in 0..inst.op_count() {
            let (r, before) = match inst.op_kind(op) {
                OpKind::MemorySegRSI => (RSI, rsi),
                OpKind::MemoryESRDI => (RDI, rdi),
                _ => continue,
            };
            let size = inst.memory_size().size() as i64;
            self.values[usize::from(r.0)] = Known { delta: before.delta.wrapping_add(size), ..before };
        }
    }
}

/// Whether other code runs before the next instruction.
fn hands_over(inst: &Instruction) -> bool {
    matches!(inst.flow_control(), FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception)
}

/// Per register: the first one with the same symbol, and the difference from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences([(u8, i64); 16]);

impl Differences {
    /// No two registers have anything in common.
    pub const NONE: Differences = {
        let mut all = [(0, 0); 16];
        let mut r = 0;
        while r < 16 {
            all[r].0 = r as u8;
            r += 1;
        }
        Differences(all)
    };

    /// Whether no two registers have anything in common, which is so at most places.
    fn is_none(&self) -> bool {
        self.0.iter().enumerate().all(|(r, d)| usize::from(d.0) == r)
    }

    /// Registers with the same key have the same symbol, and differ as the numbers do.
    fn of<K: PartialEq>(parts: [(K, i64); 16]) -> Differences {
        Differences(std::array::from_fn(|r| {
            let leader = parts[..r].iter().position(|p| p.0 == parts[r].0).unwrap_or(r);
            (leader as u8, parts[r].1.wrapping_sub(parts[leader].1))
        }))
    }

    /// What holds on both ways.
    fn meet(&self, other: &Differences) -> Differences {
        if self == other || self.is_none() {
            return *self;
        }
        if other.is_none() {
            return *other;
        }
        // Where the ways disagree by the same amount, they agree on the difference.
        Differences::of(std::array::from_fn(|r| {
            let ((a, here), (b, there)) = (self.0[r], other.0[r]);
            ((a, b, here.wrapping_sub(there)), here)
        }))
    }

    /// Whether a block leaves no two registers with one symbol (two symbols may be taken for one).
    fn alone(now: &Registers) -> bool {
        // Sixteen symbols, most of them those of the start.
        let mut seen = 0u64;
        now.values.iter().all(|v| {
            let bit = 1 << (v.symbol & 63);
            let new = seen & bit == 0;
            seen |= bit;
            new
        })
    }

    /// Behind a block, whose registers hold `now` where those of its start had the numbers 1 to 16 as symbols.
    fn behind(&self, now: &Registers) -> Differences {
        if self.is_none() && Differences::alone(now) {
            return Differences::NONE;
        }
        Differences::of(std::array::from_fn(|r| match now.values[r] {
            Known { symbol: symbol @ 1..=16, delta } => {
                let (leader, start) = self.0[symbol as usize - 1];
                (u32::from(leader) + 1, start.wrapping_add(delta))
            }
            Known { symbol, delta } => (symbol, delta),
        }))
    }
}

/// What holds at the start of each block.
pub fn at_starts(graph: &Graph, uses: &[RegUse], backward: bool) -> Vec<Differences> {
    let n = graph.blocks.len();
    // Blocks alone have nothing to bring along.
    if n < 2 {
        return vec![Differences::NONE; n];
    }
    let ends: Vec<Registers> = graph.blocks.iter().map(|b| through(graph, uses, b, backward)).collect();
    // None: control has not come there yet.
    let mut starts: Vec<Option<Differences>> = vec![None; n];
    let mut waiting: Vec<u32> = Vec::new();
    let mut waits = vec![false; n];
    for (b, block) in graph.blocks.iter().enumerate().rev() {
        if b == 0 || block.external_entry || block.preds.is_empty() {
            starts[b] = Some(Differences::NONE);
            waiting.push(b as u32);
            waits[b] = true;
        }
    }
    while let Some(b) = waiting.pop() {
        let b = b as usize;
        waits[b] = false;
        let Some(start) = starts[b] else { continue };
        let end = start.behind(&ends[b]);
        for t in graph.blocks[b].succs.iter().map(|t| t.0 as usize) {
            // Nothing is less than nothing.
            if starts[t].is_some_and(|old| old.is_none()) {
                continue;
            }
            let new = starts[t].map_or(end, |old| old.meet(&end));
            if starts[t] != Some(new) {
                starts[t] = Some(new);
                if !std::mem::replace(&mut waits[t], true) {
                    waiting.push(t as u32);
                }
            }
        }
    }
    starts.into_iter().map(|s| s.unwrap_or(Differences::NONE)).collect()
}

/// What a block does.
fn through(graph: &Graph, uses: &[RegUse], block: &Block, backward: bool) -> Registers {
    let mut registers = Registers::new(backward);
    for i in block.insns.start as usize..block.insns.end as usize {
        registers.advance(&graph.insns[i].inst, &uses[i]);
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::Entries;
    use crate::disasm::decode;
    use crate::regs::{RAX, RBX, RCX, RDX, reg_use};
    use iced_x86::InstructionInfoFactory;

    const ADD_RDI: &[u8] = &[0x48, 0x83, 0xc7, 0x10]; // add rdi, 16
    const ADD_RSI: &[u8] = &[0x48, 0x83, 0xc6, 0x10]; // add rsi, 16
    const LEA: &[u8] = &[0x48, 0x8d, 0x77, 0x08]; // lea rsi, [rdi+8]
    const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    const RET: &[u8] = &[0xc3];

    /// At the start of each block: the distance from one register to another.
    fn distances(parts: &[&[u8]], from: Gpr, to: Gpr) -> Vec<Option<i64>> {
        let bytes = parts.concat();
        let body = decode(&bytes, 0x100, &[]).unwrap();
        let graph = Graph::build(&body.insns, &(0x100..0x100 + bytes.len() as u64), &Entries::default(), &[]);
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = graph.insns.iter().map(|i| reg_use(factory.info(&i.inst))).collect();
        let distance = |d: Differences| {
            let mut r = Registers::new(false);
            r.start(&d);
            (r.value(from).symbol == r.value(to).symbol).then(|| r.value(to).delta - r.value(from).delta)
        };
        at_starts(&graph, &uses, false).into_iter().map(distance).collect()
    }

    /// jne back over the parts.
    fn back(parts: &[&[u8]]) -> Vec<u8> {
        vec![0x75, (-(parts.iter().map(|p| p.len() as i8).sum::<i8>()) - 2) as u8]
    }

    #[test]
    fn pointers_that_a_loop_moves_in_step_keep_their_distance() {
        let both = [ADD_RDI, ADD_RSI];
        assert_eq!(distances(&[LEA, &both.concat(), &back(&both), RET], RDI, RSI), [None, Some(8), Some(8)]);
        let one = [ADD_RDI];
        assert_eq!(distances(&[LEA, ADD_RDI, &back(&one), RET], RDI, RSI), [None; 3], "the loop moves one of them");
    }

    #[test]
    fn ways_that_disagree_leave_nothing() {
        // je over: add rdi, 16.
        let unless = [&[0x74, ADD_RDI.len() as u8], ADD_RDI].concat();
        assert_eq!(distances(&[LEA, &unless, RET], RDI, RSI), [None, Some(8), None]);
        let both = [&[0x74, 8], ADD_RDI, ADD_RSI].concat();
        assert_eq!(distances(&[LEA, &both, RET], RDI, RSI), [None, Some(8), Some(8)], "both moved by the same");
    }

    #[test]
    fn copies_of_what_was_computed_are_equal() {
        // mov rcx, [rdi]; lea rdx, [rcx-1]; je +0; ret
        let code: &[u8] = &[0x48, 0x8b, 0x0f, 0x48, 0x8d, 0x51, 0xff, 0x74, 0x00, 0xc3];
        assert_eq!(distances(&[code], RCX, RDX), [None, Some(-1)]);
        assert_eq!(distances(&[code], RAX, RBX), [None, None]);
    }

    #[test]
    fn calls_end_what_is_known() {
        assert_eq!(distances(&[LEA, CALL, &[0x74, 0x00], RET], RDI, RSI), [None, None]);
        // mov rcx, rbx: a callee is not believed to keep rbx.
        assert_eq!(distances(&[&[0x48, 0x89, 0xd9], CALL, &[0x74, 0x00], RET], RCX, RBX), [None, None]);
        assert_eq!(distances(&[&[0x48, 0x89, 0xd9], &[0x74, 0x00], RET], RCX, RBX), [None, Some(0)]);
    }
}
