//! The sets of one cache: its lines with their flags.

use crate::cache::policy::{Policy, Tree};
use crate::util::random::SplitMix;

/// The line was written, and the next level has an older version.
pub(crate) const DIRTY_BIT: u64 = 1;
/// The line was prefetched and has not been used.
pub(crate) const PREFETCHED: u64 = 2;
const FLAGS: u64 = DIRTY_BIT | PREFETCHED;
/// A way without a line. It is zero, so that unused sets take no memory beyond fresh pages.
const EMPTY: u64 = 0;

/// Lines of a set-associative cache. Blocks are addresses divided by the line size, below 2⁶¹.
pub(crate) struct Level {
    sets: u64,
    mask: Option<u64>,
    ways: usize,
    policy: Policy,
    /// By set: (block + 1) in the bits above the flags. With LRU and FIFO, lines are in reverse
    /// order of eviction, without gaps; else by way.
    lines: Vec<u64>,
    trees: Vec<Tree>,
    /// Two bits for each way, for [`Policy::Rrip`].
    ranks: Vec<u8>,
    random: SplitMix,
}

fn line_of(block: u64) -> u64 {
    (block + 1) << 2
}

impl Level {
    /// An empty cache.
    pub(crate) fn new(sets: u64, ways: u64, policy: Policy) -> Level {
        let lines = (sets * ways) as usize;
        let of = |wanted: Policy, n: usize| if policy == wanted { n } else { 0 };
        Level {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            ways: ways as usize,
            policy,
            lines: vec![EMPTY; lines],
            trees: vec![Tree::default(); of(Policy::Plru, sets as usize)],
            ranks: vec![0; of(Policy::Rrip, lines)],
            random: SplitMix::new(1),
        }
    }

    #[inline]
    fn set(&self, block: u64) -> usize {
        (match self.mask {
            Some(mask) => block & mask,
            None => block % self.sets,
        }) as usize
    }

    /// Position of a block in its set.
    #[inline]
    fn position(&self, set: usize, block: u64) -> Option<usize> {
        let line = line_of(block);
        let lines = &self.lines[set * self.ways..(set + 1) * self.ways];
        lines.iter().position(|l| l & !FLAGS == line)
    }

    /// Index of a block's entry among all entries.
    #[inline]
    fn index(&self, block: u64) -> Option<usize> {
        let set = self.set(block);
        Some(set * self.ways + self.position(set, block)?)
    }

    /// Uses a block. Returns its flags, if it is there.
    #[inline]
    pub(crate) fn touch(&mut self, block: u64) -> Option<u64> {
        let set = self.set(block);
        let first = set * self.ways;
        let head = self.lines[first];
        // Most accesses are to the most recently used line.
        if self.policy.is_ordered() && head & !FLAGS == line_of(block) {
            self.lines[first] = head & !PREFETCHED;
            return Some(head & FLAGS);
        }
        let at = self.position(set, block)?;
        let found = self.lines[first + at];
        let used = found & !PREFETCHED;
        self.lines[first + at] = used;
        match self.policy {
            Policy::Lru => {
                self.lines.copy_within(first..first + at, first + 1);
                self.lines[first] = used;
            }
            Policy::Plru => self.trees[set].touch(at, self.ways),
            Policy::Rrip => self.ranks[first + at] = 0,
            Policy::Fifo | Policy::Random => {}
        }
        Some(found & FLAGS)
    }

    /// The blocks in the cache.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let lines = self.lines.iter().filter(|&&line| line != EMPTY);
        lines.map(|line| (line >> 2) - 1)
    }

    /// True if a block is in the cache. It does not count as used.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.index(block).is_some()
    }

    /// A block's flags. It does not count as used.
    pub(crate) fn flags(&self, block: u64) -> Option<u64> {
        self.index(block).map(|at| self.lines[at] & FLAGS)
    }

    /// Sets flags of a block. True if it is there. It does not count as used.
    pub(crate) fn set_flags(&mut self, block: u64, flags: u64) -> bool {
        let at = self.index(block);
        if let Some(at) = at {
            self.lines[at] |= flags;
        }
        at.is_some()
    }

    /// Clears flags of a block.
    pub(crate) fn clear_flags(&mut self, block: u64, flags: u64) {
        if let Some(at) = self.index(block) {
            self.lines[at] &= !flags;
        }
    }

    /// Inserts a block that is not there. Returns the evicted block and its flags, if any.
    pub(crate) fn insert(&mut self, block: u64, flags: u64) -> Option<(u64, u64)> {
        let set = self.set(block);
        let first = set * self.ways;
        let line = line_of(block) | flags;
        let gone = if self.policy.is_ordered() {
            let last = first + self.ways - 1;
            let gone = self.lines[last];
            self.lines.copy_within(first..last, first + 1);
            self.lines[first] = line;
            gone
        } else {
            let lines = &self.lines[first..first + self.ways];
            let empty = lines.iter().position(|&l| l == EMPTY);
            let way = empty.unwrap_or_else(|| self.victim(set));
            match self.policy {
                Policy::Plru => self.trees[set].touch(way, self.ways),
                Policy::Rrip => self.ranks[first + way] = 2,
                _ => {}
            }
            std::mem::replace(&mut self.lines[first + way], line)
        };
        (gone != EMPTY).then(|| ((gone >> 2) - 1, gone & FLAGS))
    }

    /// The way of a full set that is evicted.
    fn victim(&mut self, set: usize) -> usize {
        match self.policy {
            Policy::Plru => self.trees[set].victim(self.ways),
            Policy::Rrip => {
                let ranks = &mut self.ranks[set * self.ways..(set + 1) * self.ways];
                let most = ranks.iter().copied().max().unwrap_or(0);
                ranks.iter_mut().for_each(|r| *r += 3 - most);
                ranks.iter().position(|&r| r == 3).unwrap_or(0)
            }
            _ => self.random.below(self.ways as u64) as usize,
        }
    }

    /// Removes a block. Returns its flags, if it was there.
    pub(crate) fn remove(&mut self, block: u64) -> Option<u64> {
        let set = self.set(block);
        let at = self.position(set, block)?;
        let (first, end) = (set * self.ways, (set + 1) * self.ways);
        let found = self.lines[first + at];
        if self.policy.is_ordered() {
            self.lines.copy_within(first + at + 1..end, first + at);
            self.lines[end - 1] = EMPTY;
        } else {
            self.lines[first + at] = EMPTY;
        }
        Some(found & FLAGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_lines_leave_their_place() {
        for (policy, _) in Policy::ALL {
            let mut level = Level::new(2, 2, policy);
            assert_eq!(level.insert(0, DIRTY_BIT), None);
            assert_eq!(level.insert(2, 0), None);
            assert_eq!(level.remove(0), Some(DIRTY_BIT));
            assert_eq!(level.remove(0), None);
            assert_eq!(level.insert(4, 0), None);
            assert!(level.has(2) && level.has(4) && !level.has(0));
            // Block 1 belongs to the other set.
            assert_eq!(level.insert(1, PREFETCHED), None);
            assert_eq!(level.flags(1), Some(PREFETCHED));
            assert_eq!(level.touch(1), Some(PREFETCHED));
            assert_eq!(level.touch(1), Some(0));
            assert!(level.insert(6, 0).is_some());
        }
    }
}
