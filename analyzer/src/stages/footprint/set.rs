//! The entries of several tables together, partition by partition.

use crate::data::code_map::CodeMap;
use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::stages::footprint::fold::{Folded, fold};
use crate::stages::footprint::packed_entry::{Maps, PackedEntry};
use crate::stages::footprint::packed_key::{OWNER_BITS, OWNER_MASK, owner_in};
use crate::stages::footprint::partition::{BLOCK, PARTITIONS, Run, Store, partition_of};
use crate::stages::footprint::{Entry, Footprints, GroupCount, Key, NO_OWNER, add_counts};
use crate::util::radix;
use rayon::prelude::*;
use std::sync::Arc;

/// Fewer entries are folded by one thread. Source: Chosen.
const MIN_PARALLEL_ENTRIES: usize = 1 << 14;
/// Entries between the current one and the one that is prefetched. Source: Chosen.
const PREFETCH_DISTANCE: usize = 16;

/// Keys and places packed into one number, which halves the time to move them. Bits that all keys
/// share are left out.
#[derive(Clone, Copy)]
struct Packing {
    /// The least line, and bits of the rank and of the place.
    line: u64,
    rank_bits: u32,
    place_bits: u32,
}

impl Packing {
    /// A packing for some keys, whose places are below `places`; `None` if they do not fit.
    fn new(keys: impl Iterator<Item = u64>, places: usize) -> Option<Packing> {
        let (least, most, ranks) = keys.fold((u64::MAX, 0, 0), |(least, most, ranks), key| {
            (
                key.min(least),
                key.max(most),
                ranks | key & u64::from(OWNER_MASK),
            )
        });
        let bits = |n: u64| u64::BITS - n.leading_zeros();
        let line = least.min(most) >> OWNER_BITS;
        let (rank_bits, place_bits) = (bits(ranks), bits(places as u64));
        // A shift by all bits of a number is not allowed.
        (bits((most >> OWNER_BITS) - line) + rank_bits + place_bits < u64::BITS).then_some(
            Packing {
                line,
                rank_bits,
                place_bits,
            },
        )
    }

    #[inline(always)]
    fn pack(&self, key: u64, place: usize) -> u64 {
        (((key >> OWNER_BITS) - self.line) << self.rank_bits | key & u64::from(OWNER_MASK))
            << self.place_bits
            | place as u64
    }

    #[inline(always)]
    fn without_place(&self, packed: u64) -> u64 {
        packed >> self.place_bits
    }

    #[inline(always)]
    fn place(&self, packed: u64) -> usize {
        (packed & ((1 << self.place_bits) - 1)) as usize
    }

    #[inline(always)]
    fn key(&self, packed: u64) -> u64 {
        let packed = self.without_place(packed);
        ((packed >> self.rank_bits) + self.line) << OWNER_BITS
            | packed & ((1 << self.rank_bits) - 1)
    }
}

/// The entries of several tables.
#[derive(Clone, Debug, Default)]
pub struct FootprintSet {
    /// By partition: runs, each with the index of its table.
    runs: Vec<Vec<(usize, Run)>>,
    /// By partition: entries that were added separately.
    loose: Vec<Vec<Entry>>,
    /// Group and address space of all owners, in the order of address spaces and groups.
    owners: Vec<(Group, u32)>,
    /// By table: the rank of each of its owners among all owners.
    ranks: Vec<Vec<u32>>,
    /// True if there are so few entries that all are in the first partition.
    little: bool,
}

impl FootprintSet {
    /// Builds the set of several tables. Also returns the counts by group, summed over all tables.
    pub fn new(mut tables: Vec<Footprints>) -> (FootprintSet, Vec<GroupCount>) {
        tables.iter_mut().for_each(Footprints::settle);
        let little = tables.iter().all(|t| t.partitions.is_little());
        FootprintSet::parted(tables, little)
    }

    /// Builds a set for each bucket from its tables, so that the sets can be
    /// [united](FootprintSet::union).
    pub fn of_buckets(mut buckets: Vec<Vec<Footprints>>) -> Vec<(FootprintSet, Vec<GroupCount>)> {
        buckets.iter_mut().flatten().for_each(Footprints::settle);
        let little = buckets.iter().flatten().all(|t| t.partitions.is_little());
        buckets
            .into_iter()
            .map(|tables| FootprintSet::parted(tables, little))
            .collect()
    }

