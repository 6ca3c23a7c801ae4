//! Counts for the zooms and objects, collected in the pass over the whole run: by unit of memory,
//! by part of the run, and by unit and column of the heat map. So they need no further pass over
//! the rows.

use crate::data::group::Group;
use crate::data::histogram::Histogram;
use crate::data::memory_units::{PAGE_BYTES, PAGE_SHIFT, Page};
use crate::data::object_map::{MixedPages, Recent, UNKNOWN};
use crate::data::reuse_counts::GroupReuse;
use crate::data::rows::ColumnSlices;
use crate::stages::footprint::{Budget, FootprintSet, Footprints};
use crate::stages::pages::touch::Touch;
use crate::stages::pages::{BlockStore, BlockTable, NO_OWNER, Units};
use crate::stages::reuse::extra::{Extra, SampleOrigin};
use mgz_models::util::hash::spread;
use std::sync::Arc;

/// Column of rows outside of all columns.
pub const NO_COLUMN: u32 = u32::MAX;
/// Accesses that are added to the footprints of objects at a time. Source: Chosen.
const ACCESSES_PER_BATCH: usize = 256;
/// Accesses between prefetch and use of a unit's place in the heat map. Source: Chosen.
const PREFETCH_DISTANCE: usize = 16;
/// Maximum number of units in all columns of the heat map. At most half as many more are kept, and
/// up to twice that number before they are joined, which is up to 96 MiB. A larger map is counted
/// by a separate pass.
const CELLS: usize = 1 << 20;
/// Minimum number of slots of a column's table. Source: Chosen.
const MIN_TABLE_PLACES: usize = 1 << 8;

/// Settings of the requested counts.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Log2 of the bytes of a block of reuse distance.
    pub block_shift: u32,
    /// Log2 of the bytes of a unit, see [`crate::stages::pages`].
    pub unit_shift: u32,
    /// True if parts of the run and the heat map are requested.
    pub parts: bool,
}

/// The counts.
pub struct ZoomSums {
    wanted: Wanted,
    blocks: BlockTable,
    /// By unit, group and object; empty until everything has been counted.
    pub units: Units,
    /// The current address space and column.
    turn: (u32, u32),
    /// By unit and column.
    pub heat: HeatTable,
    /// By part of the run and group. If a block was touched before in the same sample, but only in
    /// another part, its touch counts as a first one.
    pub parts: Vec<Vec<GroupReuse>>,
    /// D by part of the run.
    pub part_distances: Vec<Histogram>,
    /// Footprints by object of the pages that several objects share.
    pub mixed: MixedFootprints,
    /// Recent answers of object look-ups.
    recent: Recent,
}

impl ZoomSums {
    /// Empty counts. All workers' units are in `store`; footprints of objects may use the memory of
    /// `budget`.
    pub(crate) fn new(wanted: Wanted, store: Arc<BlockStore>, budget: Arc<Budget>) -> ZoomSums {
        ZoomSums {
            wanted,
            blocks: BlockTable::of(store),
            units: Units::default(),
            turn: (0, NO_COLUMN),
            heat: HeatTable::default(),
            parts: Vec::new(),
            part_distances: Vec::new(),
            mixed: MixedFootprints::new(budget),
            recent: Recent::default(),
        }
    }

    /// Sets the address space and column of the next touches.
    fn turn_to(&mut self, space: u32, column: u32) {
        if self.turn != (space, column) {
            self.settle();
            self.turn = (space, column);
            if column != NO_COLUMN {
                self.heat.begin(space, column);
            }
        }
    }

    /// Moves the joined touches to their tables.
    fn settle(&mut self) {
        let (heat, heated) = (&mut self.heat, self.turn.1 != NO_COLUMN);
        self.blocks.part(|unit, (starts, reuses, distance)| {
            if heated {
                heat.add(unit, starts, reuses, distance);
            }
        });
    }

    /// Completes the counts, after all others were merged.
    pub(crate) fn finish(&mut self) {
        self.settle();
        self.blocks.settle();
        self.units = self.blocks.finish();
    }

