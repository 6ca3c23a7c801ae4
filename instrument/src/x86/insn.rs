//! A decoded instruction at its original address.

use crate::x86::regs::RegSet;
use iced_x86::{FlowControl, Instruction};

/// Index into `Function::insns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsnId(pub u32);

/// A decoded instruction at its original address.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Link-time address.
    pub ip: u64,
    /// Bytes up to the possible start of the next instruction. The encoding is longer (and another
    /// instruction begins inside of it) if a branch goes to the address after the first prefixes:
    /// see [`Insn::is_overlapped`].
    pub len: u8,
    /// The decoded form's flow control, stored since it is needed often.
    pub flow: FlowControl,
    /// True if it is known only to compute, or to read and write memory, and to continue at the
    /// next instruction. It is no branch, call or string instruction, does not change a segment's
    /// base, and is not overlapped. False for rare instructions. See
    /// [`is_simple`](crate::x86::effects::is_simple).
    pub simple: bool,
    /// Decoded form (its own IP is `ip`).
    pub inst: Instruction,
    /// Registers that a probe directly before this instruction may overwrite: their values are dead
    /// there, on every path, with exceptions and IPA register allocation taken into account. Never
    /// rsp.
    pub dead: RegSet,
    /// Registers of `dead` that an instruction with accesses overwrites itself, and that a probe
    /// may overwrite before it even if it faults; see [`crate::analyze::unread_values`].
    pub own: RegSet,
}

impl Insn {
    /// Address after [`Insn::len`] bytes.
    pub fn end(&self) -> u64 {
        self.ip + u64::from(self.len)
    }

    /// Address at which control continues if the instruction does not branch.
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

    /// True if control cannot continue at the next instruction.
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
    /// cmpxchg …`). Both end at the same address, so control never passes from one to the other.
    pub fn is_overlapped(&self) -> bool {
        usize::from(self.len) < self.inst.len()
    }
}
