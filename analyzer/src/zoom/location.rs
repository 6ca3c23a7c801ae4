//! The location tree: from the address space down to hot contiguous regions.
//!
//! A region is divided into pages. A hot subregion is a longest run of contiguous pages, each with at
//! least one access, that has at least the share τ of the region's accesses. It is divided again with
//! smaller pages ([`PAGE_SHIFTS`]), until a page size would be below the smallest, or below a block.
//! Page sizes that cut nothing off are passed over, and a region's ends are given in the smallest pages
//! that keep it whole. Cold pages inside a run belong to it, so that a
//! region is a whole object or several related ones.
//!
//! The tree is found from sums by unit of memory ([`crate::blocks`]). Then each entry is added to the deepest region that its unit is in, and regions to those
//! around them.
//!
//! D of a region is that of the accesses to its blocks, and counts *all* blocks that were touched
//! between two accesses, inside and outside of the region, inside one sample.

use crate::blocks::UnitEntry;
use crate::code::{CLASS_STORE, CodeMap};
use crate::objects::{Resolver, UNKNOWN, object_of};
use crate::mix::Mixed;
use crate::totals::GroupReuse;
use serde::Serialize;
use std::collections::HashMap;

/// Page sizes by level, as powers of two: 1 GiB to 4 KiB.
pub const PAGE_SHIFTS: [u32; 6] = [30, 26, 22, 18, 15, 12];
/// Functions and lines listed per region.
const CODE_ROWS: usize = 10;

/// What touched a region.
#[derive(Clone, Debug, Serialize)]
pub struct CodePart {
    /// Function (for lines: the innermost).
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file; empty for functions and if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line; left out for functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Accesses that start in the region.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of the region's accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Mean D of its reuses there.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
    /// Greatest D.
    #[serde(rename = "D_max")]
    pub distance_max: Option<u64>,
}

/// A region.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Numbers of the children on the way from the root; the root is empty.
    pub id: String,
    /// Process; none for the root.
    pub process: Option<u32>,
    /// First address, hexadecimal.
    pub start: String,
    /// Last address, hexadecimal.
    pub end: String,
    /// Page size at which it was found; 0 for the root.
    pub page: u64,
    /// Bytes from first to last page. Saturates for the root.
    pub bytes: u64,
    /// Accesses that start in it.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of all accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Share of the parent's accesses, percent.
    #[serde(rename = "A_parent_pct")]
    pub parent_share: Option<f64>,
    /// Distinct blocks touched.
    pub blocks: u64,
    /// Accesses per block.
    #[serde(rename = "A_per_block")]
    pub accesses_per_block: Option<f64>,
    /// Mean D of the touches of its blocks.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
    /// Greatest D.
    #[serde(rename = "D_max")]
    pub distance_max: Option<u64>,
    /// Mean reuse interval.
    pub interval_mean: Option<f64>,
    /// Block touches that are reuses.
    pub reuses: u64,
    /// Block touches that are the first of their sample.
    pub first_touches: u64,
    /// Share of the region's accesses that is in none of its children, percent; none without children.
    #[serde(rename = "A_cold_pct")]
    pub cold_share: Option<f64>,
    /// Functions that touch it, most accesses first.
    pub functions: Vec<CodePart>,
    /// Lines that touch it.
    pub lines: Vec<CodePart>,
    /// Objects in it, most accesses first.
    pub objects: Vec<ObjectPart>,
    /// Hot subregions by address.
    pub children: Vec<Region>,
}

/// An object's part of a region.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectPart {
    /// Name.
    pub object: String,
    /// Kind.
    pub kind: String,
    /// Accesses to it inside the region.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of the region's accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
}

/// The tree.
#[derive(Clone, Debug, Serialize)]
pub struct LocationZoom {
    /// Bytes of a block.
    pub block: u64,
    /// τ, percent.
    pub tau_pct: f64,
    /// Page sizes by level.
    pub pages: Vec<u64>,
    /// Final region with the greatest mean D.
    pub worst: Option<String>,
    /// The whole address space.
    pub root: Region,
}

fn pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// Sums over entries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) starts: u64,
    pub(crate) reuse: GroupReuse,
}

