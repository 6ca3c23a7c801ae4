//! Bytes and start addresses that each piece of code has touched.
//!
//! The unit is an entry per (group, address space, 64-byte line), where a *group* is a code line
//! and a load class (see [`crate::data::code_map`]). It has three 64-bit maps with one bit per byte
//! of the line: start addresses seen, start addresses seen at least twice, and bytes touched. Maps
//! of different groups merge by bit operations ([`Maps::merge`]). So one pass fills one table, and
//! the footprints of lines, functions and the whole trace are computed from it at the end
//! ([`FootprintSet::fold`]).
//!
//! Method. A row becomes one packed number ([`record`]), which is appended to one of some
//! [`partitions`](partition) selected by its page. No look-up is needed, and no branch depends on
//! the data. Most code touches lines again soon. Such touches are first merged in a small
//! direct-mapped table (`write_cache`), and evicted entries are appended. From time to time a trial
//! decides if the table saves time. If not, records that were already appended twice are left out,
//! provided there are enough of them ([`repeats`]). When the new records of a partition take as
//! much memory as its entries, they are merged into these, with a table that stays in the cache.
//! All workers share the partitions in a [`Store`]; records wait with the worker, by partition,
//! until they are handed over. So memory outside the caches is only accessed in order, and a
//! partition can be folded separately: partitions for which a [`Budget`] has no room are written to
//! a file. Rows that do not fit into a packed number (across lines, of unusual sizes, of very many
//! groups) are appended as entries.

pub mod fold;
pub(crate) mod merged;
pub(crate) mod packed_entry;
pub(crate) mod packed_key;
pub(crate) mod partition;
pub(crate) mod record;
pub(crate) mod repeats;
pub(crate) mod set;
pub(crate) mod write_cache;

pub(crate) use merged::Merged;
pub use partition::Budget;
pub(crate) use partition::Store;
pub use set::FootprintSet;

use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::data::rows::ColumnSlices;
use crate::stages::footprint::packed_entry::{Maps, PackedEntry};
use crate::stages::footprint::packed_key::{OWNER_BITS, fits, pack};
use crate::stages::footprint::write_cache::Front;
use partition::Partitions;
use repeats::Repeats;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows that become records together.
const ROWS_PER_BATCH: usize = crate::stages::footprint::write_cache::MAX_TOUCHES_PER_BATCH;
/// Bits of a tally that hold the rows; the others hold the implied loads, at most 65,535 for a row.
const TALLY_BITS: u32 = 24;
/// Rows between two sums, so that no tally overflows.
const MAX_TALLIED_ROWS: usize = 1 << 22;
/// Copies of a group's tally, used in turn. Consecutive rows often have the same group, and a store
/// takes several cycles until its value can be loaded. Source: Chosen.
const TALLY_COPIES: usize = 4;
const NO_OWNER: u32 = u32::MAX;

/// Key of an entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Key {
    /// Address space (process).
    pub space: u32,
    /// Cache line.
    pub line: CacheLine,
    /// Line piece and class.
    pub group: Group,
}

/// An entry of the folded table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    key: Key,
    maps: Maps,
}

impl Entry {
    /// Builds an entry from its parts.
    pub(crate) fn new(key: Key, maps: Maps) -> Entry {
        Entry { key, maps }
    }

    /// Key of the entry.
    pub fn key(&self) -> Key {
        self.key
    }

    /// State of the line.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }
}

/// Counts of one group.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupCount {
    /// Rows.
    pub rows: u64,
    /// Implied Constant loads.
    pub implied: u64,
}

/// State after an access to one line. `offset` is the first byte (below 64), and `bytes` the number
/// of bytes (at least one). `starts` is true if the access starts there.
#[inline(always)]
fn touch(offset: u32, bytes: u32, starts: bool) -> Maps {
    Maps {
        seen: u64::from(starts) << offset,
        twice: 0,
        bytes: (u64::MAX >> (64 - bytes)) << offset,
    }
}

/// Adds counts by group.
pub(crate) fn add_counts(all: &mut Vec<GroupCount>, some: &[GroupCount]) {
    if all.len() < some.len() {
        all.resize(some.len(), GroupCount::default());
    }
    for (sum, part) in all.iter_mut().zip(some) {
        sum.rows += part.rows;
        sum.implied += part.implied;
    }
}

