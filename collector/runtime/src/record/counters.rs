//! Location of the threads' counters for files that only count ([`mgz_abi::counters`]).
//!
//! A thread's area belongs to its thread slot and is mapped with it. The area takes gigabytes of
//! address space, though next to no memory. A forked child uses its parent's area until it gets a
//! slot of its own, whose area is then mapped at the same address, so a register that holds the
//! address stays valid.

use crate::record::thread_ring::Ring;
use crate::sys::process::SharedFile;
use crate::sys::syscall::{map, nr};
use crate::sys::{process, syscall};
use core::sync::atomic::{AtomicU64, Ordering};
use mgz_abi::counters::{AREA, MIDDLE, area_offset};
use mgz_abi::shared_memory::{Header, MAX_THREADS};

/// The middle of the area for threads whose counts go nowhere; 0 if this process has no areas at
/// all.
static SCRAP: AtomicU64 = AtomicU64::new(0);

/// See [`SCRAP`].
pub fn scrap() -> u64 {
    SCRAP.load(Ordering::Relaxed)
}

/// True if this process has room for counters.
pub fn has_room() -> bool {
    scrap() != 0
}

/// Maps the area behind [`SCRAP`] if loads are counted. Called once at the start of a process or of
/// a recording.
pub fn set_up() {
    let Some(header) = process::header().filter(|h| h.counters_at != 0) else {
        return;
    };
    // If the address space is limited, all of it is left to the program.
    if has_room() || is_limited() {
        return;
    }
    let Some(file) = SharedFile::open() else {
        return;
    };
    if let Some(start) = map_area(header, 0, &file, MAX_THREADS) {
        SCRAP.store(start as u64 + MIDDLE, Ordering::Relaxed);
    }
}

/// Maps the area of a thread slot for the ring of that slot. Returns false if that cannot be done.
pub(crate) fn provide(header: &Header, ring: Ring, file: &SharedFile, slot: usize) -> bool {
    if header.counters_at == 0 || !has_room() {
        return true;
    }
    let place = &ring.private().counters;
    let Some(start) = map_area(header, place.get(), file, slot) else {
        return false;
    };
    place.set(start);
    true
}

/// The address of the counters that the probes of a ring's thread use; 0 if it has none.
pub(crate) fn counters_address(ring: Ring) -> u64 {
    match ring.private().counters.get() {
        0 => 0,
        start => start as u64 + MIDDLE,
    }
}

/// Maps the area of a slot: over the previous area at `at`, or at any address if `at` is 0.
fn map_area(header: &Header, at: usize, file: &SharedFile, slot: usize) -> Option<usize> {
    let fixed = if at == 0 { 0 } else { map::FIXED };
    let flags = map::SHARED | map::NORESERVE | fixed;
    let offset = area_offset(header.counters_at, slot);
    // SAFETY: a new mapping, or one in place of another area of this reservation.
    let start = unsafe {
        let protection = map::READ | map::WRITE;
        syscall::mmap(
            at,
            AREA as usize,
            protection,
            flags,
            file.descriptor(),
            offset,
        )
        .ok()?
    };
    // SAFETY: what was just mapped.
    unsafe { syscall::call(nr::MADVISE, start, AREA as usize, map::DONTDUMP, 0, 0, 0) };
    Some(start)
}

/// True if the process has a limit on its address space (RLIMIT_AS).
fn is_limited() -> bool {
    const RLIMIT_AS: usize = 9;
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel fills the pair.
    unsafe {
        syscall::call(
            nr::PRLIMIT64,
            0,
            RLIMIT_AS,
            0,
            limits.as_mut_ptr() as usize,
            0,
            0,
        )
    };
    limits[0] != u64::MAX
}
