//! Spreads keys over 64 bits.

/// Spreads a block number over 64 bits (the multiplier of Fibonacci hashing).
#[inline(always)]
pub fn spread(key: u64) -> u64 {
    (key ^ (key >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