/// The table.
pub struct Footprints {
    front: Front,
    repeats: Repeats,
    partitions: Partitions,
    /// Entries whose line or owner does not fit into a packed key.
    odd: HashMap<Key, Maps>,
    /// Owner by address space and group, [`NO_OWNER`] if there is none yet.
    owner_of: Vec<Vec<u32>>,
    counts: Vec<GroupCount>,
    /// By group, counts not yet added to `counts`: rows in the lower [`TALLY_BITS`], implied loads
    /// above.
    tally: Vec<[u64; TALLY_COPIES]>,
    /// Upper bound of the rows in `tally`.
    tallied: usize,
}

impl Default for Footprints {
    fn default() -> Footprints {
        Footprints::new(Arc::default())
    }
}

impl Footprints {
    /// An empty table.
    pub fn new(budget: Arc<Budget>) -> Footprints {
        Footprints::of(Store::new(budget))
    }

    /// A worker's part of a table in a store.
    pub(crate) fn of(store: Arc<Store>) -> Footprints {
        Footprints {
            front: Front::default(),
            repeats: Repeats::default(),
            partitions: Partitions::new(store),
            odd: HashMap::new(),
            owner_of: Vec::new(),
            counts: Vec::new(),
            tally: Vec::new(),
            tallied: 0,
        }
    }

    /// Adds rows of one address space.
    pub fn add(&mut self, rows: &ColumnSlices<'_>, space: u32) {
        let space = space as usize;
        if self.owner_of.len() <= space {
            self.owner_of.resize(space + 1, Vec::new());
        }
        let mut owner_of = std::mem::take(&mut self.owner_of[space]);
        for from in (0..rows.len()).step_by(ROWS_PER_BATCH) {
            rows.expect(from + ROWS_PER_BATCH..from + 2 * ROWS_PER_BATCH);
            self.add_some(
                &rows.slice(from..(from + ROWS_PER_BATCH).min(rows.len())),
                &mut owner_of,
                space as u32,
            );
            self.tallied += ROWS_PER_BATCH;
            if self.tallied > MAX_TALLIED_ROWS {
                self.sum_up();
            }
        }
        self.owner_of[space] = owner_of;
    }

    /// Adds at most [`ROWS_PER_BATCH`] rows.
    #[inline(always)]
    fn add_some(&mut self, rows: &ColumnSlices<'_>, owner_of: &mut Vec<u32>, space: u32) {
        let len = rows.len().min(ROWS_PER_BATCH);
        let (address, size, group, implied) = (
            &rows.address[..len],
            &rows.size[..len],
            &rows.group[..len],
            &rows.implied[..len],
        );
        let (mut owners, mut records) = ([0; ROWS_PER_BATCH], [0; ROWS_PER_BATCH]);
        let most = group.iter().fold(0, |most, group| most.max(group.raw())) as usize;
        if most >= owner_of.len() || most >= self.tally.len() {
            self.make_room(owner_of, most);
        }
        let (known, tally) = (&owner_of[..], &mut self.tally[..]);
        let mut any_owner = 0;
        for (at, (owner, (&group, &implied))) in
            owners.iter_mut().zip(group.iter().zip(implied)).enumerate()
        {
            *owner = known[group.index()];
            any_owner |= *owner;
            tally[group.index()][at % TALLY_COPIES] += u64::from(implied) << TALLY_BITS | 1;
        }
        if any_owner >> OWNER_BITS != 0 {
            self.new_owners(owner_of, group, space);
            owners
                .iter_mut()
                .zip(group)
                .for_each(|(owner, &group)| *owner = owner_of[group.index()]);
        }
        if record::pack_all(address, size, &owners, &mut records) == 0 {
            if self.front.pays(len) {
                self.front.add(&records[..len]);
                self.front.drain(&mut self.partitions);
            } else if !self.partitions.is_little() && self.repeats.pays(len) {
                let mut left = [0; ROWS_PER_BATCH];
                self.partitions
                    .push_all(self.repeats.sift(&records[..len], &mut left));
            } else {
                self.partitions.push_all(&records[..len]);
            }
            return;
        }
        for i in 0..len {
            let owner = owner_of[group[i].index()];
            if record::unfit(address[i], size[i], owner) == 0 {
                self.partitions.push(records[i]);
            } else {
                self.add_unfit(address[i], size[i].max(1), owner);
            }
        }
    }