    /// Adds the counts of another worker with the same store.
    pub fn merge(&mut self, mut other: ZoomSums) {
        other.settle();
        other.blocks.settle();
        self.heat.merge(other.heat);
        for (part, groups) in other.parts.into_iter().enumerate() {
            let mine = self.part(part as u32, groups.len());
            mine.iter_mut().zip(&groups).for_each(|(a, b)| a.merge(b));
        }
        if self.part_distances.len() < other.part_distances.len() {
            self.part_distances
                .resize(other.part_distances.len(), Histogram::default());
        }
        self.part_distances
            .iter_mut()
            .zip(&other.part_distances)
            .for_each(|(a, b)| a.merge(b));
        self.mixed.merge(other.mixed);
    }

    /// The groups of a part, with room for at least `groups`.
    fn part(&mut self, part: u32, groups: usize) -> &mut Vec<GroupReuse> {
        let part = part as usize;
        if self.parts.len() <= part {
            self.parts.resize(part + 1, Vec::new());
            self.part_distances.resize(part + 1, Histogram::default());
        }
        let mine = &mut self.parts[part];
        if mine.len() < groups {
            mine.resize(groups, GroupReuse::default());
        }
        mine
    }

    /// Counts touches of `rows`, whose groups are below `groups`. `before` is the number of the
    /// sample's rows before them. `begin` is the first row of the sample in their part of the run.
    pub(crate) fn sink<'a>(
        &'a mut self,
        rows: &'a ColumnSlices<'a>,
        place: &'a SampleOrigin,
        groups: usize,
        before: u64,
        begin: u64,
    ) -> ZoomSink<'a> {
        let wanted = self.wanted;
        if wanted.parts {
            self.part(place.part, groups);
        }
        let mixed = place
            .objects
            .as_ref()
            .and_then(|o| o.mixed_pages(place.process));
        let column = if wanted.parts {
            place.column
        } else {
            NO_COLUMN
        };
        self.turn_to(place.space, column);
        let joins = self.blocks.joins(rows.len());
        let ZoomSums {
            blocks,
            heat,
            parts,
            part_distances,
            mixed: footprints,
            recent,
            ..
        } = self;
        let part = if wanted.parts {
            Some((
                &mut parts[place.part as usize][..],
                &mut part_distances[place.part as usize],
            ))
        } else {
            None
        };
        // Units that are larger than pages may hold several objects.
        let each = wanted.unit_shift > PAGE_SHIFT;
        let heated = column != NO_COLUMN;
        ZoomSink {
            wanted,
            blocks,
            joins,
            heat,
            heated,
            part,
            place,
            mixed,
            each,
            footprints,
            recent,
            rows,
            before,
            begin,
            started: None,
            last: (u64::MAX, Page::default(), 0),
        }
    }
}

/// Counts touches.
pub(crate) struct ZoomSink<'a> {
    wanted: Wanted,
    blocks: &'a mut BlockTable,
    /// True if consecutive touches of a unit are joined.
    joins: bool,
    heat: &'a mut HeatTable,
    /// True if there is a column to count in.
    heated: bool,
    /// Counts of the part of the run by group, and its D.
    part: Option<(&'a mut [GroupReuse], &'a mut Histogram)>,
    place: &'a SampleOrigin,
    /// Pages that several objects share.
    mixed: Option<&'a MixedPages>,
    /// True if the objects of rows on all pages are looked up.
    each: bool,
    footprints: &'a mut MixedFootprints,
    recent: &'a mut Recent,
    rows: &'a ColumnSlices<'a>,
    /// Rows of the sample before `rows`.
    before: u64,
    /// First row of the sample in this part of the run.
    begin: u64,
    /// The last row, whose first touch has been counted.
    started: Option<u64>,
    /// Row and page of the last look-up of an object, and that object.
    last: (u64, Page, u32),
}

