//! Executables without a loader: how the runtime learns what they ask the kernel for.
//!
//! No loader means no `LD_PRELOAD` and no functions to stand in front of. Instead, the entry point
//! of a rewritten static executable looks for the runtime's environment variable, maps the
//! runtime's image out of the shared memory, and jumps to `mgz_enter` (`enter/static_exe.rs`). And
//! around each system call in the clone that may be one of those that the runtime must know of, the
//! rewriter puts two jumps through the control page: to [`before`], which may do the call itself,
//! and to [`after`], where new threads and children turn up (`mgz_abi::probe::GS_HOOK_BEFORE`). The
//! call itself stays in the clone, so that it is unwound, restarted and cancelled as in the
//! original.

use crate::record::{signals, thread_ring, trigger};
use crate::sys::syscall::nr;
use crate::sys::{process, syscall};
use crate::wrap::{exec, threads};
use core::arch::naked_asm;
use mgz_abi::shared_memory::PAGE;

/// Length of the system call instruction and of what leads to [`after`] (`mgz-instrument`,
/// `emit/syscall_hooks.rs`).
pub(crate) const REST: u64 = 17;

/// Registers as the hooks save them, lowest address first.
#[repr(C)]
pub struct Saved {
    vectors: [[u64; 2]; 16],
    pub(crate) r15: u64,
    pub(crate) r14: u64,
    pub(crate) r13: u64,
    pub(crate) r12: u64,
    pub(crate) r11: u64,
    pub(crate) r10: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) rbp: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rdx: u64,
    pub(crate) rcx: u64,
    pub(crate) rbx: u64,
    pub(crate) rax: u64,
    pub(crate) flags: u64,
}

macro_rules! hook {
    ($(#[$doc:meta])* $name:ident, $work:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Only the code around a system call may jump here: registers are as that leaves them.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // The code around may use the red zone and every register but rcx and r11, which the system call overwrites anyway.
            naked_asm!(
                "lea rsp, [rsp - 128]",
                "pushfq",
                "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp", "push r8",
                "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
                "lea rsp, [rsp - 256]",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "movups [rsp + 128], xmm8", "movups [rsp + 144], xmm9", "movups [rsp + 160], xmm10", "movups [rsp + 176], xmm11",
                "movups [rsp + 192], xmm12", "movups [rsp + 208], xmm13", "movups [rsp + 224], xmm14", "movups [rsp + 240], xmm15",
                "cld",
                "mov rdi, rsp",
                "mov rbx, rsp",
                "and rsp, -16",
                "call {work}",
                "mov rsp, rbx",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "movups xmm8, [rsp + 128]", "movups xmm9, [rsp + 144]", "movups xmm10, [rsp + 160]", "movups xmm11, [rsp + 176]",
                "movups xmm12, [rsp + 192]", "movups xmm13, [rsp + 208]", "movups xmm14, [rsp + 224]", "movups xmm15, [rsp + 240]",
                "lea rsp, [rsp + 256]",
                "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9",
                "pop r8", "pop rbp", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
                "popfq",
                "lea rsp, [rsp + 128]",
                "jmp rcx",
                work = sym $work)
        }
    };
}
pub(crate) use hook;

hook!(
    /// Entered in front of a system call, rcx its address: goes there, or behind it if the call is done.
    before, prepare
);
hook!(
    /// Entered behind a system call, rcx where the program goes on.
    after, settle
);

unsafe extern "C" fn prepare(registers: *mut Saved) {
    const ENOMEM: isize = 12;
    // SAFETY: what `before` has just pushed.
    let r = unsafe { &mut *registers };
    let result = match r.rax as usize {
        // SAFETY: the kernel's contract for these calls is that of the functions.
        nr::RT_SIGACTION => unsafe {
            signals::system_sigaction(r.rdi as i32, r.rsi as *const _, r.rdx as *mut _)
        },
        // SAFETY: as above.
        nr::RT_SIGPROCMASK => unsafe {
            crate::wrap::signal_calls::system_sigprocmask(
                r.rdi as i32,
                r.rsi as *const u64,
                r.rdx as *mut u64,
            )
        },
        // SAFETY: as above.
        nr::SIGALTSTACK => unsafe {
            crate::wrap::signal_calls::alternate_stack(r.rdi as *const _, r.rsi as *mut _)
        },
        nr::CLONE | nr::CLONE3 if !thread_ring::provide() => -ENOMEM,
        // SAFETY: as above.
        nr::EXECVE => unsafe {
            exec::system_execve(
                r.rdi as *const u8,
                r.rsi as *const *const u8,
                r.rdx as *const *const u8,
            )
        },
        // SAFETY: as above.
        nr::EXECVEAT => unsafe {
            exec::system_execveat(
                r.rdi as i32,
                r.rsi as *const u8,
                r.rdx as *const *const u8,
                r.r10 as *const *const u8,
                r.r8 as usize,
            )
        },
        nr::ARCH_PRCTL => return crate::wrap::gs_base::met_in_clone(r.rdi as usize),
        _ => return,
    };
    r.rax = result as u64;
    r.rcx += REST;
}

/// A new thread, a child that shares its parent's memory, or the caller again. (Children with
/// memory of their own have got a ring when they read the hook's address.)
unsafe extern "C" fn settle(_: *mut Saved) {
    let gs = syscall::gs();
    let Some(ring) = thread_ring::ring_at(gs) else {
        return;
    };
    if process::borrows_memory() {
        if gs == ring.address {
            threads::begin_raw(ring);
        }
        return;
    }
    if ring.control().tid.get() != syscall::gettid() {
        threads::begin_raw(ring);
    } else if !trigger::is_of_this_thread(ring) {
        // A child with memory of its own: the trigger is its parent's.
        trigger::renew(ring);
    }
}

const _: () = assert!(PAGE == 4096);
