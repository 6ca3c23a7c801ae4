//! A row as one number: line, owner, offset in the line, size. Nearly all rows are like that.

use super::{Maps, Place};

/// Bits of a record that hold the code of the size, the offset, the owner; the others hold the line.
const CODE_BITS: u32 = 3;
pub(super) const OFFSET_AT: u32 = CODE_BITS;
const OFFSET_BITS: u32 = 6;
pub(super) const OWNER_BITS: u32 = 14;
pub(super) const OWNER_AT: u32 = CODE_BITS + OFFSET_BITS;
const LINE_AT: u32 = OWNER_AT + OWNER_BITS;

/// Where bytes are for an access of `1 << code` bytes at offset 0.
const BYTES: [u64; 8] = [1, 3, 0xf, 0xff, 0xffff, 0xffff_ffff, u64::MAX, 0];

/// What is known after one, by the code of its size, in a place without a key.
pub(super) const AT_ZERO: [Place; 8] = {
    let mut places = [Place { key: 0, maps: Maps { bytes: 0, seen: 1, twice: 0 } }; 8];
    let mut code = 0;
    while code < 8 {
        places[code].maps.bytes = BYTES[code];
        code += 1;
    }
    places
};

/// The record of an access; wrong if it is [`unfit`].
#[inline(always)]
pub(super) fn pack(address: u64, size: u32, owner: u32) -> u64 {
    let code = u64::from(size.max(1).trailing_zeros());
    (address >> 6) << LINE_AT | u64::from(owner) << OWNER_AT | (address & 63) << CODE_BITS | code
}

/// 0 if an access has a record: its size is a power of two, it stays in its line, and all numbers are small enough.
#[inline(always)]
pub(super) fn unfit(address: u64, size: u32, owner: u32) -> u64 {
    let size = size.max(1);
    let last = (address & 63) + u64::from(size) - 1;
    address >> (6 + 64 - LINE_AT) | u64::from(owner >> OWNER_BITS) | u64::from(size & (size - 1)) | last >> 6
}

/// 0 if all accesses by these owners have records. (The compiler makes vectors of it.)
#[inline(always)]
pub(super) fn any_unfit(address: &[u64], size: &[u32], owners: u32) -> u64 {
    let each = address.iter().zip(size).fold((0, 0), |(far, odd), (&address, &size)| {
        let size = size + u32::from(size == 0);
        (far | address, odd | size & (size - 1) | (address as u32 & 63).wrapping_add(size - 1) >> 6)
    });
    each.0 >> (6 + 64 - LINE_AT) | u64::from(each.1) | u64::from(owners >> OWNER_BITS)
}

/// The line of a record.
#[inline(always)]
pub(super) fn line(record: u64) -> u64 {
    record >> LINE_AT
}

/// The key of its entry.
#[inline(always)]
pub(super) fn key(record: u64) -> u64 {
    record >> OWNER_AT << OWNER_AT
}

/// What is known after it.
#[inline(always)]
pub(super) fn maps(record: u64) -> Maps {
    let offset = record >> CODE_BITS & 63;
    Maps { seen: 1 << offset, twice: 0, bytes: BYTES[record as usize & 7] << offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::{owner_in, pack as pack_key, touch};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_stands_for_its_access(address in prop_oneof![0u64..200, any::<u64>(), (1u64 << 47) - 70..(1u64 << 47) + 9], size in 0u32..140, owner in prop_oneof![0u32..9, 16_380u32..16_390]) {
            let bytes = size.max(1);
            let fits = address < 1 << 47 && owner < 1 << 14 && bytes.is_power_of_two() && address % 64 + u64::from(bytes) <= 64;
            prop_assert_eq!(unfit(address, size, owner) == 0, fits);
            prop_assert_eq!(any_unfit(&[0, address, 63], &[9 - 1, size, 1], 7 | owner) == 0, fits);
            prop_assert_eq!(owner_in(pack_key(address / 64, owner * 500)), owner * 500);
            if fits {
                let record = pack(address, size, owner);
                prop_assert_eq!(line(record), address / 64);
                prop_assert_eq!(key(record), pack_key(address / 64, owner));
                prop_assert_eq!(owner_in(key(record)), owner);
                prop_assert_eq!(maps(record), touch((address % 64) as u32, bytes, true));
            }
        }
    }
}
