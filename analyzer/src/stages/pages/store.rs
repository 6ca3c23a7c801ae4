//! Slots by unit, in partitions that all workers share: touches and slots are appended, and merged
//! from time to time.

use crate::data::reuse_counts::GroupReuse;
use crate::stages::pages::slot::{Slot, TouchRecord};
use crate::stages::pages::touch::Touch;
use crate::stages::pages::{Owner, UnitEntry, slot};
use crate::util::fast_hash::Mixed;
use crate::util::key_index::{KeyIndex, chunk_of, expect};
use mgz_annotations_schema::lock::locked;
use mgz_models::util::hash::spread;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Number of partitions.
const PARTITIONS: usize = 128;
/// Minimum number of records that wait in a partition before they are merged. Source: Chosen.
const MIN_WAITING_RECORDS: usize = 1 << 11;
/// Records and slots that a worker passes to the store at a time.
const RECORDS: usize = 1 << 7;
const SLOTS: usize = 1 << 5;
/// Size of a waiting slot in records.
const RECORDS_PER_WAITING_SLOT: usize = 4;
/// Slots of a block. Blocks never move, and do not fragment memory.
const BLOCK: usize = 1 << 8;

#[inline(always)]
fn partition_of(key: u64) -> usize {
    (spread(slot::unit(key)) >> (64 - PARTITIONS.trailing_zeros())) as usize
}

/// Slots of one partition with distinct keys, and slots that are not merged into them yet.
#[derive(Default)]
struct Partition {
    records: Vec<Vec<TouchRecord>>,
    others: Vec<Vec<Slot>>,
    /// Size of both in records.
    waiting: usize,
    /// All except the last are full.
    blocks: Vec<Vec<Slot>>,
    len: usize,
}

/// Buffers that a worker needs to merge. One serves all partitions, so it stays in the cache.
#[derive(Default)]
struct Scratch {
    index: KeyIndex,
    /// Empty chunks for reuse, since fresh memory is expensive.
    records: Vec<Vec<TouchRecord>>,
    others: Vec<Vec<Slot>>,
}

impl Partition {
    /// Takes chunks, and merges if there are enough. Each merge looks up all slots once, so it
    /// needs at least as many new slots as old ones.
    fn take(&mut self, records: Vec<TouchRecord>, others: Vec<Slot>, scratch: &mut Scratch) {
        self.waiting += records.len() + others.len() * RECORDS_PER_WAITING_SLOT;
        self.records.extend(Some(records).filter(|r| !r.is_empty()));
        self.others.extend(Some(others).filter(|o| !o.is_empty()));
        if self.waiting >= MIN_WAITING_RECORDS.max(self.len * 3) {
            self.merge(scratch);
        }
    }

    /// Merges new records. First, all keys are looked up. Then the counts are added, so that
    /// neither step waits for the other.
    fn merge(&mut self, scratch: &mut Scratch) {
        let more = self.records.iter().map(Vec::len).sum::<usize>()
            + self.others.iter().map(Vec::len).sum::<usize>();
        if more == 0 {
            return;
        }
        let index = &mut scratch.index;
        index.begin(self.blocks.iter().flatten().map(|s| s.key), self.len, more);
        for (at, chunk) in self.records.iter().enumerate() {
            expect(self.records.get(at + 1));
            index.number(chunk, |r| r.key);
        }
        for (at, chunk) in self.others.iter().enumerate() {
            expect(self.others.get(at + 1));
            index.number(chunk, |s| s.key);
        }
        for &key in index.new_keys() {
            if self.len.is_multiple_of(BLOCK) {
                self.blocks.push(Vec::with_capacity(BLOCK));
            }
            if let Some(last) = self.blocks.last_mut() {
                last.push(Slot::new(key));
                self.len += 1;
            }
        }
        let mut numbers = index.numbers().iter().map(|&n| n as usize);
        for mut chunk in self.records.drain(..) {
            for (record, number) in chunk.iter().zip(&mut numbers) {
                let (reuse, touch) = record.counts();
                self.blocks[number / BLOCK][number % BLOCK].add(&reuse, touch);
            }
            chunk.clear();
            scratch.records.push(chunk);
        }
        for mut chunk in self.others.drain(..) {
            chunk
                .iter()
                .zip(&mut numbers)
                .for_each(|(slot, number)| self.blocks[number / BLOCK][number % BLOCK].merge(slot));
            chunk.clear();
            scratch.others.push(chunk);
        }
        self.waiting = 0;
    }
}

/// Numbers of owners.
#[derive(Default)]
struct Owners {
    list: Vec<Owner>,
    numbers: HashMap<Owner, u32, Mixed>,
}