impl ZoomSink<'_> {
    /// Prefetches the heat map's slot of a row.
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        if let Some(&address) = self.rows.address.get(at) {
            self.heat.prefetch(address >> self.wanted.unit_shift);
        }
    }

    /// True if the objects of a page's rows are looked up one by one.
    #[inline(always)]
    fn is_mixed(&self, address: u64) -> bool {
        self.mixed.is_some() && (self.each || self.is_shared(address))
    }

    /// True if several objects share a page.
    #[inline(always)]
    fn is_shared(&self, address: u64) -> bool {
        self.mixed
            .is_some_and(|pages| pages.contains(&Page::of(address)))
    }

    /// Object of a row on a page that several objects share. The touched part of a page belongs to
    /// the object at its first byte, `address`.
    #[inline(never)]
    fn object(&mut self, row: u64, address: u64) -> u32 {
        if (self.last.0, self.last.1) != (row, Page::of(address)) {
            let at = row - self.before;
            let SampleOrigin { times, clock, .. } = self.place;
            let time = match times.get(at as usize) {
                Some(&time) => time,
                None => clock.0 + (at as f64 * clock.1) as u64,
            };
            let found = self.place.objects.as_ref().map_or(UNKNOWN, |o| {
                let own = self.place.stack.at(address);
                own.unwrap_or_else(|| o.find_recent(self.recent, self.place.process, address, time))
            });
            let object = if found == UNKNOWN { NO_OWNER } else { found };
            self.last = (row, Page::of(address), object);
        }
        self.last.2
    }

    /// Adds a row's bytes in pages that several objects share to the footprints of these objects.
    /// `is_mixed` is true if the objects on the row's page are looked up.
    #[inline(always)]
    fn footprint(&mut self, row: u64, at: usize, is_mixed: bool) {
        let (address, size) = (self.rows.address[at], self.rows.size[at].max(1));
        let end = address.saturating_add(u64::from(size) - 1);
        if Page::of(end) != Page::of(address) {
            self.long_footprint(row, at, end);
        } else if is_mixed && (!self.each || self.is_shared(address)) {
            let object = self.object(row, address);
            self.footprints
                .add(self.place.space, address, size, object, self.rows.group[at]);
        }
    }

    /// Adds the footprint of a row that touches several pages.
    #[cold]
    fn long_footprint(&mut self, row: u64, at: usize, end: u64) {
        let (start, group) = (self.rows.address[at], self.rows.group[at]);
        for page in Page::all(start, end) {
            if self.mixed.is_some_and(|pages| pages.contains(&page)) {
                let (from, to) = (
                    page.address().max(start),
                    (page.address() | (PAGE_BYTES - 1)).min(end),
                );
                let object = self.object(row, from);
                let size = (to - from + 1) as u32;
                if from == start {
                    self.footprints
                        .add(self.place.space, from, size, object, group);
                } else {
                    self.footprints
                        .add_tail(self.place.space, from, size, object, group);
                }
            }
        }
    }
}

impl Extra for ZoomSink<'_> {
    /// An access starts with its first touch.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, touch: &GroupReuse) {
        let at = (row - self.before) as usize;
        let starts = self.started != Some(row);
        self.started = Some(row);
        let mut object = 0;
        if self.mixed.is_some() {
            let address = if starts {
                self.rows.address[at]
            } else {
                block << self.wanted.block_shift
            };
            let is_mixed = self.is_mixed(address);
            if is_mixed {
                object = self.object(row, address);
            }
            if starts {
                self.footprint(row, at, is_mixed);
            }
        }
        let implied = if starts {
            u64::from(self.rows.implied[at])
        } else {
            0
        };
        let starts = u64::from(starts);
        let up = self.wanted.unit_shift - self.wanted.block_shift;
        let (unit, bit) = (block >> up, 1 << (block & ((1 << up) - 1)));
        let owner = self
            .blocks
            .owner(self.place.space, Group::from_raw(tag), object);
        let here = Touch {
            blocks: bit,
            starts,
            implied,
        };
        if self.joins {
            let (heat, heated) = (&mut *self.heat, self.heated);
            self.blocks.join(
                unit,
                owner,
                touch,
                here,
                |unit, (starts, reuses, distance)| {
                    if heated {
                        heat.add(unit, starts, reuses, distance);
                    }
                },
            );
        } else {
            self.blocks.add(unit, owner, touch, here);
            if self.heated {
                self.prefetch(at + PREFETCH_DISTANCE);
                self.heat.add(unit, starts, touch.reuses, touch.distance);
            }
        }
        if let Some((part, distances)) = &mut self.part {
            let mut touch = *touch;
            if touch.reuses > 0 && row - touch.interval < self.begin {
                touch = GroupReuse {
                    firsts: 1,
                    ..GroupReuse::default()
                };
            }
            part[tag as usize].merge(&touch);
            distances.add_many(touch.distance, touch.reuses);
        }
    }
}

