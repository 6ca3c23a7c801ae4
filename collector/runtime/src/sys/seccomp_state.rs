//! Abilities of the runtime under the program's seccomp filters.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A filter refuses a call that recording needs.
pub(crate) static NO_RECORDING: AtomicBool = AtomicBool::new(false);

/// Time of [`seal`], nanoseconds: a later time cannot be read.
static SEALED_NS: AtomicU64 = AtomicU64::new(0);

/// The program has installed a filter.
pub(crate) static FILTERED: AtomicBool = AtomicBool::new(false);

/// A filter refuses a call that a new ring needs.
pub(crate) static NO_RINGS: AtomicBool = AtomicBool::new(false);

/// Preparations for a filter, to be completed by
/// [`settle_filter`](crate::wrap::seccomp::settle_filter) after the kernel's answer.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// Recording was ended because of the filter.
    pub sealed: bool,
    /// The thread's trigger was stopped.
    pub quiet: bool,
    /// New threads and children can get rings.
    pub rings: bool,
    /// Handlers can return through the kernel (`rt_sigreturn`).
    pub returns: bool,
}

/// Ends recording: from now on the runtime makes no system call.
pub fn seal() {
    SEALED_NS.store(crate::sys::syscall::now_ns(), Ordering::Relaxed);
    NO_RECORDING.store(true, Ordering::Relaxed);
}

/// The time at which recording ended, if it has.
pub fn sealed_ns() -> Option<u64> {
    is_sealed().then(|| SEALED_NS.load(Ordering::Relaxed))
}

/// True if recording has ended and no system call may be made.
pub fn is_sealed() -> bool {
    NO_RECORDING.load(Ordering::Relaxed)
}

/// True if the program has installed a filter, regardless of the refused calls.
pub fn is_filtered() -> bool {
    FILTERED.load(Ordering::Relaxed)
}

/// True if a thread may open the recorder's memory for a ring of its own.
pub fn may_set_up() -> bool {
    !NO_RINGS.load(Ordering::Relaxed)
}
