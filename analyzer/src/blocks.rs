//! Reuse counts by unit of memory, group and object, for the location zoom and for objects.
//!
//! A *unit* is up to 64 blocks that follow one another: a page, unless regions may end at less or blocks are larger. Regions consist of whole units,
//! so that there is one entry for a page where blocks would need 64; which of its blocks were touched is a map of bits.

use crate::mix::Mixed;
use crate::reuse::spread;
use crate::totals::GroupReuse;
use std::collections::HashMap;

/// No owner yet.
const NOBODY: u32 = u32::MAX;

/// Log2 of the bytes of a unit: regions end at `stop` bytes or more, and there are at most 64 blocks in one.
pub fn unit_shift(block_shift: u32, stop: u64) -> u32 {
    let page = if stop.is_power_of_two() { stop.ilog2().min(12) } else { 12 };
    page.min(block_shift + 6).max(block_shift)
}

/// What one group did to one unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitEntry {
    /// Address divided by the bytes of a unit.
    pub unit: u64,
    /// Address space.
    pub space: u32,
    /// See [`crate::code`].
    pub group: u32,
    /// Object, for pages that several objects share (see [`crate::objects`]); else 0.
    pub object: u32,
    /// Bit k: the k-th block was touched.
    pub blocks: u64,
    /// Accesses that start here.
    pub starts: u64,
    /// Constant loads that these imply.
    pub implied: u64,
    /// Touches and their reuse.
    pub reuse: GroupReuse,
}

/// The counts of a unit and an owner: one cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub struct Slot {
    unit: u64,
    owner: u32,
    /// Greatest D; there are never as many blocks as would not fit.
    distance_max: u32,
    blocks: u64,
    starts: u64,
    reuses: u64,
    /// What would not fit is in [`BlockTable::carried`], as is what does not of `implied`.
    firsts: u32,
    implied: u32,
    distance: u64,
    interval: u64,
}

impl Slot {
    fn new(unit: u64, owner: u32) -> Slot {
        Slot { unit, owner, distance_max: 0, blocks: 0, starts: 0, reuses: 0, firsts: 0, implied: 0, distance: 0, interval: 0 }
    }
}

/// Slots of a block of the list, which are looked up at random: 32 MiB, so that it gets memory of its own in huge pages, and takes of it what it needs.
const BLOCK: usize = 1 << 19;

/// Bits of a hash that stand in the index above a number. Those that lead to its place are among them, so that an index is made from the one before it; of the others there are still
/// enough to keep most slots that are not meant from being looked at.
const TAG: u64 = !0 << 32;
/// Slots between prefetch and use when tables are merged: of the place in the index, and of the slot.
const AHEAD: usize = 16;
const SOON: usize = 8;

/// What is counted of a touch besides its reuse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// Bits of the blocks.
    pub blocks: u64,
    /// Accesses that start here with it.
    pub starts: u64,
    /// Constant loads that these imply.
    pub implied: u64,
}

/// A group in an address space, and an object where several share a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    space: u32,
    group: u32,
    object: u32,
}

/// A table of [`UnitEntry`]s. Slots stand in a list and never move, since there are many and each is long; what is looked up and has to have free places, and so grows
/// by copying, is an index of theirs.
pub struct BlockTable {
    /// Blocks of the list: all but the last are full.
    slots: Vec<Vec<Slot>>,
    /// By hash: half of the hash above, the number of the slot plus one below; 0 is free.
    index: Vec<u64>,
    shift: u32,
    used: usize,
    owners: Vec<Owner>,
    /// Owner without an object by address space and group, [`NOBODY`] where there is none yet.
    owner_of: Vec<Vec<u32>>,
    of_objects: HashMap<Owner, u32, Mixed>,
    /// Of units and owners: multiples of 2³² of first touches and of implied loads that their slots have no room for.
    carried: HashMap<(u64, u32), (u64, u64), Mixed>,
}

impl Default for BlockTable {
    fn default() -> BlockTable {
        BlockTable::new()
    }
}

#[inline(always)]
fn hash(unit: u64, owner: u32) -> u64 {
    spread(unit ^ u64::from(owner).rotate_left(40))
}

