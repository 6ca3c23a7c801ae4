//! Reuse counts by block and group, for the location zoom.

use crate::totals::GroupReuse;
use crate::reuse::spread;

/// Entry without content.
const FREE: u32 = u32::MAX;

/// What one group did to one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockEntry {
    /// Address divided by the block size.
    pub block: u64,
    /// Address space.
    pub space: u32,
    /// See [`crate::code`].
    pub group: u32,
    /// Object, for blocks on pages that several objects share (see [`crate::objects`]); else 0.
    pub object: u32,
    /// Accesses that start here.
    pub starts: u64,
    /// Touches and their reuse.
    pub reuse: GroupReuse,
}

/// A place in the table: one cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub struct Slot {
    block: u64,
    group: u32,
    space: u32,
    object: u32,
    /// Greatest D; there are never as many blocks as would not fit.
    distance_max: u32,
    starts: u64,
    reuses: u64,
    firsts: u64,
    distance: u64,
    interval: u64,
}

impl Slot {
    const FREE: Slot = Slot { block: 0, group: FREE, space: 0, object: 0, distance_max: 0, starts: 0, reuses: 0, firsts: 0, distance: 0, interval: 0 };

    /// Counts a touch; `starts`: accesses that start here with it.
    #[inline(always)]
    pub fn add(&mut self, touch: &GroupReuse, starts: u64) {
        self.starts += starts;
        self.reuses += touch.reuses;
        self.firsts += touch.firsts;
        self.distance += touch.distance;
        self.interval += touch.interval;
        self.distance_max = self.distance_max.max(touch.distance_max.min(u64::from(u32::MAX)) as u32);
    }

    fn entry(&self) -> BlockEntry {
        let Slot { block, group, space, object, starts, reuses, firsts, distance, interval, .. } = *self;
        BlockEntry { block, space, group, object, starts, reuse: GroupReuse { reuses, firsts, distance, distance_max: u64::from(self.distance_max), interval } }
    }
}

/// A table of [`BlockEntry`]s.
pub struct BlockTable {
    table: Vec<Slot>,
    shift: u32,
    used: usize,
}

impl Default for BlockTable {
    fn default() -> BlockTable {
        BlockTable::new()
    }
}

#[inline(always)]
fn hash(space: u32, block: u64, group: u32, object: u32) -> u64 {
    spread(block ^ u64::from(group).rotate_left(40) ^ u64::from(space).rotate_left(20) ^ u64::from(object).rotate_left(52))
}

impl BlockTable {
    /// An empty table.
    pub fn new() -> BlockTable {
        let size = 1usize << 12;
        BlockTable { table: vec![Slot::FREE; size], shift: 64 - size.trailing_zeros(), used: 0 }
    }

    /// Tells that a block will be touched soon.
    #[inline(always)]
    pub fn prefetch(&self, space: u32, block: u64, group: u32) {
        crate::prefetch(&self.table[(hash(space, block, group, 0) >> self.shift) as usize & (self.table.len() - 1)]);
    }

    /// The counts of a block and group; made if new.
    #[inline(always)]
    pub fn touch(&mut self, space: u32, block: u64, group: u32, object: u32) -> &mut Slot {
        if self.used * 2 >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut at = (hash(space, block, group, object) >> self.shift) as usize & mask;
        loop {
            let slot = &self.table[at];
            if slot.group == FREE {
                self.used += 1;
                self.table[at] = Slot { block, space, group, object, ..Slot::FREE };
                break;
            }
            if slot.block == block && slot.group == group && slot.space == space && slot.object == object {
                break;
            }
            at = (at + 1) & mask;
        }
        &mut self.table[at]
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.table.len() * 2;
        let old = std::mem::replace(&mut self.table, crate::large_vec(Slot::FREE, size));
        self.shift = 64 - size.trailing_zeros();
        self.used = 0;
        for slot in old.iter().filter(|e| e.group != FREE) {
            *self.touch(slot.space, slot.block, slot.group, slot.object) = *slot;
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, mut other: BlockTable) {
        if self.used < other.used {
            std::mem::swap(self, &mut other);
        }
        // The other's slots come in the order of their hashes: in a table with less room they would all crowd at its beginning.
        while self.table.len() < other.table.len() || self.table.len() < (self.used + other.used) * 2 {
            self.grow();
        }
        for slot in other.table.iter().filter(|e| e.group != FREE) {
            let mine = self.touch(slot.space, slot.block, slot.group, slot.object);
            mine.add(&slot.entry().reuse, slot.starts);
        }
    }

    /// All entries, sorted by address space, block, group.
    pub fn entries(&self) -> Vec<BlockEntry> {
        use rayon::prelude::*;
        let mut entries: Vec<BlockEntry> = self.table.iter().filter(|e| e.group != FREE).map(Slot::entry).collect();
        entries.par_sort_unstable_by_key(|e| (e.space, e.block, e.group, e.object));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merging took minutes for a million blocks when the slots of one table filled the beginning of a smaller one.
    #[test]
    fn merging_large_tables_takes_no_longer_than_filling_them() {
        let fill = |from: u64, to: u64| {
            let mut table = BlockTable::new();
            for block in from..to {
                table.touch(0, block, 1, 0).add(&GroupReuse { firsts: 1, ..GroupReuse::default() }, 1);
            }
            table
        };
        let start = std::time::Instant::now();
        let (a, b) = (fill(0, 400_000), fill(200_000, 700_000));
        let filling = start.elapsed();
        let start = std::time::Instant::now();
        let mut all = BlockTable::new();
        all.merge(a);
        all.merge(b);
        // The machine may be busy with other things meanwhile.
        assert!(start.elapsed() < filling * 10 + std::time::Duration::from_secs(2), "{:?} for merging, {filling:?} for filling", start.elapsed());
        let entries = all.entries();
        assert_eq!(entries.len(), 700_000);
        assert_eq!(entries.iter().map(|e| e.starts).sum::<u64>(), 900_000);
        assert_eq!(entries[300_000].reuse.firsts, 2);
    }
}
