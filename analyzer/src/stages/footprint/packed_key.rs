//! Keys of packed entries.

use crate::data::memory_units::CacheLine;
use crate::stages::footprint::record;

/// Bits of a packed key that hold the owner; the others hold the line. 41 bits for the line cover
/// 47 bits of addresses, the user space of x86-64 without five-level paging.
pub(super) const OWNER_BITS: u32 = 23;

pub(super) const OWNER_MASK: u32 = (1 << OWNER_BITS) - 1;

/// The owner's upper bits come last. Records have small owners and use these bits for other data,
/// so a record contains its key.
#[inline(always)]
pub(super) fn pack(line: CacheLine, owner: u32) -> u64 {
    line.number() << OWNER_BITS
        | u64::from(owner << record::OWNER_AT & OWNER_MASK)
        | u64::from(owner >> record::OWNER_BITS)
}

/// The owner in a key.
#[inline(always)]
pub(super) fn owner_in(key: u64) -> u32 {
    let owner = key as u32 & OWNER_MASK;
    owner >> record::OWNER_AT | owner << record::OWNER_BITS & OWNER_MASK
}

/// True if a line and an owner fit into a packed key. Such a key is never `u64::MAX`.
#[inline(always)]
pub(super) fn fits(line: CacheLine, owner: u32) -> bool {
    line.number() >> (u64::BITS - OWNER_BITS) == 0 && owner < (1 << OWNER_BITS) - 1
}
