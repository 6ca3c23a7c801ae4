//! How often which sample (or pair of samples) is the only one that saw a block, counted while blocks come one by one.

use super::footprint::Block;
use crate::reuse::spread;

#[derive(Clone, Copy, Default)]
struct Entry {
    key: u64,
    epoch: u32,
    count: u32,
}

/// Samples below this are counted in an array.
const MOST: u32 = 1 << 22;

/// A table of counts that is emptied at once.
#[derive(Default)]
pub(super) struct Table {
    /// Pairs of samples.
    entries: Vec<Entry>,
    /// Single samples: epoch and count.
    singles: Vec<(u32, u32)>,
    epoch: u32,
}

/// Counts over the blocks that have been [added](Counter::add).
pub(super) struct Counter<'a> {
    table: &'a mut Table,
    mask: usize,
    /// Blocks seen in one sample, in two.
    pub(super) singles: u64,
    pub(super) pairs: u64,
    /// Sums of the squared numbers of singletons by sample, of doubletons by pair of samples.
    pub(super) single_squares: u64,
    pub(super) pair_squares: u64,
    /// Those that an Irregular load has touched.
    pub(super) irregular: u64,
}

impl Table {
    /// Starts to count some of these blocks.
    pub(super) fn counter(&mut self, blocks: &[Block]) -> Counter<'_> {
        let hashed = blocks.iter().filter(|b| b.samples == 2 || b.first[0] >= MOST).count();
        let size = (hashed.max(8) * 2).next_power_of_two();
        self.epoch = self.epoch.wrapping_add(1);
        if self.entries.len() < size || self.epoch == 0 {
            self.entries = vec![Entry::default(); size.max(self.entries.len())];
            self.singles.clear();
            self.epoch = 1;
        }
        // Few blocks use few entries, which stay in the cache.
        Counter { table: self, mask: size - 1, singles: 0, pairs: 0, single_squares: 0, pair_squares: 0, irregular: 0 }
    }
}

impl Counter<'_> {
    /// Counts a block.
    #[inline]
    pub(super) fn add(&mut self, block: &Block) {
        let [first, second] = block.first;
        match block.samples {
            1 => {
                self.singles += 1;
                // A pair never has the same sample twice.
                self.single_squares += 2 * self.count(first, first) + 1;
            }
            2 => {
                self.pairs += 1;
                self.pair_squares += 2 * self.count(first, second) + 1;
            }
            _ => return,
        }
        self.irregular += u64::from(block.irregular);
    }

    /// Counts a key, and tells how often it had been counted before.
    #[inline]
    fn count(&mut self, first: u32, second: u32) -> u64 {
        if first == second && first < MOST {
            if self.table.singles.len() <= first as usize {
                self.table.singles.resize((first as usize + 1).next_power_of_two(), (0, 0));
            }
            let (epoch, count) = &mut self.table.singles[first as usize];
            let before = if *epoch == self.table.epoch { *count } else { 0 };
            (*epoch, *count) = (self.table.epoch, before + 1);
            return before.into();
        }
        let key = u64::from(first) << 32 | u64::from(second);
        let mut at = (spread(key) >> 24) as usize & self.mask;
        let epoch = self.table.epoch;
        loop {
            let entry = &mut self.table.entries[at];
            if entry.epoch != epoch {
                *entry = Entry { key, epoch, count: 1 };
                return 0;
            }
            if entry.key == key {
                entry.count += 1;
                return u64::from(entry.count) - 1;
            }
            at = (at + 1) & self.mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn sums_of_squares_are_those_of_the_counts() {
        let mut state = 1u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        let mut table = Table::default();
        for blocks in [0usize, 1, 7, 500, 3000, 40] {
            let list: Vec<Block> = (0..blocks as u64)
                .map(|number| {
                    let first = random(20);
                    Block { number, samples: 1 + random(3), first: [first, first + 1 + random(5)], irregular: random(2) == 1 }
                })
                .collect();
            let mut counter = table.counter(&list);
            list.iter().for_each(|b| counter.add(b));
            let squares = |samples: u32, of: fn(&Block) -> (u32, u32)| {
                let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
                list.iter().filter(|b| b.samples == samples).for_each(|b| *counts.entry(of(b)).or_default() += 1);
                (counts.values().sum::<u64>(), counts.values().map(|n| n * n).sum::<u64>())
            };
            assert_eq!((counter.singles, counter.single_squares), squares(1, |b| (b.first[0], 0)));
            assert_eq!((counter.pairs, counter.pair_squares), squares(2, |b| (b.first[0], b.first[1])));
            assert_eq!(counter.irregular, list.iter().filter(|b| b.samples < 3 && b.irregular).count() as u64);
        }
    }
}
