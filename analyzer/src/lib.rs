//! Footprint, reuse and zoom analysis of mgz traces.
//!
//! What makes this hard: a trace has hundreds of millions of rows, its footprint has to be counted
//! exactly for every function and line, and exact reuse distance outside the cache costs a few cache
//! misses per access. Hence one pass over the rows, in chunks, with three independent stages
//! ([`footprint`], [`reuse`], [`windows`]) that run side by side on all cores, and prefetching in each.
//!
//! What it guarantees: every number without `_hat` in its name is an exact count over the recorded
//! rows, as defined in `docs/mgz-analyze.md`; estimates are marked. Memory is bounded by the number of
//! distinct (code line, 64-byte block) pairs, not by the number of rows. No input makes it panic:
//! what cannot be read is skipped, counted and reported.
//!
//! The stages work on slices ([`rows`]); files and threads are at the edge ([`input`], [`engine`]).

pub mod blocks;
pub mod cli;
pub mod code;
pub mod engine;
pub mod export;
pub mod fold;
pub mod footprint;
pub mod human;
pub mod input;
pub mod metrics;
mod rank;
pub mod report;
pub mod reuse;
pub mod rows;
pub mod tables;
pub mod windows;
pub mod zoom;

/// Asks the CPU to fetch the cache line of `what`.
#[inline(always)]
pub(crate) fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and never faults; the pointer comes from a reference.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// A vector of `len` copies of `value`, in huge pages where the system has them: outside the cache, tables
/// are 1.2 to 1.9 times as fast in those.
pub(crate) fn large_vec<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut vector = Vec::with_capacity(len);
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let bytes = len * size_of::<T>();
        if bytes >= 2 * HUGE {
            let start: *mut T = vector.as_mut_ptr();
            let offset = start.addr().next_multiple_of(HUGE) - start.addr();
            // SAFETY: the range lies inside the allocation, and the call is a hint that changes no content.
            unsafe {
                libc::madvise(start.cast::<u8>().add(offset).cast(), (bytes - offset) / HUGE * HUGE, libc::MADV_HUGEPAGE);
            }
        }
    }
    vector.resize(len, value);
    vector
}
