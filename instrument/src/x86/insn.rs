//! A decoded instruction at its original place.

use crate::x86::regs::RegSet;
use iced_x86::{FlowControl, Instruction};

/// Index into `Function::insns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsnId(pub u32);

/// A decoded instruction at its original place.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Link-time address.
    pub ip: u64,
    /// Bytes up to where the next instruction may begin. The encoding is longer than that (and
    /// another instruction begins inside of it) where a branch goes behind the first prefixes: see
    /// [`Insn::is_overlapped`].
    pub len: u8,
    /// The decoded form's flow control, which is asked for at every turn.
    pub flow: FlowControl,
    /// It computes, or reads and writes memory, and goes on to the next: no branch, call, string
    /// instruction, none that changes a segment's base or is overlapped. Rare ones are not known to
    /// be so. See [`is_simple`](crate::x86::effects::is_simple).
    pub simple: bool,
    /// Decoded form (its own IP is `ip`).
    pub inst: Instruction,
    /// Registers that a probe standing right before this instruction may overwrite: their values
    /// are dead there, on every path, exceptions and IPA register allocation included. Never rsp.
    pub dead: RegSet,
    /// Registers of `dead` that an instruction with accesses itself overwrites, and that a probe
    /// may overwrite before it even if it faults; see [`crate::analyze::unread_values`].
    pub own: RegSet,
}

impl Insn {
    /// Address behind [`Insn::len`].
    pub fn end(&self) -> u64 {
        self.ip + u64::from(self.len)
    }

    /// Address where control goes on if the instruction does not branch.
    pub fn next(&self) -> u64 {
        self.inst.next_ip()
    }

    /// The target of a direct near branch or call.
    #[inline]
    pub fn direct_target(&self) -> Option<u64> {
        if self.flow == FlowControl::Next {
            None
        } else {
            crate::x86::flow::direct_target(&self.inst)
        }
    }

    /// True if control cannot go on to the next instruction.
    #[inline]
    pub fn ends_flow(&self) -> bool {
        match self.flow {
            FlowControl::Next => self.inst.code() == iced_x86::Code::Hlt,
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception => true,
            _ => false,
        }
    }

    /// True if the next instruction is this one without its first prefixes (`je 1f; lock; 1:
    /// cmpxchg …`). Both end at the same address; control never runs from one into the other.
    pub fn is_overlapped(&self) -> bool {
        usize::from(self.len) < self.inst.len()
    }
}
