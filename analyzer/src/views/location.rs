//! The location tree: from the address space down to hot contiguous regions.
//!
//! A region is divided into pages. A hot subregion is a longest run of contiguous pages, each with
//! at least one access, that has at least the share τ of the region's accesses. It is divided again
//! with smaller pages ([`PAGE_SHIFTS`]), until a page size would be below the smallest, or below a
//! block. Page sizes that cut nothing off are skipped, and a region's ends are given in the
//! smallest pages that keep it contiguous. Cold pages inside a run belong to it, so that a region
//! is a whole object or several related ones.
//!
//! The tree is found from sums by unit of memory ([`crate::stages::pages`]). Then each entry is
//! added to the deepest region that contains its unit, and each region to the enclosing one.
//!
//! D of a region is that of the accesses to its blocks, and counts *all* blocks in the sample that
//! were touched between two accesses, inside and outside of the region.

pub use crate::views::location_code::CodePart;
pub(crate) use crate::views::location_code::{by_function_and_line, code_parts};

use crate::data::code_map::CodeMap;
use crate::data::counts::{AccessCounts, Metrics};
use crate::data::memory_units::{PAGE_BYTES, PAGE_SHIFT};
use crate::data::object_map::{Resolver, UNKNOWN};
use crate::data::samples::SampleInfo;
use crate::estimate::Grouped;
use crate::estimate::row_estimates::Hats;
use crate::estimate::time_shares::TimeShare;
use crate::stages::pages::UnitEntry;
use crate::stages::strides::StrideShare;
use crate::util::fast_hash::Mixed;
use crate::util::hex_address::HexAddress;
use crate::views::context::{Basis, STRIDES};
use crate::views::location_code::CODE_ROWS;
use crate::views::location_divide::{RegionPlaces, UnitRange, Units, divide};
use crate::views::location_sizes::Sizes;
use crate::views::object_of_entry::object_of;
use crate::views::ratios::{mean, pct};
use crate::views::region_footprints::footprints;
use mgz_annotations_schema::ObjectKind;
use serde::Serialize;
use std::collections::HashMap;

/// Page sizes by level, as powers of two: 1 GiB to 4 KiB.
pub const PAGE_SHIFTS: [u32; 6] = [30, 26, 22, 18, 15, PAGE_SHIFT];

/// A region.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Region {
    /// Indices of the children on the path from the root; empty for the root.
    pub id: String,
    /// Process; none for the root.
    pub process: Option<u32>,
    /// First address.
    pub start: HexAddress,
    /// Last address.
    pub end: HexAddress,
    /// Page size at which the region was found; 0 for the root.
    pub page: u64,
    /// Bytes from first to last page. Saturates for the root.
    pub bytes: u64,
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of all accesses, percent; unknown if windows are triggered by time.
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
    /// Metrics of the loads that start in it. Footprints are of all touched memory in it, D and
    /// intervals of all touches of its blocks.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// The most frequent strides of its loads, estimated.
    #[serde(rename = "strides_hat")]
    pub strides: Vec<StrideShare>,
    /// Share of the region's accesses outside of its children, percent; none without children.
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
    pub kind: ObjectKind,
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

/// Default page size at which the zoom ends.
pub const STOP: u64 = PAGE_BYTES;

