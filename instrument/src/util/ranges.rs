//! Sorted ranges of addresses.

use std::ops::Range;

/// True if any byte of `range` is in one of `data`, which is sorted.
pub fn overlaps(data: &[Range<u64>], range: &Range<u64>) -> bool {
    data.get(data.partition_point(|d| d.end <= range.start))
        .is_some_and(|d| d.start < range.end)
}