/// The slots of a table that several workers fill together, so that each exists once and not once
/// per worker.
#[derive(Default)]
pub(crate) struct BlockStore {
    partitions: Vec<Mutex<Partition>>,
    owners: Mutex<Owners>,
    /// Counts of units or owners that do not fit into a key.
    odd: Mutex<HashMap<(u64, u32), (GroupReuse, Touch), Mixed>>,
}

impl BlockStore {
    /// An empty store.
    pub(crate) fn new() -> Arc<BlockStore> {
        Arc::new(BlockStore {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            ..BlockStore::default()
        })
    }

    /// The number of an owner.
    pub(crate) fn owner(&self, owner: Owner) -> u32 {
        let Owners { list, numbers } = &mut *locked(&self.owners);
        *numbers.entry(owner).or_insert_with(|| {
            list.push(owner);
            list.len() as u32 - 1
        })
    }

    /// Counts touches whose unit or owner does not fit into a key.
    #[cold]
    pub(crate) fn add_odd(&self, unit: u64, owner: u32, reuse: &GroupReuse, touch: Touch) {
        let mut odd = locked(&self.odd);
        let (all, touched) = odd.entry((unit, owner)).or_default();
        all.merge(reuse);
        touched.merge(&touch);
    }

    /// Returns everything. All workers must have flushed before.
    pub(crate) fn finish(&self) -> Units {
        let finish = |scratch: &mut Scratch, partition: &Mutex<Partition>| {
            let mut partition = std::mem::take(&mut *locked(partition));
            partition.merge(scratch);
            partition.blocks
        };
        let slots = self
            .partitions
            .par_iter()
            .with_min_len(PARTITIONS / 16)
            .map_init(Scratch::default, finish)
            .collect::<Vec<_>>();
        Units {
            slots: slots.into_iter().flatten().collect(),
            odd: std::mem::take(&mut *locked(&self.odd)),
            owners: locked(&self.owners).list.clone(),
        }
    }
}

/// All counts, with distinct pairs of unit and owner.
#[derive(Default)]
pub struct Units {
    slots: Vec<Vec<Slot>>,
    odd: HashMap<(u64, u32), (GroupReuse, Touch), Mixed>,
    owners: Vec<Owner>,
}

impl Units {
    /// All entries, in arbitrary order.
    pub fn entries(&self) -> impl Iterator<Item = UnitEntry> + '_ {
        let entry = |unit: u64,
                     owner: u32,
                     (
            reuse,
            Touch {
                blocks,
                starts,
                implied,
            },
        ): (GroupReuse, Touch)| {
            let Owner {
                space,
                group,
                object,
            } = self.owners[owner as usize];
            UnitEntry {
                unit,
                space,
                group,
                object,
                blocks,
                starts,
                implied,
                reuse,
            }
        };
        let odd = self
            .odd
            .iter()
            .map(move |(&(unit, owner), &counts)| entry(unit, owner, counts));
        self.slots
            .iter()
            .flatten()
            .map(move |slot| {
                entry(
                    slot::unit(slot.key),
                    slot::owner_of_key(slot.key),
                    slot.counts(),
                )
            })
            .chain(odd)
    }
}

/// A worker's buffer for a [`BlockStore`]. Records and slots wait here, by partition, until there
/// are enough to pass on.
pub(crate) struct Partitions {
    pub(crate) store: Arc<BlockStore>,
    records: Vec<Vec<TouchRecord>>,
    others: Vec<Vec<Slot>>,
    scratch: Scratch,
}

impl Partitions {
    pub(crate) fn new(store: Arc<BlockStore>) -> Partitions {
        Partitions {
            store,
            records: vec![Vec::new(); PARTITIONS],
            others: vec![Vec::new(); PARTITIONS],
            scratch: Scratch::default(),
        }
    }

    /// Appends a touch.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: TouchRecord) {
        let number = partition_of(record.key);
        let chunk = &mut self.records[number];
        chunk.push(record);
        if chunk.len() >= RECORDS {
            self.hand_over(number);
        }
    }

    /// Appends a slot.
    #[inline(always)]
    pub(crate) fn push_slot(&mut self, slot: Slot) {
        let number = partition_of(slot.key);
        let chunk = &mut self.others[number];
        chunk.push(slot);
        if chunk.len() >= SLOTS {
            self.hand_over(number);
        }
    }

    /// Passes the waiting slots to their partition.
    #[cold]
    fn hand_over(&mut self, number: usize) {
        let Scratch {
            records: free_records,
            others: free_others,
            ..
        } = &mut self.scratch;
        let records = chunk_of(&mut self.records[number], free_records, RECORDS);
        let others = chunk_of(&mut self.others[number], free_others, SLOTS);
        locked(&self.store.partitions[number]).take(records, others, &mut self.scratch);
    }

    /// Passes on everything that waits.
    pub(crate) fn flush(&mut self) {
        (0..PARTITIONS)
            .filter(|&p| !self.records[p].is_empty() || !self.others[p].is_empty())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|p| self.hand_over(p));
    }
}