/// Builds the tree from entries, which are read twice. `tau` is a percentage. The smallest pages
/// have `stop` bytes. `whole` has the estimates of the whole run.
pub fn zoom<I: Iterator<Item = UnitEntry>>(
    entries: impl Fn() -> I,
    (basis, whole): (&Basis<'_>, &Hats),
    (spaces, samples): (&[u32], &[SampleInfo]),
    code: &CodeMap,
    sizes: Sizes,
    (tau, stop): (f64, u64),
    resolver: Option<&Resolver>,
) -> LocationZoom {
    let units = Units::new(entries());
    let total = units.list.iter().map(|u| u.sums.starts).sum();
    let smaller = (stop < PAGE_BYTES && stop.is_power_of_two() && stop.ilog2() >= sizes.block)
        .then(|| stop.ilog2());
    let pages: Vec<u32> = PAGE_SHIFTS
        .iter()
        .copied()
        .filter(|&p| p >= sizes.block && 1u64 << p >= stop)
        .chain(smaller)
        .collect();
    let mut found = divide(&units.list, sizes, tau, &pages);
    let places = RegionPlaces::new(&units, sizes, &found);
    let mut objects: HashMap<(u32, u64, u32), u32, Mixed> = HashMap::default();
    for entry in entries() {
        let region = &mut found[places.deepest_of(entry.space, entry.unit)];
        if !entry.group.is_store() {
            region.by_group.entry(entry.group).or_default().add(&entry);
        }
        if let Some(resolver) = resolver {
            let object = *objects
                .entry((entry.space, entry.unit, entry.object))
                .or_insert_with(|| object_of(&entry, spaces, resolver, sizes.unit));
            *region.by_object.entry(object).or_default() += entry.starts;
        }
    }
    let mut counts = footprints(basis.footprint, &places);
    counts.iter_mut().zip(&found).for_each(|(c, f)| {
        c.add_rows(&f.sums.counts());
        let starts = f.by_group.iter().map(|(&group, sums)| (group, sums.starts));
        match f.parent {
            Some(_) => basis.add_fetches(c, starts),
            None => basis.add_all_fetches(c),
        }
    });
    let seen = Grouped::by_mark(basis.incidence, basis.shares.as_ref(), |space, mark| {
        places.below_root(space, mark.address)
    });
    let maker = Maker {
        code,
        units: &units,
        spaces,
        sizes,
        total,
        resolver,
        basis,
        seen,
        whole,
        processes: samples.iter().map(|s| (s.sample, s.process)).collect(),
    };
    // Inner regions come first, since a region's counts contain those of the regions in it.
    let mut children: Vec<Vec<Region>> = vec![Vec::new(); found.len()];
    while let Some(f) = found.pop() {
        let number = found.len();
        let around = f.parent.map_or(total, |p| found[p].sums.starts);
        let mut region = maker.region(&f, number as u32, &counts[number], around);
        region.children = children.pop().unwrap_or_default();
        region.children.reverse();
        region.cold_share = cold(&region);
        let Some(parent) = f.parent else {
            return finish(region, tau, sizes, &pages);
        };
        f.by_group.into_iter().for_each(|(group, sums)| {
            found[parent]
                .by_group
                .entry(group)
                .or_default()
                .merge(&sums)
        });
        f.by_object.into_iter().for_each(|(object, starts)| {
            *found[parent].by_object.entry(object).or_default() += starts
        });
        children[parent].push(region);
    }
    unreachable!("the first region is the root")
}

/// Makes rows of regions.
struct Maker<'a> {
    code: &'a CodeMap,
    units: &'a Units,
    spaces: &'a [u32],
    sizes: Sizes,
    /// Accesses of the whole.
    total: u64,
    resolver: Option<&'a Resolver>,
    basis: &'a Basis<'a>,
    seen: Grouped,
    whole: &'a Hats,
    /// Process of each sample.
    processes: HashMap<u32, u32, Mixed>,
}

