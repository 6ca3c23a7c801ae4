//! Bits of the flags register that the program may have set and that code of the runtime does not
//! run with: a thread may check the alignment of its accesses, step by the trap flag, or copy
//! strings downwards.
//!
//! The kernel clears the last two when it enters a handler; the first stays as it is.

use core::arch::asm;

/// Trap flag: a SIGTRAP behind each instruction.
pub const TRAP: u64 = 1 << 8;
/// Direction flag: string instructions go downwards.
const DIRECTION: u64 = 1 << 10;
/// Alignment check: accesses that are not aligned fail by SIGBUS.
pub const ALIGNMENT: u64 = 1 << 18;
/// Flags that are clear while code of the runtime runs.
pub const FOREIGN: u64 = TRAP | DIRECTION | ALIGNMENT;
/// The bits that stay, as the operand of an `and`.
pub const KEPT: i64 = !(FOREIGN as i64);

/// The instructions that clear [`FOREIGN`], where the stack below may be written. `KEPT` is the name of
/// the operand [`KEPT`].
macro_rules! clear_foreign {
    () => {
        "pushfq\nand qword ptr [rsp], {kept}\npopfq"
    };
}
pub(crate) use clear_foreign;

/// While it lives, the thread runs without [`FOREIGN`]. A trap or an alignment fault while all
/// signals are blocked would end the process.
pub struct PlainFlags {
    before: u64,
}

impl PlainFlags {
    /// Clears those that are set.
    #[inline]
    pub fn hold() -> PlainFlags {
        let before: u64;
        // SAFETY: reads the flags, by way of the stack.
        unsafe { asm!("pushfq", "pop {}", out(reg) before, options(preserves_flags)) };
        if before & FOREIGN != 0 {
            // SAFETY: clears what compiled code does not depend on.
            unsafe { set(before & !FOREIGN) };
        }
        PlainFlags { before }
    }
}

impl Drop for PlainFlags {
    #[inline]
    fn drop(&mut self) {
        if self.before & FOREIGN != 0 {
            // SAFETY: the bits are as the program has set them. (The direction flag is clear in
            // what the C library's functions return to.)
            unsafe { set(self.before) };
        }
    }
}

/// # Safety
/// Compiled code must run on with these flags.
unsafe fn set(flags: u64) {
    // SAFETY: the caller's contract; the stack is used as by a call.
    unsafe { asm!("push {}", "popfq", in(reg) flags) };
}
