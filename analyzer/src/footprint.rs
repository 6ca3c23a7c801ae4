//! Which bytes and start addresses each piece of code has touched.
//!
//! The unit is an entry per (group, address space, 64-byte line), where a *group* is a code line and a
//! load class (see [`crate::code`]). It has three 64-bit maps, one bit per byte of the line: start
//! addresses seen, start addresses seen at least twice, bytes touched. Maps of different groups merge by
//! bit operations ([`Maps::merge`]), so one pass fills one table, and the footprints of lines, functions
//! and the whole trace are made from it at the end ([`Footprints::fold`]).

use crate::reuse::spread;
use crate::rows::Rows;

/// Accesses between prefetch and use of a table line.
const AHEAD: usize = 16;
/// Entries of the small cache in front of the table.
const FRONT: usize = 256;
/// Entry without content.
const FREE: u32 = u32::MAX;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Address space (process).
    pub space: u32,
    /// Address divided by 64.
    pub line: u64,
    /// See [`crate::code`].
    pub group: u32,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    line: u64,
    maps: Maps,
    group: u32,
    space: u32,
}

impl Entry {
    const FREE: Entry = Entry { line: 0, maps: Maps { seen: 0, twice: 0, bytes: 0 }, group: FREE, space: 0 };

    /// What it is about.
    pub fn key(&self) -> Key {
        Key { space: self.space, line: self.line, group: self.group }
    }

    /// What is known.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }
}

#[inline(always)]
fn hash(line: u64, group: u32, space: u32) -> u64 {
    spread(line ^ u64::from(group).rotate_left(40) ^ u64::from(space).rotate_left(20))
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
    table: Vec<Entry>,
    shift: u32,
    used: usize,
    front: Vec<Entry>,
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
            table: vec![Entry::FREE; size],
            shift: 64 - size.trailing_zeros(),
            used: 0,
            front: vec![Entry::FREE; FRONT],
            counts: Vec::new(),
        }
    }

    /// Adds rows of one address space.
    pub fn add(&mut self, rows: &Rows<'_>, space: u32) {
        let len = rows.len();
        let (address, size, group, implied) = (&rows.address[..len], &rows.size[..len], &rows.group[..len], &rows.implied[..len]);
        for i in 0..len {
            let (at, bytes, group) = (address[i], size[i].max(1), group[i]);
            if let (Some(&a), Some(&g)) = (address.get(i + AHEAD), rows.group.get(i + AHEAD)) {
                crate::prefetch(&self.table[(hash(a / 64, g, space) >> self.shift) as usize]);
            }
            if group as usize >= self.counts.len() {
                self.counts.resize(group as usize + 1, GroupCount::default());
            }
            let count = &mut self.counts[group as usize];
            count.rows += 1;
            count.implied += u64::from(implied[i]);
            let offset = (at % 64) as u32;
            let inside = (64 - offset).min(bytes);
            let maps = Maps { seen: 1 << offset, twice: 0, bytes: (u64::MAX >> (64 - inside)) << offset };
            self.put(at / 64, group, space, &maps);
            if bytes > inside {
                self.tail(at, bytes, group, space);
            }
        }
    }

    /// The lines behind the first of an access.
    #[inline(never)]
    fn tail(&mut self, at: u64, bytes: u32, group: u32, space: u32) {
        let end = at.saturating_add(u64::from(bytes) - 1);
        for line in at / 64 + 1..=end / 64 {
            let inside = if line == end / 64 { end % 64 + 1 } else { 64 };
            self.put(line, group, space, &Maps { bytes: u64::MAX >> (64 - inside), ..Maps::default() });
        }
    }

    /// Merges into the small cache; what was in its place moves to the table.
    #[inline(always)]
    fn put(&mut self, line: u64, group: u32, space: u32, maps: &Maps) {
        let h = hash(line, group, space);
        let front = &mut self.front[(h & (FRONT as u64 - 1)) as usize];
        if front.line == line && front.group == group && front.space == space {
            front.maps.merge(maps);
            return;
        }
        let old = std::mem::replace(front, Entry { line, maps: *maps, group, space });
        if old.group != FREE {
            self.insert(&old);
        }
    }

    #[inline(always)]
    fn insert(&mut self, entry: &Entry) {
        let mask = self.table.len() - 1;
        let mut at = (hash(entry.line, entry.group, entry.space) >> self.shift) as usize & mask;
        loop {
            let place = &mut self.table[at];
            if place.group == FREE {
                *place = *entry;
                self.used += 1;
                if self.used * 2 > self.table.len() {
                    self.grow();
                }
                return;
            }
            if place.line == entry.line && place.group == entry.group && place.space == entry.space {
                place.maps.merge(&entry.maps);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.table.len() * 2;
        let old = std::mem::replace(&mut self.table, vec![Entry::FREE; size]);
        self.shift = 64 - size.trailing_zeros();
        self.used = 0;
        for entry in old.iter().filter(|e| e.group != FREE) {
            self.insert(entry);
        }
    }

    /// Moves everything from the small cache to the table.
    fn flush(&mut self) {
        for at in 0..FRONT {
            let entry = std::mem::replace(&mut self.front[at], Entry::FREE);
            if entry.group != FREE {
                self.insert(&entry);
            }
        }
    }

    /// Counts by group; groups behind the end have none.
    pub fn counts(&self) -> &[GroupCount] {
        &self.counts
    }

    /// All entries of several tables, each key once, sorted by address space, line, group.
    pub fn fold(tables: Vec<Footprints>) -> (Vec<Entry>, Vec<GroupCount>) {
        use rayon::prelude::*;
        let mut counts: Vec<GroupCount> = Vec::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(tables.iter().map(|t| t.used + FRONT).sum());
        for mut table in tables {
            table.flush();
            if counts.len() < table.counts.len() {
                counts.resize(table.counts.len(), GroupCount::default());
            }
            for (sum, part) in counts.iter_mut().zip(&table.counts) {
                sum.rows += part.rows;
                sum.implied += part.implied;
            }
            entries.extend(table.table.iter().filter(|e| e.group != FREE));
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
