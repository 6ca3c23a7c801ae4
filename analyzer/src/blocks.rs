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

/// A table of [`BlockEntry`]s.
pub struct BlockTable {
    table: Vec<BlockEntry>,
    shift: u32,
    used: usize,
}

impl Default for BlockTable {
    fn default() -> BlockTable {
        BlockTable::new()
    }
}

impl BlockTable {
    const FREE: BlockEntry =
        BlockEntry { block: 0, space: 0, group: FREE, object: 0, starts: 0, reuse: GroupReuse { reuses: 0, firsts: 0, distance: 0, distance_max: 0, interval: 0 } };

    /// An empty table.
    pub fn new() -> BlockTable {
        let size = 1usize << 12;
        BlockTable { table: vec![Self::FREE; size], shift: 64 - size.trailing_zeros(), used: 0 }
    }

    /// The counts of a block and group; made if new.
    #[inline(always)]
    pub fn touch(&mut self, space: u32, block: u64, group: u32, object: u32) -> &mut BlockEntry {
        if self.used * 2 >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let hash = spread(block ^ u64::from(group).rotate_left(40) ^ u64::from(space).rotate_left(20) ^ u64::from(object).rotate_left(52));
        let mut at = (hash >> self.shift) as usize & mask;
        loop {
            let entry = &self.table[at];
            if entry.group == FREE {
                self.used += 1;
                self.table[at] = BlockEntry { block, space, group, object, ..Self::FREE };
                break;
            }
            if entry.block == block && entry.group == group && entry.space == space && entry.object == object {
                break;
            }
            at = (at + 1) & mask;
        }
        &mut self.table[at]
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.table.len() * 2;
        let old = std::mem::replace(&mut self.table, crate::large_vec(Self::FREE, size));
        self.shift = 64 - size.trailing_zeros();
        self.used = 0;
        for entry in old.iter().filter(|e| e.group != FREE) {
            *self.touch(entry.space, entry.block, entry.group, entry.object) = *entry;
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &BlockTable) {
        for entry in other.table.iter().filter(|e| e.group != FREE) {
            let mine = self.touch(entry.space, entry.block, entry.group, entry.object);
            mine.starts += entry.starts;
            mine.reuse.merge(&entry.reuse);
        }
    }

    /// All entries, sorted by address space, block, group.
    pub fn entries(&self) -> Vec<BlockEntry> {
        use rayon::prelude::*;
        let mut entries: Vec<BlockEntry> = self.table.iter().filter(|e| e.group != FREE).copied().collect();
        entries.par_sort_unstable_by_key(|e| (e.space, e.block, e.group, e.object));
        entries
    }
}
