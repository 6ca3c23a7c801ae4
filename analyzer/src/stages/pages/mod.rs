//! Reuse counts by unit of memory, group and object, for the location zoom and for objects.
//!
//! A *unit* is up to 64 consecutive blocks: a page, unless regions may end inside pages or blocks
//! are larger. Regions consist of whole units. So one entry per page suffices, where blocks would
//! need 64; a bit map holds its touched blocks.
//!
//! Method, as for footprints ([`crate::stages::footprint`]): touches of a unit by the same code in
//! short succession are merged in a small direct-mapped table (`write_cache`). Evicted slots, or
//! single touches if the table saves no time, are appended to one of some partitions ([`store`])
//! that all workers share. They are merged there when there are as many new ones as old ones. So
//! memory outside the caches is only accessed in order.

pub(crate) mod slot;
pub(crate) mod store;
pub(crate) mod touch;
pub(crate) mod write_cache;

use crate::data::group::Group;
use crate::data::reuse_counts::GroupReuse;
use crate::stages::pages::touch::Touch;
use crate::stages::pages::write_cache::Front;
use slot::TouchRecord;
use std::sync::Arc;
use store::Partitions;

pub(crate) use slot::Slot;
pub(crate) use store::BlockStore;
pub use store::Units;

pub(crate) const NO_OWNER: u32 = u32::MAX;
/// Slots of a cache of owners with objects. Source: Chosen.
const MAX_LATE_OWNERS: usize = 1 << 8;

/// Log2 of the bytes of a unit: regions end at `stop` bytes or more, and there are at most 64
/// blocks in one.
pub fn unit_shift(block_shift: u32, stop: u64) -> u32 {
    let page = if stop.is_power_of_two() {
        stop.ilog2().min(12)
    } else {
        12
    };
    page.min(block_shift + 6).max(block_shift)
}

/// Touches of one unit by one group.
#[derive(Clone, Copy, Debug)]
pub struct UnitEntry {
    /// Address divided by the bytes of a unit.
    pub unit: u64,
    /// Address space.
    pub space: u32,
    /// Code and class, see [`crate::data::code_map`].
    pub group: Group,
    /// Object, for pages that several objects share (see [`crate::data::object_map`]); else 0.
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

/// A group in an address space, with an object if several share a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    space: u32,
    group: Group,
    object: u32,
}

/// A worker's part of a table of [`UnitEntry`]s. After all parts are merged it is the whole table.
pub struct BlockTable {
    front: Front,
    partitions: Partitions,
    /// Owner without an object by address space and group, [`NO_OWNER`] if there is none yet.
    owner_of: Vec<Vec<u32>>,
    /// Direct-mapped cache of recent owners with objects.
    late: Vec<(Owner, u32)>,
}

