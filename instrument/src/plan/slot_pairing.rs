//! Place of the second of two records that share a slot. It is written at the first record, if its
//! registers hold the same there except for a constant. A value that a register gets in between,
//! above all from a load, is never known earlier.

use crate::plan::affine::AffineValue;
use crate::plan::open_record::{Open, RecordContent};
use crate::plan::types::Payload;
use crate::x86::insn::InsnId;
use crate::x86::regs::Gpr;

impl Open {
    /// Value of a register at the open record, if the symbol is the same and the register still
    /// holds it. A probe may have overwritten dead registers.
    fn there(&self, r: Gpr, now: AffineValue) -> Option<AffineValue> {
        Some(self.registers[usize::from(r.0)])
            .filter(|then| then.symbol == now.symbol && !self.dead.contains(r))
    }
}

/// Content of a record for an instruction, if the record is placed at the open record.
pub(crate) fn at(
    open: &Open,
    at: InsnId,
    payload: Payload,
    held: RecordContent,
) -> Option<RecordContent> {
    if open.at == at {
        return Some(held);
    }
    match (payload, held) {
        (Payload::Reg(r), RecordContent::Register(now)) => {
            open.there(r, now).map(RecordContent::Register)
        }
        (
            Payload::Address,
            RecordContent::Sum {
                base,
                index,
                scale,
                delta,
                registers,
            },
        ) if open.address_is_cheap => {
            let moved = |(r, now): (Gpr, AffineValue)| {
                open.there(r, now)
                    .map(|then| now.delta.wrapping_sub(then.delta))
            };
            let by = moved(registers[0])?
                .wrapping_add(moved(registers[1])?.wrapping_mul(i64::from(scale)));
            Some(RecordContent::Sum {
                base,
                index,
                scale,
                delta: delta.wrapping_sub(by),
                registers,
            })
        }
        _ => None,
    }
}
