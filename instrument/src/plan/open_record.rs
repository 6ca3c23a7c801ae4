//! The last record of a region, whose slot another one may share.

use crate::plan::affine::AffineValue;
use crate::x86::insn::InsnId;
use crate::x86::regs::{Gpr, RegSet};

/// Content of a record of the region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordContent {
    /// symbol + delta.
    Register(AffineValue),
    /// base + scale·index + delta, of flat 64-bit addressing, with the registers and the values
    /// that they held.
    Sum {
        base: u32,
        index: u32,
        scale: u8,
        delta: i64,
        registers: [(Gpr, AffineValue); 2],
    },
    /// Anything else.
    Other,
}

/// The region's last record, if another one may share its slot.
pub(crate) struct Open {
    pub(super) at: InsnId,
    /// Register values at the record.
    pub(super) registers: [AffineValue; 16],
    /// Registers that probes may use at the record, so that their values are lost.
    pub(super) dead: RegSet,
    /// True if a register is free for an address at the record.
    pub(super) address_is_cheap: bool,
}
