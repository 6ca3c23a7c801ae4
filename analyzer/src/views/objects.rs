//! The table of objects: loads of each, and their reuse distances.

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::AccessCounts;
use crate::data::group::{AccessClass, Group};
use crate::data::object_map::{OwnStack, Recent, Resolver, UNKNOWN};
use crate::data::samples::SampleInfo;
use crate::estimate::Grouped;
use crate::estimate::row_estimates::Hats;
use crate::findings::fields::Fields;
use crate::stages::footprint::FootprintSet;
use crate::stages::pages::UnitEntry;
use crate::util::fast_hash::Mixed;
use crate::views::all_blocks::AllBlocks;
use crate::views::context::{Basis, STRIDES};
use crate::views::heap_samples;
use crate::views::location_code::{ByGroup, EntrySums, by_function_and_line, code_parts};
use crate::views::object_of_entry::object_of;
use crate::views::object_row::ObjectRow;
use crate::views::region_footprints::{UnitRegions, WholePages, of_objects};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes of the objects that code has touched. They limit its footprint if it touches no others.
/// For code that touched unknown memory there is no limit.
pub(crate) fn bounds(
    entries: impl Iterator<Item = UnitEntry>,
    spaces: &[u32],
    resolver: &Resolver,
    code: &CodeMap,
    unit_shift: u32,
) -> Bounds {
    let mut touched: HashSet<(Group, u32)> = HashSet::new();
    for entry in entries.filter(|e| !e.group.is_store() && e.starts > 0) {
        let object = object_of(&entry, spaces, resolver, unit_shift);
        touched.insert((entry.group, object));
    }
    let of = |target: Target| {
        let mut objects: Vec<HashSet<u32>> = vec![HashSet::new(); code.rows(target)];
        for &(group, object) in &touched {
            for &row in code.targets(target, group) {
                objects[row as usize].insert(object);
            }
        }
        let size = |&object: &u32| {
            let bytes = resolver.bytes.get(object as usize).copied();
            bytes.filter(|&bytes| bytes > 0 && object != UNKNOWN)
        };
        let sum = |row: &HashSet<u32>| {
            let sizes = row.iter().map(size).collect::<Option<Vec<u64>>>()?;
            (!sizes.is_empty()).then(|| sizes.into_iter().fold(0, u64::saturating_add))
        };
        objects.iter().map(sum).collect::<Vec<_>>()
    };
    Bounds {
        whole: of(Target::Whole)[0],
        by_code: [Target::Function, Target::Line, Target::Loop].map(of),
    }
}

/// Bytes of the objects that code has touched, if all are known.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Limit of the whole.
    pub whole: Option<u64>,
    /// By function, line and loop; `None` if objects are unknown.
    pub by_code: [Vec<Option<u64>>; 3],
}

/// Samples that have seen each object. On pages that several objects share, the object at the time
/// of the sample's middle counts.
fn seen(
    basis: &Basis<'_>,
    samples: &[SampleInfo],
    resolver: &Resolver,
    pages: &WholePages<'_>,
) -> Grouped {
    let times: HashMap<u32, (u64, OwnStack), Mixed> = samples
        .iter()
        .map(|s| {
            let middle = s.first_time + s.last_time.saturating_sub(s.first_time) / 2;
            let stack = resolver.own_stack(s.process, s.thread, middle);
            (s.sample, (middle, stack))
        })
        .collect();
    let mut recent = Recent::default();
    // Marks come by address: most are on the page of the previous one.
    let mut last = (u32::MAX, 0, false);
    Grouped::by_mark(basis.incidence, basis.shares.as_ref(), |space, mark| {
        let process = pages.process(space);
        let page = mark.address >> pages.unit_shift();
        if (last.0, last.1) != (space, page) || space == u32::MAX {
            last = (space, page, resolver.mixed(process, mark.address));
        }
        // A page with a single owner has it at any time.
        let (time, stack) = match last.2 {
            true => times.get(&mark.sample).copied().unwrap_or_default(),
            false => Default::default(),
        };
        let address = match last.2 {
            true => mark.address,
            false => page << pages.unit_shift(),
        };
        let object = stack.at(address);
        let find = || resolver.find_recent(&mut recent, process, address, time);
        pages.number(object.unwrap_or_else(find))
    })
}

