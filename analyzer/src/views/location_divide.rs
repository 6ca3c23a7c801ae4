//! Dividing the address space into hot regions.

use crate::stages::pages::UnitEntry;
use crate::util::fast_hash::Mixed;
use crate::views::location_code::{ByGroup, EntrySums};
use crate::views::location_sizes::Sizes;
use crate::views::region_footprints::UnitRegions;
use std::collections::HashMap;
use std::ops::Range;

/// A unit of memory with the sums of all its entries.
pub(crate) struct MemoryUnit {
    pub(crate) space: u32,
    pub(crate) unit: u64,
    pub(crate) blocks: u64,
    pub(crate) sums: EntrySums,
}

/// Units of memory by address space and address.
pub(crate) struct Units {
    pub(crate) list: Vec<MemoryUnit>,
    pub(crate) place: HashMap<(u32, u64), u32, Mixed>,
}

impl Units {
    pub(crate) fn new(entries: impl Iterator<Item = UnitEntry>) -> Units {
        let mut place: HashMap<(u32, u64), u32, Mixed> = HashMap::default();
        let mut list: Vec<MemoryUnit> = Vec::new();
        for entry in entries {
            let at = *place
                .entry((entry.space, entry.unit))
                .or_insert(list.len() as u32);
            if at as usize == list.len() {
                list.push(MemoryUnit {
                    space: entry.space,
                    unit: entry.unit,
                    blocks: 0,
                    sums: EntrySums::default(),
                });
            }
            let unit = &mut list[at as usize];
            unit.blocks |= entry.blocks;
            unit.sums.add(&entry);
        }
        list.sort_unstable_by_key(|u| (u.space, u.unit));
        list.iter()
            .zip(0..)
            .for_each(|(u, at)| *place.entry((u.space, u.unit)).or_default() = at);
        Units { list, place }
    }
}

/// A region before its code and its objects are known: a range of consecutive units.
pub(crate) struct UnitRange {
    /// Indices of the children on the path from the root.
    pub(crate) id: String,
    /// Index of the enclosing region, which comes before it.
    pub(crate) parent: Option<usize>,
    pub(crate) units: Range<usize>,
    /// Log2 of the page size at which the region was found; none for the root.
    pub(crate) page: Option<u32>,
    pub(crate) sums: EntrySums,
    pub(crate) by_group: ByGroup,
    pub(crate) by_object: HashMap<u32, u64, Mixed>,
}

/// Finds hot regions. `tau` is a percentage; `pages` are page sizes by level. Each region comes
/// after the enclosing one.
pub(crate) fn divide(
    units: &[MemoryUnit],
    sizes: Sizes,
    tau: f64,
    pages: &[u32],
) -> Vec<UnitRange> {
    let mut zoomer = Zoomer {
        units,
        sizes,
        tau,
        pages,
        found: Vec::new(),
    };
    zoomer.add(String::new(), None, 0..units.len(), None);
    zoomer.divide(0, 0);
    zoomer.found
}

struct Zoomer<'a> {
    units: &'a [MemoryUnit],
    sizes: Sizes,
    tau: f64,
    pages: &'a [u32],
    found: Vec<UnitRange>,
}

impl Zoomer<'_> {
    /// Adds the region of some units. `page` is none for the root.
    fn add(
        &mut self,
        id: String,
        parent: Option<usize>,
        units: Range<usize>,
        page: Option<u32>,
    ) -> usize {
        let mut sums = EntrySums::default();
        self.units[units.clone()]
            .iter()
            .for_each(|u| sums.merge(&u.sums));
        self.found.push(UnitRange {
            id,
            parent,
            units,
            page,
            sums,
            by_group: HashMap::default(),
            by_object: HashMap::default(),
        });
        self.found.len() - 1
    }

    /// Finds the hot subregions of a region, with the page size of `level`, or with smaller ones if
    /// nothing is cut off.
    fn divide(&mut self, region: usize, level: usize) {
        let all = self.found[region].units.clone();
        let (id, accesses) = (
            self.found[region].id.clone(),
            self.found[region].sums.starts,
        );
        for level in level..self.pages.len() {
            let starts = |run: &Range<usize>| {
                self.units[run.clone()]
                    .iter()
                    .map(|u| u.sums.starts)
                    .sum::<u64>()
            };
            let is_hot = |run: &Range<usize>| {
                starts(run) > 0 && starts(run) as f64 * 100.0 >= self.tau * accesses as f64
            };
            let hot: Vec<Range<usize>> = self
                .runs(all.clone(), self.pages[level])
                .into_iter()
                .filter(is_hot)
                .collect();
            if !id.is_empty() && hot.first() == Some(&all) {
                continue;
            }
            for (k, run) in hot.into_iter().enumerate() {
                let id = if id.is_empty() {
                    k.to_string()
                } else {
                    format!("{id}.{k}")
                };
                // The smallest pages that keep the region contiguous give its begin and end most
                // precisely.
                let whole = |&l: &usize| self.runs(run.clone(), self.pages[l]).len() == 1;
                let tight = (level..self.pages.len())
                    .take_while(whole)
                    .last()
                    .unwrap_or(level);
                let child = self.add(id, Some(region), run, Some(self.pages[tight]));
                self.divide(child, tight + 1);
            }
            return;
        }
    }

    /// Longest runs of contiguous pages with at least one access each.
    fn runs(&self, units: Range<usize>, page: u32) -> Vec<Range<usize>> {
        let up = page - self.sizes.unit;
        let mut from = units.start;
        let mut runs = Vec::new();
        for run in self.units[units]
            .chunk_by(|a, b| a.space == b.space && (b.unit >> up) - (a.unit >> up) <= 1)
        {
            runs.push(from..from + run.len());
            from += run.len();
        }
        runs
    }
}

/// The regions that contain each unit.
pub(crate) struct RegionPlaces<'a> {
    units: &'a Units,
    sizes: Sizes,
    /// The deepest region by unit.
    pub(crate) deepest: Vec<u32>,
    /// By region: itself, then the enclosing ones up to the root.
    chains: Vec<Vec<u32>>,
}

impl<'a> RegionPlaces<'a> {
    pub(crate) fn new(units: &'a Units, sizes: Sizes, found: &[UnitRange]) -> RegionPlaces<'a> {
        let mut deepest = vec![0u32; units.list.len()];
        let mut chains: Vec<Vec<u32>> = Vec::new();
        for (number, f) in found.iter().enumerate() {
            deepest[f.units.clone()].fill(number as u32);
            let around = f.parent.map_or(Vec::new(), |p| chains[p].clone());
            chains.push([number as u32].into_iter().chain(around).collect());
        }
        RegionPlaces {
            units,
            sizes,
            deepest,
            chains,
        }
    }

    /// The deepest region of a unit; the root if no load has touched the unit.
    pub(crate) fn deepest_of(&self, space: u32, unit: u64) -> usize {
        self.units
            .place
            .get(&(space, unit))
            .map_or(0, |&at| self.deepest[at as usize] as usize)
    }

    /// The regions that contain an address, except the root.
    pub(crate) fn below_root(&self, space: u32, address: u64) -> &[u32] {
        let chain = self.of(space, address >> self.sizes.unit);
        &chain[..chain.len() - 1]
    }
}

impl UnitRegions for RegionPlaces<'_> {
    fn len(&self) -> usize {
        self.chains.len()
    }

    fn unit_shift(&self) -> u32 {
        self.sizes.unit
    }

    fn of(&self, space: u32, unit: u64) -> &[u32] {
        &self.chains[self.deepest_of(space, unit)]
    }
}
