//! The area that the C library has registered for restartable sequences, while a handler of a fault
//! goes through all memory.
//!
//! The area lies among the thread's own variables. Crash reporters fill all that can be written to
//! and put it back. The kernel looks at the area whenever it interrupts the thread, and ends the
//! process if it finds nonsense there. A program that crashes is hardly interrupted; the runtime's
//! signals come often. So the area is taken back until that handler returns.

use crate::sys::libc_symbols::{behind, place_behind_wrappers};
use crate::sys::syscall;
use crate::sys::syscall::nr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: usize = 1;
/// The C library's signature.
const SIGNATURE: usize = 0x5305_3053;
/// Bytes that an area may have been registered with.
const LENGTHS: core::ops::RangeInclusive<usize> = 32..=256;
/// Bytes of the largest stack on which a handler is looked for.
const STACK: usize = 64 << 20;

/// The thread in whose handler of a fault the process is, and the address of the handler's frame.
static THREAD: AtomicU32 = AtomicU32::new(0);
static FRAME: AtomicUsize = AtomicUsize::new(0);
/// The area that was taken back, and its length.
static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// A handler of a fault begins, with its frame there.
pub fn fault_begins(thread: u32, frame: usize) {
    if TAKEN[0].load(Ordering::Relaxed) == 0 {
        FRAME.store(frame, Ordering::Relaxed);
        THREAD.store(thread, Ordering::Relaxed);
    }
}

/// It has returned.
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

/// The calling thread may write to all memory: takes the area back, if it is in a handler of a
/// fault.
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
    // (The library does not tell with what length. Another one is refused.)
    let length = LENGTHS.step_by(4).find(|&length| {
        // SAFETY: nobody relies on the area but by looking whether it is registered.
        unsafe { syscall::call(nr::RSEQ, area, length, UNREGISTER, SIGNATURE, 0, 0) == 0 }
    });
    if let Some(length) = length {
        TAKEN[1].store(length, Ordering::Relaxed);
        TAKEN[0].store(area, Ordering::Relaxed);
    }
}
