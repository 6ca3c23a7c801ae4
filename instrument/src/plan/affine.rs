//! Registers that differ by a known constant: a register is a symbol plus a constant, and copies,
//! additions of constants and stack pushes keep the symbol.
//!
//! The relation is exact, unlike the sums of [`crate::analyze::value`], which are for classes only:
//! the recorded value of one register gives another's. Inside a block every instruction is followed
//! ([`Registers::advance`]). Across blocks only the differences are kept: two registers have the
//! same symbol at a block's start if all paths to it agree on their difference ([`at_starts`]).
//! Examples are four pointers into one array, or two that a loop moves in step. Callees are not
//! followed: after a call, all registers are new.

use crate::ir::cfg::Cfg;
use crate::x86::insn::Insn;
use crate::x86::operands::is_repeated_string;
use crate::x86::regs::{Gpr, RDI, RSI, RSP, RegSet, RegUse, gpr64};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A register's value: a symbol plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffineValue {
    /// Number of the symbol.
    pub symbol: u32,
    /// The constant.
    pub delta: i64,
}

/// Values of the registers at one point in the code.
#[derive(Clone, Debug)]
pub struct Registers {
    next_symbol: u32,
    values: [AffineValue; 16],
    /// True if some instruction of the function sets the direction flag.
    backward: bool,
}

impl Registers {
    /// Unknown registers: their symbols are 1 to 16. `backward`: string instructions may go down.
    pub fn new(backward: bool) -> Registers {
        Registers {
            next_symbol: 16,
            values: std::array::from_fn(|r| AffineValue {
                symbol: r as u32 + 1,
                delta: 0,
            }),
            backward,
        }
    }

    fn fresh(&mut self) -> AffineValue {
        self.next_symbol += 1;
        AffineValue {
            symbol: self.next_symbol,
            delta: 0,
        }
    }

    /// Gives new symbols to all registers.
    pub fn forget(&mut self) {
        for r in 0..16 {
            self.values[r] = self.fresh();
        }
    }

    /// Gives new symbols to all registers, with these differences.
    pub fn start(&mut self, differences: &Differences) {
        let first = self.next_symbol + 1;
        self.next_symbol += 16;
        self.values = match differences.is_none() {
            true => std::array::from_fn(|r| AffineValue {
                symbol: first + r as u32,
                delta: 0,
            }),
            false => std::array::from_fn(|r| AffineValue {
                symbol: first + u32::from(differences.leaders[r]),
                delta: differences.deltas[r],
            }),
        };
    }

    /// Value of one register.
    pub fn value(&self, r: Gpr) -> AffineValue {
        self.values[usize::from(r.0)]
    }

    /// Values of all registers.
    pub fn all(&self) -> [AffineValue; 16] {
        self.values
    }

    /// Applies consecutive instructions of a block.
    pub fn advance(&mut self, insns: &[Insn], uses: &[RegUse]) {
        let from = insns
            .iter()
            .rposition(|i| hands_over(i.flow))
            .map_or(0, |last| {
                self.forget();
                last + 1
            });
        for (insn, u) in insns[from..].iter().zip(&uses[from..]) {
            self.step(insn, u);
        }
    }

    /// Applies an instruction that does not pass control to other code.
    fn step(&mut self, insn: &Insn, u: &RegUse) {
        if u.clobber == RegSet::EMPTY {
            return;
        }
        let inst = &insn.inst;
        // The source register of the sum, and the constant.
        let (source, constant) = match Kind::of(inst) {
            Kind::Copies => (inst.op1_register(), 0),
            Kind::Computes if inst.memory_index() == Register::None => {
                (inst.memory_base(), inst.memory_displacement64() as i64)
            }
            Kind::Adds => (inst.op0_register(), immediate(inst)),
            Kind::Subtracts => (inst.op0_register(), immediate(inst).wrapping_neg()),
            Kind::Increments => (inst.op0_register(), 1),
            Kind::Decrements => (inst.op0_register(), -1),
            // Only these may move string pointers or the stack pointer.
            Kind::Other if u.clobber.0 & POINTERS.0 != 0 => return self.move_pointers(inst, u),
            Kind::Computes | Kind::Other => (Register::None, 0),
        };
        let new = gpr64(source).map(|r| self.value(r));
        for r in u.clobber.iter() {
            self.values[usize::from(r.0)] = self.fresh();
        }
        // (An instruction with a sum changes only this register.)
        if let (Some(old), Some(target)) = (
            new,
            gpr64(inst.op0_register()).filter(|_| inst.op0_kind() == OpKind::Register),
        ) {
            self.values[usize::from(target.0)] = AffineValue {
                delta: old.delta.wrapping_add(constant),
                ..old
            };
        }
    }

