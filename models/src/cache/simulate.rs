//! An exact simulator of set-associative LRU caches.

use crate::cache::Shape;
use serde::{Deserialize, Serialize};

/// A set-associative cache with exact LRU replacement in each set.
pub struct Cache {
    sets: u64,
    ways: usize,
    mask: Option<u64>,
    /// Lines by set, most recently used first.
    lines: Vec<u64>,
    /// Number of lines in use by set.
    used: Vec<u32>,
}

impl Cache {
    /// An empty cache.
    pub fn new(shape: &Shape) -> Cache {
        let sets = shape.sets();
        Cache {
            sets,
            ways: shape.ways as usize,
            mask: sets.is_power_of_two().then(|| sets - 1),
            lines: vec![0; (sets * shape.ways) as usize],
            used: vec![0; sets as usize],
        }
    }

    /// Accesses a block (address divided by the line size), and inserts it if it is missing. True
    /// for a hit.
    #[inline]
    pub fn access(&mut self, block: u64) -> bool {
        let set = match self.mask {
            Some(mask) => block & mask,
            None => block % self.sets,
        } as usize;
        let used = self.used[set] as usize;
        let lines = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        let found = lines[..used].iter().position(|&l| l == block);
        let last = match found {
            Some(at) => at,
            None if used < self.ways => {
                self.used[set] += 1;
                used
            }
            None => self.ways - 1,
        };
        lines.copy_within(..last, 1);
        lines[0] = block;
        found.is_some()
    }
}

/// Counts of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCounts {
    /// Accesses that reached the level.
    pub accesses: u64,
    /// Accesses that missed.
    pub misses: u64,
}

/// A chain of cache levels: a miss continues to the next level, and each level that was searched
/// keeps the line (neither inclusion nor exclusion is enforced).
pub struct Hierarchy {
    levels: Vec<(Shape, Cache, LevelCounts)>,
}

impl Hierarchy {
    /// Empty caches, first level first.
    pub fn new(shapes: &[Shape]) -> Hierarchy {
        Hierarchy {
            levels: shapes
                .iter()
                .map(|s| (*s, Cache::new(s), LevelCounts::default()))
                .collect(),
        }
    }

    /// Accesses `size` bytes at `address`. Each line is accessed, but the access counts once: as a
    /// miss of a level if any of its lines missed there.
    #[inline]
    pub fn access(&mut self, address: u64, size: u32) {
        let last = address.saturating_add(u64::from(size.max(1)) - 1);
        let mut reached = 0;
        let line = self
            .levels
            .first()
            .map_or(64, |l| l.0.line)
            .trailing_zeros();
        for block in (address >> line)..=(last >> line) {
            let mut level = 0;
            while level < self.levels.len() {
                let (shape, cache, _) = &mut self.levels[level];
                if cache.access((block << line) >> shape.line.trailing_zeros()) {
                    break;
                }
                level += 1;
            }
            reached = reached.max(level);
        }
        for (number, (_, _, counts)) in self.levels.iter_mut().enumerate() {
            counts.accesses += u64::from(number <= reached);
            counts.misses += u64::from(number < reached);
        }
    }

    /// Accesses `size` bytes at `address`. True for a miss in the last level.
    #[inline]
    pub fn misses(&mut self, address: u64, size: u32) -> bool {
        let before = self.levels.last().map_or(0, |l| l.2.misses);
        self.access(address, size);
        self.levels.last().is_none_or(|l| l.2.misses > before)
    }

    /// Counts by level.
    pub fn counts(&self) -> Vec<LevelCounts> {
        self.levels.iter().map(|l| l.2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_simulator_agrees_with_lists(
            trace in prop::collection::vec((0u64..4096, 1u32..100), 1..400),
            ways in 1u64..5, sets in 1u64..7, more in 1u64..4,
        ) {
            let first = Shape::new(ways * sets * 32, ways, 32).unwrap();
            let second = Shape::new(ways * sets * more * 64, ways, 64).unwrap();
            let mut hierarchy = Hierarchy::new(&[first, second]);
            let mut lists: [HashMap<u64, VecDeque<u64>>; 2] = Default::default();
            let mut want = [(0u64, 0u64); 2];
            let mut touch = |level: usize, shape: &Shape, address: u64| {
                let block = address / shape.line;
                let list = lists[level].entry(block % shape.sets()).or_default();
                let hit = list.contains(&block);
                list.retain(|&b| b != block);
                list.push_front(block);
                list.truncate(shape.ways as usize);
                hit
            };
            for &(address, size) in &trace {
                hierarchy.access(address, size);
                let (mut reached_second, mut missed_second) = (false, false);
                for line in address / 32..=(address + u64::from(size) - 1) / 32 {
                    if !touch(0, &first, line * 32) {
                        reached_second = true;
                        missed_second |= !touch(1, &second, line * 32);
                    }
                }
                want[0].0 += 1;
                want[0].1 += u64::from(reached_second);
                want[1].0 += u64::from(reached_second);
                want[1].1 += u64::from(missed_second);
            }
            let got: Vec<(u64, u64)> = hierarchy.counts().iter().map(|c| (c.accesses, c.misses)).collect();
            prop_assert_eq!(got, want);
        }
    }
}
