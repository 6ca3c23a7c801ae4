//! Which bytes and start addresses each piece of code has touched.
//!
//! The unit is an entry per (group, address space, 64-byte line), where a *group* is a code line and a
//! load class (see [`crate::code`]). It has three 64-bit maps, one bit per byte of the line: start
//! addresses seen, start addresses seen at least twice, bytes touched. Maps of different groups merge by
//! bit operations ([`Maps::merge`]), so one pass fills one table, and the footprints of lines, functions
//! and the whole trace are made from it at the end ([`FootprintSet::fold`]).
//!
//! Method. One hash table per worker, whose lines are fetched ahead of use: outside the cache only prefetched accesses are
//! affordable. A table that a [`Budget`] has no room for is sorted by [`partitions`](partition), written to a file, and started anew.
//! At the end entries are dealt to partitions by their pages, so that each partition can be folded by itself.

mod partition;
mod set;

pub use partition::Budget;
pub use set::FootprintSet;

use crate::reuse::spread;
use crate::rows::Rows;
use partition::Runs;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows whose places are fetched together.
const TOGETHER: usize = 32;
/// Places of a table: at first (little data shall not pay for a large one), and what it may have without asking for memory.
const SIZES: [usize; 2] = [1 << 8, 1 << 14];
/// From this size on tables are doubled; smaller ones get four times their size.
const LARGE: usize = 1 << 20;
/// Lines whose places lie together.
const NEAR: usize = 4;
/// Entry without content.
const FREE: u64 = u64::MAX;
/// No owner yet.
const NOBODY: u32 = u32::MAX;

/// What is known of one 64-byte line.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Bytes at which an access started.
    pub seen: u64,
    /// Bytes at which at least two accesses started.
    pub twice: u64,
    /// Bytes touched.
    pub bytes: u64,
}

impl Maps {
    /// What is known after both.
    #[inline(always)]
    pub fn merge(&mut self, other: &Maps) {
        self.twice |= other.twice | (self.seen & other.seen);
        self.seen |= other.seen;
        self.bytes |= other.bytes;
    }
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Address space (process).
    pub space: u32,
    /// Address divided by 64.
    pub line: u64,
    /// See [`crate::code`].
    pub group: u32,
}

/// An entry of the folded table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    key: Key,
    maps: Maps,
}

impl Entry {
    /// One that was stored before.
    pub(crate) fn new(key: Key, maps: Maps) -> Entry {
        Entry { key, maps }
    }

    /// What it is about.
    pub fn key(&self) -> Key {
        self.key
    }

    /// What is known.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }
}

/// Bits of a packed key that hold the owner; the others hold the line. 41 bits of lines are 47 bits of
/// addresses, all that a user-space program on x86-64 has without five-level paging.
const OWNER_BITS: u32 = 23;
/// Owners that fit into a packed key. The last one is not used, so that no key equals [`FREE`].
const OWNERS: u32 = (1 << OWNER_BITS) - 1;

/// A place in a table: half a cache line. An *owner* is a group in an address space.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Line and owner, or [`FREE`].
    key: u64,
    maps: Maps,
}

impl Place {
    const FREE: Place = Place { key: FREE, maps: Maps { seen: 0, twice: 0, bytes: 0 } };
}

#[inline(always)]
fn pack(line: u64, owner: u32) -> u64 {
    line << OWNER_BITS | u64::from(owner)
}

/// Whether a line and an owner fit into a packed key.
#[inline(always)]
fn fits(line: u64, owner: u32) -> bool {
    line >> (64 - OWNER_BITS) == 0 && owner < OWNERS
}

/// Counts of one group.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct GroupCount {
    /// Rows.
    pub rows: u64,
    /// Implied Constant loads.
    pub implied: u64,
}

/// The table.
pub struct Footprints {
    /// Open addressing; at most half of the places are in use.
    table: Vec<Place>,
    shift: u32,
    used: usize,
    runs: Runs,
    /// Lines or owners that a packed key cannot hold.
    odd: HashMap<Key, Maps>,
    /// Group and address space of each owner.
    owners: Vec<(u32, u32)>,
    /// Owner by address space and group, [`NOBODY`] where there is none yet.
    owner_of: Vec<Vec<u32>>,
    counts: Vec<GroupCount>,
}

impl Default for Footprints {
    fn default() -> Footprints {
        Footprints::new(Arc::default())
    }
}