impl Maker<'_> {
    /// A region without its children. `around` is the number of accesses of the enclosing region.
    fn region(&self, found: &UnitRange, number: u32, counts: &AccessCounts, around: u64) -> Region {
        let list = &self.units.list[found.units.clone()];
        let blocks: u64 = list.iter().map(|u| u64::from(u.blocks.count_ones())).sum();
        let (start, end) = match (found.page, list.first(), list.last()) {
            (Some(page), Some(first), Some(last)) => {
                let up = page - self.sizes.unit;
                let start = u128::from(first.unit >> up) << page;
                let end = (u128::from(last.unit >> up) + 1) << page;
                (start, end - 1)
            }
            _ => (0, u128::from(u64::MAX)),
        };
        let loads = || {
            let of = found.by_group.iter();
            of.map(|(&group, sums)| (group, sums.starts + sums.implied))
        };
        let process = found
            .page
            .and(list.first())
            .and_then(|u| self.spaces.get(u.space as usize))
            .copied();
        let time = self.basis.time(|sample, address| {
            (start..=end).contains(&u128::from(address))
                && process.is_none_or(|p| self.processes.get(&sample) == Some(&p))
        });
        let hats = match found.parent {
            None => self.whole.clone(),
            Some(_) => {
                let hats = self.basis.places.make(
                    self.seen.of(number),
                    self.basis.incidence.scale(),
                    counts,
                    self.basis.executed(loads()),
                    u64::try_from(end - start + 1).ok(),
                );
                if self.basis.times.is_some() {
                    hats.marked_by(time)
                } else {
                    hats
                }
            }
        };
        let (by_function, by_line) = by_function_and_line(self.code, &found.by_group);
        Region {
            id: found.id.clone(),
            process,
            start: HexAddress(start as u64),
            end: HexAddress(end as u64),
            page: found.page.map_or(0, |p| 1 << p),
            bytes: u64::try_from(end - start + 1).unwrap_or(u64::MAX),
            time,
            share: pct(counts.accesses, self.total).filter(|_| self.basis.times.is_none()),
            parent_share: pct(counts.accesses, around),
            blocks,
            accesses_per_block: mean(counts.accesses, blocks),
            metrics: counts.metrics().without_stores(),
            hats,
            strides: self.basis.strides.of(
                found
                    .by_group
                    .iter()
                    .map(|(&group, sums)| (group, sums.starts)),
                STRIDES,
            ),
            cold_share: None,
            functions: code_parts(self.code, &by_function, false, counts.accesses),
            lines: code_parts(self.code, &by_line, true, counts.accesses),
            objects: self.objects(found),
            children: Vec::new(),
        }
    }

    fn objects(&self, found: &UnitRange) -> Vec<ObjectPart> {
        let Some(resolver) = self.resolver else {
            return Vec::new();
        };
        let mut order: Vec<(u32, u64)> = found
            .by_object
            .iter()
            .map(|(&o, &n)| (o, n))
            .filter(|o| o.0 != UNKNOWN)
            .collect();
        order.sort_by_key(|&(object, accesses)| (std::cmp::Reverse(accesses), object));
        let part = |(number, accesses): (u32, u64)| {
            let object = resolver
                .objects
                .get(number as usize)
                .cloned()
                .unwrap_or_default();
            ObjectPart {
                object: object.name,
                kind: object.kind,
                accesses,
                share: pct(accesses, found.sums.starts),
            }
        };
        order.into_iter().take(CODE_ROWS).map(part).collect()
    }
}

fn finish(root: Region, tau: f64, sizes: Sizes, pages: &[u32]) -> LocationZoom {
    let mut leaves = Vec::new();
    collect_leaves(&root, &mut leaves);
    let worst = leaves
        .iter()
        .filter(|r| !r.id.is_empty() && r.metrics.badness().is_some())
        .max_by(|a, b| {
            a.metrics
                .badness()
                .unwrap_or(0.0)
                .total_cmp(&b.metrics.badness().unwrap_or(0.0))
                .then(b.id.cmp(&a.id))
        })
        .map(|r| r.id.clone());
    LocationZoom {
        block: 1 << sizes.block,
        tau_pct: tau,
        pages: pages.iter().map(|p| 1 << p).collect(),
        worst,
        root,
    }
}