impl Sums {
    pub(crate) fn add(&mut self, entry: &UnitEntry) {
        self.starts += entry.starts;
        self.reuse.merge(&entry.reuse);
    }

    pub(crate) fn merge(&mut self, other: &Sums) {
        self.starts += other.starts;
        self.reuse.merge(&other.reuse);
    }
}

/// Page size at which the zoom ends, unless another is asked for.
pub const STOP: u64 = 4096;

/// Sizes, as powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of a block.
    pub block: u32,
    /// Bytes of a unit.
    pub unit: u32,
}

/// A unit of memory, all its entries together.
struct Unit {
    space: u32,
    unit: u64,
    blocks: u64,
    sums: Sums,
}

/// Units of memory by address space and address.
struct Units {
    list: Vec<Unit>,
    place: HashMap<(u32, u64), u32, Mixed>,
}

impl Units {
    fn new(entries: impl Iterator<Item = UnitEntry>) -> Units {
        let mut place: HashMap<(u32, u64), u32, Mixed> = HashMap::default();
        let mut list: Vec<Unit> = Vec::new();
        for entry in entries {
            let at = *place.entry((entry.space, entry.unit)).or_insert(list.len() as u32);
            if at as usize == list.len() {
                list.push(Unit { space: entry.space, unit: entry.unit, blocks: 0, sums: Sums::default() });
            }
            let unit = &mut list[at as usize];
            unit.blocks |= entry.blocks;
            unit.sums.add(&entry);
        }
        list.sort_unstable_by_key(|u| (u.space, u.unit));
        list.iter().zip(0..).for_each(|(u, at)| *place.entry((u.space, u.unit)).or_default() = at);
        Units { list, place }
    }
}

/// A region before its code and its objects are known: some units that follow one another.
struct Found {
    region: Region,
    parent: Option<usize>,
    units: std::ops::Range<usize>,
    by_piece: HashMap<u32, Sums, Mixed>,
    by_object: HashMap<u32, u64, Mixed>,
}

struct Zoomer<'a> {
    units: &'a [Unit],
    spaces: &'a [u32],
    sizes: Sizes,
    tau: f64,
    total: u64,
    pages: Vec<u32>,
    /// Each behind the one that it is in.
    found: Vec<Found>,
}

/// Builds the tree from entries, which are gone through twice. `tau` is a percentage; pages get no smaller than `stop` bytes.
pub fn zoom<I: Iterator<Item = UnitEntry>>(entries: impl Fn() -> I, spaces: &[u32], code: &CodeMap, sizes: Sizes, tau: f64, stop: u64, resolver: Option<&Resolver>) -> LocationZoom {
    let units = Units::new(entries());
    let total = units.list.iter().map(|u| u.sums.starts).sum();
    let smaller = (stop < 4096 && stop.is_power_of_two() && stop.ilog2() >= sizes.block).then(|| stop.ilog2());
    let pages: Vec<u32> = PAGE_SHIFTS.iter().copied().filter(|&p| p >= sizes.block && 1u64 << p >= stop).chain(smaller).collect();
    let mut zoomer = Zoomer { units: &units.list, spaces, sizes, tau, total, pages: pages.clone(), found: Vec::new() };
    zoomer.add(String::new(), None, 0..units.list.len(), None);
    zoomer.divide(0, 0);
    let Zoomer { mut found, .. } = zoomer;
    // The deepest region of each unit.
    let mut deepest = vec![0u32; units.list.len()];
    for (number, f) in found.iter().enumerate() {
        deepest[f.units.clone()].fill(number as u32);
    }
    let mut objects: HashMap<(u32, u64, u32), u32, Mixed> = HashMap::default();
    for entry in entries() {
        let unit = units.place.get(&(entry.space, entry.unit)).copied().unwrap_or(0);
        let region = &mut found[deepest[unit as usize] as usize];
        if entry.group & 3 != CLASS_STORE {
            region.by_piece.entry(entry.group / 4).or_default().add(&entry);
        }
        if let Some(resolver) = resolver {
            let object = *objects.entry((entry.space, entry.unit, entry.object)).or_insert_with(|| object_of(&entry, spaces, resolver, sizes.unit));
            *region.by_object.entry(object).or_default() += entry.starts;
        }
    }
    // From the inside out: a region has what those in it have.
    let mut children: Vec<Vec<Region>> = vec![Vec::new(); found.len()];
    while let Some(Found { mut region, parent, by_piece, by_object, .. }) = found.pop() {
        describe(&mut region, code, &by_piece, resolver, &by_object);
        region.children = children.pop().unwrap_or_default();
        region.children.reverse();
        region.cold_share = cold(&region);
        let Some(parent) = parent else {
            return finish(region, tau, sizes, &pages);
        };
        by_piece.into_iter().for_each(|(piece, sums)| found[parent].by_piece.entry(piece).or_default().merge(&sums));
        by_object.into_iter().for_each(|(object, starts)| *found[parent].by_object.entry(object).or_default() += starts);
        children[parent].push(region);
    }
    unreachable!("the first region is the root")
}

