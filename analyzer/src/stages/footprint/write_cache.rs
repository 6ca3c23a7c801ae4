//! A small table before the partitions. Touches of a line by the same code in short succession
//! become one entry. If there are few of these, the table is not used for a while.
//!
//! The table is direct-mapped. A hit is unpredictable, so there is no branch on it: the old entry
//! is always written after the list of evicted entries, and the list grows only if the entry has
//! another key.

use crate::stages::footprint::packed_entry::{Maps, PackedEntry};
use crate::stages::footprint::partition::Partitions;
use crate::stages::footprint::record;
use crate::util::adaptive::Trial;
use std::hint::select_unpredictable;

/// Initial and greatest number of places: a share of the second-level cache. (There may be many
/// tables with few entries.) Source: Chosen.
const MIN_PLACES: usize = 1 << 7;
/// Source: Chosen.
const MAX_PLACES: usize = 1 << 12;
/// Maximum number of touches between two calls of [`Front::drain`]. Source: Chosen.
pub(crate) const MAX_TOUCHES_PER_BATCH: usize = 256;
/// The table is too small if more than one touch in this many finds another key. An evicted entry
/// is four times as long as a record.
const TOO_MANY: usize = 4;
/// No key: [`crate::stages::footprint::packed_key::pack`] returns it for no line of a user-space program.
const FREE_ENTRY: PackedEntry = PackedEntry {
    key: u64::MAX,
    maps: Maps {
        seen: 0,
        twice: 0,
        bytes: 0,
    },
};

