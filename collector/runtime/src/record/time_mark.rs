//! Marks of the time in a thread's record stream ([`MARK_TIME`]).
//!
//! Runtime functions that the program calls write them, so a signal may arrive at each instruction,
//! and its handler may record. The stores of a mark are therefore a section that is restarted if a
//! handler interrupts it ([`back_out`]) or a store hits the guard page. A clone enters such code by
//! a call, where no region is open and the cursor is in memory.

use crate::record::thread_ring::{Ring, ring_at};
use crate::sys::signal_frame::{Context, RIP};
use crate::sys::{process, syscall};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{Ordering, compiler_fence};
use mgz_abi::shared_memory::Control;
use mgz_abi::slot::{MARK_TIME, RingSlot};

// `mgz_write_mark(cursor, time)` writes a mark at the cursor, unless that has moved. Returns 1 if
// it was written. The mark is committed by the last store of the section, which moves the cursor.
global_asm!(
    ".section .text.mgz_write_mark, \"ax\", @progbits",
    ".p2align 4",
    ".globl mgz_write_mark",
    ".hidden mgz_write_mark",
    "mgz_write_mark:",
    ".cfi_startproc",
    "cmp gs:[{cursor}], rdi",
    "jne mgz_write_mark_out",
    "mov [rdi + {payload}], rsi",
    "mov dword ptr [rdi + {aux}], 0",
    "mov dword ptr [rdi + {id}], {mark}",
    "lea rax, [rdi + {slot}]",
    "mov gs:[{cursor}], rax",
    "mgz_write_mark_end:",
    "mov eax, 1",
    "ret",
    "mgz_write_mark_out:",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".text",
    cursor = const offset_of!(Control, cursor),
    payload = const offset_of!(RingSlot, payload),
    aux = const offset_of!(RingSlot, aux),
    id = const offset_of!(RingSlot, id),
    slot = const size_of::<RingSlot>(),
    mark = const MARK_TIME as i32,
);

unsafe extern "C" {
    fn mgz_write_mark(cursor: u64, time: u64) -> u32;
}

/// The address of a label of the section.
macro_rules! label {
    ($name:literal) => {{
        let address: u64;
        // SAFETY: computes an address.
        unsafe {
            core::arch::asm!(
                concat!("lea {}, [rip + ", $name, "]"),
                out(reg) address,
                options(nomem, nostack, preserves_flags)
            )
        };
        address
    }};
}

/// Takes the time from `now` and writes a mark of it into the calling thread's record stream, if
/// there is one. If a handler records between the two, `now` is called again, so that marks are in
/// the order of their times.
pub fn mark_time(now: impl Fn() -> u64) -> u64 {
    while let Some(ring) = recording() {
        // SAFETY: a cell of the thread's own control page.
        let cursor = unsafe { ring.control().cursor.as_ptr().read_volatile() };
        compiler_fence(Ordering::SeqCst);
        let time = now();
        // SAFETY: checks that the cursor, where the thread may write, is still there; the fault at
        // the guard page is handled.
        if unsafe { mgz_write_mark(cursor, time) } != 0 {
            return time;
        }
    }
    now()
}

/// The ring that the calling thread's records go to. A new child has none before its first record.
fn recording() -> Option<Ring> {
    let gs = syscall::gs();
    ring_at(gs).filter(|ring| ring.address == gs && !process::is_forked())
}

/// True if the thread is about to write a mark.
pub fn is_interrupted(context: &Context) -> bool {
    (label!("mgz_write_mark")..label!("mgz_write_mark_end")).contains(&context.registers[RIP])
}

/// Restarts the section if the thread is about to write a mark.
pub fn back_out(context: &mut Context) {
    if is_interrupted(context) {
        context.registers[RIP] = label!("mgz_write_mark_out");
    }
}
