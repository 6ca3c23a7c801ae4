//! Threads whose system calls the kernel dispatches to the program by SIGSYS
//! (`prctl(PR_SET_SYSCALL_USER_DISPATCH)`). A byte of the program, the selector, turns this on and
//! off.
//!
//! Calls of the runtime must not be dispatched: around each the selector is set to "allow". The
//! return from a handler cannot set the selector back, so it is made by a `syscall` instruction in
//! the range that is always allowed, if there is one.

use crate::sys::syscall;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use mgz_abi::shared_memory::PAGE_SIZE;

/// Maximum number of such threads in a process at a time.
const THREADS: usize = 64;
/// The selector's value that lets calls pass (`SYSCALL_DISPATCH_FILTER_ALLOW`).
const ALLOW: u8 = 0;

/// A thread with dispatched system calls.
struct DispatchedThread {
    /// Its `%fs` base, or 0: the entry is free.
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

/// True if any thread has ever had its calls dispatched. From then on code that makes system calls
/// by itself, without [`allow`], is avoided.
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

/// True if the calling thread has its calls dispatched.
pub fn is_begun() -> bool {
    entry().is_some()
}

/// Called before the calling thread gets dispatched system calls. Returns false if the runtime
/// cannot handle that: without a selector, calls of the runtime cannot be let through.
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

/// Forgets the calling thread's entry: its calls are no longer dispatched, or it is a new thread.
pub fn forget_dispatch() {
    if let Some(entry) = entry() {
        entry.selector.store(0, Ordering::Relaxed);
        entry.gate.store(0, Ordering::Relaxed);
        entry.thread.store(0, Ordering::Release);
    }
}

/// Address of the first readable `syscall` instruction of a range, or 0.
fn gate(range: core::ops::Range<usize>) -> usize {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut from = range.start;
    while from < range.end {
        let end = range.end.min((from & !(PAGE_SIZE - 1)) + PAGE_SIZE);
        if syscall::is_readable(from, end - from) {
            // SAFETY: checked above.
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

/// The selector is set to "allow" while this value lives.
pub struct AllowedCalls {
    selector: *mut u8,
    before: u8,
}

/// Lets the calling thread's next calls through, if they are dispatched.
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
