//! System calls of executables without a loader, and how the runtime intercepts them.
//!
//! Without a loader there is no `LD_PRELOAD`, and there are no functions to wrap. Instead, the
//! entry point of a rewritten static executable looks for the runtime's environment variable, maps
//! the runtime's image from the shared memory, and jumps to `mgz_enter` (`enter/static_exe.rs`).
//! Around each system call in the clone that may concern the runtime, the rewriter puts two jumps
//! through the control page: to [`before`], which may make the call itself, and to [`after`], which
//! new threads and children enter (`mgz_abi::probe::GS_HOOK_BEFORE`). The call itself stays in the
//! clone, so that it is unwound, restarted and cancelled as in the original.

use crate::record::{signals, thread_ring, trigger};
use crate::sys::errno::ENOMEM;
use crate::sys::syscall::nr;
use crate::sys::{process, syscall};
use crate::wrap::{exec, proc_files, seccomp, signal_calls, threads};
use mgz_abi::shared_memory::PAGE_SIZE;

/// Length of the system call instruction and of the code that leads to [`after`] (`mgz-instrument`,
/// `emit/syscall_hooks.rs`).
pub(crate) const REST: u64 = 17;

/// Registers as the hooks save them, lowest address first.
#[repr(C)]
pub struct SavedRegisters {
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

const _: () = assert!(size_of::<SavedRegisters>().is_multiple_of(16));

/// The words that a hook has pushed on the program's stack, lowest address first, while its work is
/// done on the thread's own stack: the program's mask, which is set when the work is done; a word;
/// ten registers; and the flags. Above them are 128 bytes that belong to the program.
#[repr(C)]
pub struct OnProgramStack {
    mask: u64,
    _rest: [u64; 12],
}

impl OnProgramStack {
    /// The program's stack pointer.
    pub(crate) fn stack_pointer(&self) -> usize {
        const RED_ZONE: usize = 128;
        (&raw const *self) as usize + size_of::<OnProgramStack>() + RED_ZONE
    }

