//! Registers that differ by a known constant: a register is a symbol plus a constant, and copies, additions of constants and stack
//! pushes keep the symbol.
//!
//! Exact, unlike the sums of [`crate::values`], which are for classes only: what is recorded of one register stands for another.
//! Inside a block every instruction is followed ([`Registers::advance`]). Across blocks only the differences are kept: two registers have
//! the same symbol at a block's start if all ways there agree on their difference ([`at_starts`]), be it four pointers into one array or two that a
//! loop moves in step. Nothing is taken from callees: behind a call all registers are new.

use crate::cfg::Graph;
use crate::ir::{Block, Gpr, Insn, RegSet};
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
            Known { symbol: first + u32::from(differences.leaders[r]), delta: differences.deltas[r] }
        });
    }

    /// What a register holds.
    pub fn value(&self, r: Gpr) -> Known {
        self.values[usize::from(r.0)]
    }

    /// What all of them hold.
    pub fn all(&self) -> [Known; 16] {
        self.values
    }

    /// What an instruction does.
    pub fn advance(&mut self, insn: &Insn, u: &RegUse) {
        if hands_over(insn.flow) {
            return self.forget();
        }
        if u.clobber == RegSet::EMPTY {
            return;
        }
        let inst = &insn.inst;
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
fn hands_over(flow: FlowControl) -> bool {
    matches!(flow, FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception)
}

/// Per register: the first one with the same symbol, and the difference from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences {
    leaders: [u8; 16],
    deltas: [i64; 16],
}

impl Differences {
    /// No two registers have anything in common.
    pub const NONE: Differences = Differences { leaders: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], deltas: [0; 16] };
    /// Control has not come there yet.
    const UNKNOWN: Differences = Differences { leaders: [u8::MAX; 16], deltas: [0; 16] };

    /// Whether no two registers have anything in common, which is so at most places.
    fn is_none(&self) -> bool {
        self.leaders == Differences::NONE.leaders
    }

    /// Registers with the same key have the same symbol, and differ as the numbers do.
    fn of(keys: [u32; 16], values: [i64; 16]) -> Differences {
        let mut leaders = [0u32; 16];
        // The first of each key comes last. All comparisons are made, since those of one register with the others are a few vector instructions.
        for (first, key) in keys.iter().enumerate().rev() {
            for (leader, other) in leaders.iter_mut().zip(&keys) {
                *leader = if other == key { first as u32 } else { *leader };
            }
        }
        let leaders = leaders.map(|l| l as u8);
        Differences { leaders, deltas: std::array::from_fn(|r| values[r].wrapping_sub(values[usize::from(leaders[r])])) }
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
        let apart = |r: usize| self.deltas[r].wrapping_sub(other.deltas[r]);
        let mut met = Differences::NONE;
        for r in 0..16 {
            let first = usize::from(self.leaders[r]);
            let agrees = |&p: &usize| self.leaders[p] == self.leaders[r] && other.leaders[p] == other.leaders[r] && apart(p) == apart(r);
            if let Some(leader) = (first..r).find(agrees) {
                (met.leaders[r], met.deltas[r]) = (leader as u8, self.deltas[r].wrapping_sub(self.deltas[leader]));
            }
        }
        met
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
        let (mut keys, mut values) = ([0; 16], [0; 16]);
        for (r, &Known { symbol, delta }) in now.values.iter().enumerate() {
            (keys[r], values[r]) = match symbol {
                1..=16 => {
                    let at = symbol as usize - 1;
                    (u32::from(self.leaders[at]) + 1, self.deltas[at].wrapping_add(delta))
                }
                _ => (symbol, delta),
            };
        }
        Differences::of(keys, values)
    }
}

/// Differences by block. There are none at most places, so that it would be a waste to keep those of each.
pub struct Starts {
    /// Per block, an index into `all`.
    of_block: Vec<u32>,
    all: Vec<Differences>,
}

/// The first two of [`Starts::all`].
const UNKNOWN: u32 = 0;
const NONE: u32 = 1;

impl Starts {
    fn new(blocks: usize) -> Starts {
        Starts { of_block: vec![UNKNOWN; blocks], all: vec![Differences::UNKNOWN, Differences::NONE] }
    }

    /// What holds at the start of a block. (Where control does not come, that is nothing.)
    pub fn at(&self, block: usize) -> &Differences {
        &self.all[self.of_block[block].max(NONE) as usize]
    }

    fn is_none(&self, block: usize) -> bool {
        self.of_block[block] == NONE
    }

    fn is_unknown(&self, block: usize) -> bool {
        self.of_block[block] == UNKNOWN
    }

    fn set(&mut self, block: usize, new: Differences) {
        let place = &mut self.of_block[block];
        if new.is_none() {
            *place = NONE;
        } else if *place > NONE {
            self.all[*place as usize] = new;
        } else {
            *place = self.all.len() as u32;
            self.all.push(new);
        }
    }
}

/// What holds at the start of each block.
pub fn at_starts(graph: &Graph, uses: &[RegUse], backward: bool) -> Starts {
    let n = graph.blocks.len();
    let mut starts = Starts::new(n);
    // Blocks alone have nothing to bring along.
    if n < 2 {
        return starts;
    }
    let mut waiting: Vec<u32> = Vec::new();
    let mut waits = vec![false; n];
    for (b, block) in graph.blocks.iter().enumerate().rev() {
        if b == 0 || block.external_entry || block.preds.is_empty() {
            starts.set(b, Differences::NONE);
            waiting.push(b as u32);
            waits[b] = true;
        }
    }
    while let Some(b) = waiting.pop() {
        let b = b as usize;
        waits[b] = false;
        // Nothing is less than nothing.
        let block = &graph.blocks[b];
        if block.succs.iter().all(|t| starts.is_none(t.0 as usize)) {
            continue;
        }
        // Going through a block once more, which few need, costs less than the memory that it takes to keep what comes out of all.
        let end = starts.at(b).behind(&through(graph, uses, block, backward));
        for t in block.succs.iter().map(|t| t.0 as usize) {
            if starts.is_none(t) {
                continue;
            }
            let new = if starts.is_unknown(t) { end } else { starts.at(t).meet(&end) };
            if starts.is_unknown(t) || *starts.at(t) != new {
                starts.set(t, new);
                if !std::mem::replace(&mut waits[t], true) {
                    waiting.push(t as u32);
                }
            }
        }
    }
    starts
}

/// What a block does.
fn through(graph: &Graph, uses: &[RegUse], block: &Block, backward: bool) -> Registers {
    let mut registers = Registers::new(backward);
    for i in block.insns.start as usize..block.insns.end as usize {
        registers.advance(&graph.insns[i], &uses[i]);
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
        let graph = Graph::build(body, &(0x100..0x100 + bytes.len() as u64), &Entries::default(), &[]);
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = graph.insns.iter().map(|i| reg_use(factory.info(&i.inst))).collect();
        let distance = |d: Differences| {
            let mut r = Registers::new(false);
            r.start(&d);
            (r.value(from).symbol == r.value(to).symbol).then(|| r.value(to).delta - r.value(from).delta)
        };
        let starts = at_starts(&graph, &uses, false);
        (0..graph.blocks.len()).map(|b| distance(*starts.at(b))).collect()
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