fn finish(root: Region, tau: f64, sizes: Sizes, pages: &[u32]) -> LocationZoom {
    let mut leaves = Vec::new();
    collect_leaves(&root, &mut leaves);
    let worst = leaves
        .iter()
        .filter(|r| !r.id.is_empty() && r.distance_mean.is_some())
        .max_by(|a, b| a.distance_mean.unwrap_or(0.0).total_cmp(&b.distance_mean.unwrap_or(0.0)).then(b.id.cmp(&a.id)))
        .map(|r| r.id.clone());
    LocationZoom { block: 1 << sizes.block, tau_pct: tau, pages: pages.iter().map(|p| 1 << p).collect(), worst, root }
}

/// Names a region's code and objects.
fn describe(region: &mut Region, code: &CodeMap, by_piece: &HashMap<u32, Sums, Mixed>, resolver: Option<&Resolver>, by_object: &HashMap<u32, u64, Mixed>) {
    let (mut by_function, mut by_line): (HashMap<u32, Sums>, HashMap<u32, Sums>) = Default::default();
    for (piece, sums) in by_piece {
        if let Some(piece) = code.pieces.get(*piece as usize) {
            by_function.entry(piece.function).or_default().merge(sums);
            by_line.entry(piece.line).or_default().merge(sums);
        }
    }
    region.functions = code_parts(code, &by_function, false, region.accesses);
    region.lines = code_parts(code, &by_line, true, region.accesses);
    let Some(resolver) = resolver else { return };
    let mut order: Vec<(u32, u64)> = by_object.iter().map(|(&o, &n)| (o, n)).filter(|o| o.0 != UNKNOWN).collect();
    order.sort_by_key(|&(object, accesses)| (std::cmp::Reverse(accesses), object));
    let part = |(number, accesses): (u32, u64)| {
        let object = resolver.objects.get(number as usize).cloned().unwrap_or_default();
        ObjectPart { object: object.name, kind: object.kind, accesses, share: pct(accesses, region.accesses) }
    };
    region.objects = order.into_iter().take(CODE_ROWS).map(part).collect();
}

fn cold(region: &Region) -> Option<f64> {
    if region.children.is_empty() {
        return None;
    }
    let hot: u64 = region.children.iter().map(|c| c.accesses).sum();
    pct(region.accesses.saturating_sub(hot), region.accesses)
}

/// The final regions below a region, by address.
pub fn collect_leaves<'a>(region: &'a Region, leaves: &mut Vec<&'a Region>) {
    if region.children.is_empty() {
        leaves.push(region);
    }
    for child in &region.children {
        collect_leaves(child, leaves);
    }
}

/// The functions (or lines) with the most accesses. `all` is the accesses of the whole that they are parts of.
pub(crate) fn code_parts(code: &CodeMap, sums: &HashMap<u32, Sums>, by_line: bool, all: u64) -> Vec<CodePart> {
    let mut order: Vec<(&u32, &Sums)> = sums.iter().collect();
    order.sort_by_key(|(i, s)| (std::cmp::Reverse(s.starts), **i));
    let name = |i: usize| {
        if by_line {
            let l = code.lines.get(i).cloned().unwrap_or_default();
            (l.function, l.module, l.file, Some(l.line))
        } else {
            let f = code.functions.get(i).cloned().unwrap_or_default();
            (f.function, f.module, String::new(), None)
        }
    };
    order
        .into_iter()
        .take(CODE_ROWS)
        .map(|(&i, s)| {
            let (function, module, file, line) = name(i as usize);
            CodePart {
                function,
                module,
                file,
                line,
                accesses: s.starts,
                share: pct(s.starts, all),
                distance_mean: mean(s.reuse.distance, s.reuse.reuses),
                distance_max: (s.reuse.reuses > 0).then_some(s.reuse.distance_max),
            }
        })
        .collect()
}

