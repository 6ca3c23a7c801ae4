//! Processes that were already running when the runtime was attached.

use crate::record::thread_ring::Ring;
use crate::record::{signals, thread_ring};
use crate::sys::signal_frame::Context;
use crate::sys::syscall;
use core::sync::atomic::{AtomicBool, Ordering};

/// True if this process was already running when the runtime was attached.
pub(crate) static ATTACHED: AtomicBool = AtomicBool::new(false);

/// See [`ATTACHED`].
pub fn is_attached() -> bool {
    ATTACHED.load(Ordering::Relaxed)
}

/// Called when the trigger's signal has arrived. Returns true if a window may begin. Corrects the
/// changes that the program has made without the runtime's knowledge since the last time.
pub fn is_ready(ring: Ring, context: &mut Context) -> bool {
    if !is_attached() {
        return true;
    }
    signals::take_segv_back();
    if context.mask & signals::SEGV_BIT != 0 {
        context.mask &= !signals::SEGV_BIT;
        ring.private().segv_blocked.set(true);
    }
    on_own_stack(ring, context)
}

/// True if handlers of this thread run on the runtime's stack, after a correction if necessary. The
/// correction is necessary if a handler of the program was running when the runtime was attached:
/// its return restored the thread's old stack.
pub(crate) fn on_own_stack(ring: Ring, context: &mut Context) -> bool {
    let here = core::ptr::from_mut(context) as usize;
    if here.wrapping_sub(ring.signal_stack()) < thread_ring::SIGNAL_STACK {
        return true;
    }
    let own = ring.handler_stack();
    // The kernel restores this stack when the handler returns. (From version 6.12 on it restores
    // the stack while the stack pointer still is on this handler's stack, so that stack is not
    // the one restored from.)
    context.stack = own.map(|word| word as u64);
    // SAFETY: the stack is free, since all signals are blocked and this handler does not run on it.
    unsafe { syscall::set_signal_stack(&own) == 0 }
}
