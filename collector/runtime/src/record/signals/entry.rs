//! Where the kernel enters: handlers' first instructions, and the way back.

use crate::record::signals::delivery::{DIRECT, Delivery, THROUGH_FILE, deliver, returned};
use crate::record::signals::internal::{segv, triggered};
use crate::sys::signal_frame::Context;
use core::arch::naked_asm;
use mgz_abi::probe::{HANDLER_FRAME, handler_saved};

/// Returns from a handler: `rt_sigreturn`, in the very bytes by which unwinders know a signal
/// frame. They look the byte before a return address up, so that must not belong to a function with
/// unwind data: hence the `nop`, see [`restorer_address`].
#[unsafe(naked)]
unsafe extern "C" fn restorer() {
    naked_asm!(
        "nop",
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0",
        "syscall",
        "ud2"
    )
}

/// Where handlers return to.
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
        "call {segv}",
        // 0: done. Else the stack pointer of a copy of the frame, on which the program's handler shall run.
        "test rax, rax",
        "jne 2f",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        "2:",
        "mov rsp, rax",
        "mov edi, 11",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "jmp {deliver}",
        segv = sym segv,
        deliver = sym on_signal,
        context = const size_of::<Context>(),
    )
}

/// Entry for the trigger's signal, on the runtime's stack.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_trigger() {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "and rsp, -16",
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
    )
}

/// Low and high byte of the offset of register number `n` of [`Context::registers`] from rsp in
/// [`on_signal`] after its `sub`, in the DWARF encoding of signed numbers.
const fn low(n: usize) -> usize {
    handler_saved(n) & 0x7f | 0x80
}

const fn high(n: usize) -> usize {
    // One byte more would be needed from here on.
    assert!(handler_saved(n) < 0x2000);
    handler_saved(n) >> 7
}

/// Room for a [`Delivery`] below the kernel's frame, which begins 8 bytes below a multiple of 16.
const _: () = assert!(size_of::<Delivery>() <= HANDLER_FRAME && HANDLER_FRAME % 16 == 8);

/// Entry for every signal that the program handles: `(signal, info, context)`, with all signals
/// blocked.
///
/// The handler is called from here, so that unwinders find a signal frame right behind it: the call
/// frame information says that this function's caller is the interrupted code, with its registers
/// where the kernel has saved them.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_signal() {
    // rsp is at the frame's first word (the restorer's address), as after a call: the kernel has
    // aligned it.
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        "sub rsp, {bytes}",
        ".cfi_remember_state",
        // DW_CFA_def_cfa_expression: what is saved as rsp. Then one DW_CFA_expression each: saved at rsp + offset.
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
        "mov rcx, rsp",
        "call {deliver}",
        "cmp rax, {direct}",
        "je 4f",
        "cmp rax, {through_file}",
        "je 5f",
        "cmp rax, 1",
        "jb 3f",
        "ja 2f",
        "lea rdx, [rsp + {bytes} + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        "xor eax, eax",
        "call [rsp]",
        "6:",
        "mov rdi, rsp",
        "lea rsi, [rsp + {bytes} + 8]",
        "call {returned}",
        "3:",
        "add rsp, {bytes}",
        ".cfi_restore_state",
        "ret",
        "2:",
        "mov rsp, rax",
        "lea rdx, [rsp + 8]",
        "lea rsi, [rsp + 8 + {context}]",
        "mov edi, [rsi]",
        "jmp {again}",
        "4:",
        "mov r11, [rsp]",
        "lea rdx, [rsp + {bytes} + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        "xor eax, eax",
        "add rsp, {bytes}",
        "jmp r11",
        "5:",
        "lea rax, [rip + 6b]",
        "mov [rsp + 8], rax",
        "mov r11, [rsp + 16]",
        "lea rdx, [rsp + {bytes} + 8]",
        "lea rsi, [rdx + {context}]",
        "mov edi, [rsi]",
        "xor eax, eax",
        "jmp r11",
        ".cfi_endproc",
        direct = const DIRECT,
        deliver = sym deliver,
        returned = sym returned,
        again = sym on_signal,
        context = const size_of::<Context>(),
        through_file = const THROUGH_FILE,
        bytes = const HANDLER_FRAME,
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