    /// Union of several sets that [`FootprintSet::of_buckets`] made together.
    pub fn union(sets: Vec<FootprintSet>) -> FootprintSet {
        let by_space = |&(group, space): &(Group, u32)| (space, group);
        let mut owners: Vec<(Group, u32)> =
            sets.iter().flat_map(|s| s.owners.iter().copied()).collect();
        owners.sort_unstable_by_key(by_space);
        owners.dedup();
        let little = sets.iter().all(|s| s.little);
        let mut all = FootprintSet {
            runs: vec![Vec::new(); PARTITIONS],
            loose: vec![Vec::new(); PARTITIONS],
            owners,
            ranks: Vec::new(),
            little,
        };
        for set in sets {
            let rank = |owner: &(Group, u32)| {
                all.owners
                    .binary_search_by_key(&by_space(owner), by_space)
                    .unwrap_or(0) as u32
            };
            let among_all: Vec<u32> = set.owners.iter().map(rank).collect();
            let first = all.ranks.len();
            all.ranks.extend(set.ranks.into_iter().map(|ranks| {
                ranks
                    .into_iter()
                    .map(|r| among_all.get(r as usize).copied().unwrap_or(0))
                    .collect::<Vec<u32>>()
            }));
            for (into, runs) in all.runs.iter_mut().zip(set.runs) {
                into.extend(runs.into_iter().map(|(table, run)| (first + table, run)));
            }
            for (into, entries) in all.loose.iter_mut().zip(set.loose) {
                into.extend(entries);
            }
        }
        all
    }

    fn parted(tables: Vec<Footprints>, little: bool) -> (FootprintSet, Vec<GroupCount>) {
        let by_space = |&(group, space): &(Group, u32)| (space, group);
        // Tables of several workers may share a store.
        let mut stores: Vec<Arc<Store>> =
            tables.iter().map(|t| t.partitions.store.clone()).collect();
        stores.sort_unstable_by_key(|s| Arc::as_ptr(s).addr());
        stores.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let of_stores: Vec<Vec<(Group, u32)>> = stores.iter().map(|s| s.owners()).collect();
        let mut owners: Vec<(Group, u32)> = of_stores.iter().flatten().copied().collect();
        owners.sort_unstable_by_key(by_space);
        owners.dedup();
        let rank = |owner: &(Group, u32)| {
            owners
                .binary_search_by_key(&by_space(owner), by_space)
                .unwrap_or(0) as u32
        };
        let ranks = of_stores
            .iter()
            .map(|of_store| of_store.iter().map(rank).collect())
            .collect();
        let mut set = FootprintSet {
            runs: vec![Vec::new(); PARTITIONS],
            loose: vec![Vec::new(); PARTITIONS],
            owners,
            ranks,
            little,
        };
        let mut counts: Vec<GroupCount> = Vec::new();
        for mut table in tables {
            add_counts(&mut counts, &table.counts);
            for (key, maps) in std::mem::take(&mut table.odd) {
                set.add(Entry { key, maps });
            }
            if !little {
                table.partitions.part();
                table.partitions.flush();
            } else if let Some(store) = stores
                .iter()
                .position(|s| Arc::ptr_eq(s, &table.partitions.store))
            {
                set.runs[0].push((store, table.partitions.finish()));
            }
        }
        for (number, store) in stores.iter().enumerate() {
            for (into, runs) in set.runs.iter_mut().zip(store.finish()) {
                into.extend(runs.into_iter().map(|r| (number, r)));
            }
        }
        (set, counts)
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) {
        self.loose.resize(PARTITIONS, Vec::new());
        self.loose[if self.little {
            0
        } else {
            partition_of(entry.key.line)
        }]
        .push(entry);
    }

    /// The entries of a partition with distinct keys, sorted by address space, line and group.
    fn partition(&self, number: usize, entries: &mut Vec<Entry>) {
        const OWNER: u64 = OWNER_MASK as u64;
        let runs = self.runs.get(number).map_or(&[][..], Vec::as_slice);
        let count = runs.iter().map(|r| r.1.len()).sum();
        // A scratch file that becomes unreadable during the run cannot be recovered. No result is
        // better than a wrong one.
        let places: Vec<_> = runs
            .iter()
            .map(|(_, run)| {
                run.places().unwrap_or_else(|e| {
                    panic!("the scratch file of footprints cannot be read: {e}")
                })
            })
            .collect();
        // Entries are not moved: keys are sorted, each with the place of its entry.
        let blocks: Vec<(usize, &[PackedEntry])> = runs
            .iter()
            .zip(&places)
            .flat_map(|((table, _), places)| places.blocks().map(|block| (*table, block)))
            .collect();
        let place_of = |at: usize| blocks.get(at / BLOCK).and_then(|b| b.1.get(at % BLOCK));
        let keys = || {
            (0..)
                .step_by(BLOCK)
                .zip(&blocks)
                .flat_map(|(first, &(table, block))| {
                    let ranks = &self.ranks[table];
                    let key = |p: &PackedEntry| {
                        p.key & !OWNER
                            | u64::from(ranks.get(owner_in(p.key) as usize).copied().unwrap_or(0))
                    };
                    block
                        .iter()
                        .enumerate()
                        .map(move |(at, p)| (key(p), first + at))
                })
        };
        entries.clear();
        entries.reserve(count);
        let mut last = None;
        let mut add = |key: u64, at: usize| {
            let maps = place_of(at).map_or(Maps::default(), |p| p.maps);
            match entries.last_mut().filter(|_| last == Some(key)) {
                Some(entry) => entry.maps.merge(&maps),
                None => {
                    let (group, space) = self
                        .owners
                        .get((key & OWNER) as usize)
                        .copied()
                        .unwrap_or((Group::from_raw(NO_OWNER), 0));
                    entries.push(Entry {
                        key: Key {
                            space,
                            line: CacheLine::from_number(key >> OWNER_BITS),
                            group,
                        },
                        maps,
                    });
                }
            }
            last = Some(key);
        };
        // Ranks ascend with groups. With a single address space, the order begins with lines in
        // both cases.
        let packing = Packing::new(keys().map(|k| k.0), blocks.len() * BLOCK);
        if let Some(packing) = packing {
            let mut order: Vec<u64> = Vec::with_capacity(count);
            order.extend(keys().map(|(key, at)| packing.pack(key, at)));
            radix::sort(&mut order, |&o| packing.without_place(o));
            for (number, &one) in order.iter().enumerate() {
                if let Some(place) = order
                    .get(number + PREFETCH_DISTANCE)
                    .and_then(|&ahead| place_of(packing.place(ahead)))
                {
                    crate::prefetch(place);
                }
                add(packing.key(one), packing.place(one));
            }
        } else {
            let mut order: Vec<(u64, u32)> = Vec::with_capacity(count);
            order.extend(keys().map(|(key, at)| (key, at as u32)));
            radix::sort(&mut order, |o| o.0);
            order.iter().for_each(|&(key, at)| add(key, at as usize));
        }
        let loose = self.loose.get(number).map_or(&[][..], Vec::as_slice);
        if loose.is_empty() && self.owners.first().map(|o| o.1) == self.owners.last().map(|o| o.1) {
            return;
        }
        entries.extend(loose);
        entries.sort_by_key(|e| (e.key.space, e.key.line, e.key.group));
        entries.dedup_by(|later, kept| {
            let same = later.key == kept.key;
            if same {
                kept.maps.merge(&later.maps);
            }
            same
        });
    }

