//! Traffic between caches and memory of loops that store, and the part of it that stores around the
//! caches save: a line is no longer read only to be overwritten.

use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::spared::Spared;
use crate::findings::time_account::RegionKey;
use crate::misses::Range;
use crate::util::fast_hash::Mixed;
use std::collections::{BTreeMap, HashSet};

/// Lines of a loop in windows, and the time of its rows.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    /// Lines that loads read from memory, with the ends of the interval.
    loaded: Range,
    /// Lines that are stored to and not loaded.
    stored: f64,
    /// The part of the stored lines that come from memory.
    missing: Range,
    /// Nanoseconds of the rows.
    ns: f64,
    /// Nanoseconds per line at full bandwidth.
    line_ns: f64,
}

impl Traffic {
    /// The part of the time that stores around the caches save. Lines that stay in a cache would then
    /// go to memory, which takes longer.
    fn spared(&self) -> Range {
        let [cheap, dear] = params::FACTORS_OF_UNSURE_PRICE;
        let part = |missing: f64, loaded: f64, factor: f64| {
            let most = self.stored / (loaded + 2.0 * self.stored).max(f64::MIN_POSITIVE);
            let each = self.stored * self.line_ns / self.ns.max(f64::MIN_POSITIVE);
            missing * (factor * each).min(most) - (1.0 - missing) * (each / factor).min(1.0)
        };
        [
            part(self.missing[0], self.loaded[2], cheap),
            part(self.missing[1], self.loaded[1], 1.0),
            part(self.missing[2], self.loaded[0], dear),
        ]
    }
}

/// Lines that the stores of a region visit in windows.
#[derive(Default)]
struct Stored {
    /// Lines that no load of the window reads.
    alone: u64,
    all: u64,
    /// By process and object: lowest and highest address.
    ends: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Stored {
    fn extent(&self) -> u64 {
        self.ends.values().map(|e| e.1 - e.0).sum()
    }
}

/// The time that stores around the caches save in the loops with stores that `is_meant`. An error is
/// a sentence for the user.
pub(crate) fn spared(
    context: &Context,
    is_meant: impl Fn(u32) -> bool,
) -> Result<Vec<Spared>, String> {
    if !context.knows_stores() {
        return Err(
            "stores were not recorded; mgz run --stores (mgz-instrument --stores) records them"
                .into(),
        );
    }
    let Some(line_ns) = context.prices.hierarchy.line_ns() else {
        return Err(
            "the bandwidth of the memory was not measured; mgz doctor --measure measures it".into(),
        );
    };
    let stored = stored(context, is_meant);
    if stored.is_empty() {
        return Err("no store of the windows is there".into());
    }
    if stored.values().all(|s| 2 * s.alone < s.all) {
        return Err("its loads read the lines that it stores to, so no line is fetched only to be overwritten; nothing is saved".into());
    }
    let spared: Vec<Spared> = (stored.iter())
        .filter(|(_, stored)| 2 * stored.alone >= stored.all)
        .filter_map(|(&region, stored)| {
            let part = traffic(context, region, stored, line_ns)?.spared();
            Some(Spared { region, part })
        })
        .collect();
    match spared.is_empty() {
        true => Err("its time per load was not measured, so it is not known if memory limits it; record it alone and for longer".into()),
        false => Ok(spared),
    }
}

fn stored(context: &Context, is_meant: impl Fn(u32) -> bool) -> BTreeMap<RegionKey, Stored> {
    let mut all: BTreeMap<RegionKey, Stored> = BTreeMap::new();
    for window in context.windows.iter().filter(|w| !w.stores.is_empty()) {
        let rows = window.rows.iter().map(|r| CacheLine::of(r.address));
        let loaded: HashSet<CacheLine, Mixed> = rows.collect();
        let mut seen: HashSet<CacheLine, Mixed> = HashSet::default();
        for store in &window.stores {
            let piece = store.group.piece();
            if !is_meant(piece) {
                continue;
            }
            let of = all.entry(context.users.region(piece)).or_default();
            let line = CacheLine::of(store.address);
            if seen.insert(line) {
                of.all += 1;
                of.alone += u64::from(!loaded.contains(&line));
            }
            let key = (window.process, store.object);
            let ends = of.ends.entry(key).or_insert((u64::MAX, 0));
            let end = store.address + u64::from(store.size);
            *ends = (ends.0.min(store.address), ends.1.max(end));
        }
    }
    all
}

/// The traffic of a region. None if its time per load was not measured.
fn traffic(context: &Context, region: RegionKey, stored: &Stored, line_ns: f64) -> Option<Traffic> {
    let pace = context.paces.of(region)?;
    let of_region = context.sites.values();
    let of_region = of_region.filter(|f| context.users.region(f.group.piece()) == region);
    let (mut rows, mut sites) = (0, Vec::new());
    for facts in of_region {
        rows += facts.rows;
        sites.push(facts.site);
    }
    let groups: Vec<Group> = context.groups(&sites);
    let misses = context.prices.of(&sites, &groups, false).misses;
    let ratio = misses.as_ref().and_then(|m| m.last()?.ratio);
    let extent = context.seen(&sites).extent + stored.extent();
    let last = context.prices.hierarchy.caches.last().map_or(0, |c| c.size);
    Some(Traffic {
        loaded: ratio.unwrap_or([0.0; 3]).map(|r| r * rows as f64),
        stored: stored.alone as f64,
        missing: missing(extent, last),
        ns: pace.ns * rows as f64,
        line_ns,
    })
}

/// The part of the stored lines that come from memory. The extent that windows have seen is a lower
/// bound, and other data takes a part of the last cache.
fn missing(extent: u64, cache: u64) -> Range {
    match extent {
        far if far as f64 > params::MAX_CAPACITY_EXTENT_OVER_CACHE * cache as f64 => [1.0; 3],
        above if above > cache => [0.0, 1.0, 1.0],
        _ => [0.0, 0.0, 1.0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of 100 lines at 2 ns per line.
    fn copy(ns: f64, extent: u64) -> Range {
        let traffic = Traffic {
            loaded: [90.0, 100.0, 110.0],
            stored: 100.0,
            missing: missing(extent, 100),
            ns,
            line_ns: 2.0,
        };
        traffic.spared()
    }

    #[test]
    fn a_copy_limited_by_memory_saves_a_third() {
        let [lo, value, hi] = copy(600.0, 1000);
        assert!((value - 1.0 / 3.0).abs() < 1e-9, "{value}");
        assert!(lo < value && (value..0.4).contains(&hi), "{lo} {hi}");
    }

    #[test]
    fn a_slow_loop_saves_less_and_one_in_the_cache_loses() {
        assert!(copy(6000.0, 1000)[1] < 0.05);
        let [lo, value, hi] = copy(600.0, 50);
        assert!(lo <= value && value < 0.0 && hi > 0.0, "{lo} {value} {hi}");
        let [lo, value, _] = copy(600.0, 150);
        assert!(lo < 0.0 && value > 0.0, "{lo} {value}");
    }
}