    /// Applies an instruction that may change the stack pointer or string pointers, and computes no
    /// other sum.
    fn move_pointers(&mut self, inst: &Instruction, u: &RegUse) {
        let (stack, pointers) = (self.value(RSP), [RSI, RDI].map(|r| self.value(r)));
        for r in u.clobber.iter() {
            self.values[usize::from(r.0)] = self.fresh();
        }
        if matches!(
            inst.mnemonic(),
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq
        ) && gpr64(inst.op0_register()) != Some(RSP)
        {
            let delta = stack
                .delta
                .wrapping_add(i64::from(inst.stack_pointer_increment()));
            self.values[usize::from(RSP.0)] = AffineValue { delta, ..stack };
        } else if inst.is_string_instruction() && !is_repeated_string(inst) && !self.backward {
            self.step_pointers(inst, pointers);
        }
    }

    /// Applies a string instruction without `rep`. The pointers' values are those before it.
    fn step_pointers(&mut self, inst: &Instruction, [rsi, rdi]: [AffineValue; 2]) {
        for op in 0..inst.op_count() {
            let (r, before) = match inst.op_kind(op) {
                OpKind::MemorySegRSI => (RSI, rsi),
                OpKind::MemoryESRDI => (RDI, rdi),
                _ => continue,
            };
            let size = inst.memory_size().size() as i64;
            self.values[usize::from(r.0)] = AffineValue {
                delta: before.delta.wrapping_add(size),
                ..before
            };
        }
    }
}

/// Registers that stack and string instructions move.
const POINTERS: RegSet = RegSet(1 << RSP.0 | 1 << RSI.0 | 1 << RDI.0);

/// Form in which an instruction computes the sum of a register and a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// None that is tracked, or that of pointers.
    Other,
    /// A copy, unless an operand is in memory.
    Copies,
    /// An address, unless it has an index.
    Computes,
    /// The first operand and a constant.
    Adds,
    /// The first operand minus the constant.
    Subtracts,
    /// The first operand and one.
    Increments,
    /// The first operand minus one.
    Decrements,
}

impl Kind {
    #[inline]
    fn of(inst: &Instruction) -> Kind {
        KINDS[inst.code() as usize % KINDS.len()]
    }
}

/// The kind by instruction code. A table look-up is faster than tests of mnemonic and operands.
static KINDS: [Kind; 1 << 13] = {
    let mut kinds = [Kind::Other; 1 << 13];
    let all = [
        (Code::Mov_r64_rm64, Kind::Copies),
        (Code::Mov_rm64_r64, Kind::Copies),
        (Code::Lea_r64_m, Kind::Computes),
        (Code::Add_rm64_imm8, Kind::Adds),
        (Code::Add_rm64_imm32, Kind::Adds),
        (Code::Add_RAX_imm32, Kind::Adds),
        (Code::Sub_rm64_imm8, Kind::Subtracts),
        (Code::Sub_rm64_imm32, Kind::Subtracts),
        (Code::Sub_RAX_imm32, Kind::Subtracts),
        (Code::Inc_rm64, Kind::Increments),
        (Code::Dec_rm64, Kind::Decrements),
    ];
    let mut n = 0;
    while n < all.len() {
        kinds[all[n].0 as usize] = all[n].1;
        n += 1;
    }
    kinds
};

/// The constant that is the second operand.
fn immediate(inst: &Instruction) -> i64 {
    inst.try_immediate(1).map_or(0, |c| c as i64)
}

/// True if the instruction gives a register the symbol of another one.
fn relates(inst: &Instruction) -> bool {
    let source = match Kind::of(inst) {
        Kind::Copies => inst.op1_register(),
        Kind::Computes if inst.memory_index() == Register::None => inst.memory_base(),
        _ => return false,
    };
    gpr64(source).is_some() && inst.op0_kind() == OpKind::Register
}

/// True if other code runs before the next instruction.
fn hands_over(flow: FlowControl) -> bool {
    matches!(
        flow,
        FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
            | FlowControl::Exception
    )
}

/// Per register: the first one with the same symbol, and the difference from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences {
    leaders: [u8; 16],
    deltas: [i64; 16],
}

impl Differences {
    /// No two registers have anything in common.
    pub const NONE: Differences = Differences {
        leaders: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        deltas: [0; 16],
    };
    /// Control has not reached the block yet.
    const UNKNOWN: Differences = Differences {
        leaders: [u8::MAX; 16],
        deltas: [0; 16],
    };

    /// True if no two registers have anything in common. This holds at most points.
    fn is_none(&self) -> bool {
        self.leaders == Differences::NONE.leaders
    }

