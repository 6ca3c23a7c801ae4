//! Start of the runtime, once and by whichever way comes first.

use crate::sys::{environment, libc_symbols};
use core::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    /// Starts the runtime (`enter/preload.rs`). Known by its name alone: what is called first is
    /// the lowest layer.
    fn mgz_start(envp: *mut *mut u8);
}

/// True if the runtime has begun, in whichever way.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Returns true for the first caller alone, which marks the runtime as begun.
pub fn is_first() -> bool {
    !BEGUN.swap(true, Ordering::Relaxed)
}

/// To be called by wrappers that change something for good, or start something: an executable's own
/// functions may run before all constructors (`DT_PREINIT_ARRAY`; the runtimes of sanitizers begin
/// there). As with constructors nothing else runs then.
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