/// Footprints by object on pages that several objects share. The groups of the table are objects
/// and classes: four times the object, plus the class.
pub struct MixedFootprints {
    table: Footprints,
    /// Tables of other workers.
    others: Vec<Footprints>,
    /// Accesses of one address space that are not in the table yet.
    space: u32,
    address: Vec<u64>,
    size: Vec<u32>,
    group: Vec<Group>,
}

impl MixedFootprints {
    fn new(budget: Arc<Budget>) -> MixedFootprints {
        MixedFootprints {
            table: Footprints::new(budget),
            others: Vec::new(),
            space: 0,
            address: Vec::new(),
            size: Vec::new(),
            group: Vec::new(),
        }
    }

    /// The group of an object's accesses: the object takes the place of the line piece.
    fn group_of(object: u32, group: Group) -> Group {
        let object = if object == NO_OWNER { UNKNOWN } else { object };
        Group::new(object, group.class())
    }

    /// Adds an access to an object by a group.
    fn add(&mut self, space: u32, address: u64, size: u32, object: u32, group: Group) {
        if self.space != space || self.address.len() >= ACCESSES_PER_BATCH {
            self.settle();
            self.space = space;
        }
        self.address.push(address);
        self.size.push(size);
        self.group.push(MixedFootprints::group_of(object, group));
    }

    /// Adds the part of an access in an object, if the access started elsewhere.
    fn add_tail(&mut self, space: u32, address: u64, size: u32, object: u32, group: Group) {
        self.table.add_tail(
            address,
            size,
            MixedFootprints::group_of(object, group),
            space,
        );
    }

    fn settle(&mut self) {
        let implied = [0; ACCESSES_PER_BATCH];
        let rows = ColumnSlices {
            address: &self.address,
            size: &self.size,
            group: &self.group,
            implied: &implied[..self.address.len()],
        };
        self.table.add(&rows, self.space);
        self.address.clear();
        self.size.clear();
        self.group.clear();
    }

    fn merge(&mut self, mut other: MixedFootprints) {
        other.settle();
        self.others.append(&mut other.others);
        self.others.push(other.table);
    }

    /// Returns all footprints.
    pub fn finish(&mut self) -> FootprintSet {
        self.settle();
        let mut tables = std::mem::take(&mut self.others);
        tables.push(std::mem::take(&mut self.table));
        FootprintSet::new(tables).0
    }
}

/// Counts of a unit in a column: half a cache line.
#[repr(align(32))]
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    unit: u64,
    starts: u64,
    reuses: u64,
    distance: u64,
}

impl Cell {
    /// True if nothing was counted here.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.starts | self.reuses == 0
    }

    #[inline(always)]
    fn merge(&mut self, other: &Cell) {
        self.starts += other.starts;
        self.reuses += other.reuses;
        self.distance += other.distance;
    }
}

/// Units of a column.
#[derive(Debug)]
struct Run {
    space: u32,
    column: u32,
    cells: Vec<Cell>,
}

impl Run {
    /// Upper bound of its memory, in cells.
    fn room(&self) -> usize {
        self.cells.len() + 2
    }
}

