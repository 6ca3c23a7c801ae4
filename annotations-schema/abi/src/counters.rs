//! Counters in memory, which are incremented by regions of files that only count (`--for count`).
//!
//! Each thread has an *area* of counters, one for each id that a record of such a file may have. It
//! is sparse: only pages with counts exist. Areas lie behind the thread slots in the file that
//! recorder and processes share, so that no counts are lost when a process ends.
//!
//! A probe takes the address of the area's middle from the control page and adds one to the counter
//! at [`displacement`] from there: an instruction reaches 2 GiB to either side.

/// Offset, from the `%gs` base, of the address of the middle of the thread's area.
pub const GS_COUNTERS: u32 = 120;
/// Ids of counting records are below this. Modules have disjoint ranges, as in other files.
pub const LIMIT: u32 = 1 << 29;
/// Bytes of a counter.
pub const BYTES: usize = 8;
/// Bytes of a thread's area.
pub const AREA: u64 = LIMIT as u64 * BYTES as u64;
/// Offset in an area of the address that probes use.
pub const MIDDLE: u64 = AREA / 2;

/// Offset of an id's counter from the area's middle. `None` if there is no counter.
pub const fn displacement(id: u32) -> Option<i32> {
    if id >= LIMIT {
        return None;
    }
    Some((id as i64 * BYTES as i64 - MIDDLE as i64) as i32)
}

/// Offset in the shared file of the area of a thread slot, if the first begins at `start`. The area
/// behind that of the last slot is *scrap*: threads whose records are dropped use it.
pub const fn area_offset(start: u64, slot: usize) -> u64 {
    start + slot as u64 * AREA
}

const _: () = assert!(
    displacement(0).unwrap() == i32::MIN
        && displacement(LIMIT - 1).unwrap() == i32::MAX - 7
        && displacement(LIMIT).is_none()
);
