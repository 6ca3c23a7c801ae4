//! Conversion of a ring's slots to records: a slot shared by two records becomes two slots.
//!
//! This is a pure function without a table of record forms: the id shows the form ([`ID_PAIR`]).
//! Every record of `full` is processed here, so there is no branch on the data except for markers.
//! Later stages do not have shared slots, but positions and counts refer to slots that probes wrote
//! ([`SegmentHeader::written`](crate::spill::SegmentHeader::written)).

use mgz_abi::slot::{ID_PAIR, MARK_FIRST, RingSlot, Slot};
use std::hint::select_unpredictable;

/// Number of slots that are checked together for markers, which are rare. Source: Chosen.
const SLOTS_PER_CHECK: usize = 8;

/// Appends the records of these slots to `out`.
///
/// A record of one payload leaves the old value in its slot's `aux`. That value is not copied: it
/// becomes zero.
pub fn unpack(ring: &[RingSlot], out: &mut Vec<Slot>) {
    out.reserve(2 * ring.len());
    let start = out.len();
    let room = out.spare_capacity_mut().as_mut_ptr().cast::<Slot>();
    let mut count = 0;
    let (pieces, rest) = ring.as_chunks::<SLOTS_PER_CHECK>();
    for piece in pieces {
        let marked = piece
            .iter()
            .fold(false, |any, slot| any | (slot.id >= MARK_FIRST));
        for slot in piece {
            // SAFETY: there is room for two records of each slot, and `count` is at most twice the
            // slots before this one.
            count += unsafe {
                if marked {
                    records(slot, room.add(count))
                } else {
                    records_unmarked(slot, room.add(count))
                }
            };
        }
    }
    for slot in rest {
        // SAFETY: as above.
        count += unsafe { records(slot, room.add(count)) };
    }
    // SAFETY: `count` slots were written, consecutively.
    unsafe { out.set_len(start + count) };
}

/// Writes the records of a slot of any kind. Returns their number.
///
/// # Safety
///
/// `to` must have room for two.
#[inline(always)]
unsafe fn records(slot: &RingSlot, to: *mut Slot) -> usize {
    // SAFETY: the caller's contract.
    unsafe {
        if slot.id >= MARK_FIRST {
            to.write(Slot {
                payload: slot.payload,
                id: slot.id,
                aux: slot.aux,
            });
            1
        } else {
            records_unmarked(slot, to)
        }
    }
}

/// [`records`] of a slot that is not a marker. The second record is always written, because a
/// branch on it would be unpredictable.
///
/// # Safety
///
/// `to` must have room for two.
#[inline(always)]
unsafe fn records_unmarked(slot: &RingSlot, to: *mut Slot) -> usize {
    let pair = slot.id & ID_PAIR != 0;
    let id = slot.id & !ID_PAIR;
    let first = select_unpredictable(pair, slot.short(), slot.payload);
    // SAFETY: the caller's contract.
    unsafe {
        write(to, first, id);
        write(to.add(1), slot.second(), id.wrapping_add(1));
    }
    1 + usize::from(pair)
}

/// A slot without `aux`, as two words: stores of four bytes cost as much as those of eight.
///
/// # Safety
///
/// As for [`std::ptr::write`].
#[inline(always)]
unsafe fn write(to: *mut Slot, payload: u64, id: u32) {
    // SAFETY: a slot is sixteen bytes in the order payload, id, aux, and any bytes are valid.
    unsafe { to.cast::<[u64; 2]>().write_unaligned([payload, id.into()]) };
}

// `write` relies on this layout.
const _: () = assert!(
    size_of::<Slot>() == 16
        && std::mem::offset_of!(Slot, id) == 8
        && cfg!(target_endian = "little")
);

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_abi::slot::{ID_LIMIT, MARK_CUT, PAIR_BITS, SLOT_ID, SLOT_PAYLOAD, SLOT_SECOND};
    use proptest::prelude::*;

    /// Stores of a probe: eight and four bytes at the offsets of the interface.
    fn store(slot: &mut RingSlot, payloads: &[u64], id: u32) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&slot.payload.to_le_bytes());
        bytes[8..12].copy_from_slice(&slot.aux.to_le_bytes());
        bytes[12..].copy_from_slice(&slot.id.to_le_bytes());
        for (&payload, at) in payloads.iter().zip([SLOT_PAYLOAD, SLOT_SECOND]) {
            bytes[at..at + 8].copy_from_slice(&payload.to_le_bytes());
        }
        bytes[SLOT_ID..].copy_from_slice(&id.to_le_bytes());
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        *slot = RingSlot {
            payload: u64::from(word(0)) | u64::from(word(4)) << 32,
            aux: word(8),
            id: word(12),
        };
    }

    proptest! {
        #[test]
        fn records_come_out_as_probes_wrote_them(
            records in prop::collection::vec((any::<bool>(), 0u32..ID_LIMIT, any::<u64>(), any::<i64>(), any::<(u64, u32, u32)>()), 0..50),
        ) {
            let (mut ring, mut expected) = (Vec::new(), Vec::new());
            for (pair, id, first, second, (payload, aux, old)) in records {
                let mut slot = RingSlot { payload, aux, id: old };
                let short = |v: i64| v << (64 - PAIR_BITS) >> (64 - PAIR_BITS);
                if pair {
                    store(&mut slot, &[first, second as u64], id | ID_PAIR);
                    expected.push(Slot { payload: short(first as i64) as u64, id, aux: 0 });
                    expected.push(Slot { payload: short(second) as u64, id: id + 1, aux: 0 });
                } else {
                    store(&mut slot, &[first], id);
                    expected.push(Slot { payload: first, id, aux: 0 });
                }
                ring.push(slot);
            }
            ring.push(RingSlot { payload: 7, aux: 9, id: MARK_CUT });
            expected.push(Slot { payload: 7, id: MARK_CUT, aux: 9 });
            let mut found = vec![Slot::default()];
            unpack(&ring, &mut found);
            prop_assert_eq!(&found[1..], &expected[..]);
        }
    }
}
