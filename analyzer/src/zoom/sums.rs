//! What the zooms and objects need of each touch, counted while the whole run is: by unit of memory, by part of the run, and by unit and column of
//! the heat map. So they take no pass over the rows of their own.

use crate::blocks::BlockTable;
use crate::objects::{MixedPages, NOBODY};
use crate::reuse::spread;
use crate::rows::Rows;
use crate::totals::{Extra, GroupReuse, Place};

/// Column of rows that are in no column.
pub const NO_COLUMN: u32 = u32::MAX;
/// Accesses between prefetch and use of a unit's counts.
const AHEAD: usize = 12;
/// Places for units and columns that a table with no room grows from, at most: it takes up to 80 MiB. A map with more is counted by a pass of its own.
const CELLS: usize = 1 << 20;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Log2 of the bytes of a block of reuse distance.
    pub block_shift: u32,
    /// Log2 of the bytes of a unit, see [`crate::blocks`].
    pub unit_shift: u32,
    /// Whether parts of the run and the heat map are wanted.
    pub parts: bool,
}

/// The counts.
pub struct ZoomSums {
    wanted: Wanted,
    /// By unit, group and object.
    pub blocks: BlockTable,
    /// By unit and column.
    pub heat: HeatTable,
    /// By part of the run, by group. A touch whose block was touched before in the same sample, but in another part, is a first one.
    pub parts: Vec<Vec<GroupReuse>>,
}

impl ZoomSums {
    /// Nothing yet.
    pub fn new(wanted: Wanted) -> ZoomSums {
        ZoomSums { wanted, blocks: BlockTable::new(), heat: HeatTable::default(), parts: Vec::new() }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: ZoomSums) {
        self.blocks.merge(other.blocks);
        self.heat.merge(other.heat);
        for (part, groups) in other.parts.into_iter().enumerate() {
            let mine = self.part(part as u32, groups.len());
            mine.iter_mut().zip(&groups).for_each(|(a, b)| a.merge(b));
        }
    }

    /// The groups of a part; at least `groups`.
    fn part(&mut self, part: u32, groups: usize) -> &mut Vec<GroupReuse> {
        let part = part as usize;
        if self.parts.len() <= part {
            self.parts.resize(part + 1, Vec::new());
        }
        let mine = &mut self.parts[part];
        if mine.len() < groups {
            mine.resize(groups, GroupReuse::default());
        }
        mine
    }

    /// Counts touches of `rows`, whose groups are below `groups`. `before`: rows of the sample before them; `begin`: the first row of the sample that is in their part of the run.
    pub(crate) fn sink<'a>(&'a mut self, rows: &'a Rows<'a>, place: &'a Place, groups: usize, before: u64, begin: u64) -> ZoomSink<'a> {
        let wanted = self.wanted;
        if wanted.parts {
            self.part(place.part, groups);
        }
        let mixed = place.objects.as_ref().and_then(|o| o.mixed_pages(place.process));
        let ZoomSums { blocks, heat, parts, .. } = self;
        let part = if wanted.parts { &mut parts[place.part as usize][..] } else { &mut [] };
        ZoomSink { wanted, blocks, heat, part, place, mixed, rows, before, begin, started: None, last: (u64::MAX, 0) }
    }
}

/// Counts touches.
pub(crate) struct ZoomSink<'a> {
    wanted: Wanted,
    blocks: &'a mut BlockTable,
    heat: &'a mut HeatTable,
    part: &'a mut [GroupReuse],
    place: &'a Place,
    /// Pages that several objects share.
    mixed: Option<&'a MixedPages>,
    rows: &'a Rows<'a>,
    /// Rows of the sample before `rows`.
    before: u64,
    /// First row of the sample that is in this part of the run.
    begin: u64,
    /// Access whose first block has been told.
    started: Option<u64>,
    /// Row whose object was looked up last, and that object.
    last: (u64, u32),
}

impl ZoomSink<'_> {
    /// Object of a row on a page that several objects share.
    #[inline(never)]
    fn object(&mut self, row: u64) -> u32 {
        if self.last.0 != row {
            let at = row - self.before;
            let time = self.place.clock.0 + (at as f64 * self.place.clock.1) as u64;
            let found = self.place.objects.as_ref().map_or(0, |o| o.find(self.place.process, self.rows.address[at as usize], time));
            let object = if found == 0 { NOBODY } else { found };
            self.last = (row, object);
        }
        self.last.1
    }
}

impl Extra for ZoomSink<'_> {
    /// The first touch of an access is where it starts.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, touch: &GroupReuse) {
        let at = (row - self.before) as usize;
        if let (Some(&address), Some(&group)) = (self.rows.address.get(at + AHEAD), self.rows.group.get(at + AHEAD)) {
            let unit = address >> self.wanted.unit_shift;
            self.blocks.prefetch(self.place.space, unit, group);
            if self.wanted.parts {
                self.heat.prefetch(unit, self.place.space, self.place.column);
            }
        }
        let object = match self.mixed {
            Some(pages) if pages.contains(&(self.rows.address[at] >> 12)) => self.object(row),
            _ => 0,
        };
        let starts = u64::from(self.started != Some(row));
        self.started = Some(row);
        let up = self.wanted.unit_shift - self.wanted.block_shift;
        let (unit, bit) = (block >> up, 1 << (block & ((1 << up) - 1)));
        let owner = self.blocks.owner(self.place.space, tag, object);
        self.blocks.touch(unit, owner).add(touch, bit, starts);
        if self.wanted.parts {
            if self.place.column != NO_COLUMN {
                self.heat.add(unit, self.place.space, self.place.column, starts, touch.reuses, touch.distance);
            }
            let mut touch = *touch;
            if touch.reuses > 0 && row - touch.interval < self.begin {
                touch = GroupReuse { firsts: 1, ..GroupReuse::default() };
            }
            self.part[tag as usize].merge(&touch);
        }
    }
}