/// Object of the load that each sample's window counts for, if windows are triggered by time.
fn begun(
    basis: &Basis<'_>,
    samples: &[SampleInfo],
    resolver: &Resolver,
) -> HashMap<u32, u32, Mixed> {
    let samples: HashMap<u32, &SampleInfo, Mixed> = samples.iter().map(|s| (s.sample, s)).collect();
    let spots = basis.times.iter().flat_map(|times| times.spots());
    spots
        .filter_map(|&(sample, spot)| {
            let info = samples.get(&sample)?;
            let stack = resolver.own_stack(info.process, info.thread, info.first_time);
            let object = stack
                .at(spot.address)
                .unwrap_or_else(|| resolver.find(info.process, spot.address, info.first_time));
            Some((sample, object))
        })
        .collect()
}

/// Sums of the entries of an object.
#[derive(Default)]
struct ObjectSums {
    sums: EntrySums,
    irregular: u64,
    blocks: u64,
    /// Sum of the squares of the loads of each unit of memory.
    squares: f64,
    by_group: ByGroup,
}

impl ObjectSums {
    /// Number of loads of each group of code.
    fn starts(&self) -> impl Iterator<Item = (Group, u64)> + Clone {
        let groups = self.by_group.iter();
        groups.map(|(&group, sums)| (group, sums.starts))
    }
}

/// Sums entries by object. `object` returns the object of an entry.
fn sums_by_object(
    entries: impl Iterator<Item = UnitEntry>,
    object: impl Fn(&UnitEntry) -> u32,
) -> BTreeMap<u32, ObjectSums> {
    let mut parts: BTreeMap<u32, ObjectSums> = BTreeMap::new();
    // The object of a unit's entries, the blocks that these touched, and their loads.
    let mut known: HashMap<(u32, u64, u32), (u32, u64, u64), Mixed> = HashMap::default();
    for entry in entries.filter(|e| !e.group.is_store()) {
        let (object, blocks, loads) = known
            .entry((entry.space, entry.unit, entry.object))
            .or_insert_with(|| (object(&entry), 0, 0));
        *blocks |= entry.blocks;
        *loads += entry.starts;
        let part = parts.entry(*object).or_default();
        part.sums.add(&entry);
        part.irregular += if entry.group.class() == AccessClass::Irregular {
            entry.starts
        } else {
            0
        };
        part.by_group.entry(entry.group).or_default().add(&entry);
    }
    // Entries of one unit have different objects, except for entries without a known one.
    let mut touched: HashMap<(u32, u64, u32), (u64, u64), Mixed> = HashMap::default();
    for ((space, unit, _), (object, blocks, loads)) in known {
        let unit = touched.entry((space, unit, object)).or_default();
        *unit = (unit.0 | blocks, unit.1 + loads);
    }
    for ((.., object), (blocks, loads)) in touched {
        let part = parts.entry(object).or_default();
        part.blocks += u64::from(blocks.count_ones());
        // Whole numbers, whose sum does not depend on the order.
        part.squares += (loads as f64).powi(2);
    }
    parts
}

/// Data from which rows are made.
struct Maker<'a> {
    basis: &'a Basis<'a>,
    resolver: &'a Resolver,
    code: &'a CodeMap,
    /// Loads of all objects.
    total: u64,
    /// Footprints by object.
    footprints: Vec<AccessCounts>,
    seen: Grouped,
    /// Result of [`begun`].
    begun: HashMap<u32, u32, Mixed>,
}

