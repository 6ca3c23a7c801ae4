//! Switch to the runtime's own stack, since the program's stack may have no more room than the
//! program needs.

/// All signals, for the kernel.
pub(crate) static ALL_SIGNALS: u64 = !0;

/// Moves the stack pointer to the top of the thread's stack for handlers, so that the runtime uses
/// none of the program's stack. All signals must be blocked; rbx is an address on the current stack
/// (of the kernel's frame or of pushed words), and `$slot` a word there that may be overwritten.
/// Changes all registers but rbx, rbp and r12 to r15.
///
/// The stack pointer does not move if it is on that stack already, if the thread has no ring, or if
/// the ring is its creator's (a thread that a system call has just created). In a new child the
/// control page is not mapped, but the stack is its own: the child takes its ring over before it
/// creates threads ([`provide`](crate::record::thread_ring::provide)). The stack pointer also stays
/// if system calls may be dispatched to the program ([`crate::sys::dispatch`]), since this code
/// makes some.
macro_rules! to_own_stack {
    ($slot:literal) => {
        concat!(
            "cmp byte ptr [rip + {any_dispatched}], 0\n",
            "jne 29f\n",
            "cmp byte ptr [rip + {fsgsbase}], 0\n",
            "je 20f\n",
            "rdgsbase r8\n",
            "jmp 21f\n",
            "20:\n",
            "mov eax, {arch_prctl}\n",
            "mov edi, {get_gs}\n",
            concat!("lea rsi, ", $slot, "\n"),
            "syscall\n",
            concat!("mov r8, ", $slot, "\n"),
            "21:\n",
            "test r8, r8\n",
            "je 29f\n",
            "lea r9, [rip + {reservations}]\n",
            "lea r10, [r9 + 8 * {most}]\n",
            "22:\n",
            "mov rax, [r9]\n",
            "test rax, rax\n",
            "je 29f\n",
            "cmp rax, r8\n",
            "je 23f\n",
            "lea rcx, [r8 + {spare}]\n",
            "cmp rax, rcx\n",
            "je 26f\n",
            "add r9, 8\n",
            "cmp r9, r10\n",
            "jb 22b\n",
            "jmp 29f\n",
            // The spare page: of a child of `vfork`, whose creator waits, or of a thread whose
            // records are dropped.
            "26:\n",
            "mov rcx, [rip + {owner}]\n",
            "test rcx, rcx\n",
            "je 27f\n",
            "cmp dword ptr [rcx], 0\n",
            "je 25f\n",
            "27:\n",
            "cmp dword ptr [rax + {state}], {private}\n",
            "jne 25f\n",
            "jmp 24f\n",
            "23:\n",
            "mov rcx, [rip + {owner}]\n",
            "test rcx, rcx\n",
            "je 24f\n",
            "cmp dword ptr [rcx], 0\n",
            "je 25f\n",
            "24:\n",
            "cmp byte ptr [rip + {sealed}], 0\n",
            "jne 25f\n",
            "mov r9, rax\n",
            "mov eax, {gettid}\n",
            "syscall\n",
            "cmp eax, [r9 + {tid}]\n",
            "jne 29f\n",
            "mov rax, r9\n",
            "25:\n",
            "lea rcx, [rax - {spare}]\n",
            "mov rdx, rcx\n",
            "sub rdx, rbx\n",
            "cmp rdx, {stack_bytes}\n",
            "jbe 29f\n",
            "mov rsp, rcx\n",
            "29:\n",
            "and rsp, -16\n",
        )
    };
}
pub(crate) use to_own_stack;

/// Assembles code with [`to_own_stack`] in it.
macro_rules! asm_with_own_stack {
    ($($code:expr,)* ; $($operands:tt)*) => {
        core::arch::naked_asm!(
            $($code,)*
            any_dispatched = sym $crate::sys::dispatch::ANY,
            fsgsbase = sym $crate::sys::syscall::FSGSBASE,
            arch_prctl = const $crate::sys::syscall::nr::ARCH_PRCTL,
            get_gs = const $crate::sys::syscall::GET_GS,
            reservations = sym $crate::record::thread_ring::RESERVATIONS,
            most = const $crate::record::thread_ring::MAX_RESERVATIONS,
            spare = const $crate::record::thread_ring::SPARE_OFFSET,
            owner = sym $crate::sys::process::OWNER,
            sealed = sym $crate::sys::seccomp_state::NO_RECORDING,
            gettid = const $crate::sys::syscall::nr::GETTID,
            tid = const core::mem::offset_of!(mgz_abi::shared_memory::Control, tid),
            state = const core::mem::offset_of!(mgz_abi::shared_memory::Control, state),
            private = const $crate::record::thread_ring::PRIVATE,
            stack_bytes = const $crate::record::thread_ring::SIGNAL_STACK,
            sigprocmask = const $crate::sys::syscall::nr::RT_SIGPROCMASK,
            all_signals = sym $crate::record::own_stack::ALL_SIGNALS,
            $($operands)*
        )
    };
}
pub(crate) use asm_with_own_stack;
