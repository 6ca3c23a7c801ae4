//! Where the second of two records that share a slot is written: where the first stands, if its
//! registers hold the same there but for a constant. What a register gets in between, from a load
//! above all, is never known earlier.

use crate::plan::affine::Known;
use crate::plan::types::Payload;
use crate::plan::{Held, Open};
use crate::x86::insn::InsnId;
use crate::x86::regs::Gpr;

impl Open {
    /// What a register holds at the open record's place, if that is the same symbol, and if it is
    /// still there: a probe may have written over what nobody reads.
    fn there(&self, r: Gpr, now: Known) -> Option<Known> {
        Some(self.registers[usize::from(r.0)])
            .filter(|then| then.symbol == now.symbol && !self.dead.contains(r))
    }
}

/// What a record that is asked for at an instruction holds if it stands at the open record's place.
pub(crate) fn at(open: &Open, at: InsnId, payload: Payload, held: Held) -> Option<Held> {
    if open.at == at {
        return Some(held);
    }
    match (payload, held) {
        (Payload::Reg(r), Held::Register(now)) => open.there(r, now).map(Held::Register),
        (
            Payload::Address,
            Held::Sum {
                base,
                index,
                scale,
                delta,
                registers,
            },
        ) if open.address_is_cheap => {
            let moved = |(r, now): (Gpr, Known)| {
                open.there(r, now)
                    .map(|then| now.delta.wrapping_sub(then.delta))
            };
            let by = moved(registers[0])?
                .wrapping_add(moved(registers[1])?.wrapping_mul(i64::from(scale)));
            Some(Held::Sum {
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
