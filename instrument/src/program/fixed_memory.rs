//! Memory of the file that is mapped at a fixed address, where accesses cannot fail.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// The file's own memory, if it stays as the loader has made it while the program runs: accesses of
/// fixed addresses there do not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Ranges that can be read.
    pub readable: Vec<Range<u64>>,
    /// Ranges that can also be written.
    pub writable: Vec<Range<u64>>,
}

/// Facts about the program's fault handlers, after a search of the whole program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPolicy {
    /// True if handlers look at faults, and are shown original addresses
    /// ([`crate::link::fault_shim`]).
    pub shows_faults: bool,
    /// With `shows_faults`: memory in which an access does not fail.
    pub own: Own,
}

impl Own {
    /// True if the file is known to leave its memory, code included, as the loader made it.
    pub fn stays(&self) -> bool {
        !self.readable.is_empty()
    }

    /// True if an instruction's memory operand is certain to be mapped.
    pub(crate) fn has(&self, inst: &Instruction) -> bool {
        let at = match (inst.memory_base(), inst.memory_index()) {
            _ if inst.segment_prefix() != Register::None => return false,
            (Register::RIP, _) => inst.ip_rel_memory_address(),
            (Register::None, Register::None) => inst.memory_displacement64(),
            _ => return false,
        };
        let only_read = inst.op0_kind() != OpKind::Memory
            || matches!(
                inst.mnemonic(),
                Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Call | Mnemonic::Jmp
            );
        let ranges = if only_read {
            &self.readable
        } else {
            &self.writable
        };
        let end = at.saturating_add(inst.memory_size().size().max(1) as u64);
        ranges.iter().any(|r| r.start <= at && end <= r.end)
    }
}
