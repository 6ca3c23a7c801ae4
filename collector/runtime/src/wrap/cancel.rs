//! Asynchronous cancellation: a thread is unwound from any instruction, also in clones.
//!
//! The C library sends the thread a signal, whose handler it installs by a call that no wrapper
//! sees, when the first thread is cancelled. That handler, too, must see the state of the original
//! code ([`crate::record::signals`]): otherwise registers that a clone has borrowed are taken for
//! the program's, and records of a loop are overwritten. So before a thread may be cancelled
//! asynchronously, a helper thread is cancelled that ignores it; then the handler is installed.

use crate::record::{signals, thread_ring, trigger};
use crate::sys::errno::ENOSYS;
use crate::sys::libc_symbols::{library, next};
use crate::sys::{process, syscall};
use crate::wrap::threads;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
const ASYNCHRONOUS: i32 = 1;
const NOT_YET: u32 = 0;
const UNDER_WAY: u32 = 1;
const DONE: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
/// Longest wait for another thread that prepares: in a forked child that thread does not exist.
/// Source: Chosen.
const MAX_WAIT_NS: u64 = 100_000_000;
/// Set to 1 when the helper thread may end.
static OVER: AtomicU32 = AtomicU32::new(0);

/// Called before the calling thread changes its type of cancellation.
extern "C" fn prepare(kind: i32) {
    if kind != ASYNCHRONOUS || process::header().is_none() || thread_ring::current().is_none() {
        return;
    }
    match STATE.compare_exchange(NOT_YET, UNDER_WAY, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            cancel_somebody();
            signals::wrap_internal();
            STATE.store(DONE, Ordering::Release);
            syscall::futex_wake(STATE.as_ptr());
        }
        Err(UNDER_WAY) => syscall::futex_wait(STATE.as_ptr(), UNDER_WAY, MAX_WAIT_NS),
        Err(_) => {}
    }
}

/// Makes the C library install its handler.
fn cancel_somebody() {
    let Some(cancel) = library!(c"pthread_cancel", unsafe extern "C" fn(usize) -> i32) else {
        return;
    };
    let Some(detach) = library!(c"pthread_detach", unsafe extern "C" fn(usize) -> i32) else {
        return;
    };
    // The new thread gets no signal: neither the program's signals nor that of its cancellation.
    let old = syscall::sigprocmask(2, Some(!(signals::SEGV_BIT | trigger::bit())));
    let mut new = 0usize;
    // SAFETY: a start routine that may run in any thread; the thread lives until [`OVER`] is set.
    unsafe {
        if threads::create_thread(&raw mut new as usize, 0, somebody as *const () as usize, 0) == 0
        {
            cancel(new);
            detach(new);
            OVER.store(1, Ordering::Release);
            syscall::futex_wake(OVER.as_ptr());
        }
    }
    if let Ok(old) = old {
        let _ = syscall::sigprocmask(2, Some(old));
    }
}

/// Waits for [`OVER`]. Makes no call that is a cancellation point.
extern "C" fn somebody(_argument: usize) -> usize {
    while OVER.load(Ordering::Acquire) == 0 {
        syscall::futex_wait(OVER.as_ptr(), 0, MAX_WAIT_NS);
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setcanceltype() {
    // (kind edi, old rsi). The last step is a jump: a thread that is cancelled in the function has
    // no frame of the runtime.
    naked_asm!(
        "push rdi", "push rsi", "sub rsp, 8",
        "call {prepare}",
        "call {real}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "jmp rax",
        prepare = sym prepare, real = sym real)
}

extern "C" fn real() -> usize {
    match next!(c"pthread_setcanceltype", unsafe extern "C" fn() -> i32) {
        Some(real) => real as usize,
        None => missing as *const () as usize,
    }
}

extern "C" fn missing() -> i32 {
    ENOSYS as i32
}
