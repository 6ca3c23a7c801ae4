//! Clock, processor and cache lines. All unsafe code of the measurement is here.

use std::arch::x86_64::{_mm_clflush, _mm_mfence};

/// Nanoseconds of the hardware's clock, which no adjustment of time changes.
pub fn raw_ns() -> u64 {
    // SAFETY: zero is a valid value; it lives across the call.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the calling thread on the processor that it runs on. False if that is not possible.
pub fn pin() -> bool {
    // SAFETY: zero is a valid value; it lives across the calls.
    unsafe {
        let Ok(cpu) = usize::try_from(libc::sched_getcpu()) else {
            return false;
        };
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu >= 8 * size_of::<libc::cpu_set_t>() {
            return false;
        }
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// Removes the lines of some words from all caches.
pub fn flush<'a>(words: impl Iterator<Item = &'a usize>) {
    for word in words {
        // SAFETY: the address is that of memory that lives; x86-64 has the instruction.
        unsafe { _mm_clflush(std::ptr::from_ref(word).cast()) };
    }
    // SAFETY: x86-64 has the instruction.
    unsafe { _mm_mfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_flushed_words_stay() {
        let before = raw_ns();
        let words: Vec<usize> = (0..100).collect();
        flush(words.iter());
        assert!(words.into_iter().eq(0..100));
        assert!(raw_ns() > before);
    }
}