    /// Changes the mask as the system call would. Returns the mask before.
    fn change_mask(&mut self, how: usize, set: Option<u64>) -> u64 {
        let before = self.mask;
        self.mask = match (how, set) {
            (_, None) => before,
            (0, Some(set)) => before | set,
            (1, Some(set)) => before & !set,
            (_, Some(set)) => set,
        };
        before
    }
}

/// Code around a system call. If the process is recorded, the work is done on the thread's own
/// stack, with all signals blocked: the program's stack may be an alternate one without enough
/// room. Otherwise it is done on the program's stack, by `$plain`.
macro_rules! hook {
    ($(#[$doc:meta])* $name:ident, $work:ident, $plain_name:ident, $plain:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Only the code around a system call may jump here: the registers must be as that code
        /// leaves them.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // The surrounding code may use the red zone and every register except rcx and r11,
            // which the system call overwrites anyway.
            $crate::record::own_stack::asm_with_own_stack!(
                "lea rsp, [rsp - 128]",
                $crate::sys::flags::push_flags!(),
                "push rax",
                $crate::sys::flags::clear_foreign!("rax"),
                "pop rax",
                "cmp qword ptr [rip + {header}], 0",
                "je 40f",
                "cmp byte ptr [rip + {sealed}], 0",
                "jne 40f",
                "cmp byte ptr [rip + {any_dispatched}], 0",
                "jne 40f",
                "cmp qword ptr [rip + {never_blocked}], 0",
                "je 40f",
                "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push r8", "push r9", "push r10", "push r11",
                "lea rsp, [rsp - 16]",
                "mov rbx, rsp",
                "mov eax, {sigprocmask}",
                "mov edi, 2", // SIG_SETMASK
                "lea rsi, [rip + {all_signals}]",
                "mov rdx, rbx",
                "mov r10d, 8",
                "syscall",
                $crate::record::own_stack::to_own_stack!("[rbx + 8]"),
                "sub rsp, {bytes}",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "movups [rsp + 128], xmm8", "movups [rsp + 144], xmm9", "movups [rsp + 160], xmm10", "movups [rsp + 176], xmm11",
                "movups [rsp + 192], xmm12", "movups [rsp + 208], xmm13", "movups [rsp + 224], xmm14", "movups [rsp + 240], xmm15",
                "mov [rsp + 256], r15", "mov [rsp + 264], r14", "mov [rsp + 272], r13", "mov [rsp + 280], r12",
                "mov rax, [rbx + 16]", "mov [rsp + 288], rax", // r11
                "mov rax, [rbx + 24]", "mov [rsp + 296], rax", // r10
                "mov rax, [rbx + 32]", "mov [rsp + 304], rax", // r9
                "mov rax, [rbx + 40]", "mov [rsp + 312], rax", // r8
                "mov [rsp + 320], rbp",
                "mov rax, [rbx + 48]", "mov [rsp + 328], rax", // rdi
                "mov rax, [rbx + 56]", "mov [rsp + 336], rax", // rsi
                "mov rax, [rbx + 64]", "mov [rsp + 344], rax", // rdx
                "mov rax, [rbx + 72]", "mov [rsp + 352], rax", // rcx
                "mov rax, [rbx + 80]", "mov [rsp + 360], rax", // rbx
                "mov rax, [rbx + 88]", "mov [rsp + 368], rax", // rax
                "mov rax, [rbx + 96]", "mov [rsp + 376], rax", // flags
                "mov rdi, rsp",
                "mov rsi, rbx",
                "call {work}",
                // Registers that the call may have changed.
                "mov rax, [rsp + 296]", "mov [rbx + 24], rax", // r10
                "mov rax, [rsp + 344]", "mov [rbx + 64], rax", // rdx
                "mov rax, [rsp + 352]", "mov [rbx + 72], rax", // rcx
                "mov rax, [rsp + 368]", "mov [rbx + 88], rax", // rax
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "movups xmm8, [rsp + 128]", "movups xmm9, [rsp + 144]", "movups xmm10, [rsp + 160]", "movups xmm11, [rsp + 176]",
                "movups xmm12, [rsp + 192]", "movups xmm13, [rsp + 208]", "movups xmm14, [rsp + 224]", "movups xmm15, [rsp + 240]",
                "mov rsp, rbx",
                // Signals that the runtime needs are not blocked in a new thread either.
                "mov rax, [rip + {never_blocked}]",
                "not rax",
                "and [rsp], rax",
                "mov eax, {sigprocmask}",
                "mov edi, 2",
                "mov rsi, rsp",
                "xor edx, edx",
                "mov r10d, 8",
                "syscall",
                "lea rsp, [rsp + 16]",
                "pop r11", "pop r10", "pop r9", "pop r8", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
                $crate::sys::flags::pop_flags!(),
                "lea rsp, [rsp + 128]",
                "jmp rcx",
                "40:",
                "jmp {plain}",
                ;
                header = sym $crate::sys::process::HEADER,
                never_blocked = sym $crate::record::signals::NEVER_BLOCKED,
                kept = const $crate::sys::flags::KEPT_FLAGS,
                bytes = const size_of::<$crate::wrap::raw_syscalls::SavedRegisters>(),
                work = sym $work,
                cleared = sym $crate::sys::flags::CLEARED,
                no_trap = const $crate::sys::flags::NO_TRAP,
                plain = sym $plain_name,
            )
        }

        /// Runs the handler on the program's stack, on which the flags already lie.
        #[unsafe(naked)]
        unsafe extern "C" fn $plain_name() {
            core::arch::naked_asm!(
                "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp", "push r8",
                "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
                "lea rsp, [rsp - 256]",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "movups [rsp + 128], xmm8", "movups [rsp + 144], xmm9", "movups [rsp + 160], xmm10", "movups [rsp + 176], xmm11",
                "movups [rsp + 192], xmm12", "movups [rsp + 208], xmm13", "movups [rsp + 224], xmm14", "movups [rsp + 240], xmm15",
                "mov rbx, rsp",
                "and rsp, -16",
                "mov rdi, rbx",
                "call {work}",
                "mov rsp, rbx",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "movups xmm8, [rsp + 128]", "movups xmm9, [rsp + 144]", "movups xmm10, [rsp + 160]", "movups xmm11, [rsp + 176]",
                "movups xmm12, [rsp + 192]", "movups xmm13, [rsp + 208]", "movups xmm14, [rsp + 224]", "movups xmm15, [rsp + 240]",
                "lea rsp, [rsp + 256]",
                "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9",
                "pop r8", "pop rbp", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
                $crate::sys::flags::pop_flags!(),
                "lea rsp, [rsp + 128]",
                "jmp rcx",
                work = sym $plain,
                cleared = sym $crate::sys::flags::CLEARED)
        }
    };
}
pub(crate) use hook;

hook!(
    /// Entered before a system call, whose address is in rcx. Continues there, or behind the call
    /// if it is already done.
    before, prepare, before_plain, prepare_plain
);
hook!(
    /// Entered after a system call. rcx: the address at which the program continues.
    after, settle, after_plain, settle
);

fn has_loader() -> bool {
    crate::sys::libc_symbols::dl_iterate_phdr().is_some()
}

unsafe extern "C" fn prepare(registers: *mut SavedRegisters, below: *mut OnProgramStack) {
    // SAFETY: what `before` has just saved.
    unsafe { prepare_by(registers, below.as_mut()) }
}

unsafe extern "C" fn prepare_plain(registers: *mut SavedRegisters) {
    // SAFETY: the registers that `before` has just saved.
    unsafe { prepare_by(registers, None) }
}

/// `below`: what lies on the program's stack, if the work is done on another one, with all signals
/// blocked.
unsafe fn prepare_by(registers: *mut SavedRegisters, below: Option<&mut OnProgramStack>) {
    // SAFETY: the registers that `before` has just pushed.
    let r = unsafe { &mut *registers };
    let aside = below.is_some();
    let result = match r.rax as usize {
        // SAFETY: the kernel's contract for these calls is that of the functions.
        nr::RT_SIGACTION => unsafe {
            signals::system_sigaction(r.rdi as i32, r.rsi as *const _, r.rdx as *mut _)
        },
        nr::RT_SIGPROCMASK | nr::SIGALTSTACK if below.is_some() => {
            let Some(result) = below.and_then(|below| change_aside(r, below)) else {
                return;
            };
            result
        }
        // SAFETY: as above.
        nr::RT_SIGPROCMASK => unsafe {
            signal_calls::system_sigprocmask(r.rdi as i32, r.rsi as *const u64, r.rdx as *mut u64)
        },
        // SAFETY: as above.
        nr::SIGALTSTACK => unsafe {
            signal_calls::alternate_stack(r.rdi as *const _, r.rsi as *mut _)
        },
        nr::CLONE | nr::CLONE3 if !thread_ring::provide() => -ENOMEM,
        nr::EXECVE | nr::EXECVEAT if aside => return exec::prepare(r),
        // SAFETY: as above.
        nr::EXECVE | nr::EXECVEAT => unsafe { exec::execute_saved(r) },
        // (In a linked-in C library, a thread may be cancelled in these calls.)
        number @ (nr::OPEN | nr::OPENAT | nr::OPENAT2) if has_loader() => {
            let arguments = [r.rdi, r.rsi, r.rdx, r.r10].map(|a| a as usize);
            match proc_files::open_by_number(number, arguments) {
                Some(result) => result,
                None => return,
            }
        }
        number @ (nr::PRCTL | nr::SECCOMP) => {
            let [first, second, third] = [r.rdi, r.rsi, r.rdx].map(|a| a as usize);
            let prepared = seccomp::prepare_by_number(number, first, second, third);
            if let Some(ring) = thread_ring::ring_at(syscall::gs()) {
                ring.private().restricting.set(prepared);
            }
            if number == nr::SECCOMP {
                return;
            }
            let words = [r.rdi as u32 as u64, r.rsi, r.rdx, r.r10, r.r8].map(|w| w as usize);
            // SAFETY: the kernel's contract.
            let Some((result, on)) =
                (unsafe { crate::wrap::prctl_calls::met_in_clone(words, r.rcx) })
            else {
                return;
            };
            r.rax = result as u64;
            r.rcx = on;
            return;
        }
        nr::ARCH_PRCTL => return crate::wrap::gs_base::met_in_clone(r.rdi as usize),
        _ => return,
    };
    r.rax = result as u64;
    r.rcx += REST;
}

/// Changes the program's mask or alternate stack while its own stack is not in use. `None`: the
/// kernel refuses the call because of its pointers.
fn change_aside(r: &SavedRegisters, below: &mut OnProgramStack) -> Option<isize> {
    let is_valid = |at: u64, bytes| at == 0 || syscall::is_readable(at as usize, bytes);
    let here = below.stack_pointer();
    if r.rax as usize == nr::SIGALTSTACK {
        const BYTES: usize = size_of::<[usize; 3]>();
        if !is_valid(r.rdi, BYTES) || !is_valid(r.rsi, BYTES) {
            return None;
        }
        // SAFETY: null, or memory of the program.
        return Some(unsafe {
            signal_calls::alternate_stack_at(r.rdi as *const _, r.rsi as *mut _, here)
        });
    }
    const BYTES: usize = size_of::<u64>();
    if r.r10 != BYTES as u64 || !is_valid(r.rsi, BYTES) || !is_valid(r.rdx, BYTES) {
        return None;
    }
    // SAFETY: null, or memory of the program.
    Some(unsafe {
        signal_calls::sigprocmask_by(
            r.rdi as i32,
            r.rsi as *const u64,
            r.rdx as *mut u64,
            here,
            |how, set| Ok(below.change_mask(how, set)),
        )
    })
}

/// Runs after the call: in a new thread, in a child that shares its parent's memory, or in the
/// caller. (Children with their own memory have already got a ring when they read the hook's
/// address.)
unsafe extern "C" fn settle(registers: *mut SavedRegisters) {
    let gs = syscall::gs();
    let Some(ring) = thread_ring::ring_at(gs) else {
        return;
    };
    if let Some(prepared) = ring.private().restricting.take() {
        // SAFETY: the registers that `after` has just saved.
        let result = unsafe { (*registers).rax } as isize;
        // A filter may forbid all calls of the runtime.
        return seccomp::settle_filter(prepared, result >= 0);
    }
    exec::has_failed();
    if process::borrows_memory() {
        if gs == ring.address {
            threads::begin_raw(ring);
        }
        return;
    }
    if ring.control().tid.get() != syscall::gettid() {
        threads::begin_raw(ring);
    } else if !trigger::is_of_this_thread(ring) {
        // In a child with its own memory, the trigger is its parent's.
        trigger::renew(ring);
    }
}

const _: () = assert!(PAGE_SIZE == 4096);