impl Maker<'_> {
    /// Makes the row of an object.
    fn row(&self, number: u32, part: &ObjectSums) -> ObjectRow {
        let (basis, resolver, at) = (self.basis, self.resolver, number as usize);
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        let pct = |part: u64, whole: u64| mean(part, whole).map(|x| x * 100.0);
        let object = resolver.objects.get(at).cloned().unwrap_or_default();
        let mut counts = self.footprints.get(at).copied().unwrap_or_default();
        counts.add_rows(&part.sums.counts());
        basis.add_fetches(&mut counts, part.starts());
        let time = basis.time(|sample, _| self.begun.get(&sample) == Some(&number));
        let bytes = resolver.bytes.get(at).copied().unwrap_or(0);
        let hats = self.hats(number, part, &counts, bytes);
        let starts = part.sums.starts;
        let (by_function, by_line) = by_function_and_line(self.code, &part.by_group);
        let stack = object.stack.split(" < ").filter(|s| !s.is_empty());
        let return_addresses = object.returns();
        let sampled = resolver.samples.get(&number);
        ObjectRow {
            object: object.name,
            kind: object.kind,
            of_type: object.of_type,
            module: object.module,
            stack: stack.map(str::to_string).collect(),
            return_addresses,
            instances: resolver.instances.get(at).copied().unwrap_or(0),
            bytes,
            time,
            share: pct(starts, self.total).filter(|_| basis.times.is_none()),
            blocks: part.blocks,
            accesses_per_block: mean(starts, part.blocks),
            irregular_share: pct(part.irregular, starts),
            metrics: counts.metrics().without_stores(),
            hats: if basis.times.is_some() {
                hats.marked_by(time)
            } else {
                hats
            },
            strides: basis.strides.of(part.starts(), STRIDES),
            functions: code_parts(self.code, &by_function, false, starts),
            lines: code_parts(self.code, &by_line, true, starts),
            misses: basis.misses(number, part.starts()),
            element_bytes: 0,
            fields: Vec::new(),
            largest: resolver.largest(number),
            number,
            sampled: sampled.map(|seen| AllBlocks::of(*seen, (starts, part.squares), part.blocks)),
        }
    }

    /// Estimates for an object of `bytes`.
    fn hats(&self, number: u32, part: &ObjectSums, counts: &AccessCounts, bytes: u64) -> Hats {
        let basis = self.basis;
        let of = part.by_group.iter();
        let loads = of.map(|(&group, sums)| (group, sums.starts + sums.implied));
        basis.places.make(
            self.seen.of(number),
            basis.incidence.scale(),
            counts,
            basis.executed(loads),
            (bytes > 0 && number != UNKNOWN).then_some(bytes),
        )
    }
}

/// Makes the table from entries. `mixed` has the footprints in pages that several objects share.
pub fn object_table(
    entries: impl Iterator<Item = UnitEntry>,
    (basis, mixed, samples): (&Basis<'_>, &FootprintSet, &[SampleInfo]),
    spaces: &[u32],
    resolver: &Resolver,
    code: &CodeMap,
    unit_shift: u32,
) -> Vec<ObjectRow> {
    let object = |entry: &UnitEntry| object_of(entry, spaces, resolver, unit_shift);
    let parts = sums_by_object(entries, object);
    let total = parts.values().map(|part| part.sums.starts).sum();
    let pages = WholePages::new(resolver, spaces);
    let maker = Maker {
        basis,
        resolver,
        code,
        total,
        footprints: of_objects(basis.footprint, mixed, &pages),
        seen: seen(basis, samples, resolver, &pages),
        begun: begun(basis, samples, resolver),
    };
    let rows = parts.iter().map(|(&number, part)| maker.row(number, part));
    let mut rows: Vec<ObjectRow> = rows.collect();
    heap_samples::divide(&mut rows, total);
    let time = |row: &ObjectRow| row.time.value.unwrap_or(0.0);
    rows.sort_by(|a, b| {
        time(b)
            .total_cmp(&time(a))
            .then_with(|| b.metrics.accesses.cmp(&a.metrics.accesses))
            .then_with(|| a.object.cmp(&b.object))
    });
    rows
}

/// Adds the loads by field to rows.
pub fn add_fields(rows: &mut [ObjectRow], mut fields: BTreeMap<u32, Fields>) {
    for row in rows {
        if let Some(of) = fields.remove(&row.number) {
            (row.element_bytes, row.fields) = (of.element, of.list);
        }
    }
}
