//! Translation look-aside buffers: caches of page numbers, for one size of pages.

use crate::cache::level::Level;
use crate::cache::policy::Policy;
use crate::cache::simulate::LevelCounts;

/// The shape of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbLevel {
    /// Entries; a multiple of the ways.
    pub entries: u64,
    /// Ways.
    pub ways: u64,
    /// Choice of the entry to evict.
    pub policy: Policy,
}

/// A chain of levels, as if all memory were in pages of one size. A miss continues to the next
/// level, and each level that was searched keeps the page.
pub struct Tlb {
    page: u32,
    levels: Vec<Level>,
    counts: Vec<LevelCounts>,
}

impl Tlb {
    /// Empty levels for pages of 2^`page` bytes.
    pub fn new(levels: &[TlbLevel], page: u32) -> Tlb {
        let level = |l: &TlbLevel| Level::new(l.entries / l.ways, l.ways, l.policy);
        Tlb {
            page,
            levels: levels.iter().map(level).collect(),
            counts: vec![LevelCounts::default(); levels.len()],
        }
    }

    /// Accesses `size` bytes at `address`. An access to several pages counts once: as a miss of a
    /// level if any of its pages missed there. It is counted if `count` is true.
    #[inline]
    pub fn access(&mut self, address: u64, size: u32, count: bool) {
        let last = address.saturating_add(u64::from(size.max(1)) - 1);
        let mut reached = 0;
        for page in (address >> self.page)..=(last >> self.page) {
            let hit = self.levels.iter_mut().position(|level| {
                let hit = level.touch(page).is_some();
                if !hit {
                    level.insert(page, 0);
                }
                hit
            });
            reached = reached.max(hit.unwrap_or(self.levels.len()));
        }
        if count {
            for (level, counts) in self.counts.iter_mut().enumerate().take(reached + 1) {
                counts.accesses += 1;
                counts.misses += u64::from(level < reached);
            }
        }
    }

    /// Counts by level.
    pub fn counts(&self) -> &[LevelCounts] {
        &self.counts
    }
}
