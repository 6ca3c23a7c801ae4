//! From a block to the time of its last access, for very many blocks.
//!
//! Programs touch adjacent blocks, so eight neighbours share an entry of one cache line: their
//! number, and eight times of 56 bits (two years at a billion accesses per second). A footprint
//! without gaps costs 10 to 13 bytes per block, and a pass over it fetches one line for eight
//! blocks. A block whose neighbours are never touched costs a whole line.
//!
//! Entries are in hash tables with linear probing. A small table has one *segment*. A large one has
//! 64, selected by the hash's upper bits. They grow one at a time, and large ones only by a
//! quarter. So growing never doubles the memory of the whole table.

use crate::util::hash::spread;
use crate::{large_vec, prefetch};

/// Blocks of an entry, as a power of two.
const GROUP_BITS: u32 = 3;
/// Times that an entry can hold.
#[cfg(test)]
const MAX_TIME: u64 = (1 << 56) - 1;
/// Entries of the smallest table.
const MIN_ENTRIES: usize = 256;
/// Number of entries at which one segment is divided. Source: Chosen.
const ENTRIES_OF_FIRST_SEGMENT: usize = 1 << 16;
const SEGMENT_BITS: u32 = 6;
/// Number of entries of a segment (64 MiB) from which on it grows by a quarter instead of doubling.
/// Source: Chosen.
const SLOW_GROWTH_ENTRIES: usize = 1 << 20;

/// The group's number + 1 in the first eight bytes (0: free), then eight times of seven bytes.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Entry([u8; 64]);

const FREE_ENTRY: Entry = Entry([0; 64]);

impl Entry {
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    #[inline(always)]
    fn key(&self) -> u64 {
        self.word(0)
    }

    /// A time is read and written together with the byte before it.
    #[inline(always)]
    fn time(&self, block: u64) -> u64 {
        self.word(7 + 7 * (block & 7) as usize) >> 8
    }

