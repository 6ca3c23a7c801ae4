//! A small table of the records that were appended last. A record that was appended twice has no
//! further effect, since maps only distinguish "once" and "twice or more", and bytes. If the same
//! addresses are accessed repeatedly, but with too many others in between for
//! [`crate::stages::footprint::write_cache`], most records need not be written, read and merged. If
//! few repetitions are found, the table is not used for a while.
//!
//! The table is direct-mapped. A hit is unpredictable, so there is no branch on it: each record is
//! written after the list of records to append, and the list grows only if the record was not there
//! twice.

use crate::stages::footprint::write_cache::MAX_TOUCHES_PER_BATCH;
use crate::util::adaptive::Trial;

/// Number of slots: a share of the second-level cache. Source: Chosen.
const TABLE_PLACES: usize = 1 << 14;
/// If fewer than one in this many records can be left out, the table is not used.
const TOO_FEW: usize = 4;

struct Table {
    records: [u64; TABLE_PLACES],
    /// True for records that were appended twice.
    twice: [bool; TABLE_PLACES],
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Repeats {
    table: Option<Box<Table>>,
    /// Counts records that were left out.
    trial: Trial,
}

impl Repeats {
    /// True if the next records should pass through [`Repeats::sift`].
    #[inline(always)]
    pub(crate) fn pays(&mut self, records: usize) -> bool {
        self.trial
            .goes_on(records, |all, found| found * TOO_FEW < all)
    }

    /// Returns the records to append, of at most [`MAX_TOUCHES_PER_BATCH`].
    #[inline(always)]
    pub(crate) fn sift<'a>(
        &mut self,
        records: &[u64],
        left: &'a mut [u64; MAX_TOUCHES_PER_BATCH],
    ) -> &'a [u64] {
        // No access has this record, since its code belongs to no size.
        let table = self.table.get_or_insert_with(|| {
            Box::new(Table {
                records: [u64::MAX; TABLE_PLACES],
                twice: [false; TABLE_PLACES],
            })
        });
        let mut count = 0;
        for &record in records.iter().take(MAX_TOUCHES_PER_BATCH) {
            let at = (record.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                >> (64 - TABLE_PLACES.trailing_zeros())) as usize
                % TABLE_PLACES;
            let same = table.records[at] == record;
            left[count % MAX_TOUCHES_PER_BATCH] = record;
            count += usize::from(!(same & table.twice[at]));
            table.records[at] = record;
            table.twice[at] = same;
        }
        self.trial.count(records.len() - count);
        &left[..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::footprint::packed_entry::Maps;
    use crate::stages::footprint::record;
    use crate::util::adaptive::TRIAL_ITEMS;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn maps(records: impl Iterator<Item = u64>) -> BTreeMap<u64, Maps> {
        let mut all: BTreeMap<u64, Maps> = BTreeMap::new();
        records.for_each(|r| {
            all.entry(record::key(r))
                .or_default()
                .merge(&record::maps(r))
        });
        all
    }

    proptest! {
        /// Leaving out repetitions does not change the maps.
        #[test]
        fn what_is_appended_has_the_maps_of_all(accesses in prop::collection::vec((0u64..60, 0u64..4, 0u32..7, 0u32..3), 0..600), far in any::<bool>()) {
            let record = |&(line, offset, code, owner): &(u64, u64, u32, u32)| {
                let bytes = 1 << code;
                record::pack(if far { line << 30 } else { line } * 64 + offset * u64::from(bytes) % 64, bytes, owner)
            };
            let records: Vec<u64> = accesses.iter().map(record).collect();
            let (mut repeats, mut kept, mut room) = (Repeats::default(), Vec::new(), [0; MAX_TOUCHES_PER_BATCH]);
            for some in records.chunks(MAX_TOUCHES_PER_BATCH) {
                kept.extend_from_slice(repeats.sift(some, &mut room));
            }
            prop_assert_eq!(maps(kept.iter().copied()), maps(records.iter().copied()));
        }
    }

    #[test]
    fn a_record_is_appended_twice_and_no_more() {
        let (mut repeats, mut room) = (Repeats::default(), [0; MAX_TOUCHES_PER_BATCH]);
        let records: Vec<u64> = (0..MAX_TOUCHES_PER_BATCH as u64)
            .map(|i| record::pack(i % 5 * 64, 8, 1))
            .collect();
        assert_eq!(repeats.sift(&records, &mut room), &records[..10]);
        assert!(repeats.sift(&records, &mut room).is_empty());
    }

    #[test]
    fn where_nothing_repeats_records_pass_by() {
        let (mut repeats, mut room, mut sifted) =
            (Repeats::default(), [0; MAX_TOUCHES_PER_BATCH], 0);
        for batch in 0..4096u64 {
            if repeats.pays(MAX_TOUCHES_PER_BATCH) {
                let records: Vec<u64> = (0..MAX_TOUCHES_PER_BATCH as u64)
                    .map(|i| record::pack((batch * MAX_TOUCHES_PER_BATCH as u64 + i) * 64, 8, 1))
                    .collect();
                sifted += repeats.sift(&records, &mut room).len();
            }
        }
        assert!((TRIAL_ITEMS..5 * TRIAL_ITEMS).contains(&sifted), "{sifted}");
    }
}