/// A place in a [`HeatTable`].
#[derive(Clone, Copy)]
struct Cell {
    unit: u64,
    space: u32,
    /// Column plus one; 0 is free.
    column: u32,
    starts: u64,
    reuses: u64,
    distance: u64,
}

/// Accesses and reuse by unit and column.
#[derive(Default)]
pub struct HeatTable {
    table: Vec<Cell>,
    used: usize,
    /// There were too many.
    full: bool,
}

impl HeatTable {
    /// The first place of a unit and column (plus one); there must be places.
    #[inline(always)]
    fn home(&self, unit: u64, space: u32, column: u32) -> usize {
        (spread(unit ^ u64::from(column) << 40 ^ u64::from(space) << 50) >> (64 - self.table.len().trailing_zeros())) as usize & (self.table.len() - 1)
    }

    /// Tells that a unit will be touched soon.
    #[inline(always)]
    fn prefetch(&self, unit: u64, space: u32, column: u32) {
        if let Some(cell) = self.table.len().checked_sub(1).and_then(|_| self.table.get(self.home(unit, space, column.wrapping_add(1)))) {
            crate::prefetch(cell);
        }
    }

    #[inline(always)]
    fn add(&mut self, unit: u64, space: u32, column: u32, starts: u64, reuses: u64, distance: u64) {
        if self.used * 4 >= self.table.len() * 3 && !self.grow() {
            return;
        }
        let mask = self.table.len() - 1;
        let column = column.wrapping_add(1);
        let mut at = self.home(unit, space, column);
        loop {
            let cell = &mut self.table[at];
            if (cell.unit, cell.space, cell.column) == (unit, space, column) {
                cell.starts += starts;
                cell.reuses += reuses;
                cell.distance += distance;
                return;
            }
            if cell.column == 0 {
                *cell = Cell { unit, space, column, starts, reuses, distance };
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes room; false if there is enough already.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        if self.full || self.table.len() > CELLS {
            (self.full, self.table) = (true, Vec::new());
            self.used = 0;
            return false;
        }
        let free = Cell { unit: 0, space: 0, column: 0, starts: 0, reuses: 0, distance: 0 };
        let size = (self.table.len() * 2).max(1 << 12);
        let old = std::mem::replace(&mut self.table, crate::large_vec(free, size));
        self.used = 0;
        old.iter().filter(|c| c.column != 0).for_each(|c| self.add(c.unit, c.space, c.column - 1, c.starts, c.reuses, c.distance));
        true
    }

    /// Adds another one.
    fn merge(&mut self, mut other: HeatTable) {
        if self.table.len() < other.table.len() && !self.full {
            std::mem::swap(self, &mut other);
        }
        self.full |= other.full;
        // The other's cells come in the order of their hashes: in a table with less room they would all crowd at its beginning.
        while other.used > 0 && !self.full && self.table.len() * 3 < (self.used + other.used) * 4 && self.grow() {}
        for c in other.table.iter().filter(|c| c.column != 0) {
            self.add(c.unit, c.space, c.column - 1, c.starts, c.reuses, c.distance);
        }
    }

    /// Everything: unit, address space, column, accesses, reuses, sum of D. `None`: there were too many to count.
    pub fn cells(&self) -> Option<impl Iterator<Item = (u64, u32, u32, u64, u64, u64)> + '_> {
        (!self.full).then(|| self.table.iter().filter(|c| c.column != 0).map(|c| (c.unit, c.space, c.column - 1, c.starts, c.reuses, c.distance)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn fed(cells: impl Iterator<Item = (u64, u32)>) -> HeatTable {
        let mut table = HeatTable::default();
        cells.for_each(|(unit, column)| table.add(unit, 1, column, 1, 2, unit));
        table
    }

    #[test]
    fn cells_are_counted_once_for_each_unit_and_column() {
        let all = || (0..100_000u64).map(|i| (i * i % 9973, (i % 7) as u32));
        let mut expected: BTreeMap<(u64, u32), (u64, u64, u64)> = BTreeMap::new();
        for (unit, column) in all() {
            let e = expected.entry((unit, column)).or_default();
            *e = (e.0 + 1, e.1 + 2, e.2 + unit);
        }
        let mut table = fed(all().take(30_000));
        table.merge(fed(all().skip(30_000)));
        let found: BTreeMap<_, _> = table.cells().unwrap().map(|c| ((c.0, c.2), (c.3, c.4, c.5))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn too_many_cells_are_given_up_rather_than_counted_wrong() {
        let mut table = fed((0..3 * CELLS as u64).map(|i| (i, 0)));
        assert!(table.cells().is_none() && table.table.is_empty());
        table.merge(fed([(1, 1)].into_iter()));
        assert!(table.cells().is_none());
        let mut table = fed([(1, 1)].into_iter());
        table.merge(fed((0..3 * CELLS as u64).map(|i| (i, 0))));
        assert!(table.cells().is_none());
    }
}
