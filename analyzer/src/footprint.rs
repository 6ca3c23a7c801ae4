//! Which bytes and start addresses each piece of code has touched.
//!
//! The unit is an entry per (group, address space, 64-byte line), where a *group* is a code line and a
//! load class (see [`crate::code`]). It has three 64-bit maps, one bit per byte of the line: start
//! addresses seen, start addresses seen at least twice, bytes touched. Maps of different groups merge by
//! bit operations ([`Maps::merge`]), so one pass fills one table, and the footprints of lines, functions
//! and the whole trace are made from it at the end ([`FootprintSet::fold`]).
//!
//! Method. A small table that fits the second-level cache takes the entries in use. What it has no room for is appended to
//! one of some [`partitions`](partition) by its page; in a partition that has doubled equals are merged, by a table that is in the cache while it is. So there is no
//! access to memory outside the caches but in order, and a partition can be folded by itself: those that a [`Budget`] has no
//! room for wait in a file.

mod partition;
mod set;

pub use partition::Budget;
pub use set::FootprintSet;

use crate::reuse::spread;
use crate::rows::Rows;
use partition::Partitions;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows whose places in the small table are fetched together.
const TOGETHER: usize = 32;
/// Entries of the small table: at first, and at most.
const FRONT: [usize; 2] = [1 << 8, 1 << 14];
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
    /// Pairs of places; of two the first was used last.
    front: Vec<Place>,
    shift: u32,
    /// Places that had to leave since the small table grew.
    left: usize,
    partitions: Partitions,
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
            front: vec![Place::FREE; FRONT[0]],
            shift: shift_of(FRONT[0]),
            left: 0,
            partitions: Partitions::new(budget),
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
        let len = rows.len();
        let mut from = 0;
        while from < len {
            let to = (from + TOGETHER).min(len);
            self.add_some(&rows.slice(from..to), &mut owner_of, space as u32);
            from = to;
        }
        self.owner_of[space] = owner_of;
    }

    /// Adds at most [`TOGETHER`] rows.
    #[inline(always)]
    fn add_some(&mut self, rows: &Rows<'_>, owner_of: &mut Vec<u32>, space: u32) {
        let len = rows.len().min(TOGETHER);
        let (address, size, group, implied) = (&rows.address[..len], &rows.size[..len], &rows.group[..len], &rows.implied[..len]);
        let mut owners = [0u32; TOGETHER];
        for i in 0..len {
            let group = group[i] as usize;
            let owner = match owner_of.get(group) {
                Some(&owner) if owner != NOBODY => owner,
                _ => self.new_owner(owner_of, group as u32, space),
            };
            owners[i] = owner;
            let count = &mut self.counts[group];
            count.rows += 1;
            count.implied += u64::from(implied[i]);
            crate::prefetch(&self.front[self.pair(pack(address[i] / 64, owner))]);
        }
        for i in 0..len {
            let (at, bytes, owner) = (address[i], size[i].max(1), owners[i]);
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
            self.put(line, owner, &Maps { bytes: u64::MAX >> (64 - inside), ..Maps::default() });
        }
    }

    /// The first of the two places of a key in the small table.
    #[inline(always)]
    fn pair(&self, key: u64) -> usize {
        (spread(key) >> self.shift) as usize * 2 & (self.front.len() - 1)
    }

    /// Merges into the small table; what has to make room moves to its partition.
    #[inline(always)]
    fn put(&mut self, line: u64, owner: u32, maps: &Maps) {
        if !fits(line, owner) {
            return self.put_odd(line, owner, maps);
        }
        let key = pack(line, owner);
        let at = self.pair(key);
        let Some([first, second]) = self.front.get_mut(at..at + 2) else { return };
        if first.key == key {
            return first.maps.merge(maps);
        }
        let mut new = Place { key, maps: *maps };
        if second.key == key {
            new.maps = second.maps;
            new.maps.merge(maps);
            *second = *first;
            *first = new;
            return;
        }
        let old = std::mem::replace(second, *first);
        *first = new;
        if old.key != FREE {
            self.leave(&old);
        }
    }

    /// A place moves to its partition.
    #[inline(always)]
    fn leave(&mut self, old: &Place) {
        self.partitions.push(old);
        self.left += 1;
        if self.left > self.front.len() && self.front.len() < FRONT[1] {
            self.grow();
        }
    }

    /// Makes the small table larger: little data shall not pay for a large one.
    #[cold]
    fn grow(&mut self) {
        let size = self.front.len() * 4;
        let old = std::mem::replace(&mut self.front, vec![Place::FREE; size]);
        self.shift = shift_of(size);
        self.left = 0;
        // There is room: each two places become eight.
        for place in old.iter().filter(|p| p.key != FREE) {
            let at = self.pair(place.key);
            let at = if self.front[at].key == FREE { at } else { at + 1 };
            self.front[at] = *place;
        }
    }

    #[cold]
    fn put_odd(&mut self, line: u64, owner: u32, maps: &Maps) {
        let (group, space) = self.owners[owner as usize];
        self.odd.entry(Key { space, line, group }).or_default().merge(maps);
    }

    /// Moves everything from the small table to the partitions.
    fn flush(&mut self) {
        for place in std::mem::take(&mut self.front) {
            if place.key != FREE {
                self.partitions.push(&place);
            }
        }
    }

    /// The entries of a table that nothing has left yet, if so.
    fn small(&self) -> Option<impl Iterator<Item = &Place>> {
        self.partitions.is_empty().then(|| self.front.iter().filter(|p| p.key != FREE))
    }

    /// Counts by group; groups behind the end have none.
    pub fn counts(&self) -> &[GroupCount] {
        &self.counts
    }
}

/// By how much a hash is shifted to give a pair of places in a table of `size`.
fn shift_of(size: usize) -> u32 {
    64 - (size / 2).trailing_zeros()
}