/// Index of a key in a table with a power of two of slots: upper bits of a product that depend on
/// all bits of the key.
#[inline(always)]
fn home(record: u64, places: &[PackedEntry]) -> usize {
    (record::key(record).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (places.len() - 1)
}

/// Merges touches into the entries at their index. Returns the number of evicted entries, which are
/// at the beginning of `leaving`.
fn join(places: &mut [PackedEntry], leaving: &mut [PackedEntry], records: &[u64]) -> usize {
    let mut count = 0;
    for &record in records {
        let key = record::key(record);
        let place = &mut places[home(record, places)];
        let same = place.key == key;
        leaving[count] = *place;
        count += usize::from(!same);
        let known = |map: u64| select_unpredictable(same, map, 0);
        let mut joined = Maps {
            seen: known(place.maps.seen),
            twice: known(place.maps.twice),
            bytes: known(place.maps.bytes),
        };
        joined.merge(&record::maps(record));
        *place = PackedEntry { key, maps: joined };
    }
    count
}

/// As `join`, with an entry as one vector, which is read, merged and written as a whole. (Reading a
/// value as a whole soon after it was written in parts is slow, since store forwarding fails.)
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn join_wide(places: &mut [PackedEntry], leaving: &mut [PackedEntry], records: &[u64]) -> usize {
    use std::arch::x86_64::*;
    let key_mask = _mm256_set_epi64x(0, 0, 0, record::key(u64::MAX) as i64);
    let offset_mask = _mm256_set1_epi64x(63);
    let mut count = 0;
    for &record in records {
        let place = &mut places[home(record, places)];
        let all = _mm256_set1_epi64x(record as i64);
        let offset = _mm256_and_si256(
            _mm256_srli_epi64::<{ record::OFFSET_AT as i32 }>(all),
            offset_mask,
        );
        let at_zero = &record::AT_ZERO[record as usize % record::AT_ZERO.len()];
        let place: *mut __m256i = std::ptr::from_mut(place).cast();
        let leaves: *mut __m256i = std::ptr::from_mut(&mut leaving[count]).cast();
        // SAFETY: places have the size and alignment of the type, and any bit pattern is valid for
        // both.
        let (known, maps) = unsafe {
            (
                _mm256_load_si256(place),
                _mm256_load_si256(std::ptr::from_ref(at_zero).cast()),
            )
        };
        let maps = _mm256_sllv_epi64(maps, offset);
        let new = _mm256_or_si256(maps, _mm256_and_si256(all, key_mask));
        let same = _mm256_permute4x64_epi64::<0>(_mm256_cmpeq_epi64(known, new));
        // Common starts, shifted to the field of starts seen twice. The fields before it are zero.
        let twice = _mm256_slli_si256::<8>(_mm256_and_si256(known, maps));
        let joined = _mm256_or_si256(new, _mm256_and_si256(same, _mm256_or_si256(known, twice)));
        // SAFETY: as above.
        unsafe {
            _mm256_store_si256(leaves, known);
            _mm256_store_si256(place, joined);
        }
        count += (1 + _mm_cvtsi128_si64(_mm256_castsi256_si128(same))) as usize;
    }
    count
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Front {
    places: Vec<PackedEntry>,
    /// Evicted entries, and their number.
    leaving: Vec<PackedEntry>,
    count: usize,
    /// Number of evictions since the table was resized.
    left: usize,
    /// Counts touches that evicted other entries.
    trial: Trial,
}

impl Front {
    /// True if the next touches should be added to the table.
    #[inline(always)]
    pub(crate) fn pays(&mut self, touches: usize) -> bool {
        self.trial
            .goes_on(touches, |all, left| left * TOO_MANY > all)
    }

    /// Adds at most [`MAX_TOUCHES_PER_BATCH`] touches. [`Front::drain`] must be called afterwards.
    #[inline(always)]
    pub(crate) fn add(&mut self, records: &[u64]) {
        if self.places.is_empty() {
            self.resize(MIN_PLACES);
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU supports the feature for which the function is compiled, as was just
            // checked.
            self.count = unsafe { join_wide(&mut self.places, &mut self.leaving, records) };
            return;
        }
        self.count = join(&mut self.places, &mut self.leaving, records);
    }

    #[cold]
    fn resize(&mut self, size: usize) {
        self.places = vec![FREE_ENTRY; size];
        self.leaving.resize(MAX_TOUCHES_PER_BATCH + 1, FREE_ENTRY);
        self.left = 0;
    }

    /// Appends the evicted entries to partitions.
    #[inline(always)]
    pub(crate) fn drain(&mut self, partitions: &mut Partitions) {
        for place in &self.leaving[..self.count] {
            if place.key != FREE_ENTRY.key {
                partitions.push_entry(*place);
            }
        }
        self.trial.count(self.count);
        self.left += std::mem::take(&mut self.count);
        if self.left > self.places.len() * 2 && self.places.len() < MAX_PLACES {
            let size = self.places.len() * 4;
            self.flush(partitions);
            self.resize(size.min(MAX_PLACES));
        }
    }

    /// Appends all entries to partitions, after [`Front::drain`].
    pub(crate) fn flush(&mut self, partitions: &mut Partitions) {
        self.places
            .drain(..)
            .filter(|p| p.key != FREE_ENTRY.key)
            .for_each(|p| partitions.push_entry(p));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that collide in few places, each touched at several offsets, consecutively and
    /// alternating.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn joining_whole_places_agrees_with_joining_their_parts() {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return;
        }
        let mut state = 5u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for size in [1, 8, MIN_PLACES] {
            let (mut plain, mut wide) = (vec![FREE_ENTRY; size], vec![FREE_ENTRY; size]);
            let (mut out, mut wide_out) = (
                vec![FREE_ENTRY; MAX_TOUCHES_PER_BATCH + 1],
                vec![FREE_ENTRY; MAX_TOUCHES_PER_BATCH + 1],
            );
            for round in 0..200 {
                let mut record = 0;
                let records: Vec<u64> = (0..MAX_TOUCHES_PER_BATCH)
                    .map(|_| {
                        if below(3) > 0 {
                            let bytes = 1 << below(7);
                            let line = if round % 2 == 0 {
                                below(40)
                            } else {
                                (1 << 41) - 1 - below(400)
                            };
                            record = record::pack(
                                line * 64 + below(64 / bytes) * bytes,
                                bytes as u32,
                                below(3) as u32 * 8191,
                            );
                        }
                        record
                    })
                    .collect();
                let count = join(&mut plain, &mut out, &records);
                // SAFETY: the CPU supports the feature, as was checked above.
                let wide_count = unsafe { join_wide(&mut wide, &mut wide_out, &records) };
                assert_eq!(wide_count, count);
                assert!(plain == wide && out[..count] == wide_out[..count]);
            }
            assert!(plain.iter().any(|p| p.maps.twice != 0));
        }
    }
}
