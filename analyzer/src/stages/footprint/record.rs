//! A row as one number: line, owner, offset in the line, size. Nearly all rows fit.

use crate::data::memory_units::{CacheLine, LINE_BYTES, LINE_SHIFT};
use crate::stages::footprint::packed_entry::{Maps, PackedEntry};

/// Bits of a record that hold the code of the size, the offset, the owner; the others hold the
/// line.
const CODE_BITS: u32 = 3;
pub(crate) const OFFSET_AT: u32 = CODE_BITS;
const OFFSET_BITS: u32 = LINE_SHIFT;
pub(crate) const OWNER_BITS: u32 = 14;
pub(crate) const OWNER_AT: u32 = CODE_BITS + OFFSET_BITS;
const LINE_AT: u32 = OWNER_AT + OWNER_BITS;

/// Code of a size that is a power of two, at most 64. It is computed by multiplying and shifting,
/// which vector instructions support: multiplication by the size shifts a de Bruijn sequence, whose
/// groups of three bits are distinct.
#[inline(always)]
const fn code(size: u32) -> u32 {
    size.wrapping_mul(0b0001_0111) >> 5 & 7
}

/// State after an access at offset 0, by the code of its size, with key 0. One code belongs to no
/// size.
pub(crate) const AT_ZERO: [PackedEntry; 8] = {
    let mut places = [PackedEntry {
        key: 0,
        maps: Maps {
            bytes: 0,
            seen: 1,
            twice: 0,
        },
    }; 8];
    let mut size = 1;
    while size <= LINE_BYTES as u32 {
        places[code(size) as usize].maps.bytes = u64::MAX >> (64 - size);
        size *= 2;
    }
    places
};

/// The record of an access. The access must not be [`unfit`].
#[inline(always)]
pub(crate) fn pack(address: u64, size: u32, owner: u32) -> u64 {
    let size = size + u32::from(size == 0);
    CacheLine::of(address).number() << LINE_AT
        | u64::from(owner) << OWNER_AT
        | CacheLine::offset(address) << CODE_BITS
        | u64::from(code(size))
}

/// 0 if an access has a record: its size is a power of two, it stays in its line, and all numbers
/// are small enough.
#[inline(always)]
pub(crate) fn unfit(address: u64, size: u32, owner: u32) -> u64 {
    let size = size + u32::from(size == 0);
    let last = (CacheLine::offset(address) as u32).wrapping_add(size - 1);
    address >> (LINE_SHIFT + u64::BITS - LINE_AT)
        | u64::from(owner >> OWNER_BITS | size & (size - 1) | last >> LINE_SHIFT)
}

/// The records of accesses, and 0 if all have one.
pub(crate) fn pack_all(address: &[u64], size: &[u32], owner: &[u32], records: &mut [u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU supports the feature for which the function is compiled, as was just
        // checked.
        return unsafe { pack_wide(address, size, owner, records) };
    }
    pack_each(address, size, owner, records)
}

/// As [`pack_all`], with vectors of four.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_wide(address: &[u64], size: &[u32], owner: &[u32], records: &mut [u64]) -> u64 {
    pack_each(address, size, owner, records)
}

#[inline(always)]
fn pack_each(address: &[u64], size: &[u32], owner: &[u32], records: &mut [u64]) -> u64 {
    address.iter().zip(size).zip(owner).zip(records).fold(
        0,
        |any, (((&address, &size), &owner), record)| {
            *record = pack(address, size, owner);
            any | unfit(address, size, owner)
        },
    )
}

/// The line of a record.
#[inline(always)]
pub(crate) fn line(record: u64) -> CacheLine {
    CacheLine::from_number(record >> LINE_AT)
}

/// The key of a record's entry.
#[inline(always)]
pub(crate) fn key(record: u64) -> u64 {
    record >> OWNER_AT << OWNER_AT
}

/// The line's state after the record's access.
#[inline(always)]
pub(crate) fn maps(record: u64) -> Maps {
    let offset = record >> CODE_BITS & ((1 << OFFSET_BITS) - 1);
    Maps {
        seen: 1 << offset,
        twice: 0,
        bytes: AT_ZERO[record as usize & 7].maps.bytes << offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::footprint::packed_key::{owner_in, pack as pack_key};
    use crate::stages::footprint::touch;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_stands_for_its_access(address in prop_oneof![0u64..200, any::<u64>(), (1u64 << 47) - 70..(1u64 << 47) + 9], size in 0u32..140, owner in prop_oneof![0u32..9, 16_380u32..16_390]) {
            let bytes = size.max(1);
            let fits = address < 1 << 47 && owner < 1 << 14 && bytes.is_power_of_two() && address % 64 + u64::from(bytes) <= 64;
            prop_assert_eq!(unfit(address, size, owner) == 0, fits);
            let (address_of, size_of, owner_of, mut records) = ([0, address, 63, 7, 9], [8, size, 1, 64, 4], [0, owner, 3, 2, 1], [0; 5]);
            // The lengths include partly filled vectors.
            for from in 0..2 {
                let some = from..from + 4;
                let any = pack_all(&address_of[some.clone()], &size_of[some.clone()], &owner_of[some.clone()], &mut records[some.clone()]);
                prop_assert!(some.clone().filter(|&i| i != 3).all(|i| records[i] == pack(address_of[i], size_of[i], owner_of[i])));
                prop_assert!(any != 0, "64 bytes at 7 are of two lines");
            }
            prop_assert_eq!(pack_all(&address_of[..3], &size_of[..3], &owner_of[..3], &mut records) == 0, fits);
            prop_assert_eq!(owner_in(pack_key(CacheLine::of(address), owner * 500)), owner * 500);
            if fits {
                let record = pack(address, size, owner);
                prop_assert_eq!(line(record), CacheLine::of(address));
                prop_assert_eq!(key(record), pack_key(CacheLine::of(address), owner));
                prop_assert_eq!(owner_in(key(record)), owner);
                prop_assert_eq!(maps(record), touch((address % 64) as u32, bytes, true));
            }
        }
    }
}