    /// Adds an access that has no record.
    #[inline(never)]
    fn add_unfit(&mut self, at: u64, bytes: u32, owner: u32) {
        let offset = CacheLine::offset(at) as u32;
        let inside = (LINE_BYTES as u32 - offset).min(bytes);
        let (line, maps) = (CacheLine::of(at), touch(offset, inside, true));
        if fits(line, owner) {
            self.partitions.push_entry(PackedEntry {
                key: pack(line, owner),
                maps,
            });
        } else {
            self.touch_odd(line, owner, maps);
        }
        if bytes > inside {
            self.tail(at, bytes, owner);
        }
    }

    /// Adds the tallies to the counts.
    #[cold]
    fn sum_up(&mut self) {
        self.tallied = 0;
        for (count, tally) in self.counts.iter_mut().zip(&mut self.tally) {
            for tally in std::mem::take(tally) {
                count.rows += tally & ((1 << TALLY_BITS) - 1);
                count.implied += tally >> TALLY_BITS;
            }
        }
    }

    /// Allocates space for groups up to this one.
    #[cold]
    fn make_room(&mut self, owner_of: &mut Vec<u32>, most: usize) {
        let room = |len: usize| len.max(most + 1);
        owner_of.resize(room(owner_of.len()), NO_OWNER);
        self.counts
            .resize(room(self.counts.len()), GroupCount::default());
        self.tally.resize(room(self.tally.len()), [0; TALLY_COPIES]);
    }

    /// Assigns owner numbers to groups in an address space that have none.
    #[cold]
    fn new_owners(&mut self, owner_of: &mut [u32], groups: &[Group], space: u32) {
        for &group in groups {
            let owner = &mut owner_of[group.index()];
            if *owner == NO_OWNER {
                *owner = self.partitions.store.owner(group, space);
            }
        }
    }

    /// Adds bytes of an access by a group that started elsewhere.
    pub fn add_tail(&mut self, address: u64, size: u32, group: Group, space: u32) {
        let at = space as usize;
        if self.owner_of.len() <= at {
            self.owner_of.resize(at + 1, Vec::new());
        }
        let mut owner_of = std::mem::take(&mut self.owner_of[at]);
        self.make_room(&mut owner_of, group.index());
        self.new_owners(&mut owner_of, &[group], space);
        let owner = owner_of[group.index()];
        self.owner_of[at] = owner_of;
        let end = address.saturating_add(u64::from(size.max(1)) - 1);
        for line in CacheLine::all(address, end) {
            let from = if line == CacheLine::of(address) {
                CacheLine::offset(address)
            } else {
                0
            };
            let to = if line == CacheLine::of(end) {
                CacheLine::offset(end)
            } else {
                LINE_BYTES - 1
            };
            let maps = touch(from as u32, (to - from + 1) as u32, false);
            if fits(line, owner) {
                self.partitions.push_entry(PackedEntry {
                    key: pack(line, owner),
                    maps,
                });
            } else {
                self.touch_odd(line, owner, maps);
            }
        }
    }

    /// Adds the lines of an access after the first one.
    #[inline(never)]
    fn tail(&mut self, at: u64, bytes: u32, owner: u32) {
        let end = at.saturating_add(u64::from(bytes) - 1);
        for line in CacheLine::all(at, end).skip(1) {
            let inside = if line == CacheLine::of(end) {
                CacheLine::offset(end) + 1
            } else {
                LINE_BYTES
            };
            let maps = touch(0, inside as u32, false);
            if fits(line, owner) {
                self.partitions.push_entry(PackedEntry {
                    key: pack(line, owner),
                    maps,
                });
            } else {
                self.touch_odd(line, owner, maps);
            }
        }
    }

    #[cold]
    fn touch_odd(&mut self, line: CacheLine, owner: u32, maps: Maps) {
        let (group, space) = self.partitions.store.owned(owner);
        self.odd
            .entry(Key { space, line, group })
            .or_default()
            .merge(&maps);
    }

    /// Moves all entries to the partitions, and updates the counts.
    fn settle(&mut self) {
        self.front.flush(&mut self.partitions);
        self.partitions.flush();
        self.sum_up();
    }
}