    #[inline(always)]
    fn set(&mut self, block: u64, time: u64) {
        let at = 7 + 7 * (block & 7) as usize;
        let word = time << 8 | self.word(at) & 0xff;
        self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

struct Segment {
    entries: Vec<Entry>,
    used: usize,
}

impl Segment {
    fn new(entries: usize) -> Segment {
        Segment {
            entries: large_vec(FREE_ENTRY, entries),
            used: 0,
        }
    }

    /// True if one more entry needs a larger table.
    #[inline(always)]
    fn full(&self) -> bool {
        self.used * 5 >= self.entries.len() * 4
    }

    /// Index of a group's entry, or of the free entry for it.
    #[inline(always)]
    fn find(&self, hash: u64, key: u64) -> usize {
        let mut at = home(hash, self.entries.len());
        loop {
            let found = self.entries[at].key();
            if found == key || found == 0 {
                return at;
            }
            at += 1;
            if at == self.entries.len() {
                at = 0;
            }
        }
    }

    #[cold]
    fn grow(&mut self, bits: u32) {
        let size = if self.entries.len() < SLOW_GROWTH_ENTRIES {
            self.entries.len() * 2
        } else {
            self.entries.len() / 4 * 5
        };
        let old = std::mem::replace(&mut self.entries, large_vec(FREE_ENTRY, size));
        for entry in old.into_iter().filter(|e| e.key() != 0) {
            let at = self.find(spread(entry.key()) << bits, entry.key());
            self.entries[at] = entry;
        }
    }
}

/// First slot for a hash in a table: the hash scaled to the table's size.
#[inline(always)]
fn home(hash: u64, entries: usize) -> usize {
    ((u128::from(hash) * entries as u128) >> 64) as usize
}

/// See the module's text.
pub(crate) struct Times {
    segments: Vec<Segment>,
    /// Bits of the hash that select the segment.
    bits: u32,
}

impl Times {
    pub(crate) fn new() -> Times {
        Times {
            segments: vec![Segment::new(MIN_ENTRIES)],
            bits: 0,
        }
    }

    /// Removes all times.
    pub(crate) fn clear(&mut self) {
        // A mostly empty table is replaced by a small one, which stays in the cache.
        if self.segments.len() > 1 || self.segments[0].used * 16 < self.segments[0].entries.len() {
            *self = Times::new();
        } else {
            self.segments[0].entries.fill(FREE_ENTRY);
            self.segments[0].used = 0;
        }
    }

    #[inline(always)]
    fn split(&self, key: u64) -> (usize, u64) {
        let hash = spread(key);
        (
            ((hash >> 1) >> (63 - self.bits)) as usize,
            hash << self.bits,
        )
    }

    #[inline(always)]
    fn key(block: u64) -> u64 {
        (block >> GROUP_BITS) + 1
    }

    /// Prefetches the data that an access to a block needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, block: u64) {
        let (segment, hash) = self.split(Times::key(block));
        let entries = &self.segments[segment].entries;
        if let Some(entry) = entries.get(home(hash, entries.len())) {
            prefetch(entry);
        }
    }

    /// Time of a block; 0 if there is none.
    #[inline(always)]
    pub(crate) fn get(&self, block: u64) -> u64 {
        let key = Times::key(block);
        let (segment, hash) = self.split(key);
        let segment = &self.segments[segment];
        segment.entries[segment.find(hash, key)].time(block)
    }

    /// Sets the time of a block. Returns the previous one, or 0.
    #[inline(always)]
    pub(crate) fn swap(&mut self, block: u64, time: u64) -> u64 {
        let key = Times::key(block);
        let (number, hash) = self.split(key);
        let segment = &mut self.segments[number];
        let at = segment.find(hash, key);
        let entry = &mut segment.entries[at];
        if entry.key() == 0 {
            self.insert(key, block, time);
            return 0;
        }
        let before = entry.time(block);
        entry.set(block, time);
        before
    }

    #[inline(never)]
    fn insert(&mut self, key: u64, block: u64, time: u64) {
        let (mut number, mut hash) = self.split(key);
        if self.segments[number].full() {
            if self.bits == 0 && self.segments[0].entries.len() >= ENTRIES_OF_FIRST_SEGMENT {
                self.divide();
                (number, hash) = self.split(key);
            } else {
                self.segments[number].grow(self.bits);
            }
        }
        let segment = &mut self.segments[number];
        let at = segment.find(hash, key);
        let mut entry = FREE_ENTRY;
        entry.0[..8].copy_from_slice(&key.to_le_bytes());
        entry.set(block, time);
        segment.entries[at] = entry;
        segment.used += 1;
    }

    /// Divides one segment into many.
    fn divide(&mut self) {
        let old = std::mem::take(&mut self.segments);
        self.bits = SEGMENT_BITS;
        self.segments = (0..1 << SEGMENT_BITS)
            .map(|_| Segment::new(ENTRIES_OF_FIRST_SEGMENT >> (SEGMENT_BITS - 1)))
            .collect();
        for entry in old
            .into_iter()
            .flat_map(|s| s.entries)
            .filter(|e| e.key() != 0)
        {
            let (number, hash) = self.split(entry.key());
            let segment = &mut self.segments[number];
            if segment.full() {
                segment.grow(SEGMENT_BITS);
            }
            let at = segment.find(hash, entry.key());
            segment.entries[at] = entry;
            segment.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn check(blocks: impl Iterator<Item = u64>, times: &mut Times) {
        let mut plain: HashMap<u64, u64> = HashMap::new();
        for (i, block) in blocks.enumerate() {
            let time = i as u64 + 1;
            times.prefetch(block);
            assert_eq!(times.get(block), plain.get(&block).copied().unwrap_or(0));
            assert_eq!(
                times.swap(block, time),
                plain.insert(block, time).unwrap_or(0)
            );
        }
        for (&block, &time) in &plain {
            assert_eq!(times.get(block), time);
        }
    }

    #[test]
    fn large_tables_agree_with_a_plain_map() {
        let mut random = crate::util::random::SplitMix::new(9);
        let mut times = Times::new();
        // Scattered, adjacent, and at powers of two: through the division and several growths of
        // segments.
        check((0..400_000).map(|_| random.bits() >> 6), &mut times);
        assert_eq!(times.segments.len(), 64);
        times.clear();
        check((0..3_000_000).map(|i| i * 2 / 3), &mut times);
        times.clear();
        check((0..300_000).map(|i| i << 12), &mut times);
        times.clear();
        assert_eq!(times.segments.len(), 1);
        check(
            [u64::MAX >> 1, 0, 7, 8, u64::MAX >> 1].into_iter(),
            &mut times,
        );
    }

    #[test]
    fn times_of_neighbours_are_apart_and_full_range() {
        let mut times = Times::new();
        (0..8).for_each(|b| assert_eq!(times.swap(b, MAX_TIME - b), 0));
        (0..8).for_each(|b| assert_eq!(times.swap(b, b + 1), MAX_TIME - b));
        (0..8).for_each(|b| assert_eq!(times.get(b), b + 1));
        assert_eq!(times.get(8), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn any_blocks_agree_with_a_plain_map(blocks in prop::collection::vec(prop_oneof![0u64..3000, any::<u64>().prop_map(|b| b >> 3), (0u64..300).prop_map(|b| b << 20)], 0..1500)) {
            let mut times = Times::new();
            check(blocks.iter().copied(), &mut times);
            times.clear();
            check(blocks.into_iter().rev(), &mut times);
        }
    }
}
