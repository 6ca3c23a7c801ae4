//! Shared parts of the examples that measure speed: a clock, and the accesses of Zhong et al.,
//! section 4.1.

/// CPU time of this thread so far, seconds: other work on the machine does not count.
pub struct Instant(f64);

impl Instant {
    /// The current time.
    pub fn now() -> Instant {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a local of the right type.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Instant(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }

    /// Seconds since then.
    pub fn seconds(&self) -> f64 {
        Instant::now().0 - self.0
    }
}

/// Blocks in the order of the test: chunks of N/100, each twice.
pub fn stream(n: u64) -> impl Iterator<Item = u64> {
    let step = (n / 100).max(1);
    (0..n / step).flat_map(move |c| (0..2).flat_map(move |_| c * step..(c + 1) * step))
}