    /// Number of entries in a partition, including repetitions.
    fn size(&self, number: usize) -> usize {
        let runs = self
            .runs
            .get(number)
            .map_or(0, |r| r.iter().map(|r| r.1.len()).sum());
        runs + self.loose.get(number).map_or(0, Vec::len)
    }

    /// Footprints of the whole, of functions, lines and loops.
    pub fn fold(&self, code: &CodeMap) -> Folded {
        self.fold_with(
            || Folded::new(code),
            |folded, entries| fold(entries, code, folded),
            Folded::merge,
        )
    }

    /// Passes all entries to folds made by `new`, and combines these with `merge`. A fold gets the
    /// entries of whole pages with distinct keys, sorted by address space, line and group. Only one
    /// partition per thread is in memory at a time.
    pub(crate) fn fold_with<T: Send>(
        &self,
        new: impl Fn() -> T + Sync,
        add: impl Fn(&mut T, &[Entry]) + Sync,
        merge: impl Fn(T, T) -> T + Sync + Send,
    ) -> T {
        let used: Vec<usize> = (0..PARTITIONS).filter(|&p| self.size(p) > 0).collect();
        let all: usize = used.iter().map(|&p| self.size(p)).sum();
        let share = if all < MIN_PARALLEL_ENTRIES {
            PARTITIONS
        } else {
            used.len().div_ceil(rayon::current_num_threads() * 4).max(1)
        };
        let some = |numbers: &[usize]| {
            let (mut folded, mut entries) = (new(), Vec::new());
            for &number in numbers {
                self.partition(number, &mut entries);
                add(&mut folded, &entries);
            }
            folded
        };
        used.par_chunks(share)
            .map(some)
            .reduce_with(&merge)
            .unwrap_or_else(&new)
    }

    /// All entries with distinct keys, sorted by address space, line and group.
    pub fn entries(&self) -> Vec<Entry> {
        let of = |number| {
            let mut entries = Vec::new();
            self.partition(number, &mut entries);
            entries
        };
        let mut all: Vec<Entry> = (0..PARTITIONS).into_par_iter().flat_map_iter(of).collect();
        all.par_sort_by_key(Entry::key);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_keys_come_back_and_have_their_order(
            list in prop::collection::vec((prop_oneof![0u64..9, (1u64 << 35)..(1u64 << 35) + 5000, Just((1u64 << 41) - 1)], prop_oneof![0u64..4, Just(u64::from(OWNER_MASK) - 1)]), 1..40),
        ) {
            let keys: Vec<u64> = list.iter().map(|&(line, rank)| line << OWNER_BITS | rank).collect();
            let Some(packing) = Packing::new(keys.iter().copied(), keys.len()) else { return Ok(()) };
            for (at, &key) in keys.iter().enumerate() {
                let packed = packing.pack(key, at);
                prop_assert_eq!((packing.key(packed), packing.place(packed)), (key, at));
                prop_assert!(keys.iter().all(|&other| key.cmp(&other) == packing.without_place(packed).cmp(&packing.without_place(packing.pack(other, 0)))));
            }
        }
    }

    #[test]
    fn keys_that_are_far_apart_do_not_fit() {
        let keys = [
            0,
            ((1u64 << 41) - 1) << OWNER_BITS | u64::from(OWNER_MASK - 1),
        ];
        assert!(Packing::new(keys.into_iter(), 2).is_none());
        assert!(Packing::new(std::iter::empty(), 0).is_some());
    }
}
