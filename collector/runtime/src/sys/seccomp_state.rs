//! Abilities that the program's seccomp filters leave the runtime.

use core::sync::atomic::{AtomicBool, Ordering};

/// A call that recording needs is refused.
pub(crate) static NO_RECORDING: AtomicBool = AtomicBool::new(false);

/// There is a filter.
pub(crate) static FILTERED: AtomicBool = AtomicBool::new(false);

/// A call that a new ring needs is refused.
pub(crate) static NO_RINGS: AtomicBool = AtomicBool::new(false);

/// True if recording must end, without a system call.
pub fn is_sealed() -> bool {
    NO_RECORDING.load(Ordering::Relaxed)
}

/// True if the program has installed a filter, whatever it refuses.
pub fn is_filtered() -> bool {
    FILTERED.load(Ordering::Relaxed)
}

/// True if a thread may open the recorder's memory for a ring of its own.
pub fn may_set_up() -> bool {
    !NO_RINGS.load(Ordering::Relaxed)
}