/// Accesses and reuses by unit and column. Rows come column by column. Only units of the current
/// column are looked up, in a table that is mostly in the cache. Units of earlier columns are
/// stored in runs. Some occur several times if rows return to a column.
#[derive(Default)]
pub struct HeatTable {
    /// Address space and column of the table.
    space: u32,
    column: u32,
    table: Vec<Cell>,
    used: usize,
    /// Units of earlier columns.
    runs: Vec<Run>,
    /// Memory of the runs in cells, and the limit at which equal cells are joined.
    kept: usize,
    most: usize,
    /// True if there were too many cells.
    full: bool,
}

impl HeatTable {
    /// Begins a column: the next rows are in it.
    fn begin(&mut self, space: u32, column: u32) {
        if (self.space, self.column) != (space, column) {
            self.settle();
            (self.space, self.column) = (space, column);
        }
    }

    /// The first slot for a unit. The table must not be empty.
    #[inline(always)]
    fn home(&self, unit: u64) -> usize {
        (spread(unit) >> (64 - self.table.len().trailing_zeros())) as usize & (self.table.len() - 1)
    }

    /// Prefetches the slot of a unit.
    #[inline(always)]
    fn prefetch(&self, unit: u64) {
        if let Some(cell) = self
            .table
            .len()
            .checked_sub(1)
            .and_then(|_| self.table.get(self.home(unit)))
        {
            crate::prefetch(cell);
        }
    }

