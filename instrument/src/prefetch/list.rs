//! Prefetches of the next node of a list.

use crate::common::prefetch::{Kind, Placed};
use crate::ir::loops::LoopId;
use crate::plan::cursor::cheapest;
use crate::prefetch::assemble::{Assembly, operand, wide};
use crate::prefetch::params::MAX_BYTES_AHEAD;
use crate::prefetch::search::{PrefetchSearch, RegisterChange};
use crate::prefetch::{Code, Line, Load, Reason};
use crate::x86::operands::{AccessSegment, place_of};
use crate::x86::regs::{Gpr, RSP, RegSet, gpr64};
use iced_x86::{Instruction, MemoryOperand, Mnemonic, OpKind, Register};

/// Bytes of a pointer.
const POINTER: i64 = 8;

/// Step of a loop to its next node.
struct Chase {
    /// The load of the pointer.
    at: usize,
    /// The register that it loads.
    to: Gpr,
    /// Offset of the pointer in the node.
    offset: i64,
}

impl PrefetchSearch<'_, '_, '_> {
    /// Prefetches the next node's field. This happens as soon as the loop has the pointer. If the
    /// loop loads the pointer only for its next iteration, an early load reads it from the page
    /// that is being read. `None` if the loop follows no list.
    pub fn list(&mut self, load: &Load) -> Result<Option<Code>, Reason> {
        let place = load.place;
        let (Some(node), None, false) = (place.base, place.index, place.addr32) else {
            return Ok(None);
        };
        let Some(chase) = self.chase(self.loops().of_block[load.block], node) else {
            return Ok(None);
        };
        let Ok(field) = i32::try_from(place.disp) else {
            return Ok(None);
        };
        let field = |pointer: Gpr| {
            MemoryOperand::new(
                wide(pointer),
                Register::None,
                1,
                field.into(),
                8,
                false,
                Register::None,
            )
        };
        if chase.to != node {
            let next = chase.at + 1;
            let block = self.view.graph.block_of(chase.at);
            if next < self.view.graph.blocks[block].insns.end as usize {
                let mut code = Assembly::default();
                code.prefetch(field(chase.to))?;
                return code_for(load, next, code).map(Some);
            }
        }
        if chase.at == load.insn {
            return Err(
                "it loads the pointer that the loop follows, so that its address is not known earlier"
                    .into(),
            );
        }
        self.early_pointer(load, &chase, &field).map(Some)
    }

    fn early_pointer(
        &self,
        load: &Load,
        chase: &Chase,
        field: &dyn Fn(Gpr) -> MemoryOperand,
    ) -> Result<Code, Reason> {
        let place = load.place;
        let from = chase.offset.wrapping_sub(place.disp);
        if from.unsigned_abs() > MAX_BYTES_AHEAD as u64 {
            return Err("the node's pointer lies too far from the field".into());
        }
        let inst = &self.view.graph.insns[load.insn].inst;
        let mut why = Reason::from("flags are in use where the next node could be loaded");
        for at in self.places_near(load.insn) {
            if !self.may_change_flags(at) {
                continue;
            }
            let node = place.base.unwrap_or(RSP);
            let free = RegSet(self.free(at).0).without(node).without(RSP);
            let Some(next) = cheapest(free) else {
                why = "no register is free where the next node could be loaded".into();
                continue;
            };
            let mut code = Assembly::default();
            code.stay_on_page(next, operand(inst), from, POINTER)?;
            code.load(
                next,
                MemoryOperand::new(
                    wide(node),
                    Register::None,
                    1,
                    chase.offset,
                    8,
                    false,
                    Register::None,
                ),
            )?;
            code.prefetch(field(next))?;
            return code_for(load, at, code);
        }
        Err(why)
    }

    /// Step of a loop to its next node.
    fn chase(&mut self, l: LoopId, node: Gpr) -> Option<Chase> {
        let RegisterChange::Once(at) = self.change(l, node) else {
            return None;
        };
        let inst = &self.view.graph.insns[at].inst;
        if let Some(offset) = pointer_load(inst, node) {
            return Some(Chase {
                at,
                to: node,
                offset,
            });
        }
        let is_copy = inst.mnemonic() == Mnemonic::Mov && inst.op1_kind() == OpKind::Register;
        let to = gpr64(inst.op1_register()).filter(|_| is_copy)?;
        let RegisterChange::Once(at) = self.change(l, to) else {
            return None;
        };
        let offset = pointer_load(&self.view.graph.insns[at].inst, node)?;
        Some(Chase { at, to, offset })
    }
}

/// The offset of `mov r, [node + offset]`.
fn pointer_load(inst: &Instruction, node: Gpr) -> Option<i64> {
    let is_load = inst.mnemonic() == Mnemonic::Mov
        && inst.op0_kind() == OpKind::Register
        && inst.op1_kind() == OpKind::Memory
        && inst.op0_register().is_gpr64();
    let place = place_of(inst).filter(|_| is_load)?;
    let plain = place.base == Some(node)
        && place.index.is_none()
        && place.segment == AccessSegment::Flat
        && !place.addr32;
    plain.then_some(place.disp)
}

fn code_for(load: &Load, at: usize, code: Assembly) -> Result<Code, Reason> {
    Ok(Code {
        at,
        pieces: code.finish()?,
        line: Line::of(load, vec![at as u64, 0]),
        disp: load.place.disp,
        placed: Placed {
            kind: Kind::List,
            distance: 1,
        },
    })
}