    /// Differences that hold on both paths.
    fn meet(&self, other: &Differences) -> Differences {
        if self == other || self.is_none() {
            return *self;
        }
        if other.is_none() {
            return *other;
        }
        // If both paths changed two registers by the same amount, they agree on the difference.
        let apart = |r: usize| self.deltas[r].wrapping_sub(other.deltas[r]);
        let mut met = Differences::NONE;
        for r in 0..16 {
            let first = usize::from(self.leaders[r]);
            let agrees = |&p: &usize| {
                self.leaders[p] == self.leaders[r]
                    && other.leaders[p] == other.leaders[r]
                    && apart(p) == apart(r)
            };
            if let Some(leader) = (first..r).find(agrees) {
                (met.leaders[r], met.deltas[r]) = (
                    leader as u8,
                    self.deltas[r].wrapping_sub(self.deltas[leader]),
                );
            }
        }
        met
    }

    /// True if no two registers have a common symbol at a block's end. (False if two different
    /// symbols collide.)
    fn alone(now: &Registers) -> bool {
        // There are sixteen symbols, most of them from the block's start.
        let mut seen = 0u64;
        now.values.iter().all(|v| {
            let bit = 1 << (v.symbol & 63);
            let new = seen & bit == 0;
            seen |= bit;
            new
        })
    }

    /// Finds the differences at a block's end. Its registers hold `now`; those at its start had the
    /// numbers 1 to 16 as symbols.
    fn behind(&self, now: &Registers) -> Differences {
        if self.is_none() && Differences::alone(now) {
            return Differences::NONE;
        }
        let mut behind = Differences::NONE;
        // The first register of each symbol: for symbols of the start by their leader there, for
        // new ones in order of appearance.
        let (mut old, mut new, mut count) = ([u8::MAX; 16], [(0, 0); 16], 0);
        let mut values = [0i64; 16];
        for (r, &AffineValue { symbol, delta }) in now.values.iter().enumerate() {
            let at = symbol.wrapping_sub(1) as usize;
            let first = if at < 16 {
                values[r] = self.deltas[at].wrapping_add(delta);
                let first = &mut old[usize::from(self.leaders[at]) % 16];
                *first = (*first).min(r as u8);
                usize::from(*first)
            } else {
                values[r] = delta;
                match new[..count].iter().find(|n| n.0 == symbol) {
                    Some(n) => n.1,
                    None => {
                        new[count] = (symbol, r);
                        count += 1;
                        r
                    }
                }
            };
            if first != r {
                (behind.leaders[r], behind.deltas[r]) =
                    (first as u8, values[r].wrapping_sub(values[first]));
            }
        }
        behind
    }
}

/// Differences by block. Most blocks have none, so they are not stored per block.
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
        let mut all = Vec::with_capacity(4 + blocks / 4);
        all.extend([Differences::UNKNOWN, Differences::NONE]);
        Starts {
            of_block: vec![UNKNOWN; blocks],
            all,
        }
    }

    /// Differences at the start of a block. (There are none if control never reaches it.)
    pub fn at(&self, block: usize) -> &Differences {
        &self.all[self.of_block[block].max(NONE) as usize]
    }

    fn is_none(&self, block: usize) -> bool {
        self.of_block[block] == NONE
    }

    fn set_none(&mut self, block: usize) {
        self.of_block[block] = NONE;
    }

    /// Joins the differences on another path to a block (`None`: no differences) with the known
    /// ones. Returns true if that changes them.
    fn meet(&mut self, block: usize, other: Option<&Differences>) -> bool {
        let place = self.of_block[block];
        match other.filter(|o| !o.is_none()) {
            None => self.set_none(block),
            Some(other) if place == UNKNOWN => {
                self.of_block[block] = self.all.len() as u32;
                self.all.push(*other);
            }
            Some(other) => {
                let known = &mut self.all[place as usize];
                let met = known.meet(other);
                if met == *known {
                    return false;
                }
                if met.is_none() {
                    self.set_none(block);
                } else {
                    *known = met;
                }
            }
        }
        true
    }
}

