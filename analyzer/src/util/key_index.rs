//! Numbers for keys: each new item of a partition gets the number of its entry. The table stays in
//! the cache.

use mgz_models::util::hash::spread;
use mgz_models::util::memory_units::LINE_BYTES;
use std::hint::select_unpredictable;

/// Number of keys between the prefetch of an index slot and its use. Source: Chosen.
const LOOKAHEAD_KEYS: usize = 1 << 5;

/// Buffers that a worker needs to number keys. One serves all partitions, so it stays in the cache.
#[derive(Default)]
pub(crate) struct KeyIndex {
    /// Hash table of the indices of keys in the list of keys, plus one; 0 is free. After the slots
    /// of this partition there is one that is only written to, and then unused ones.
    index: Vec<u32>,
    /// Keys by number, old ones first, then unused ones.
    keys: Vec<u64>,
    /// The number of each item.
    numbers: Vec<u32>,
    places: usize,
    old: usize,
    count: usize,
    done: usize,
}

/// The first slot of a key in a table of `places`.
#[inline(always)]
fn home(key: u64, places: usize) -> usize {
    (spread(key) >> (64 - places.trailing_zeros())) as usize & (places - 1)
}

impl KeyIndex {
    /// Begins a partition. `known` has its `old` keys, which are numbered in this order. `more` is
    /// the maximum number of items.
    pub(crate) fn begin(&mut self, known: impl Iterator<Item = u64>, old: usize, more: usize) {
        let places = ((old + more) * 3 / 2).next_power_of_two().max(64);
        if self.index.len() <= places {
            self.index.resize(places + 1, 0);
        }
        if self.keys.len() <= old + more {
            self.keys.resize(old + more + 1, 0);
        }
        if self.numbers.len() < more {
            self.numbers.resize(more, 0);
        }
        (self.places, self.old, self.count, self.done) = (places, old, old, 0);
        let index = &mut self.index[..places];
        index.fill(0);
        for (number, (key, here)) in known.zip(&mut self.keys[..old]).enumerate() {
            *here = key;
            let mut at = home(key, places);
            while index[at] != 0 {
                at = (at + 1) & (places - 1);
            }
            index[at] = number as u32 + 1;
        }
    }

    /// Numbers the next items. Whether a key is new is unpredictable, so there is no branch on it.
    #[inline(always)]
    pub(crate) fn number<T>(&mut self, items: &[T], key: impl Fn(&T) -> u64) {
        let index = &mut self.index[..=self.places];
        let (mask, places) = (self.places - 1, self.places);
        // There is always room for the next new key.
        let keys = &mut self.keys[..];
        let mut count = self.count;
        let numbers = &mut self.numbers[self.done..self.done + items.len()];
        for (some, numbers) in items
            .chunks(LOOKAHEAD_KEYS)
            .zip(numbers.chunks_mut(LOOKAHEAD_KEYS))
        {
            for (item, number_of) in some.iter().zip(&mut *numbers) {
                let at = home(key(item), places);
                crate::prefetch(&index[at]);
                *number_of = at as u32;
            }
            for (item, number_of) in some.iter().zip(numbers) {
                let (key, mut at) = (key(item), *number_of as usize);
                // Each key is first written to the place of the next new one. So known keys need no
                // conditional store, for which the next look-up would have to wait.
                keys[count] = key;
                let (number, is_new) = loop {
                    let known = index[at];
                    let number = select_unpredictable(known == 0, count as u32 + 1, known);
                    if keys[number as usize - 1] == key {
                        break (number, known == 0);
                    }
                    at = (at + 1) & mask;
                };
                index[select_unpredictable(is_new, at, places)] = number;
                count += usize::from(is_new);
                *number_of = number - 1;
            }
        }
        self.done += items.len();
        self.count = count;
    }

    /// The numbers of all items so far.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.numbers[..self.done]
    }

    /// Keys that were not in `known`, by number.
    pub(crate) fn new_keys(&self) -> &[u64] {
        &self.keys[self.old..self.count]
    }
}

/// Takes the items that wait for a partition, if any. They are replaced by a free chunk, or by a
/// new one with room for `most`, since growing chunks would fragment memory.
pub(crate) fn chunk_of<T>(waiting: &mut Vec<T>, free: &mut Vec<Vec<T>>, most: usize) -> Vec<T> {
    if waiting.is_empty() {
        return Vec::new();
    }
    std::mem::replace(
        waiting,
        free.pop().unwrap_or_else(|| Vec::with_capacity(most)),
    )
}

/// Prefetches a chunk that will be read. Chunks are scattered and too short for the hardware
/// prefetcher.
#[inline(always)]
pub(crate) fn expect<T>(chunk: Option<&Vec<T>>) {
    chunk
        .into_iter()
        .flat_map(|c| {
            c.iter()
                .step_by((LINE_BYTES as usize / size_of::<T>()).max(1))
        })
        .for_each(|item| crate::prefetch(item));
}

/// Prefetches the position `ahead` items after the end of a chunk, for writing.
#[inline(always)]
pub(crate) fn expect_write<T>(chunk: &[T], ahead: usize) {
    crate::prefetch_at(chunk.as_ptr().wrapping_add(chunk.len() + ahead));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_key_has_one_number(known in 0u64..300, items in prop::collection::vec(0u64..600, 1..500), cut in 0usize..500) {
            let mut index = KeyIndex::default();
            // Earlier contents have no effect.
            for _ in 0..2 {
                let more = items.len();
                index.begin((0..known).map(|k| k * 2), known as usize, more);
                let cut = cut.min(more);
                index.number(&items[..cut], |&i| i);
                index.number(&items[cut..], |&i| i);
                let new = index.new_keys();
                for (&item, &number) in items.iter().zip(index.numbers()) {
                    let key = if u64::from(number) < known { u64::from(number) * 2 } else { new[number as usize - known as usize] };
                    prop_assert_eq!(key, item);
                }
                let mut fresh: Vec<u64> = items.iter().copied().filter(|i| i % 2 == 1 || *i >= known * 2).collect();
                fresh.sort_unstable();
                fresh.dedup();
                let mut found = new.to_vec();
                found.sort_unstable();
                prop_assert_eq!(found, fresh);
            }
        }
    }
}
