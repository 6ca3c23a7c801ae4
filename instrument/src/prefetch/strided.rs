//! Prefetches at the load's own address, some iterations ahead.

use crate::common::prefetch::{Kind, Placed};
use crate::prefetch::assemble::{Assembly, address_registers, moved, operand, renamed, wide};
use crate::prefetch::search::{PrefetchSearch, RegisterChange};
use crate::prefetch::{Code, Line, Load, Reason};
use crate::x86::regs::{Gpr, RegSet, gpr};
use iced_x86::{MemoryOperand, Register};

/// Maximum number of steps that one address adds to a register.
pub const MAX_FACTOR: u32 = 8;

impl PrefetchSearch<'_, '_, '_> {
    /// `prefetcht0 [address + stride·distance]`, which needs no register and no flags.
    pub fn strided(&mut self, load: &Load, distance: u32) -> Result<Code, Reason> {
        let Some(stride) = load.stride else {
            return self.by_register(load, distance);
        };
        let inst = &self.view.graph.insns[load.insn].inst;
        let too_far =
            || Reason::from("the distance in bytes does not fit a displacement of 32 bits");
        let bytes = stride.checked_mul(i64::from(distance));
        let mut code = Assembly::default();
        code.prefetch(moved(operand(inst), bytes.ok_or_else(too_far)?)?)?;
        self.code_of(load, code, distance)
    }

    /// The code that prefetches for a load.
    fn code_of(&self, load: &Load, code: Assembly, distance: u32) -> Result<Code, Reason> {
        Ok(Code {
            at: load.insn,
            pieces: code.finish()?,
            line: Line::of(load, vec![self.last_change(load)]),
            disp: load.place.disp,
            placed: Placed {
                kind: Kind::Strided,
                distance,
            },
        })
    }

    /// Address of the last instruction in the block that changes a register of the load's address.
    /// If there is none, that of the block.
    fn last_change(&self, load: &Load) -> u64 {
        let graph = self.view.graph;
        let start = graph.blocks[load.block].insns.start as usize;
        let registers = address_registers(&graph.insns[load.insn].inst).0;
        let mut before = (start..load.insn).rev();
        let last = before.find(|&i| self.changed(i).0 & registers != 0);
        last.map_or(graph.insns[start].ip.wrapping_sub(1), |i| graph.insns[i].ip)
    }

    /// As `strided`, for a register that advances by the value of another register, as in a
    /// walk along a column. Without a free register, the distance is at most eight iterations.
    fn by_register(&mut self, load: &Load, distance: u32) -> Result<Code, Reason> {
        let inst = &self.view.graph.insns[load.insn].inst;
        let (place, l) = (operand(inst), self.loops().of_block[load.block]);
        let (base, index) = (gpr(place.base), gpr(place.index));
        let mut steps = Vec::new();
        for r in [base, index].into_iter().flatten() {
            match self.change(l, r) {
                RegisterChange::Never => {}
                RegisterChange::Register(by) => steps.push((r, by)),
                _ => return Err(unknown_step()),
            }
        }
        let [(r, by)] = steps[..] else {
            return Err(unknown_step());
        };
        if place.base.is_gpr32() || place.index.is_gpr32() {
            return Err("its address is computed with 32 bits".into());
        }
        let factor = largest_factor(distance);
        let mut code = Assembly::default();
        let free = RegSet(self.free(load.insn).0 & !address_registers(inst).with(by).0);
        let placed = match crate::plan::cursor::cheapest(free) {
            Some(scratch) => {
                let twice = distance >= 2 * MAX_FACTOR;
                code.lea(scratch, sum(r, by, factor))?;
                if twice {
                    code.lea(scratch, sum(scratch, by, factor))?;
                }
                code.prefetch(renamed(place, r, scratch))?;
                factor * if twice { 2 } else { 1 }
            }
            None if base == Some(r) && index.is_none() => {
                let mut ahead = sum(r, by, factor);
                ahead.displacement = place.displacement;
                code.prefetch(moved(ahead, 0)?)?;
                factor
            }
            None => {
                return Err(
                    "its step is in a register, and no other register is free for the sum".into(),
                );
            }
        };
        self.code_of(load, code, placed)
    }
}

fn unknown_step() -> Reason {
    "it advances by a step that is neither a constant nor in one register".into()
}

/// The largest factor of an address that is at most `distance`.
fn largest_factor(distance: u32) -> u32 {
    [8, 4, 2].into_iter().find(|f| *f <= distance).unwrap_or(1)
}

/// The largest distance that is at most `distance` and takes at most two sums.
pub fn by_factors(distance: u32) -> u32 {
    match distance >= 2 * MAX_FACTOR {
        true => 2 * MAX_FACTOR,
        false => largest_factor(distance),
    }
}

/// `[r + by·factor]`.
pub fn sum(r: Gpr, by: Gpr, factor: u32) -> MemoryOperand {
    MemoryOperand::new(wide(r), wide(by), factor, 0, 0, false, Register::None)
}
