//! The probe: the structures behind the `%gs` base, and the parts of them that probes may use.

/// Offset of the cursor from the `%gs` base, bytes.
pub const GS_CURSOR: u32 = 0;
/// Offset of the first spill slot from the `%gs` base, bytes. Slots are 8 bytes apart.
pub const GS_SPILL: u32 = 8;
/// Number of spill slots.
pub const SPILL_SLOTS: usize = 8;
/// Spill slot of rax while translated code computes a target.
pub const PLACE_RAX: u8 = 4;
/// Spill slot that passes the original target address to [`GS_CALL`] and [`GS_JUMP`].
pub const PLACE_TARGET: u8 = 5;
/// Offset of the address of the runtime's code that replaces `ret` in translated clones: the
/// original return address is on the stack.
pub const GS_RETURN: u32 = 72;
/// Offset of the address of the runtime's code that continues at the original address in
/// [`PLACE_TARGET`]; the original return address was just pushed.
pub const GS_CALL: u32 = 80;
/// Like [`GS_CALL`], for jumps.
pub const GS_JUMP: u32 = 88;
/// Offset of the address of the runtime's code that is called when control returns into a
/// translated clone from code without one. The clone of the original return point follows the call.
pub const GS_BACK: u32 = 96;
/// Offset of the address of the hook before system calls: `lea rcx, [call]; jmp
/// gs:[GS_HOOK_BEFORE]`. In executables without a loader the runtime learns of threads, children,
/// signal handlers and masks by hooks around system calls.
pub const GS_HOOK_BEFORE: u32 = 104;
/// Offset of the address of the hook after system calls: `lea rcx, [next]; jmp gs:[GS_HOOK_AFTER]`.
pub const GS_HOOK_AFTER: u32 = 112;
/// System calls that need hooks: rt_sigaction, rt_sigprocmask, clone, fork, vfork, execve,
/// sigaltstack, prctl, seccomp, execveat, clone3.
pub const HOOKED_CALLS: [u32; 11] = [13, 14, 56, 57, 58, 59, 131, 157, 317, 322, 435];

/// System calls that open files, which get hooks in clones: open, openat, openat2.
pub const OPENING_CALLS: [u32; 3] = [2, 257, 437];

/// `call [rsp]; jmp [rsp + 8]`: calls a handler of the program, and returns to the runtime.
/// Unwinders do not know the runtime's own code, so its frame belongs to the file, whose unwind
/// tables describe the interrupted code as the caller, with its registers at [`handler_saved`].
pub const HANDLER_CALL: [u8; 7] = [0xff, 0x14, 0x24, 0xff, 0x64, 0x24, 0x08];
/// Bytes between the stack pointer at [`HANDLER_CALL`] and the kernel's frame of the signal; 8 more
/// than a multiple of 16.
pub const HANDLER_FRAME: usize = 8;

/// Offset from the stack pointer at [`HANDLER_CALL`] to the saved copy of a register: r8 to r15,
/// rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (`sigcontext`, behind the return address and 40
/// bytes of `ucontext`).
pub const fn handler_saved(n: usize) -> usize {
    HANDLER_FRAME + 8 + 40 + 8 * n
}

/// `hlt`, which raises SIGSEGV in user space: a signal that is never blocked in a process with the
/// runtime.
pub const TRAP: u8 = 0xf4;
