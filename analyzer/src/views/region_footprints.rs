//! Footprints of parts of memory: of the regions of the location zoom, and of objects.
//!
//! Both are known only after the rows were counted. Their footprints are computed from the entries
//! of the footprints by code ([`crate::stages::footprint`]), which are sorted by page: each *unit*
//! of memory counts in the rows of the places that contain it. Only pages that several objects
//! share have separate footprints, by object ([`crate::stages::reuse::by_page::MixedFootprints`]).

use crate::data::counts::AccessCounts;
use crate::data::group::AccessClass;
use crate::data::memory_units::{CacheLine, LINE_SHIFT, PAGE_SHIFT, Page};
use crate::data::object_map::Resolver;
use crate::stages::footprint::{Entry, FootprintSet, Merged};

/// Parts of memory that contain units: regions or objects.
pub(crate) trait UnitRegions: Sync {
    /// Number of places.
    fn len(&self) -> usize;
    /// Log2 of the bytes of a unit.
    fn unit_shift(&self) -> u32;
    /// The places that contain a unit.
    fn of(&self, space: u32, unit: u64) -> &[u32];
}

/// Counts of one place. Lines must be added in order.
#[derive(Clone, Default)]
struct RegionCounts {
    counts: AccessCounts,
    line: Option<(u32, CacheLine)>,
    page: Option<(u32, Page)>,
}

impl RegionCounts {
    #[inline(always)]
    fn add(&mut self, space: u32, line: CacheLine, merged: &Merged) {
        if merged.is_empty() {
            return;
        }
        let page = line.page();
        merged.count(&mut self.counts);
        self.counts.lines64 += u64::from(self.line != Some((space, line)));
        self.counts.pages += u64::from(self.page != Some((space, page)));
        (self.line, self.page) = (Some((space, line)), Some((space, page)));
    }
}

/// Merges folds of different pages.
fn together(mut all: Vec<RegionCounts>, other: Vec<RegionCounts>) -> Vec<RegionCounts> {
    all.iter_mut()
        .zip(&other)
        .for_each(|(a, b)| a.counts.add_all(&b.counts));
    all
}

fn same_line(a: &Entry, b: &Entry) -> bool {
    (a.key().space, a.key().line) == (b.key().space, b.key().line)
}

/// Footprints of loads by place; only the footprint fields of the counts are set.
pub(crate) fn footprints(set: &FootprintSet, places: &impl UnitRegions) -> Vec<AccessCounts> {
    let all = set.fold_with(
        || vec![RegionCounts::default(); places.len()],
        |all, entries| fold(entries, places, all),
        together,
    );
    all.into_iter().map(|p| p.counts).collect()
}

/// Adds entries to the places that contain them.
fn fold(entries: &[Entry], places: &impl UnitRegions, all: &mut [RegionCounts]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the CPU supports the feature for which the function is compiled, as was just
        // checked.
        return unsafe { fold_modern(entries, places, all) };
    }
    fold_any(entries, places, all);
}

/// Uses the popcount instruction, as [`crate::stages::footprint::fold`] does.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn fold_modern(entries: &[Entry], places: &impl UnitRegions, all: &mut [RegionCounts]) {
    fold_any(entries, places, all);
}

#[inline(always)]
fn fold_any(entries: &[Entry], places: &impl UnitRegions, all: &mut [RegionCounts]) {
    let shift = places.unit_shift();
    let mut last: (u32, u64, &[u32]) = (u32::MAX, 0, &[]);
    for same in entries.chunk_by(same_line) {
        let (space, line) = (same[0].key().space, same[0].key().line);
        let mut merged = Merged::default();
        same.iter()
            .map(|e| (e.key().group.class(), e))
            .filter(|(class, _)| *class != AccessClass::Store)
            .for_each(|(class, e)| merged.add(class, e.maps()));
        // Units smaller than a line are processed one after the other.
        let units = if shift >= LINE_SHIFT {
            1
        } else {
            1u64 << (LINE_SHIFT - shift)
        };
        for k in 0..units {
            let (unit, mask) = match shift.checked_sub(LINE_SHIFT) {
                Some(up) => (line.number() >> up, u64::MAX),
                None => (
                    line.number() << (LINE_SHIFT - shift) | k,
                    (u64::MAX >> (64 - (1u64 << shift))) << (k << shift),
                ),
            };
            if (last.0, last.1) != (space, unit) || space == u32::MAX {
                last = (space, unit, places.of(space, unit));
            }
            let part = merged.inside(mask);
            last.2
                .iter()
                .for_each(|&place| all[place as usize].add(space, line, &part));
        }
    }
}

/// Footprints by place. The entries' groups consist of a place and a class rather than of a line
/// piece and a class.
pub(crate) fn footprints_of_groups(set: &FootprintSet, places: usize) -> Vec<AccessCounts> {
    let add = |all: &mut Vec<RegionCounts>, entries: &[Entry]| {
        for same in entries
            .chunk_by(|a, b| same_line(a, b) && a.key().group.piece() == b.key().group.piece())
        {
            let key = same[0].key();
            let mut merged = Merged::default();
            same.iter()
                .for_each(|e| merged.add(e.key().group.class(), e.maps()));
            if let Some(place) = all.get_mut(key.group.piece() as usize) {
                place.add(key.space, key.line, &merged);
            }
        }
    };
    let all = set.fold_with(|| vec![RegionCounts::default(); places], add, together);
    all.into_iter().map(|p| p.counts).collect()
}

/// Objects of the pages that belong to one object for the whole run.
pub(crate) struct WholePages<'a> {
    resolver: &'a Resolver,
    /// Process ids by address space.
    spaces: &'a [u32],
    /// The numbers of all objects, for slices of one.
    numbers: Vec<u32>,
}

impl<'a> WholePages<'a> {
    pub(crate) fn new(resolver: &'a Resolver, spaces: &'a [u32]) -> WholePages<'a> {
        WholePages {
            resolver,
            spaces,
            numbers: (0..resolver.objects.len() as u32).collect(),
        }
    }

    /// The process of an address space.
    pub(crate) fn process(&self, space: u32) -> u32 {
        self.spaces.get(space as usize).copied().unwrap_or(0)
    }

    /// The places of an object: only itself.
    pub(crate) fn number(&self, object: u32) -> &[u32] {
        self.numbers
            .get(object as usize)
            .map_or(&[], std::slice::from_ref)
    }
}

impl UnitRegions for WholePages<'_> {
    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn unit_shift(&self) -> u32 {
        PAGE_SHIFT
    }

    fn of(&self, space: u32, unit: u64) -> &[u32] {
        let process = self.process(space);
        let address = unit << PAGE_SHIFT;
        if self.resolver.mixed(process, address) {
            return &[];
        }
        self.number(self.resolver.find(process, address, 0))
    }
}

/// Footprints of objects. `whole` has the footprints of all loads, `mixed` those in pages that
/// several objects share.
pub(crate) fn of_objects(
    whole: &FootprintSet,
    mixed: &FootprintSet,
    objects: &WholePages<'_>,
) -> Vec<AccessCounts> {
    let mut all = footprints(whole, objects);
    all.iter_mut()
        .zip(footprints_of_groups(mixed, objects.len()))
        .for_each(|(a, b)| a.add_all(&b));
    all
}
