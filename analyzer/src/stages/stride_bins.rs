//! Bins of differences between addresses.

use std::hint::select_unpredictable;

/// Greatest difference that is counted individually. Source: Chosen.
pub(crate) const MAX_EXACT_STEP: i64 = 512;

/// First bin of greater differences, and the number of these bins.
pub(super) const FIRST_FAR_BIN: u32 = 2 * MAX_EXACT_STEP as u32 + 1;

pub(super) const FAR_BINS: usize = 128;

/// Bits of a key that hold the bin.
pub(super) const BIN_BITS: u32 = 11;

/// Number of the bin of a difference.
#[inline(always)]
pub(super) fn bin(difference: i64) -> u32 {
    let octave = (difference.unsigned_abs() | 1).ilog2();
    let far = FIRST_FAR_BIN + octave * 2 + u32::from(difference < 0);
    // The case is unpredictable if both occur, so there is no branch.
    select_unpredictable(
        (-MAX_EXACT_STEP..=MAX_EXACT_STEP).contains(&difference),
        difference.wrapping_add(MAX_EXACT_STEP) as u32,
        far,
    )
}

/// Smallest and greatest difference of a bin.
pub(crate) fn range(bin: u32) -> (i64, i64) {
    if bin <= 2 * MAX_EXACT_STEP as u32 {
        let value = i64::from(bin) - MAX_EXACT_STEP;
        return (value, value);
    }
    let rest = bin - FIRST_FAR_BIN;
    let octave = (rest / 2).min(63);
    let from = (1u64 << octave).max(MAX_EXACT_STEP as u64 + 1);
    let to = if octave >= 63 {
        u64::MAX
    } else {
        (2u64 << octave) - 1
    };
    let clip = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    if rest % 2 == 1 {
        (-clip(to), -clip(from))
    } else {
        (clip(from), clip(to))
    }
}
