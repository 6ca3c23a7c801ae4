//! Entry from the kernel: handlers' first instructions, and the way back.

use crate::record::own_stack::{asm_with_own_stack, to_own_stack};
use crate::record::signals::delivery::{DIRECT, THROUGH_FILE, deliver, returned};
use crate::record::signals::internal::{segv, triggered};
use crate::sys::dispatch;
use crate::sys::flags::{ALIGNMENT, CLEARED, KEPT_FLAGS, clear_foreign};
use crate::sys::signal_frame::{Context, EXTENDED_MAGIC, FLAGS, RIP, RSP};
use crate::sys::syscall::{self, nr};
use core::arch::naked_asm;
use core::sync::atomic::AtomicBool;
use mgz_abi::probe::HANDLER_FRAME;

/// Returns from a handler: `rt_sigreturn`, in exactly the bytes by which unwinders recognize a
/// signal frame. Unwinders look up the byte before a return address, so it must not belong to a
/// function with unwind data: hence the `nop`, see [`restorer_address`].
#[unsafe(naked)]
unsafe extern "C" fn restorer() {
    naked_asm!(
        "nop",
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0",
        "syscall",
        "ud2"
    )
}

/// As [`restorer`], through a `syscall` instruction of the program ([`dispatch`]).
#[unsafe(naked)]
unsafe extern "C" fn restorer_by_gate() {
    extern "C" fn gate() -> usize {
        dispatch::way_back().unwrap_or(0)
    }
    naked_asm!(
        "nop",
        "call {gate}",
        "mov rcx, rax",
        "mov eax, 15",
        "jmp rcx",
        gate = sym gate)
}

/// Chooses the return address of a frame: if necessary, the handler returns through the program's
/// own `syscall` instruction.
///
/// # Safety
/// `context` must lie in the kernel's frame.
pub(crate) unsafe fn choose_way_back(context: *mut Context) {
    if dispatch::way_back().is_some() {
        // SAFETY: the return address is the word below the context.
        unsafe {
            (context as *mut usize)
                .sub(1)
                .write(restorer_by_gate as *const () as usize + 1)
        };
    }
}

/// Return address of handlers.
pub(crate) fn restorer_address() -> usize {
    restorer as *const () as usize + 1
}

/// Entry for SIGSEGV, on the runtime's stack: a full ring, a new child, or the program's own fault.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_segv() {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "and rsp, -16",
        clear_foreign!("rcx"),
        "call {segv}",
        // 0: done. Otherwise the stack pointer of a copy of the frame, on which the program's
        // handler is to run.
        "test rax, rax",
        "jne 2f",
        "mov rsp, rbx",
        "pop rbx",
        "cmp byte ptr [rip + {returns_alone}], 0",
        "jne {return_alone}",
        "ret",
        "2:",
        "mov rsp, rax",
        "mov edi, 11",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "jmp {deliver}",
        segv = sym segv,
        returns_alone = sym RETURNS_ALONE,
        return_alone = sym return_alone,
        deliver = sym on_signal,
        context = const size_of::<Context>(),
        kept = const KEPT_FLAGS,
        cleared = sym CLEARED,
    )
}

/// A seccomp filter forbids `rt_sigreturn`: the handler of SIGSEGV blocks no signals, and returns
/// by [`return_alone`].
pub(crate) static RETURNS_ALONE: AtomicBool = AtomicBool::new(false);

/// Returns from a handler that blocks no signals without a system call: restores the extended state
/// and all registers from the kernel's frame, to whose first word the stack pointer points.
/// (`iretq` fails on a shadow stack, which no process has here: see docs/design/thread-state.md.)
#[unsafe(naked)]
unsafe extern "C" fn return_alone() {
    naked_asm!(
        "lea rsi, [rsp + 8]",
        "mov rcx, [rsi + {extended}]",
        "test rcx, rcx",
        "je 3f",
        "cmp dword ptr [rcx + 464], {magic}",
        "jne 2f",
        "mov eax, [rcx + 472]", // the features that are saved
        "mov edx, [rcx + 476]",
        "xrstor64 [rcx]",
        "jmp 3f",
        "2:",
        "fxrstor64 [rcx]",
        "3:",
        "and rsp, -16",
        "mov eax, ss",
        "push rax",
        "push [rsi + {rsp}]",
        "push [rsi + {flags}]",
        "mov eax, cs",
        "push rax",
        "push [rsi + {rip}]",
        "mov r8, [rsi + {registers}]",
        "mov r9, [rsi + {registers} + 8]",
        "mov r10, [rsi + {registers} + 16]",
        "mov r11, [rsi + {registers} + 24]",
        "mov r12, [rsi + {registers} + 32]",
        "mov r13, [rsi + {registers} + 40]",
        "mov r14, [rsi + {registers} + 48]",
        "mov r15, [rsi + {registers} + 56]",
        "mov rdi, [rsi + {registers} + 64]",
        "mov rbp, [rsi + {registers} + 80]",
        "mov rbx, [rsi + {registers} + 88]",
        "mov rdx, [rsi + {registers} + 96]",
        "mov rax, [rsi + {registers} + 104]",
        "mov rcx, [rsi + {registers} + 112]",
        "mov rsi, [rsi + {registers} + 72]",
        "iretq",
        extended = const core::mem::offset_of!(Context, extended),
        magic = const EXTENDED_MAGIC,
        registers = const saved(0),
        rsp = const saved(RSP),
        rip = const saved(RIP),
        flags = const FLAGS_AT,
    )
}

