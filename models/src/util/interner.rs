//! Small numbers for large keys: the first key gets 0, the next new one 1, and so on.
//!
//! Counts by number need no further look-up. Whether a key is new is unpredictable, so there is no
//! branch on it: a free slot and the key's own slot are treated alike. Only a slot with another key
//! leads to a second probe, and the table is so sparse that this is rare.

use crate::util::hash::spread;
use crate::util::memory::{large_vec, prefetch};
use std::hint::select_unpredictable;

/// Bits of a table entry that hold the number plus one; the others hold the key.
const NUMBER_BITS: u32 = 17;
/// Maximum number of keys.
pub const MAX_NUMBERS: usize = 1 << (NUMBER_BITS - 1);
/// Keys are below `1 << KEY_BITS`. This covers the user space of x86-64 without five-level paging.
pub const KEY_BITS: u32 = 64 - NUMBER_BITS;
/// Keys that are numbered together. Source: Chosen.
pub const KEYS_PER_BATCH: usize = 256;
/// Extra entries after the keys, to which a batch may write.
const BATCH_ROOM: usize = KEYS_PER_BATCH * 2;
/// Source: Chosen.
const MIN_PLACES: usize = 1 << 11;
/// Tables of at least this size do not stay in the first-level cache.
const LARGE_TABLE_PLACES: usize = 1 << 13;

/// See the module's text.
#[derive(Clone)]
pub struct DenseNames {
    /// Key and number plus one; 0 is free.
    table: Vec<u64>,
    shift: u32,
    /// Keys by number, with room for a batch after them.
    keys: Vec<u64>,
    /// Slot of each key in the table, by number.
    places: Vec<u32>,
    len: usize,
}

impl Default for DenseNames {
    fn default() -> DenseNames {
        DenseNames::new()
    }
}

impl DenseNames {
    /// No keys yet.
    pub fn new() -> DenseNames {
        DenseNames {
            table: vec![0; MIN_PLACES],
            shift: 64 - MIN_PLACES.trailing_zeros(),
            keys: Vec::new(),
            places: Vec::new(),
            len: 0,
        }
    }

    /// Number of keys.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The keys, by number.
    #[inline(always)]
    pub fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        if self.table.len() > MIN_PLACES && self.len * 32 < self.table.len() {
            // After a large sample, the table shrinks so that small ones stay in the cache.
            self.resize((self.table.len() / 4).max(MIN_PLACES));
        } else if self.len * 16 < self.table.len() {
            self.places[..self.len]
                .iter()
                .for_each(|&at| self.table[at as usize] = 0);
        } else {
            self.table.fill(0);
        }
        self.len = 0;
    }

    /// Replaces the table by an empty one of `size` slots.
    fn resize(&mut self, size: usize) {
        self.table = large_vec(0, size);
        self.shift = 64 - size.trailing_zeros();
    }

    /// Reserves room for `more` keys.
    #[inline(always)]
    fn reserve(&mut self, more: usize) {
        if self.keys.len() < self.len + BATCH_ROOM || self.table.len() < (self.len + more) * 3 {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let room = self.len + more.max(BATCH_ROOM);
        if self.keys.len() < room {
            self.keys.resize(room * 2, 0);
            self.places.resize(room * 2, 0);
        }
        let size = ((self.len + more) * 3).next_power_of_two();
        if size <= self.table.len() {
            return;
        }
        self.resize(size);
        for number in 0..self.len {
            let key = self.keys[number];
            let mut at = (spread(key) >> self.shift) as usize & (size - 1);
            while self.table[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.table[at] = key << NUMBER_BITS | (number as u64 + 1);
            self.places[number] = at as u32;
        }
    }

    /// The numbers of some keys, at most [`KEYS_PER_BATCH`], each of at most [`KEY_BITS`] bits.
    /// There are never more than [`MAX_NUMBERS`] keys.
    #[inline(always)]
    pub fn number(
        &mut self,
        keys: impl Iterator<Item = u64> + Clone,
        numbers: &mut [u32; KEYS_PER_BATCH],
    ) {
        self.reserve(KEYS_PER_BATCH);
        let (shift, mask) = (self.shift, self.table.len() - 1);
        let home = |key: u64| (spread(key) >> shift) as usize & mask;
        if self.table.len() > LARGE_TABLE_PLACES {
            keys.clone()
                .for_each(|key| prefetch(&self.table[home(key)]));
        }
        let table = &mut self.table[..];
        let from = self.len;
        // The lengths are powers of two, so indices need no bounds check.
        let (Some(known), Some(places)) = (
            self.keys[from..].first_chunk_mut::<BATCH_ROOM>(),
            self.places[from..].first_chunk_mut::<BATCH_ROOM>(),
        ) else {
            return;
        };
        let mut new = 0usize;
        for (key, number) in keys.zip(numbers.iter_mut()) {
            debug_assert!(key >> KEY_BITS == 0);
            let mut at = home(key);
            let packed = key << NUMBER_BITS;
            // An empty slot gets the new entry. An occupied one is rewritten with its own entry.
            let (entry, is_new) = loop {
                let there = table[at];
                let entry =
                    select_unpredictable(there == 0, packed | (from + new + 1) as u64, there);
                table[at] = entry;
                if (entry ^ packed) >> NUMBER_BITS == 0 {
                    break (entry, there == 0);
                }
                at = (at + 1) & mask;
            };
            // A known key is also written, to the place of the next new one.
            known[new % BATCH_ROOM] = key;
            places[new % BATCH_ROOM] = at as u32;
            new += usize::from(is_new);
            *number = (entry & ((1 << NUMBER_BITS) - 1)) as u32 - 1;
        }
        self.len = from + new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn numbers_are_those_of_first_sight(
            samples in prop::collection::vec((prop::collection::vec(0u64..5000, 0..3000), 0u32..37, any::<bool>()), 1..5),
        ) {
            let mut names = DenseNames::new();
            for (keys, shift, scatter) in samples {
                names.clear();
                let key = |k: u64| if scatter { spread(k) >> (64 - KEY_BITS) } else { k << shift.min(KEY_BITS - 13) };
                let mut known: HashMap<u64, u32> = HashMap::new();
                let mut numbers = [0; KEYS_PER_BATCH];
                for batch in keys.chunks(KEYS_PER_BATCH) {
                    names.number(batch.iter().map(|&k| key(k)), &mut numbers);
                    for (&k, &number) in batch.iter().zip(&numbers) {
                        let next = known.len() as u32;
                        prop_assert_eq!(number, *known.entry(key(k)).or_insert(next));
                    }
                }
                prop_assert_eq!(names.len(), known.len());
                for (key, number) in known {
                    prop_assert_eq!(names.keys()[number as usize], key);
                }
            }
        }
    }

    #[test]
    fn a_table_can_be_filled_to_the_last_number() {
        let mut names = DenseNames::new();
        let mut numbers = [0; KEYS_PER_BATCH];
        for turn in 0..2u64 {
            for from in (0..MAX_NUMBERS as u64).step_by(KEYS_PER_BATCH) {
                names.number(
                    (from..from + KEYS_PER_BATCH as u64).map(|k| k * 4096 + turn),
                    &mut numbers,
                );
                assert_eq!(
                    u64::from(numbers[KEYS_PER_BATCH - 1]),
                    from + KEYS_PER_BATCH as u64 - 1
                );
            }
            assert_eq!(names.len(), MAX_NUMBERS);
            names.clear();
        }
        assert!(names.is_empty());
    }
}
