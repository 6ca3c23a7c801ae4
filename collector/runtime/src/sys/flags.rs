//! Bits of the flags register that the program may have set and with which code of the runtime must
//! not run: a thread may check the alignment of its accesses, step by the trap flag, or copy
//! strings downwards.
//!
//! The kernel clears the last two when it enters a handler, but not the first.
//!
//! A debugger that steps a thread sets the trap flag as well. If such a thread executes `popf`, the
//! kernel takes the flag for the program's own, and the program dies when the debugger lets it
//! continue. So the trap flag is considered only in programs that set it themselves, and `popf` is
//! executed only if one of these bits is set.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Trap flag: a SIGTRAP after each instruction.
pub const TRAP: u64 = 1 << 8;
/// Direction flag: string instructions go downwards.
const DIRECTION: u64 = 1 << 10;
/// Alignment check: unaligned accesses raise SIGBUS.
pub const ALIGNMENT: u64 = 1 << 18;
/// Flags that the program may have set.
const FOREIGN: u64 = TRAP | DIRECTION | ALIGNMENT;
/// The other bits, as the operand of an `and`.
pub const KEPT_FLAGS: i64 = !(FOREIGN as i64);
/// All bits except the trap flag, as the operand of an `and`.
pub const NO_TRAP: i64 = !(TRAP as i64);

/// Flags that are clear while code of the runtime runs.
pub(crate) static CLEARED: AtomicU64 = AtomicU64::new(DIRECTION | ALIGNMENT);

/// Called when the kernel has sent the signal for a step: the program has set the trap flag.
pub fn program_steps_itself() {
    CLEARED.fetch_or(TRAP, Ordering::Relaxed);
}

/// The subset of `flags` with which code of the runtime must not run.
pub fn foreign(flags: u64) -> u64 {
    flags & CLEARED.load(Ordering::Relaxed)
}

/// The instructions that clear [`CLEARED`], usable where the word below the stack pointer may be
/// written. They change the arithmetic flags and the named register. Operands: [`CLEARED`] and
/// [`KEPT_FLAGS`].
macro_rules! clear_foreign {
    ($free:literal) => {
        concat!(
            "pushfq\n",
            concat!("mov ", $free, ", [rip + {cleared}]\n"),
            concat!("test [rsp], ", $free, "\n"),
            "je 70f\n",
            "and qword ptr [rsp], {kept}\n",
            "popfq\n",
            "jmp 71f\n",
            "70:\n",
            "lea rsp, [rsp + 8]\n",
            "71:\n",
        )
    };
}
pub(crate) use clear_foreign;

/// The instructions that push the flags, without a debugger's trap flag. Operands: [`CLEARED`] and
/// [`NO_TRAP`].
macro_rules! push_flags {
    () => {
        concat!(
            "pushfq\n",
            "push rax\n",
            "mov rax, [rip + {cleared}]\n",
            "or rax, {no_trap}\n",
            "and [rsp + 8], rax\n",
            "pop rax\n",
        )
    };
}
pub(crate) use push_flags;

/// The instructions that pop flags, by `popf` only if one of [`CLEARED`] is among them. Operand:
/// [`CLEARED`].
macro_rules! pop_flags {
    () => {
        concat!(
            "push rax\n",
            "mov rax, [rip + {cleared}]\n",
            "test [rsp + 8], rax\n",
            "jne 72f\n",
            // The overflow flag, then the others.
            "mov eax, [rsp + 8]\n",
            "shr eax, 4\n",
            "and al, 0x80\n",
            "add al, al\n",
            "mov ah, [rsp + 8]\n",
            "sahf\n",
            "pop rax\n",
            "lea rsp, [rsp + 8]\n",
            "jmp 73f\n",
            "72:\n",
            "pop rax\n",
            "popfq\n",
            "73:\n",
        )
    };
}
pub(crate) use pop_flags;

/// While this value lives, the thread runs without the flags of [`foreign`]. A trap or an alignment
/// fault while all signals are blocked would end the process.
pub struct PlainFlags {
    before: u64,
}

impl PlainFlags {
    /// Clears these flags, if one is set.
    #[inline]
    pub fn hold() -> PlainFlags {
        let before: u64;
        // SAFETY: reads the flags, through the stack.
        unsafe { asm!("pushfq", "pop {}", out(reg) before, options(preserves_flags)) };
        if foreign(before) != 0 {
            // SAFETY: clears flags that compiled code does not depend on.
            unsafe { set(before & !FOREIGN) };
        }
        PlainFlags { before }
    }
}

impl Drop for PlainFlags {
    #[inline]
    fn drop(&mut self) {
        if foreign(self.before) != 0 {
            // SAFETY: the bits are as the program has set them. (The direction flag is clear in
            // callers of the C library's functions.)
            unsafe { set(self.before) };
        }
    }
}

/// # Safety
/// Compiled code must be able to run with these flags.
unsafe fn set(flags: u64) {
    // SAFETY: the caller's contract; the stack is used as by a call.
    unsafe { asm!("push {}", "popfq", in(reg) flags) };
}