impl BlockTable {
    /// An empty table.
    pub fn new() -> BlockTable {
        let size = 1usize << 12;
        BlockTable {
            slots: Vec::new(),
            index: vec![0; size],
            shift: 64 - size.trailing_zeros(),
            used: 0,
            owners: Vec::new(),
            owner_of: Vec::new(),
            of_objects: HashMap::default(),
            carried: HashMap::default(),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The number of a group in an address space, and of an object (0: none is told apart).
    #[inline(always)]
    pub fn owner(&mut self, space: u32, group: u32, object: u32) -> u32 {
        if object == 0 {
            match self.owner_of.get(space as usize).and_then(|o| o.get(group as usize)) {
                Some(&owner) if owner != NOBODY => return owner,
                _ => {}
            }
        }
        self.new_owner(Owner { space, group, object })
    }

    #[inline(never)]
    fn new_owner(&mut self, owner: Owner) -> u32 {
        let next = self.owners.len() as u32;
        if owner.object != 0 {
            let known = *self.of_objects.entry(owner).or_insert(next);
            if known == next {
                self.owners.push(owner);
            }
            return known;
        }
        let (space, group) = (owner.space as usize, owner.group as usize);
        if self.owner_of.len() <= space {
            self.owner_of.resize(space + 1, Vec::new());
        }
        let of_space = &mut self.owner_of[space];
        if of_space.len() <= group {
            of_space.resize(group + 1, NOBODY);
        }
        of_space[group] = next;
        self.owners.push(owner);
        next
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize & (self.index.len() - 1)
    }

    #[inline(always)]
    fn hash_of(&self, space: u32, unit: u64, group: u32) -> u64 {
        let owner = self.owner_of.get(space as usize).and_then(|o| o.get(group as usize)).copied().unwrap_or(0);
        hash(unit, owner)
    }

    /// Tells that a unit will be touched: its place in the index.
    #[inline(always)]
    pub fn prefetch(&self, space: u32, unit: u64, group: u32) {
        crate::prefetch(&self.index[self.home(self.hash_of(space, unit, group))]);
    }

    /// Tells that it will be touched soon: its slot.
    #[inline(always)]
    pub fn prefetch_slot(&self, space: u32, unit: u64, group: u32) {
        self.prefetch_slot_of(self.hash_of(space, unit, group));
    }

    /// The slot of a hash, if it has the first or second place in the index. Nobody can foresee which.
    #[inline(always)]
    fn prefetch_slot_of(&self, hash: u64) {
        let home = self.home(hash);
        let (first, second) = (self.index[home], self.index[(home + 1) & (self.index.len() - 1)]);
        let entry = std::hint::select_unpredictable((first ^ hash) & TAG == 0, first, second);
        let number = (entry as u32).wrapping_sub(1) as usize;
        if let Some(slot) = self.slots.get(number / BLOCK).and_then(|b| b.get(number % BLOCK)) {
            crate::prefetch(slot);
        }
    }

    /// Counts a touch of a unit by an owner.
    #[inline(always)]
    pub fn add(&mut self, unit: u64, owner: u32, reuse: &GroupReuse, touch: Touch) {
        let slot = self.slot(unit, owner);
        slot.blocks |= touch.blocks;
        slot.starts += touch.starts;
        slot.reuses += reuse.reuses;
        slot.distance += reuse.distance;
        slot.interval += reuse.interval;
        slot.distance_max = slot.distance_max.max(reuse.distance_max.min(u64::from(u32::MAX)) as u32);
        let (firsts, implied) = (u64::from(slot.firsts) + reuse.firsts, u64::from(slot.implied) + touch.implied);
        (slot.firsts, slot.implied) = (firsts as u32, implied as u32);
        if (firsts | implied) >> 32 != 0 {
            self.carry(unit, owner, firsts >> 32, implied >> 32);
        }
    }

    #[cold]
    fn carry(&mut self, unit: u64, owner: u32, firsts: u64, implied: u64) {
        let entry = self.carried.entry((unit, owner)).or_default();
        *entry = (entry.0 + firsts, entry.1 + implied);
    }

    /// The counts of a unit and owner; made if new.
    #[inline(always)]
    fn slot(&mut self, unit: u64, owner: u32) -> &mut Slot {
        if self.used * 4 >= self.index.len() * 3 {
            self.grow(self.index.len() * 2);
        }
        let mask = self.index.len() - 1;
        let hash = hash(unit, owner);
        let mut at = self.home(hash);
        let number = loop {
            let entry = self.index[at];
            if entry == 0 {
                break self.add_slot(at, hash, Slot::new(unit, owner));
            }
            if (entry ^ hash) & TAG == 0 {
                let number = entry as u32 as usize - 1;
                let slot = &self.slots[number / BLOCK][number % BLOCK];
                if slot.unit == unit && slot.owner == owner {
                    break number;
                }
            }
            at = (at + 1) & mask;
        };
        &mut self.slots[number / BLOCK][number % BLOCK]
    }

    /// Adds a slot whose place in the index is free.
    fn add_slot(&mut self, at: usize, hash: u64, slot: Slot) -> usize {
        let number = self.used;
        if number.is_multiple_of(BLOCK) {
            self.slots.push(crate::large_room(BLOCK));
        }
        self.slots[number / BLOCK].push(slot);
        self.used += 1;
        self.index[at] = hash & TAG | (number as u64 + 1);
        number
    }

    /// Makes the index anew, with so many places.
    #[cold]
    fn grow(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.index, crate::large_vec(0, size));
        self.shift = 64 - size.trailing_zeros();
        // What is there comes nearly in the order of its new places, and no slot is looked at: those are many and far apart.
        for entry in old.into_iter().filter(|&entry| entry != 0) {
            let mut at = self.home(entry);
            while self.index[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.index[at] = entry;
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, mut other: BlockTable) {
        if self.used < other.used {
            std::mem::swap(self, &mut other);
        }
        // The other's slots come in the order in which they were made, not of their hashes, so that they crowd nowhere; mostly nearly all are here already, and the index is
        // not made for more before there are.
        let mine: Vec<u32> = other.owners.iter().map(|o| self.owner(o.space, o.group, o.object)).collect();
        for slots in std::mem::take(&mut other.slots) {
            for (at, slot) in slots.iter().enumerate() {
                let hash_of = |slot: &Slot| hash(slot.unit, mine[slot.owner as usize]);
                if let Some(ahead) = slots.get(at + AHEAD) {
                    crate::prefetch(&self.index[self.home(hash_of(ahead))]);
                }
                if let Some(soon) = slots.get(at + SOON) {
                    self.prefetch_slot_of(hash_of(soon));
                }
                let (reuse, touch) = other.counts(slot);
                self.add(slot.unit, mine[slot.owner as usize], &reuse, touch);
            }
        }
    }

    /// What was counted in a slot.
    fn counts(&self, slot: &Slot) -> (GroupReuse, Touch) {
        let carried = if self.carried.is_empty() { None } else { self.carried.get(&(slot.unit, slot.owner)) };
        let (firsts, implied) = carried.copied().unwrap_or_default();
        let Slot { blocks, starts, reuses, distance, interval, .. } = *slot;
        let reuse = GroupReuse { reuses, firsts: u64::from(slot.firsts) + (firsts << 32), distance, distance_max: u64::from(slot.distance_max), interval };
        (reuse, Touch { blocks, starts, implied: u64::from(slot.implied) + (implied << 32) })
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = UnitEntry> + '_ {
        self.slots.iter().flatten().map(|slot| {
            let Owner { space, group, object } = self.owners[slot.owner as usize];
            let (reuse, Touch { blocks, starts, implied }) = self.counts(slot);
            UnitEntry { unit: slot.unit, space, group, object, blocks, starts, implied, reuse }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn units_are_pages_unless_blocks_or_regions_say_otherwise() {
        let all = [(6, 4096), (6, 1 << 20), (6, 256), (0, 4096), (3, 1), (14, 4096), (6, 5000)].map(|(block, stop)| unit_shift(block, stop));
        assert_eq!(all, [12, 12, 8, 6, 3, 14, 12]);
    }

    /// Merging took minutes for a million blocks when the slots of one table filled the beginning of a smaller one.
    #[test]
    fn merging_large_tables_takes_no_longer_than_filling_them() {
        let fill = |from: u64, to: u64| {
            let mut table = BlockTable::new();
            for unit in from..to {
                let owner = table.owner(0, 1, 0);
                table.add(unit, owner, &GroupReuse { firsts: 1, ..GroupReuse::default() }, Touch { blocks: 1, starts: 1, implied: 3 });
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
        let entries: Vec<UnitEntry> = all.entries().collect();
        assert_eq!(entries.len(), 700_000);
        assert_eq!(entries.iter().map(|e| e.starts).sum::<u64>(), 900_000);
        assert_eq!(entries.iter().find(|e| e.unit == 300_000).unwrap().reuse.firsts, 2);
    }

    #[test]
    fn what_a_slot_has_no_room_for_is_carried() {
        let most = u64::from(u32::MAX);
        let table = |times: u64| {
            let mut table = BlockTable::new();
            let owner = table.owner(0, 1, 0);
            (0..times).for_each(|_| table.add(7, owner, &GroupReuse { firsts: most, ..GroupReuse::default() }, Touch { blocks: 1, starts: 1, implied: most - 1 }));
            table
        };
        let mut all = table(5);
        all.merge(table(3));
        let entry = all.entries().next().unwrap();
        assert_eq!((entry.reuse.firsts, entry.implied, entry.starts), (8 * most, 8 * (most - 1), 8));
    }

    proptest! {
        #[test]
        fn tables_that_are_merged_count_what_one_would(
            touches in prop::collection::vec((0u64..40, 0u32..3, 0u32..5, 0u32..3, 0u32..64, 0u64..9), 0..400), parts in 1usize..4,
        ) {
            let mut expected: BTreeMap<(u64, u32, u32, u32), (u64, u64, u64)> = BTreeMap::new();
            let mut tables: Vec<BlockTable> = (0..parts).map(|_| BlockTable::new()).collect();
            for (i, &(unit, space, group, object, bit, distance)) in touches.iter().enumerate() {
                let entry = expected.entry((unit, space, group, object)).or_default();
                (entry.0, entry.1, entry.2) = (entry.0 | 1 << bit, entry.1 + 1, entry.2.max(distance));
                let table = &mut tables[i % parts];
                let owner = table.owner(space, group, object);
                table.add(unit, owner, &GroupReuse { reuses: 1, distance, distance_max: distance, ..GroupReuse::default() }, Touch { blocks: 1 << bit, starts: 1, implied: 0 });
            }
            let all = tables.into_iter().reduce(|mut a, b| { a.merge(b); a }).unwrap();
            let found: BTreeMap<_, _> = all.entries().map(|e| ((e.unit, e.space, e.group, e.object), (e.blocks, e.starts, e.reuse.distance_max))).collect();
            prop_assert_eq!(found.len(), all.len());
            prop_assert_eq!(found, expected);
        }
    }
}