/// Finds the differences that hold at the start of each block.
pub fn at_starts(graph: &Cfg, uses: &[RegUse], backward: bool) -> Starts {
    let n = graph.blocks.len();
    let mut starts = Starts::new(n);
    // A single block has no predecessors.
    if n < 2 {
        return starts;
    }
    let mut waiting: Vec<u32> = Vec::with_capacity(n.min(64));
    let mut waits = vec![false; n];
    for (b, block) in graph.blocks.iter().enumerate().rev() {
        if b == 0 || block.external_entry || block.preds.is_empty() {
            starts.set_none(b);
            waiting.push(b as u32);
            waits[b] = true;
        }
    }
    while let Some(b) = waiting.pop() {
        let b = b as usize;
        waits[b] = false;
        // If no successor has known differences, none can lose any.
        let block = &graph.blocks[b];
        if block.succs.iter().all(|t| starts.is_none(t.0 as usize)) {
            continue;
        }
        // Few blocks are processed again, and that costs less than the memory for the results of
        // all blocks.
        let insns = block.insns.start as usize..block.insns.end as usize;
        let end = may_relate(&graph.insns[insns.clone()], starts.is_none(b)).then(|| {
            let mut now = Registers::new(backward);
            now.advance(&graph.insns[insns.clone()], &uses[insns]);
            starts.at(b).behind(&now)
        });
        for t in block.succs.iter().map(|t| t.0 as usize) {
            if starts.is_none(t) {
                continue;
            }
            if starts.meet(t, end.as_ref()) && !std::mem::replace(&mut waits[t], true) {
                waiting.push(t as u32);
            }
        }
    }
    starts
}

/// True if registers may have something in common at a block's end. `alone`: they have nothing in
/// common at its start.
fn may_relate(insns: &[Insn], alone: bool) -> bool {
    for insn in insns.iter().rev() {
        if hands_over(insn.flow) {
            return false;
        }
        if relates(&insn.inst) {
            return true;
        }
    }
    !alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::cfg::Entries;
    use crate::x86::decode::decode_function;
    use crate::x86::regs::{RAX, RBX, RCX, RDX, reg_use};
    use iced_x86::InstructionInfoFactory;

    const ADD_RDI: &[u8] = &[0x48, 0x83, 0xc7, 0x10]; // add rdi, 16
    const ADD_RSI: &[u8] = &[0x48, 0x83, 0xc6, 0x10]; // add rsi, 16
    const LEA: &[u8] = &[0x48, 0x8d, 0x77, 0x08]; // lea rsi, [rdi+8]
    const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    const RET: &[u8] = &[0xc3];

    /// Finds the distance from one register to another at the start of each block.
    fn distances(parts: &[&[u8]], from: Gpr, to: Gpr) -> Vec<Option<i64>> {
        let bytes = parts.concat();
        let body = decode_function(&bytes, 0x100, &[]).unwrap();
        let graph = Cfg::build(
            body,
            &(0x100..0x100 + bytes.len() as u64),
            &Entries::default(),
            &[],
        );
        let mut factory = InstructionInfoFactory::new();
        let uses: Vec<RegUse> = graph
            .insns
            .iter()
            .map(|i| reg_use(factory.info(&i.inst)))
            .collect();
        let distance = |d: Differences| {
            let mut r = Registers::new(false);
            r.start(&d);
            (r.value(from).symbol == r.value(to).symbol)
                .then(|| r.value(to).delta - r.value(from).delta)
        };
        let starts = at_starts(&graph, &uses, false);
        (0..graph.blocks.len())
            .map(|b| distance(*starts.at(b)))
            .collect()
    }

    /// jne back over the parts.
    fn back(parts: &[&[u8]]) -> Vec<u8> {
        vec![
            0x75,
            (-(parts.iter().map(|p| p.len() as i8).sum::<i8>()) - 2) as u8,
        ]
    }

    #[test]
    fn pointers_that_a_loop_moves_in_step_keep_their_distance() {
        let both = [ADD_RDI, ADD_RSI];
        assert_eq!(
            distances(&[LEA, &both.concat(), &back(&both), RET], RDI, RSI),
            [None, Some(8), Some(8)]
        );
        let one = [ADD_RDI];
        assert_eq!(
            distances(&[LEA, ADD_RDI, &back(&one), RET], RDI, RSI),
            [None; 3],
            "the loop moves one of them"
        );
    }

    #[test]
    fn ways_that_disagree_leave_nothing() {
        // je over: add rdi, 16.
        let unless = [&[0x74, ADD_RDI.len() as u8], ADD_RDI].concat();
        assert_eq!(
            distances(&[LEA, &unless, RET], RDI, RSI),
            [None, Some(8), None]
        );
        let both = [&[0x74, 8], ADD_RDI, ADD_RSI].concat();
        assert_eq!(
            distances(&[LEA, &both, RET], RDI, RSI),
            [None, Some(8), Some(8)],
            "both moved by the same"
        );
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
        assert_eq!(
            distances(&[LEA, CALL, &[0x74, 0x00], RET], RDI, RSI),
            [None, None]
        );
        // mov rcx, rbx: a callee is not assumed to preserve rbx.
        assert_eq!(
            distances(&[&[0x48, 0x89, 0xd9], CALL, &[0x74, 0x00], RET], RCX, RBX),
            [None, None]
        );
        assert_eq!(
            distances(&[&[0x48, 0x89, 0xd9], &[0x74, 0x00], RET], RCX, RBX),
            [None, Some(0)]
        );
    }
}