/// Entry for the trigger's signal, on the runtime's stack.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_trigger() {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "and rsp, -16",
        clear_foreign!("rcx"),
        "call {triggered}",
        "test rax, rax",
        "jne 2f",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        "2:",
        "mov rsp, rax",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "mov edi, [rsi]",
        "jmp {deliver}",
        triggered = sym triggered,
        deliver = sym on_signal,
        context = const size_of::<Context>(),
        kept = const KEPT_FLAGS,
        cleared = sym CLEARED,
    )
}

/// Offset from the stack pointer to the saved register number `n` of [`Context::registers`] when a
/// handler has returned to [`on_signal`]. The context then begins at the stack pointer.
const fn saved(n: usize) -> usize {
    core::mem::offset_of!(Context, registers) + 8 * n
}

/// Low and high byte of that offset, in the DWARF encoding of signed numbers.
const fn low(n: usize) -> usize {
    saved(n) & 0x7f | 0x80
}

const fn high(n: usize) -> usize {
    // The encoding above has two bytes.
    assert!(saved(n) < 0x2000);
    saved(n) >> 7
}

/// [`on_signal`] pushes one word if a handler is called from the file's code: the handler's
/// address.
const _: () = assert!(HANDLER_FRAME == 8);

/// Offset of the interrupted thread's flags in the kernel's context.
const FLAGS_AT: usize = core::mem::offset_of!(Context, registers) + 8 * FLAGS;

/// Sets the alignment check for the program's handler if it was set in the interrupted code, as the
/// kernel does. rdx is the handler's context.
macro_rules! handler_flags {
    () => {
        "mov eax, [rdx + {flags}]\nand eax, {alignment}\nje 8f\npushfq\nor [rsp], rax\npopfq\n8:"
    };
}

/// `rt_sigprocmask` for [`on_signal`] in a process with dispatched system calls.
///
/// # Safety
/// `mask` is a mask.
unsafe extern "C" fn set_mask(how: usize, mask: *const u64) {
    // SAFETY: the caller's contract.
    unsafe { syscall::call(nr::RT_SIGPROCMASK, how, mask as usize, 0, 8, 0, 0) };
}

