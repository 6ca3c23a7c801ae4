//! Which bytes and start addresses each piece of code has touched.
//!
//! The unit is an entry per (group, address space, 64-byte line), where a *group* is a code line and a
//! load class (see [`crate::code`]). It has three 64-bit maps, one bit per byte of the line: start
//! addresses seen, start addresses seen at least twice, bytes touched. Maps of different groups merge by
//! bit operations ([`Maps::merge`]), so one pass fills one table, and the footprints of lines, functions
//! and the whole trace are made from it at the end ([`Footprints::fold`]).

use crate::reuse::spread;
use crate::rows::Rows;
use std::collections::HashMap;

/// Accesses between prefetch and use of a table line.
const AHEAD: usize = 16;
/// Entries of the small cache in front of the table.
const FRONT: usize = 256;
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

/// Bits of a packed key that hold the line; the others hold the owner. 41 bits of lines are 47 bits of
/// addresses, all that a user-space program on x86-64 has without five-level paging.
const LINE_BITS: u32 = 41;
/// Owners that fit into a packed key. The last one is not used, so that no key equals [`FREE`].
const OWNERS: u32 = (1 << (64 - LINE_BITS)) - 1;

/// A place in the table: half a cache line. An *owner* is a group in an address space.
#[repr(align(32))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Owner and line, or [`FREE`].
    key: u64,
    maps: Maps,
}

impl Place {
    const FREE: Place = Place { key: FREE, maps: Maps { seen: 0, twice: 0, bytes: 0 } };
}

#[inline(always)]
fn pack(line: u64, owner: u32) -> u64 {
    u64::from(owner) << LINE_BITS | line
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
    table: Vec<Place>,
    shift: u32,
    used: usize,
    front: Vec<Place>,
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
        Footprints::new()
    }
}

impl Footprints {
    /// An empty table.
    pub fn new() -> Footprints {
        let size = 1usize << 12;
        Footprints {
            table: vec![Place::FREE; size],
            shift: 64 - size.trailing_zeros(),
            used: 0,
            front: vec![Place::FREE; FRONT],
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
        let (address, size, group, implied) = (&rows.address[..len], &rows.size[..len], &rows.group[..len], &rows.implied[..len]);
        for i in 0..len {
            if let (Some(&a), Some(&g)) = (address.get(i + AHEAD), group.get(i + AHEAD)) {
                let owner = owner_of.get(g as usize).copied().unwrap_or(0);
                crate::prefetch(&self.table[(spread(pack(a / 64, owner)) >> self.shift) as usize]);
            }
            let (at, bytes, group) = (address[i], size[i].max(1), group[i]);
            let owner = match owner_of.get(group as usize) {
                Some(&owner) if owner != NOBODY => owner,
                _ => self.new_owner(&mut owner_of, group, space as u32),
            };
            let count = &mut self.counts[group as usize];
            count.rows += 1;
            count.implied += u64::from(implied[i]);
            let offset = (at % 64) as u32;
            let inside = (64 - offset).min(bytes);
            let maps = Maps { seen: 1 << offset, twice: 0, bytes: (u64::MAX >> (64 - inside)) << offset };
            self.put(at / 64, owner, &maps);
            if bytes > inside {
                self.tail(at, bytes, owner);
            }
        }
        self.owner_of[space] = owner_of;
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

    /// Merges into the small cache; what was in its place moves to the table.
    #[inline(always)]
    fn put(&mut self, line: u64, owner: u32, maps: &Maps) {
        if line >> LINE_BITS != 0 || owner >= OWNERS {
            return self.put_odd(line, owner, maps);
        }
        let key = pack(line, owner);
        let front = &mut self.front[(spread(key) >> (64 - FRONT.trailing_zeros())) as usize];
        if front.key == key {
            front.maps.merge(maps);
            return;
        }
        let old = std::mem::replace(front, Place { key, maps: *maps });
        if old.key != FREE {
            self.insert(&old);
        }
    }

    #[cold]
    fn put_odd(&mut self, line: u64, owner: u32, maps: &Maps) {
        let (group, space) = self.owners[owner as usize];
        self.odd.entry(Key { space, line, group }).or_default().merge(maps);
    }

    #[inline(always)]
    fn insert(&mut self, new: &Place) {
        let mask = self.table.len() - 1;
        let mut at = (spread(new.key) >> self.shift) as usize & mask;
        loop {
            let place = &mut self.table[at];
            if place.key == new.key {
                place.maps.merge(&new.maps);
                return;
            }
            if place.key == FREE {
                *place = *new;
                self.used += 1;
                if self.used * 2 > self.table.len() {
                    self.grow();
                }
                return;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        // Large tables cost more to make than to move into.
        let size = self.table.len() * if self.table.len() < 1 << 20 { 4 } else { 2 };
        let old = std::mem::replace(&mut self.table, crate::large_vec(Place::FREE, size));
        self.shift = 64 - size.trailing_zeros();
        self.used = 0;
        for place in old.iter().filter(|p| p.key != FREE) {
            self.insert(place);
        }
    }

    /// Moves everything from the small cache to the table.
    fn flush(&mut self) {
        for at in 0..FRONT {
            let place = std::mem::replace(&mut self.front[at], Place::FREE);
            if place.key != FREE {
                self.insert(&place);
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let packed = self.table.iter().filter(|p| p.key != FREE).map(|p| {
            let (group, space) = self.owners[(p.key >> LINE_BITS) as usize];
            Entry { key: Key { space, line: p.key & ((1 << LINE_BITS) - 1), group }, maps: p.maps }
        });
        packed.chain(self.odd.iter().map(|(&key, &maps)| Entry { key, maps }))
    }

    /// Counts by group; groups behind the end have none.
    pub fn counts(&self) -> &[GroupCount] {
        &self.counts
    }

    /// All entries of several tables, each key once, sorted by address space, line, group.
    pub fn fold(tables: Vec<Footprints>) -> (Vec<Entry>, Vec<GroupCount>) {
        use rayon::prelude::*;
        let mut counts: Vec<GroupCount> = Vec::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(tables.iter().map(|t| t.used + FRONT + t.odd.len()).sum());
        for mut table in tables {
            table.flush();
            if counts.len() < table.counts.len() {
                counts.resize(table.counts.len(), GroupCount::default());
            }
            for (sum, part) in counts.iter_mut().zip(&table.counts) {
                sum.rows += part.rows;
                sum.implied += part.implied;
            }
            entries.extend(table.entries());
        }
        entries.par_sort_unstable_by_key(Entry::key);
        entries.dedup_by(|later, kept| {
            let same = later.key() == kept.key();
            if same {
                kept.maps.merge(&later.maps);
            }
            same
        });
        (entries, counts)
    }
}
