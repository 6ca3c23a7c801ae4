//! Short times from the time stamp counter: a stay in code without a clone is often shorter than
//! two reads of the kernel's clock.
//!
//! The counter's rate is measured against the kernel's clock, from the first window of the process
//! to its latest one. If the program has disabled the counter for itself ([`forbid`]), its value is
//! computed from the kernel's clock, which then needs a system call as well.

use crate::sys::syscall;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The first reading of both.
static NS: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds in 2³² ticks; initially that of a counter of 2 GHz.
static RATE: AtomicU64 = AtomicU64::new(1 << 31);

/// True if a thread of the process may not read the counter.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Checks whether the process may read the counter: children and executed programs inherit a
/// prohibition.
pub fn check_counter_access() {
    const GET_TSC: usize = 25;
    const TSC_FORBIDDEN: u32 = 2;
    let mut state = 0u32;
    // SAFETY: the kernel writes four bytes there.
    let r = unsafe {
        syscall::call(
            syscall::nr::PRCTL,
            GET_TSC,
            &raw mut state as usize,
            0,
            0,
            0,
            0,
        )
    };
    if r == 0 && state == TSC_FORBIDDEN {
        stop_reading();
    }
}

/// Called before the program forbids itself to read the counter.
pub fn forbid() {
    if !FORBIDDEN.load(Ordering::Relaxed) {
        now_ns();
        stop_reading();
    }
}

fn stop_reading() {
    FORBIDDEN.store(true, Ordering::Relaxed);
    crate::sys::vdso::forget_vdso();
}

/// The value that the counter would have, computed from its known rate.
#[cold]
fn computed_ticks() -> u64 {
    let ns = syscall::now_ns().saturating_sub(NS.load(Ordering::Relaxed));
    let rate = u128::from(RATE.load(Ordering::Relaxed));
    TICKS
        .load(Ordering::Relaxed)
        .wrapping_add(((u128::from(ns) << 32) / rate) as u64)
}

/// The counter (SDM volume 2, RDTSC), read after earlier instructions have completed.
#[inline(always)]
pub fn ticks() -> u64 {
    if FORBIDDEN.load(Ordering::Relaxed) {
        return computed_ticks();
    }
    // SAFETY: reads a register.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Converts ticks to nanoseconds.
#[inline(always)]
pub fn ns(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(RATE.load(Ordering::Relaxed))) >> 32) as u64
}

/// Nanoseconds since an earlier reading of the counter.
#[inline(always)]
pub fn since(earlier: u64) -> u64 {
    ns(ticks().saturating_sub(earlier))
}

/// Reads the kernel's clock, and updates the known rate of the counter.
pub fn now_ns() -> u64 {
    /// Shorter spans are too inaccurate: reading both clocks takes some 50 ns.
    const MIN_SPAN_NS: u64 = 50_000;
    if FORBIDDEN.load(Ordering::Relaxed) {
        return syscall::now_ns();
    }
    let (now, ticks) = (syscall::now_ns(), ticks());
    let (first, first_ticks) = (NS.load(Ordering::Relaxed), TICKS.load(Ordering::Relaxed));
    if first == 0 {
        TICKS.store(ticks, Ordering::Relaxed);
        NS.store(now, Ordering::Relaxed);
    } else if let (span @ MIN_SPAN_NS.., counted @ 1..) =
        (now.wrapping_sub(first), ticks.wrapping_sub(first_ticks))
        && span < 1 << 62
        && counted < 1 << 62
    {
        RATE.store(
            ((u128::from(span) << 32) / u128::from(counted)).clamp(1 << 28, 1 << 36) as u64,
            Ordering::Relaxed,
        );
    }
    now
}