/// Entry for every signal that the program handles: `(signal, info, context)`, with all signals
/// blocked.
///
/// The handler runs on the same stack as without the runtime, with nothing of the runtime below the
/// kernel's frame. It is entered by a jump, and returns here because the frame's first word, which
/// held the restorer's address, is replaced. Unwinders find a signal frame here: the call frame
/// information says that this function's caller is the interrupted code, with its registers where
/// the kernel has saved them. That information covers one block of assembly, so the function is
/// long.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_signal() {
    // rsp is at the frame's first word (the restorer's address), as after a call: the kernel has
    // aligned it. The interrupted code's registers are in the frame, so all registers may be used.
    asm_with_own_stack!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        "mov rbx, rsp",
        "mov r12, rdi",
        "mov r13, rsi",
        "mov r14, rdx",
        to_own_stack!("[rbx + 8 + {reserved}]"),
        // Only the alignment check may be set until here, and all accesses above are aligned.
        clear_foreign!("rcx"),
        "mov rdi, r12",
        "mov rsi, r13",
        "mov rdx, r14",
        // Room for the addresses to call, and the mask.
        "sub rsp, 32",
        "mov rcx, rsp",
        "call {deliver}",
        "mov r12, [rsp]",
        "mov r13, [rsp + 8]",
        "mov r14, rax",
        "lea rsi, [rsp + 16]",
        "mov rsp, rbx",
        "cmp rax, {through_file}",
        "ja 2f",
        "test rax, rax",
        "je 3f",
        // Only once the program's stack is in use again, since signals may be pending.
        "mov eax, {sigprocmask}",
        "mov edi, 2", // SIG_SETMASK
        "xor edx, edx",
        "mov r10d, 8",
        "cmp byte ptr [rip + {any_dispatched}], 0",
        "jne 10f",
        "syscall",
        "11:",
        "lea rdx, [rbx + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        handler_flags!(),
        "xor eax, eax",
        "cmp r14, {direct}",
        "je 4f",
        "ja 5f",
        "lea r11, [rip + 6f]",
        "mov [rsp], r11",
        "4:",
        "jmp r12",
        "10:",
        "sub rsp, 8",
        "call {set_mask}",
        "add rsp, 8",
        "jmp 11b",
        "2:",
        "mov rsp, rax",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "mov edi, [rsi]",
        "jmp {again}",
        "5:",
        "lea r11, [rip + 7f]",
        "mov [rsp], r11",
        "push r12",
        "jmp r13",
        "7:",
        "lea rsp, [rsp + 16]",
        "jmp 6f",
        ".cfi_remember_state",
        // DW_CFA_def_cfa_expression: the saved rsp. Then one DW_CFA_expression for each register:
        // saved at rsp + offset.
        ".cfi_escape 0x0f, 4, 0x77, {rsp_low}, {rsp_high}, 6",
        ".cfi_escape 0x10, 8, 3, 0x77, {r8_low}, {r8_high}",
        ".cfi_escape 0x10, 9, 3, 0x77, {r9_low}, {r9_high}",
        ".cfi_escape 0x10, 10, 3, 0x77, {r10_low}, {r10_high}",
        ".cfi_escape 0x10, 11, 3, 0x77, {r11_low}, {r11_high}",
        ".cfi_escape 0x10, 12, 3, 0x77, {r12_low}, {r12_high}",
        ".cfi_escape 0x10, 13, 3, 0x77, {r13_low}, {r13_high}",
        ".cfi_escape 0x10, 14, 3, 0x77, {r14_low}, {r14_high}",
        ".cfi_escape 0x10, 15, 3, 0x77, {r15_low}, {r15_high}",
        ".cfi_escape 0x10, 5, 3, 0x77, {rdi_low}, {rdi_high}",
        ".cfi_escape 0x10, 4, 3, 0x77, {rsi_low}, {rsi_high}",
        ".cfi_escape 0x10, 6, 3, 0x77, {rbp_low}, {rbp_high}",
        ".cfi_escape 0x10, 3, 3, 0x77, {rbx_low}, {rbx_high}",
        ".cfi_escape 0x10, 1, 3, 0x77, {rdx_low}, {rdx_high}",
        ".cfi_escape 0x10, 0, 3, 0x77, {rax_low}, {rax_high}",
        ".cfi_escape 0x10, 2, 3, 0x77, {rcx_low}, {rcx_high}",
        ".cfi_escape 0x10, 7, 3, 0x77, {rsp_low}, {rsp_high}",
        ".cfi_escape 0x10, 16, 3, 0x77, {rip_low}, {rip_high}",
        // Unwinders look up the byte before a return address.
        "nop",
        "6:",
        // The handler may have left any flags. The word below held its return address.
        clear_foreign!("rcx"),
        "lea rbx, [rsp - 8]",
        "mov eax, {sigprocmask}",
        "xor edi, edi",
        "lea rsi, [rip + {all_signals}]",
        "xor edx, edx",
        "mov r10d, 8",
        "cmp byte ptr [rip + {any_dispatched}], 0",
        "jne 12f",
        "syscall",
        "jmp 13f",
        "12:",
        "call {set_mask}",
        "13:",
        to_own_stack!("[rbx + 8 + {reserved}]"),
        "lea rdi, [rbx + 8]",
        "call {returned}",
        "mov rsp, rbx",
        "3:",
        ".cfi_restore_state",
        "ret",
        ".cfi_endproc",
        ;
        // The kernel ignores these words of the frame.
        reserved = const core::mem::offset_of!(Context, reserved),
        kept = const KEPT_FLAGS,
        cleared = sym CLEARED,
        alignment = const ALIGNMENT,
        flags = const FLAGS_AT,
        direct = const DIRECT,
        set_mask = sym set_mask,
        deliver = sym deliver,
        returned = sym returned,
        again = sym on_signal,
        context = const size_of::<Context>(),
        through_file = const THROUGH_FILE,
        r8_low = const low(0),
        r8_high = const high(0),
        r9_low = const low(1),
        r9_high = const high(1),
        r10_low = const low(2),
        r10_high = const high(2),
        r11_low = const low(3),
        r11_high = const high(3),
        r12_low = const low(4),
        r12_high = const high(4),
        r13_low = const low(5),
        r13_high = const high(5),
        r14_low = const low(6),
        r14_high = const high(6),
        r15_low = const low(7),
        r15_high = const high(7),
        rdi_low = const low(8),
        rdi_high = const high(8),
        rsi_low = const low(9),
        rsi_high = const high(9),
        rbp_low = const low(10),
        rbp_high = const high(10),
        rbx_low = const low(11),
        rbx_high = const high(11),
        rdx_low = const low(12),
        rdx_high = const high(12),
        rax_low = const low(13),
        rax_high = const high(13),
        rcx_low = const low(14),
        rcx_high = const high(14),
        rsp_low = const low(15),
        rsp_high = const high(15),
        rip_low = const low(16),
        rip_high = const high(16),
    )
}
