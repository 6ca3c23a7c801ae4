//! Start of the runtime, once, from whichever caller comes first.

use crate::sys::{environment, libc_symbols};
use core::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    /// Starts the runtime (`enter/preload.rs`). Declared by name, since the lowest layer cannot
    /// depend on `enter`.
    fn mgz_start(envp: *mut *mut u8);
}

/// True if the runtime has started.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Returns true for the first caller alone, which marks the runtime as started.
pub fn is_first() -> bool {
    !BEGUN.swap(true, Ordering::Relaxed)
}

/// To be called by wrappers with lasting effects: an executable's own functions may run before all
/// constructors (`DT_PREINIT_ARRAY`, used by the runtimes of sanitizers). As with constructors, no
/// other thread runs then.
#[inline]
pub fn early() {
    if !BEGUN.load(Ordering::Relaxed) && !environment::is_static() {
        begin_early();
    }
}

#[cold]
#[inline(never)]
fn begin_early() {
    let envp = libc_symbols::first_environment();
    if !envp.is_null() && is_first() {
        // SAFETY: the environment is as the kernel has made it, and nothing else runs.
        unsafe { mgz_start(envp) }
    }
}
