//! The area that the C library has registered for restartable sequences, during a fault handler
//! that writes to all memory.
//!
//! The area is among the thread's own variables. Some crash reporters overwrite all writable
//! memory and restore it. The kernel reads the area whenever it interrupts the thread, and kills
//! the process if the content is invalid. A crashing program is rarely interrupted, but the
//! runtime's signals are frequent. So the area is unregistered until that handler returns.

use crate::sys::libc_symbols::{behind, place_behind_wrappers};
use crate::sys::syscall;
use crate::sys::syscall::nr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: usize = 1;
/// The C library's signature.
const SIGNATURE: usize = 0x5305_3053;
/// Lengths in bytes with which an area may have been registered.
const LENGTHS: core::ops::RangeInclusive<usize> = 32..=256;
/// Largest distance in bytes from a handler's frame to the stack pointer.
const STACK: usize = 64 << 20;

/// The thread that is in a fault handler, or 0; then the address of the handler's frame.
static THREAD: AtomicU32 = AtomicU32::new(0);
static FRAME: AtomicUsize = AtomicUsize::new(0);
/// The unregistered area and its length.
static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Notes the start of a fault handler whose frame is at `frame`.
pub fn fault_begins(thread: u32, frame: usize) {
    if TAKEN[0].load(Ordering::Relaxed) == 0 {
        FRAME.store(frame, Ordering::Relaxed);
        THREAD.store(thread, Ordering::Relaxed);
    }
}

/// Handles the return of that handler: the area is registered again.
pub fn fault_ends(frame: usize) {
    if FRAME.load(Ordering::Relaxed) != frame || THREAD.load(Ordering::Relaxed) != syscall::gettid()
    {
        return;
    }
    THREAD.store(0, Ordering::Relaxed);
    let [area, length] = TAKEN.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
    if area != 0 {
        // SAFETY: as it was registered before.
        unsafe { syscall::call(nr::RSEQ, area, length, 0, SIGNATURE, 0, 0) };
    }
}

/// Unregisters the area if the calling thread, which may be about to write to all memory, is in a
/// fault handler.
pub fn take_back() {
    let stack = 0u8;
    let below = FRAME
        .load(Ordering::Relaxed)
        .wrapping_sub(&raw const stack as usize);
    if below > STACK || THREAD.load(Ordering::Relaxed) != syscall::gettid() {
        return;
    }
    const OFFSET: usize = place_behind_wrappers(c"__rseq_offset");
    let offset = behind(OFFSET) as *const isize;
    if offset.is_null() || !offset.is_aligned() {
        return;
    }
    // SAFETY: a variable of the C library.
    let area = syscall::fs().wrapping_add_signed(unsafe { offset.read() });
    // (The library does not reveal the registered length. The kernel refuses any other.)
    let length = LENGTHS.step_by(4).find(|&length| {
        // SAFETY: users of the area check first if it is registered.
        unsafe { syscall::call(nr::RSEQ, area, length, UNREGISTER, SIGNATURE, 0, 0) == 0 }
    });
    if let Some(length) = length {
        TAKEN[1].store(length, Ordering::Relaxed);
        TAKEN[0].store(area, Ordering::Relaxed);
    }
}
