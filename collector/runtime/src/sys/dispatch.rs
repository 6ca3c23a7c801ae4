//! Threads whose system calls the kernel hands back to the program by SIGSYS
//! (`prctl(PR_SET_SYSCALL_USER_DISPATCH)`). A byte of the program, the selector, turns this on and
//! off.
//!
//! Calls of the runtime are to be made all the same: around each the selector says "allow". The
//! return from a handler cannot put it back, so it is made by a `syscall` instruction in the range
//! that is always allowed, if there is one.

use crate::sys::syscall;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use mgz_abi::shared_memory::PAGE_SIZE;

/// Threads of a process that may have it at a time.
const THREADS: usize = 64;
/// The selector's value that lets calls pass (`SYSCALL_DISPATCH_FILTER_ALLOW`).
const ALLOW: u8 = 0;

/// A thread that has it.
struct DispatchedThread {
    /// Its `%fs` base, or 0: the place is free.
    thread: AtomicUsize,
    selector: AtomicUsize,
    /// An allowed `syscall` instruction, or 0.
    gate: AtomicUsize,
}

static TABLE: [DispatchedThread; THREADS] = [const {
    DispatchedThread {
        thread: AtomicUsize::new(0),
        selector: AtomicUsize::new(0),
        gate: AtomicUsize::new(0),
    }
}; THREADS];

/// True if any thread has ever had its calls handed back. From then on code that makes system calls
/// by itself, without [`allow`], takes another way.
pub(crate) static ANY: AtomicBool = AtomicBool::new(false);

fn entry() -> Option<&'static DispatchedThread> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let thread = syscall::fs();
    TABLE
        .iter()
        .find(|e| e.thread.load(Ordering::Relaxed) == thread)
}

/// True if the calling thread has its calls handed back.
pub fn is_begun() -> bool {
    entry().is_some()
}

/// The calling thread is about to have its calls handed back. Returns whether that can be
/// dealt with: not without a selector, since then nothing lets calls of the runtime pass.
pub fn begin_dispatch(range: core::ops::Range<usize>, selector: usize) -> bool {
    forget_dispatch();
    if !syscall::reads_bases_quickly() || !syscall::is_readable(selector, 1) {
        return false;
    }
    let thread = syscall::fs();
    let free = TABLE.iter().find(|e| {
        let taken = e
            .thread
            .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    });
    let Some(free) = free else {
        return false;
    };
    free.selector.store(selector, Ordering::Relaxed);
    free.gate.store(gate(range), Ordering::Relaxed);
    ANY.store(true, Ordering::Release);
    true
}

/// It has them no more, or is a new one.
pub fn forget_dispatch() {
    if let Some(entry) = entry() {
        entry.selector.store(0, Ordering::Relaxed);
        entry.gate.store(0, Ordering::Relaxed);
        entry.thread.store(0, Ordering::Release);
    }
}

/// The first `syscall` instruction of a range that can be read.
fn gate(range: core::ops::Range<usize>) -> usize {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut from = range.start;
    while from < range.end {
        let end = range.end.min((from & !(PAGE_SIZE - 1)) + PAGE_SIZE);
        if syscall::is_readable(from, end - from) {
            // SAFETY: just asked.
            let code = unsafe { core::slice::from_raw_parts(from as *const u8, end - from) };
            if let Some(at) = code.windows(2).position(|w| w == SYSCALL) {
                return from + at;
            }
        }
        from = end;
    }
    0
}

/// Return address of handlers for the calling thread, if it differs from the usual one.
pub fn way_back() -> Option<usize> {
    entry()
        .map(|e| e.gate.load(Ordering::Relaxed))
        .filter(|&gate| gate != 0)
}

/// The selector says "allow" while this lives.
pub struct AllowedCalls {
    selector: *mut u8,
    before: u8,
}

/// Lets the calling thread's next calls pass, if it is one of these threads.
#[inline]
pub fn allow() -> Option<AllowedCalls> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let selector = entry()?.selector.load(Ordering::Relaxed) as *mut u8;
    if selector.is_null() {
        return None;
    }
    // SAFETY: the program's selector, which the kernel reads at each call.
    let before = unsafe { selector.read_volatile() };
    // SAFETY: as above.
    unsafe { selector.write_volatile(ALLOW) };
    Some(AllowedCalls { selector, before })
}

impl Drop for AllowedCalls {
    fn drop(&mut self) {
        // SAFETY: as in `allow`.
        unsafe { self.selector.write_volatile(self.before) };
    }
}