fn cold(region: &Region) -> Option<f64> {
    if region.children.is_empty() {
        return None;
    }
    let hot: u64 = region.children.iter().map(|c| c.metrics.accesses).sum();
    pct(
        region.metrics.accesses.saturating_sub(hot),
        region.metrics.accesses,
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;
    use crate::data::reuse_counts::GroupReuse;

    const SIZES: Sizes = Sizes { block: 6, unit: 12 };

    fn entry(address: u64, starts: u64, group: u32, distance: u64) -> UnitEntry {
        let reuse = GroupReuse {
            reuses: starts - 1,
            firsts: 1,
            distance: distance * (starts - 1),
            distance_max: distance,
            interval: starts - 1,
        };
        UnitEntry {
            unit: address >> 12,
            blocks: 1 << (address >> 6 & 63),
            space: 0,
            group: Group::from_raw(group),
            object: 0,
            starts,
            implied: 0,
            reuse,
        }
    }

    /// The tree of entries.
    fn tree(entries: &[UnitEntry], spaces: &[u32], tau: f64) -> LocationZoom {
        zoom(
            || entries.iter().copied(),
            (&Basis::default(), &Hats::default()),
            (spaces, &[]),
            &CodeMap::new(),
            SIZES,
            (tau, STOP),
            None,
        )
    }

    /// A hot 8 KiB object, a single hot page 40 KiB after it, and scattered accesses far away.
    fn entries() -> Vec<UnitEntry> {
        let mut all: Vec<UnitEntry> = (0..128)
            .map(|i| entry(0x7f00_0000_0000 + i * 64, 100, 1, 5))
            .collect();
        all.push(entry(0x7f00_0000_a000, 9000, 2, 700));
        all.extend((0..10).map(|i| entry(0x7f80_0000_0000 + i * (1 << 32), 10, 1, 1)));
        all.reverse();
        all
    }

    #[test]
    fn hot_runs_of_pages_are_found_and_cold_ones_left_out() {
        let tree = tree(&entries(), &[77], 10.0);
        assert_eq!(tree.root.metrics.accesses, 128 * 100 + 9000 + 100);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        let found: Vec<(u64, u64, u64, u64)> = leaves
            .iter()
            .map(|r| (r.start.0, r.end.0, r.metrics.accesses, r.blocks))
            .collect();
        assert_eq!(
            found,
            [
                (0x7f00_0000_0000, 0x7f00_0000_1fff, 12800, 128),
                (0x7f00_0000_a000, 0x7f00_0000_afff, 9000, 1)
            ]
        );
        assert_eq!(leaves[0].process, Some(77));
        assert_eq!(leaves[0].metrics.distance_mean, Some(5.0));
        assert_eq!(leaves[0].accesses_per_block, Some(100.0));
        assert_eq!(tree.worst.as_deref(), Some(leaves[1].id.as_str()));
        assert_eq!(leaves[1].metrics.distance_max, Some(700));
    }

    #[test]
    fn the_share_of_a_region_must_reach_tau() {
        let tree = tree(&entries(), &[77], 50.0);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves.len(), 1);
        assert_eq!(leaves[0].metrics.accesses, 12800);
    }

    #[test]
    fn nothing_and_the_ends_of_the_address_space_are_fine() {
        let nothing = tree(&[], &[], 10.0);
        assert_eq!(
            (
                nothing.root.metrics.accesses,
                nothing.root.children.len(),
                nothing.worst
            ),
            (0, 0, None)
        );
        let ends = [entry(0, 5, 1, 1), entry(u64::MAX, 5, 1, 1)];
        let tree = tree(&ends, &[1], 10.0);
        assert_eq!(tree.root.children.len(), 2);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves[1].end.to_string(), "0xffffffffffffffff");
        // Blocks of one byte and of a gigabyte.
        for shift in [0, 30] {
            let sizes = Sizes {
                block: shift,
                unit: crate::stages::pages::unit_shift(shift, STOP),
            };
            let entries = [UnitEntry {
                unit: u64::MAX >> sizes.unit,
                ..entry(0, 5, 1, 1)
            }];
            assert_eq!(
                zoom(
                    || entries.iter().copied(),
                    (&Basis::default(), &Hats::default()),
                    (&[1], &[]),
                    &CodeMap::new(),
                    sizes,
                    (10.0, STOP),
                    None
                )
                .root
                .children
                .len(),
                1
            );
        }
    }

    #[test]
    fn address_spaces_are_never_one_region() {
        let mut all = entries();
        all.extend(entries().into_iter().map(|e| UnitEntry { space: 1, ..e }));
        let tree = tree(&all, &[10, 20], 10.0);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(
            leaves.iter().map(|r| r.process).collect::<Vec<_>>(),
            [Some(10), Some(10), Some(20), Some(20)]
        );
    }
}