impl BlockTable {
    /// A worker's part of a table in a store.
    pub(crate) fn of(store: Arc<BlockStore>) -> BlockTable {
        BlockTable {
            front: Front::default(),
            partitions: Partitions::new(store),
            owner_of: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Number of a group in an address space and of an object (0: objects are not distinguished).
    #[inline(always)]
    pub fn owner(&mut self, space: u32, group: Group, object: u32) -> u32 {
        let owner = Owner {
            space,
            group,
            object,
        };
        if object != 0 {
            return self.owner_of_object(owner);
        }
        match self
            .owner_of
            .get(space as usize)
            .and_then(|o| o.get(group.index()))
        {
            Some(&owner) if owner != NO_OWNER => owner,
            _ => self.new_owner(owner),
        }
    }

    #[inline(never)]
    fn owner_of_object(&mut self, owner: Owner) -> u32 {
        if self.late.is_empty() {
            self.late = vec![
                (
                    Owner {
                        space: NO_OWNER,
                        group: Group::from_raw(NO_OWNER),
                        object: 0
                    },
                    NO_OWNER
                );
                MAX_LATE_OWNERS
            ];
        }
        let place = (owner.object.wrapping_mul(0x9e37_79b1)
            ^ owner.group.raw().wrapping_mul(0x85eb_ca6b))
            >> (32 - MAX_LATE_OWNERS.trailing_zeros());
        let late = &mut self.late[place as usize];
        if late.0 != owner {
            *late = (owner, self.partitions.store.owner(owner));
        }
        late.1
    }

    #[cold]
    #[inline(never)]
    fn new_owner(&mut self, owner: Owner) -> u32 {
        let number = self.partitions.store.owner(owner);
        let (space, group) = (owner.space as usize, owner.group.index());
        if self.owner_of.len() <= space {
            self.owner_of.resize(space + 1, Vec::new());
        }
        let of_space = &mut self.owner_of[space];
        if of_space.len() <= group {
            of_space.resize(group + 1, NO_OWNER);
        }
        of_space[group] = number;
        number
    }

    /// True if the next touches should be [joined](BlockTable::join); otherwise they should be
    /// [added](BlockTable::add).
    pub(crate) fn joins(&mut self, touches: usize) -> bool {
        self.front.pays(touches)
    }

    /// Adds touches of a unit by an owner to recent ones. `left` receives the counts of an evicted
    /// unit, or these counts if they must be stored elsewhere.
    #[inline(always)]
    pub(crate) fn join(
        &mut self,
        unit: u64,
        owner: u32,
        reuse: &GroupReuse,
        touch: Touch,
        mut left: impl FnMut(u64, (u64, u64, u64)),
    ) {
        let Some(key) = slot::pack_slot_key(unit, owner) else {
            left(unit, (touch.starts, reuse.reuses, reuse.distance));
            return self.partitions.store.add_odd(unit, owner, reuse, touch);
        };
        if let Some(slot) = self.front.add(key, reuse, touch) {
            left(slot::unit(slot.key), slot.heat());
            self.partitions.push_slot(slot);
            if self.front.has_left() {
                self.part(left);
                self.front.grow();
            }
        }
    }

    /// Moves the joined touches to the partitions; `left` receives all of them.
    #[inline(never)]
    pub(crate) fn part(&mut self, mut left: impl FnMut(u64, (u64, u64, u64))) {
        for slot in self.front.leave() {
            left(slot::unit(slot.key), slot.heat());
            self.partitions.push_slot(slot);
        }
    }

    /// Counts a touch of a unit by an owner.
    #[inline(always)]
    pub fn add(&mut self, unit: u64, owner: u32, reuse: &GroupReuse, touch: Touch) {
        let Some(key) = slot::pack_slot_key(unit, owner) else {
            return self.partitions.store.add_odd(unit, owner, reuse, touch);
        };
        match TouchRecord::new(key, reuse, touch) {
            Some(record) => self.partitions.push(record),
            None => self.add_long(key, reuse, touch),
        }
    }

    #[cold]
    fn add_long(&mut self, key: u64, reuse: &GroupReuse, touch: Touch) {
        let mut slot = Slot::new(key);
        slot.add(reuse, touch);
        self.partitions.push_slot(slot);
    }

    /// Passes everything to the store. The joined touches must have been [moved](BlockTable::part)
    /// before.
    pub(crate) fn settle(&mut self) {
        self.partitions.flush();
    }

    /// Returns everything from the store. All its tables must have been settled before.
    pub(crate) fn finish(&mut self) -> Units {
        self.partitions.store.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn units_are_pages_unless_blocks_or_regions_say_otherwise() {
        let all = [
            (6, 4096),
            (6, 1 << 20),
            (6, 256),
            (0, 4096),
            (3, 1),
            (14, 4096),
            (6, 5000),
        ]
        .map(|(block, stop)| unit_shift(block, stop));
        assert_eq!(all, [12, 12, 8, 6, 3, 14, 12]);
    }

    type TouchSums = (u64, u64, u64, u64, u64, u64, u64, u64);

    fn sums(reuse: &GroupReuse, touch: &Touch) -> TouchSums {
        (
            touch.blocks,
            touch.starts,
            touch.implied,
            reuse.reuses,
            reuse.firsts,
            reuse.distance,
            reuse.distance_max,
            reuse.interval,
        )
    }

    proptest! {
        /// Touches of several workers use different methods. Each is counted once, including
        /// evicted ones.
        #[test]
        fn tables_of_a_store_count_what_one_would(
            touches in prop::collection::vec((prop_oneof![0u64..90, Just(u64::MAX), 0u64..1 << 50], 0u32..3, 0u32..5, 0u32..3, 0u32..64, 0u64..9, any::<bool>()), 0..400),
            times in 1usize..40, tables in 1usize..4, turns in 1usize..60,
        ) {
            let store = BlockStore::new();
            let mut all: Vec<BlockTable> = (0..tables).map(|_| BlockTable::of(store.clone())).collect();
            let mut expected: BTreeMap<(u64, u32, u32, u32), (GroupReuse, Touch)> = BTreeMap::new();
            let mut heat: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
            let mut told: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
            let mut tell = |unit: u64, (starts, reuses, distance): (u64, u64, u64)| {
                let all = told.entry(unit).or_default();
                *all = (all.0 + starts, all.1 + reuses, all.2 + distance);
            };
            for (at, &(unit, space, group, object, bit, distance, first)) in std::iter::repeat_n(&touches, times).flatten().enumerate() {
                let unit = unit.wrapping_add(at as u64 % 7);
                let reuse = if first { GroupReuse { firsts: 1, ..GroupReuse::default() } } else { GroupReuse { reuses: 1, firsts: 0, distance, distance_max: distance, interval: distance * 3 } };
                let touch = Touch { blocks: 1 << bit, starts: u64::from(first), implied: distance * u64::from(first) };
                let known = expected.entry((unit, space, group, object)).or_default();
                known.0.merge(&reuse);
                known.1.merge(&touch);
                let table = &mut all[at % tables];
                let owner = table.owner(space, Group::from_raw(group), object);
                if at / turns % 3 < 2 && table.joins(1) {
                    table.join(unit, owner, &reuse, touch, &mut tell);
                } else {
                    table.add(unit, owner, &reuse, touch);
                    tell(unit, (touch.starts, reuse.reuses, reuse.distance));
                }
                let all = heat.entry(unit).or_default();
                *all = (all.0 + touch.starts, all.1 + reuse.reuses, all.2 + reuse.distance);
            }
            for table in &mut all {
                table.part(&mut tell);
                table.settle();
            }
            let units = all[0].finish();
            let found: Vec<_> = units.entries().map(|e| ((e.unit, e.space, e.group.raw(), e.object), sums(&e.reuse, &Touch { blocks: e.blocks, starts: e.starts, implied: e.implied }))).collect();
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected.into_iter().map(|(key, (reuse, touch))| (key, sums(&reuse, &touch))).collect::<BTreeMap<_, _>>());
            prop_assert_eq!(told, heat);
        }
    }
}