impl Footprints {
    /// An empty table.
    pub fn new(budget: Arc<Budget>) -> Footprints {
        Footprints {
            table: vec![Place::FREE; SIZES[0]],
            shift: shift_of(SIZES[0]),
            used: 0,
            runs: Runs::new(budget),
            odd: HashMap::new(),
            owners: Vec::new(),
            owner_of: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Adds rows of one address space.
    pub fn add(&mut self, rows: &Rows<'_>, space: u32) {
        let space = space as usize;
        if self.owner_of.len() <= space {
            self.owner_of.resize(space + 1, Vec::new());
        }
        let mut owner_of = std::mem::take(&mut self.owner_of[space]);
        let mut some = [[0u64; TOGETHER]; 2];
        let [mut now, mut next] = some.each_mut();
        let part = |from: usize| rows.slice(from..from + TOGETHER);
        self.fetch(&part(0), &mut owner_of, space as u32, now);
        for from in (0..rows.len()).step_by(TOGETHER) {
            // What comes next is fetched while these are counted.
            self.fetch(&part(from + TOGETHER), &mut owner_of, space as u32, next);
            self.count(&part(from), now);
            std::mem::swap(&mut now, &mut next);
        }
        self.owner_of[space] = owner_of;
    }

    /// Finds the owners of at most [`TOGETHER`] rows, and fetches their places.
    #[inline(always)]
    fn fetch(&mut self, rows: &Rows<'_>, owner_of: &mut Vec<u32>, space: u32, owners: &mut [u64; TOGETHER]) {
        let len = rows.len().min(TOGETHER);
        let (address, group, implied) = (&rows.address[..len], &rows.group[..len], &rows.implied[..len]);
        for i in 0..len {
            let group = group[i] as usize;
            let owner = match owner_of.get(group) {
                Some(&owner) if owner != NOBODY => owner,
                _ => self.new_owner(owner_of, group as u32, space),
            };
            owners[i] = u64::from(owner);
            let count = &mut self.counts[group];
            count.rows += 1;
            count.implied += u64::from(implied[i]);
            crate::prefetch(&self.table[self.home(pack(address[i] / 64, owner))]);
        }
    }

    /// Counts rows whose owners are known.
    #[inline(always)]
    fn count(&mut self, rows: &Rows<'_>, owners: &[u64; TOGETHER]) {
        let len = rows.len().min(TOGETHER);
        let (address, size) = (&rows.address[..len], &rows.size[..len]);
        if (self.used + len) * 2 > self.table.len() {
            self.grow();
        }
        for i in 0..len {
            let (at, bytes, owner) = (address[i], size[i].max(1), owners[i] as u32);
            let offset = (at % 64) as u32;
            let inside = (64 - offset).min(bytes);
            let maps = Maps { seen: 1 << offset, twice: 0, bytes: (u64::MAX >> (64 - inside)) << offset };
            self.put(at / 64, owner, &maps);
            if bytes > inside {
                self.tail(at, bytes, owner);
            }
        }
    }

    /// Gives a group in an address space its number, and the group its counts.
    #[cold]
    fn new_owner(&mut self, owner_of: &mut Vec<u32>, group: u32, space: u32) -> u32 {
        let at = group as usize;
        if owner_of.len() <= at {
            owner_of.resize(at + 1, NOBODY);
        }
        if self.counts.len() <= at {
            self.counts.resize(at + 1, GroupCount::default());
        }
        let owner = self.owners.len() as u32;
        self.owners.push((group, space));
        owner_of[at] = owner;
        owner
    }

    /// The lines behind the first of an access.
    #[inline(never)]
    fn tail(&mut self, at: u64, bytes: u32, owner: u32) {
        let end = at.saturating_add(u64::from(bytes) - 1);
        for line in at / 64 + 1..=end / 64 {
            let inside = if line == end / 64 { end % 64 + 1 } else { 64 };
            // Beside these there must be room for the other rows that came together.
            if (self.used + TOGETHER) * 2 > self.table.len() {
                self.grow();
            }
            self.put(line, owner, &Maps { bytes: u64::MAX >> (64 - inside), ..Maps::default() });
        }
    }

    /// Where a key should be. Four lines that follow each other have four places that do, in an order of their own, so that
    /// not all those places are taken that a stride leads to.
    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        let owner = key & ((1 << OWNER_BITS) - 1);
        let hash = spread(key >> (OWNER_BITS + 2) << OWNER_BITS | owner);
        ((hash >> self.shift) as usize & !(NEAR - 1) | ((hash >> 8 ^ key >> OWNER_BITS) as usize & (NEAR - 1))) & (self.table.len() - 1)
    }

    /// Merges into the table, in which there is room.
    #[inline(always)]
    fn put(&mut self, line: u64, owner: u32, maps: &Maps) {
        if !fits(line, owner) {
            return self.put_odd(line, owner, maps);
        }
        let key = pack(line, owner);
        let mask = self.table.len() - 1;
        let mut at = self.home(key);
        loop {
            let place = &mut self.table[at];
            if place.key == key {
                return place.maps.merge(maps);
            }
            if place.key == FREE {
                *place = Place { key, maps: *maps };
                self.used += 1;
                return;
            }
            at = (at + NEAR) & mask;
        }
    }

    /// Makes the table larger; or empties it into a file, if there is no memory for a larger one.
    #[cold]
    fn grow(&mut self) {
        let size = self.table.len() * if self.table.len() < LARGE { 4 } else { 2 };
        if size > SIZES[1] && !self.runs.ask(size) && self.runs.spill(&self.table) {
            self.table.fill(Place::FREE);
            self.used = 0;
            return;
        }
        let old = std::mem::replace(&mut self.table, crate::large_vec(Place::FREE, size));
        self.shift = shift_of(size);
        let mask = size - 1;
        // The places of a small table come in the order of their hashes, so those of the large one are written in order.
        for place in old.iter().filter(|p| p.key != FREE) {
            let mut at = self.home(place.key);
            while self.table[at].key != FREE {
                at = (at + NEAR) & mask;
            }
            self.table[at] = *place;
        }
    }

    #[cold]
    fn put_odd(&mut self, line: u64, owner: u32, maps: &Maps) {
        let (group, space) = self.owners[owner as usize];
        self.odd.entry(Key { space, line, group }).or_default().merge(maps);
    }

    /// Counts by group; groups behind the end have none.
    pub fn counts(&self) -> &[GroupCount] {
        &self.counts
    }
}

/// By how much a hash is shifted to give a place in a table of `size`.
fn shift_of(size: usize) -> u32 {
    64 - size.trailing_zeros()
}
