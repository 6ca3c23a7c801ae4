//! Time that threads wait for lines that they take from each other, although each uses its own bytes.

use crate::data::memory_units::CacheLine;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::sharing::{Line, own_bytes, uses};
use crate::findings::spared::Spared;
use crate::findings::time_account::RegionKey;
use crate::misses::{Hierarchy, Range};
use crate::util::fast_hash::Mixed;
use std::collections::{BTreeMap, HashMap};

/// The time that loads of some objects would save if no line had data of several threads. An error is
/// a sentence for the user.
pub(crate) fn spared(context: &Context, objects: &[u32]) -> Result<Vec<Spared>, String> {
    let lines = uses(context);
    let rows = rows_by_region(context, &lines, objects);
    if rows.is_empty() {
        return Err(
            "no line of it has bytes of several threads, each with its own; so nothing is saved"
                .into(),
        );
    }
    let spared: Vec<Spared> = (rows.into_iter())
        .filter_map(|(key, rows)| of_region(context, key, rows))
        .collect();
    match spared.is_empty() {
        true => Err("its time per load was not measured, so the time that threads wait for its lines is not known; record it alone and for longer".into()),
        false => Ok(spared),
    }
}

/// Loads of contended lines of some objects, by region.
fn rows_by_region(
    context: &Context,
    lines: &HashMap<(u32, CacheLine), Line, Mixed>,
    objects: &[u32],
) -> BTreeMap<RegionKey, u64> {
    let stores_are_known = context.knows_stores();
    let mut rows: BTreeMap<RegionKey, u64> = BTreeMap::new();
    for window in context.windows {
        for row in window.rows.iter().filter(|r| objects.contains(&r.object)) {
            let line = lines.get(&(window.process, CacheLine::of(row.address)));
            if line.is_some_and(|line| own_bytes(line, stores_are_known)) {
                let region = context.users.region(row.group.piece());
                *rows.entry(region).or_default() += 1;
            }
        }
    }
    rows
}

/// The time that a region waits for contended lines. None if its time per load was not measured.
fn of_region(context: &Context, region: RegionKey, contended: u64) -> Option<Spared> {
    let pace = context.paces.of(region)?;
    let of_region = context.sites.values();
    let of_region = of_region.filter(|f| context.users.region(f.group.piece()) == region);
    let rows: u64 = of_region.map(|f| f.rows).sum();
    let share = contended as f64 / rows.max(1) as f64;
    Some(Spared {
        region,
        part: waiting(pace.ns, share, transfer_ns(&context.prices.hierarchy)),
    })
}

/// Nanoseconds until a line comes from another core. It comes through the last cache.
fn transfer_ns(hierarchy: &Hierarchy) -> f64 {
    let levels = hierarchy.caches.len().saturating_sub(1).max(1);
    (0..levels).map(|level| hierarchy.wait_ns(level)[1]).sum()
}

/// The part of the time that loads wait for contended lines: what loads that hit do not explain of the
/// nanoseconds per load, but at most a transfer for each contended load. `share`: of the loads.
fn waiting(ns: f64, share: f64, transfer: f64) -> Range {
    let [least, middle, most] = params::NS_OF_LOAD_WITHOUT_CONTENTION;
    let of = |hit: f64, transfers: f64| {
        let wait = (ns - hit).max(0.0).min(transfers * share * transfer);
        wait / ns.max(f64::MIN_POSITIVE)
    };
    [
        of(most, 1.0),
        of(middle, 1.0),
        of(least, params::MAX_TRANSFERS_OF_CONTENDED_LINE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_loads_of_contended_lines_wait_and_fast_ones_do_not() {
        let [lo, value, hi] = waiting(0.25, 1.0, 12.0);
        assert!(lo == 0.0 && value == 0.0 && hi > 0.5, "{lo} {value} {hi}");
        let [lo, value, hi] = waiting(10.0, 1.0, 12.0);
        assert!(
            (lo - 0.4).abs() < 1e-9 && (value - 0.97).abs() < 1e-9,
            "{lo} {value}"
        );
        assert!((hi - 0.99).abs() < 1e-9, "{hi}");
    }

    #[test]
    fn few_contended_loads_explain_a_part_of_the_time() {
        let [lo, value, hi] = waiting(12.0, 0.1, 12.0);
        assert!((value - 0.1).abs() < 1e-9 && lo <= value, "{lo} {value}");
        assert!(hi > 0.9, "{hi}");
    }
}
