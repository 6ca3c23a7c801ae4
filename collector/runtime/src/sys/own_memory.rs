//! Memory of the runtime without a file, which the program must not read or change when it walks
//! through its mappings ([`crate::wrap::proc_files`]). Mappings of the recorder's files are
//! recognized by the files' names.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of stored ranges. A thread has one; further ranges are not protected. Source:
/// Chosen.
const MAX_RANGES: usize = 4096;

/// First address and end; an end of 0 is free.
static RANGES: [[AtomicUsize; 2]; MAX_RANGES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MAX_RANGES];

/// Number of entries of [`RANGES`] that may be in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Adds a range.
pub fn add_own_range(start: usize, bytes: usize) {
    let taken = |place: &&[AtomicUsize; 2]| {
        let free = place[1].compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        free.is_ok()
    };
    let Some(at) = RANGES.iter().position(|place| taken(&place)) else {
        return;
    };
    RANGES[at][0].store(start, Ordering::Relaxed);
    RANGES[at][1].store(start + bytes, Ordering::Release);
    USED.fetch_max(at + 1, Ordering::AcqRel);
}

/// Removes the range that begins at `start`.
pub fn remove(start: usize) {
    let noted = RANGES.iter().take(USED.load(Ordering::Acquire));
    noted
        .filter(|place| place[0].load(Ordering::Relaxed) == start)
        .for_each(|place| {
            place[0].store(0, Ordering::Relaxed);
            place[1].store(0, Ordering::Release);
        });
}

/// The first part of `start..end` that belongs to the runtime.
pub fn first_in(start: usize, end: usize) -> Option<(usize, usize)> {
    let noted = RANGES.iter().take(USED.load(Ordering::Acquire));
    let noted = noted.map(|place| {
        let end = place[1].load(Ordering::Acquire);
        (place[0].load(Ordering::Relaxed), end)
    });
    noted
        .chain(core::iter::once(own_variables()))
        .filter(|range| range.0 < end && start < range.1)
        .map(|range| (range.0.max(start), range.1.min(end)))
        .min()
}

/// The pages of the runtime's variables that are not backed by its file.
#[cfg(mgz_cdylib)]
fn own_variables() -> (usize, usize) {
    use mgz_abi::shared_memory::PAGE_SIZE;
    unsafe extern "C" {
        // Symbols of the linker at their start and end.
        static __bss_start: u8;
        static _end: u8;
    }
    let (start, end) = (&raw const __bss_start as usize, &raw const _end as usize);
    (
        start.next_multiple_of(PAGE_SIZE),
        end.next_multiple_of(PAGE_SIZE),
    )
}

#[cfg(not(mgz_cdylib))]
fn own_variables() -> (usize, usize) {
    (0, 0)
}

/// The program has opened its memory as a file, so that code may change.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Records that the program has opened its memory. Returns true the first time.
pub fn note_opened() -> bool {
    !OPENED.swap(true, Ordering::AcqRel)
}

/// True if code may change, so that clones may no longer match their originals.
pub fn may_code_change() -> bool {
    OPENED.load(Ordering::Acquire)
}