    /// Counts touches of a unit in the current column.
    #[inline(always)]
    fn add(&mut self, unit: u64, starts: u64, reuses: u64, distance: u64) {
        let new = Cell {
            unit,
            starts,
            reuses,
            distance,
        };
        if new.is_free() || self.used * 4 >= self.table.len() * 3 && !self.grow() {
            return;
        }
        let mask = self.table.len() - 1;
        let mut at = self.home(unit);
        loop {
            let cell = &mut self.table[at];
            if cell.is_free() {
                *cell = new;
                self.used += 1;
                return;
            }
            if cell.unit == unit {
                cell.merge(&new);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Enlarges the table; false if nothing can be counted any more.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        if self.full {
            return false;
        }
        if self.table.len() > CELLS {
            self.give_up();
            return false;
        }
        let size = (self.table.len() * 2).max(MIN_TABLE_PLACES);
        let old = std::mem::replace(&mut self.table, crate::large_vec(Cell::default(), size));
        self.used = 0;
        old.iter()
            .filter(|c| !c.is_free())
            .for_each(|c| self.add(c.unit, c.starts, c.reuses, c.distance));
        true
    }

    fn give_up(&mut self) {
        *self = HeatTable {
            full: true,
            ..HeatTable::default()
        };
    }

    /// Moves the table's cells to a run. The next column will probably have about as many units.
    fn settle(&mut self) {
        if self.used == 0 {
            return;
        }
        let mut cells = Vec::with_capacity(self.used);
        cells.extend(self.table.iter().filter(|c| !c.is_free()));
        let size = (self.used * 4 / 3 + 1)
            .next_power_of_two()
            .clamp(MIN_TABLE_PLACES, self.table.len());
        self.table.clear();
        self.table.resize(size, Cell::default());
        self.used = 0;
        let run = Run {
            space: self.space,
            column: self.column,
            cells,
        };
        self.kept += run.room();
        self.runs.push(run);
        self.bound();
    }

    /// Joins the runs if they are large, and gives up if they are too large even then.
    fn bound(&mut self) {
        if self.kept < self.most.max(CELLS) {
            return;
        }
        self.join();
        if self.kept > CELLS / 2 * 3 {
            self.give_up();
        }
        self.most = self.kept * 2;
    }

    /// Joins the runs of each column to one.
    fn join(&mut self) {
        self.runs.sort_by_key(|r| (r.space, r.column));
        let mut joined: Vec<Run> = Vec::new();
        for mut run in std::mem::take(&mut self.runs) {
            match joined.last_mut() {
                Some(last) if (last.space, last.column) == (run.space, run.column) => {
                    last.cells.append(&mut run.cells)
                }
                _ => joined.push(run),
            }
        }
        for Run { cells, .. } in &mut joined {
            cells.sort_unstable_by_key(|c| c.unit);
            cells.dedup_by(|cell, before| {
                let same = cell.unit == before.unit;
                if same {
                    before.merge(cell);
                }
                same
            });
            cells.shrink_to_fit();
        }
        self.kept = joined.iter().map(Run::room).sum();
        self.runs = joined;
    }

    /// Adds the cells of another table.
    fn merge(&mut self, mut other: HeatTable) {
        if self.full || other.full {
            self.give_up();
            return;
        }
        self.settle();
        other.settle();
        self.kept += other.kept;
        self.runs.append(&mut other.runs);
        self.bound();
    }

    /// All cells: unit, address space, column, accesses, reuses, sum of D. Cells may occur more
    /// than once and must be added up. `None` if there were too many to count.
    pub fn cells(&self) -> Option<impl Iterator<Item = (u64, u32, u32, u64, u64, u64)> + '_> {
        let now = self.table.iter().map(|c| (self.space, self.column, c));
        let all = self
            .runs
            .iter()
            .flat_map(|r| r.cells.iter().map(|c| (r.space, r.column, c)))
            .chain(now);
        (!self.full).then(|| {
            all.filter(|c| !c.2.is_free())
                .map(|(space, column, c)| (c.unit, space, column, c.starts, c.reuses, c.distance))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn feed(table: &mut HeatTable, cells: impl Iterator<Item = (u64, u32)>) {
        for (unit, column) in cells {
            table.begin(1, column);
            table.add(unit, 1, 2, unit);
        }
    }

    fn fed(cells: impl Iterator<Item = (u64, u32)>) -> HeatTable {
        let mut table = HeatTable::default();
        feed(&mut table, cells);
        table
    }

    fn found(table: &HeatTable) -> BTreeMap<(u64, u32), (u64, u64, u64)> {
        let mut all: BTreeMap<(u64, u32), (u64, u64, u64)> = BTreeMap::new();
        for (unit, space, column, starts, reuses, distance) in table.cells().unwrap() {
            assert_eq!(space, 1);
            let e = all.entry((unit, column)).or_default();
            *e = (e.0 + starts, e.1 + reuses, e.2 + distance);
        }
        all
    }

    #[test]
    fn cells_are_counted_by_unit_and_column_in_whatever_order_columns_come() {
        // Rows of each column are consecutive, or the column changes with each row.
        for rows in [10_000, 100, 1] {
            let all = || (0..100_000u64).map(|i| (i * i % 9973, (i / rows % 7) as u32));
            let mut expected: BTreeMap<(u64, u32), (u64, u64, u64)> = BTreeMap::new();
            for (unit, column) in all() {
                let e = expected.entry((unit, column)).or_default();
                *e = (e.0 + 1, e.1 + 2, e.2 + unit);
            }
            let mut table = fed(all().take(30_000));
            table.merge(fed(all().skip(30_000)));
            assert_eq!(found(&table), expected);
            table.join();
            assert_eq!(found(&table), expected);
            assert_eq!(table.cells().unwrap().count(), expected.len());
        }
    }

    #[test]
    fn what_comes_back_to_a_column_takes_no_more_memory_for_ever() {
        let all = || (0..4 * CELLS as u64).map(|i| (i % 100, (i / 100 % 7) as u32));
        let table = fed(all());
        assert!(table.kept < 2 * CELLS);
        assert_eq!(found(&table).len(), 700);
        assert_eq!(
            found(&table).values().map(|e| e.0).sum::<u64>(),
            4 * CELLS as u64
        );
    }

    #[test]
    fn too_many_cells_are_given_up_rather_than_counted_wrong() {
        // All cells in one column, or in many.
        for columns in [u64::MAX, 100_000] {
            let many = || fed((0..3 * CELLS as u64).map(|i| (i, (i / columns) as u32)));
            let mut table = many();
            assert!(table.cells().is_none() && table.table.is_empty() && table.runs.is_empty());
            table.merge(fed([(1, 1)].into_iter()));
            assert!(table.cells().is_none());
            let mut table = fed([(1, 1)].into_iter());
            table.merge(many());
            assert!(table.cells().is_none());
        }
    }
}
