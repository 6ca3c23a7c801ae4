//! Signals that interrupt system calls.

use crate::record::signals::SA_RESTART;
use core::sync::atomic::{AtomicU64, Ordering};

/// Signals that interrupt system calls, set by `siginterrupt`.
pub(super) static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// `SA_RESTART` for a handler that is installed by `signal`, unless that was changed.
pub(crate) fn restart(signal: i32) -> u64 {
    if INTERRUPTING.load(Ordering::Relaxed) & 1 << (signal - 1) == 0 {
        SA_RESTART
    } else {
        0
    }
}
