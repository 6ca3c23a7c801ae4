//! From slots of a ring to records: a slot that two records share becomes two slots.
//!
//! Pure, and without a table of which record is of which form: the id says it ([`ID_PAIR`](crate::abi::ID_PAIR)). It stands in the way of all that `full` records, so it has no
//! branch on the data. From here on nobody knows that records share slots, but for positions and counts, which are of slots that probes wrote
//! ([`SegmentHeader::written`](crate::spill::SegmentHeader::written)).

use crate::abi::{ID_PAIR, MARK_FIRST, RingSlot, Slot};

/// Appends the records of these slots to `out`.
///
/// What a record of one payload leaves as it was in its slot (`aux`) is not taken over: it is zero.
pub fn unpack(ring: &[RingSlot], out: &mut Vec<Slot>) {
    out.reserve(2 * ring.len());
    let start = out.len();
    let room = &mut out.spare_capacity_mut()[..2 * ring.len()];
    let mut count = 0;
    for slot in ring {
        let (pair, marker) = (slot.is_pair(), slot.id >= MARK_FIRST);
        let id = if marker { slot.id } else { slot.id & !ID_PAIR };
        let aux = if marker { slot.aux } else { 0 };
        // The second is written over by what follows if there is none.
        room[count].write(Slot { payload: slot.first(), id, aux });
        room[count + 1].write(Slot { payload: slot.second(), id: id.wrapping_add(1), aux: 0 });
        count += 1 + usize::from(pair);
    }
    // SAFETY: `count` slots were written, one after the other; there is room for two a slot.
    unsafe { out.set_len(start + count) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{ID_LIMIT, MARK_CUT, PAIR_BITS, SLOT_ID, SLOT_PAYLOAD, SLOT_SECOND};
    use proptest::prelude::*;

    /// What probes do: stores of eight and four bytes at the places of the interface.
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
        *slot = RingSlot { payload: u64::from(word(0)) | u64::from(word(4)) << 32, aux: word(8), id: word(12) };
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
