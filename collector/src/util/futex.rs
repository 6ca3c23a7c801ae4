//! Futexes in memory that processes share.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while `word` is `value`. Not private: the word is shared between processes.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, patience: Duration) {
    let time = libc::timespec {
        tv_sec: patience.as_secs() as _,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: the word and the timeout live across the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const time,
            0,
            0,
        )
    };
}

/// Wakes all that wait for `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives across the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            libc::c_int::MAX,
            0,
            0,
            0,
        )
    };
}
