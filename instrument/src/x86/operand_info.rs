//! Accesses of an instruction to its operands.

use iced_x86::OpAccess;

/// An instruction's use of its operands.
pub trait Operands {
    /// Access to the operand with this number.
    fn op_access(&self, op: u32) -> OpAccess;
}