impl Zoomer<'_> {
    /// Adds the region of some units. `page` is none for the root.
    fn add(&mut self, id: String, parent: Option<usize>, units: std::ops::Range<usize>, page: Option<u32>) -> usize {
        let list = &self.units[units.clone()];
        let mut sums = Sums::default();
        list.iter().for_each(|u| sums.merge(&u.sums));
        let blocks: u64 = list.iter().map(|u| u64::from(u.blocks.count_ones())).sum();
        let (start, end) = match (page, list.first(), list.last()) {
            (Some(page), Some(first), Some(last)) => {
                let up = page - self.sizes.unit;
                let start = u128::from(first.unit >> up) << page;
                let end = (u128::from(last.unit >> up) + 1) << page;
                (start, end - 1)
            }
            _ => (0, u128::from(u64::MAX)),
        };
        let process = page.and(list.first()).and_then(|u| self.spaces.get(u.space as usize)).copied();
        let region = Region {
            id,
            process,
            start: format!("{start:#x}"),
            end: format!("{end:#x}"),
            page: page.map_or(0, |p| 1 << p),
            bytes: u64::try_from(end - start + 1).unwrap_or(u64::MAX),
            accesses: sums.starts,
            share: pct(sums.starts, self.total),
            parent_share: pct(sums.starts, parent.map_or(self.total, |p| self.found[p].region.accesses)),
            blocks,
            accesses_per_block: mean(sums.starts, blocks),
            distance_mean: mean(sums.reuse.distance, sums.reuse.reuses),
            distance_max: (sums.reuse.reuses > 0).then_some(sums.reuse.distance_max),
            interval_mean: mean(sums.reuse.interval, sums.reuse.reuses),
            reuses: sums.reuse.reuses,
            first_touches: sums.reuse.firsts,
            cold_share: None,
            functions: Vec::new(),
            lines: Vec::new(),
            objects: Vec::new(),
            children: Vec::new(),
        };
        self.found.push(Found { region, parent, units, by_piece: HashMap::default(), by_object: HashMap::default() });
        self.found.len() - 1
    }

    /// Finds the hot subregions of a region, with the page size of `level`, or the next ones if nothing is cut off.
    fn divide(&mut self, region: usize, level: usize) {
        let all = self.found[region].units.clone();
        let (id, accesses) = (self.found[region].region.id.clone(), self.found[region].region.accesses);
        for level in level..self.pages.len() {
            let starts = |run: &std::ops::Range<usize>| self.units[run.clone()].iter().map(|u| u.sums.starts).sum::<u64>();
            let is_hot = |run: &std::ops::Range<usize>| starts(run) > 0 && starts(run) as f64 * 100.0 >= self.tau * accesses as f64;
            let hot: Vec<std::ops::Range<usize>> = self.runs(all.clone(), self.pages[level]).into_iter().filter(is_hot).collect();
            if !id.is_empty() && hot.first() == Some(&all) {
                continue;
            }
            for (k, run) in hot.into_iter().enumerate() {
                let id = if id.is_empty() { k.to_string() } else { format!("{id}.{k}") };
                // The smallest pages in which it is still one run show best where it begins and ends.
                let whole = |&l: &usize| self.runs(run.clone(), self.pages[l]).len() == 1;
                let tight = (level..self.pages.len()).take_while(whole).last().unwrap_or(level);
                let child = self.add(id, Some(region), run, Some(self.pages[tight]));
                self.divide(child, tight + 1);
            }
            return;
        }
    }

    /// Longest runs of contiguous pages with at least one access each.
    fn runs(&self, units: std::ops::Range<usize>, page: u32) -> Vec<std::ops::Range<usize>> {
        let up = page - self.sizes.unit;
        let mut from = units.start;
        let mut runs = Vec::new();
        for run in self.units[units].chunk_by(|a, b| a.space == b.space && (b.unit >> up) - (a.unit >> up) <= 1) {
            runs.push(from..from + run.len());
            from += run.len();
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { block: 6, unit: 12 };

    fn entry(address: u64, starts: u64, group: u32, distance: u64) -> UnitEntry {
        let reuse = GroupReuse { reuses: starts - 1, firsts: 1, distance: distance * (starts - 1), distance_max: distance, interval: starts - 1 };
        UnitEntry { unit: address >> 12, blocks: 1 << (address >> 6 & 63), space: 0, group, object: 0, starts, reuse }
    }

    /// The tree of entries.
    fn tree(entries: &[UnitEntry], spaces: &[u32], tau: f64) -> LocationZoom {
        zoom(|| entries.iter().copied(), spaces, &CodeMap::new(), SIZES, tau, STOP, None)
    }

    /// A hot 8 KiB object, a lone hot page 40 KiB behind it, and scattered accesses far away.
    fn entries() -> Vec<UnitEntry> {
        let mut all: Vec<UnitEntry> = (0..128).map(|i| entry(0x7f00_0000_0000 + i * 64, 100, 1, 5)).collect();
        all.push(entry(0x7f00_0000_a000, 9000, 2, 700));
        all.extend((0..10).map(|i| entry(0x7f80_0000_0000 + i * (1 << 32), 10, 1, 1)));
        all.reverse();
        all
    }

    #[test]
    fn hot_runs_of_pages_are_found_and_cold_ones_left_out() {
        let tree = tree(&entries(), &[77], 10.0);
        assert_eq!(tree.root.accesses, 128 * 100 + 9000 + 100);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        let found: Vec<(&str, &str, u64, u64)> = leaves.iter().map(|r| (r.start.as_str(), r.end.as_str(), r.accesses, r.blocks)).collect();
        assert_eq!(found, [("0x7f0000000000", "0x7f0000001fff", 12800, 128), ("0x7f000000a000", "0x7f000000afff", 9000, 1)]);
        assert_eq!(leaves[0].process, Some(77));
        assert_eq!(leaves[0].distance_mean, Some(5.0));
        assert_eq!(leaves[0].accesses_per_block, Some(100.0));
        assert_eq!(tree.worst.as_deref(), Some(leaves[1].id.as_str()));
        assert_eq!(leaves[1].distance_max, Some(700));
    }

    #[test]
    fn the_share_of_a_region_must_reach_tau() {
        let tree = tree(&entries(), &[77], 50.0);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves.len(), 1);
        assert_eq!(leaves[0].accesses, 12800);
    }

    #[test]
    fn nothing_and_the_ends_of_the_address_space_are_fine() {
        let nothing = tree(&[], &[], 10.0);
        assert_eq!((nothing.root.accesses, nothing.root.children.len(), nothing.worst), (0, 0, None));
        let ends = [entry(0, 5, 1, 1), entry(u64::MAX, 5, 1, 1)];
        let tree = tree(&ends, &[1], 10.0);
        assert_eq!(tree.root.children.len(), 2);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves[1].end, "0xffffffffffffffff");
        // Blocks of one byte and of a gigabyte.
        for shift in [0, 30] {
            let sizes = Sizes { block: shift, unit: crate::blocks::unit_shift(shift, STOP) };
            let entries = [UnitEntry { unit: u64::MAX >> sizes.unit, ..entry(0, 5, 1, 1) }];
            assert_eq!(zoom(|| entries.iter().copied(), &[1], &CodeMap::new(), sizes, 10.0, STOP, None).root.children.len(), 1);
        }
    }

    #[test]
    fn address_spaces_are_never_one_region() {
        let mut all = entries();
        all.extend(entries().into_iter().map(|e| UnitEntry { space: 1, ..e }));
        let tree = tree(&all, &[10, 20], 10.0);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves.iter().map(|r| r.process).collect::<Vec<_>>(), [Some(10), Some(10), Some(20), Some(20)]);
    }
}
