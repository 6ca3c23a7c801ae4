//! Sites whose heap blocks are logged as a sample: the share of the loads of all blocks of each
//! site.
//!
//! A block below 4 KiB is logged with a known probability and represents the inverse of that. So
//! loads of logged blocks, with that weight, estimate the loads of all blocks of their site
//! (Horvitz–Thompson). The trace attributes loads of other blocks to the heap as a whole. They are
//! divided among the sites in proportion to these estimates, up to their number.
//! Shares of the time are estimates anyway, so those of sites and heap are moved accordingly.

use crate::data::object_map::contains_others;
use crate::estimate::time_shares::TimeShare;
use crate::views::all_blocks::MIN_LOADED_BLOCKS;
use crate::views::object_row::ObjectRow;
use mgz_annotations_schema::ObjectKind;

/// Fills in the shares of rows with [`ObjectRow::sampled`]. `total` is the number of loads of all rows.
pub(crate) fn divide(rows: &mut [ObjectRow], total: u64) {
    let share = |row: &ObjectRow| {
        row.time
            .value
            .or(row.share)
            .unwrap_or(100.0 * row.metrics.accesses as f64 / total.max(1) as f64)
    };
    let containers = rows.iter().filter(|r| contains_others(&r.kind, &r.object));
    let (loads, to_divide) = containers.fold((0.0, 0.0), |sum, row| {
        (sum.0 + row.metrics.accesses as f64, sum.1 + share(row))
    });
    let scale = to_divide / loads.max(1.0);
    let sites = || rows.iter().filter_map(|row| row.sampled.as_ref());
    // Memory that was mapped shortly before it was loaded may have no object yet. Blocks may be there.
    let unknown = rows.iter().filter(|r| r.kind == ObjectKind::NotKnown);
    let limit = to_divide + unknown.map(share).sum::<f64>();
    // If the estimates exceed the loads of this memory, each site gives way by its variance: a site
    // with few loaded blocks must not shrink the shares of others.
    let excess = sites().map(|s| s.unlogged * scale).sum::<f64>() - limit;
    let variances: f64 = sites().map(|s| s.variance(scale)).sum();
    for row in rows.iter_mut() {
        let own = share(row);
        let Some(all) = &mut row.sampled else {
            continue;
        };
        if all.loaded < MIN_LOADED_BLOCKS {
            continue;
        }
        let estimate = all.unlogged * scale;
        let less = excess.max(0.0) * all.variance(scale) / variances.max(f64::MIN_POSITIVE);
        let part = (estimate - less).max(0.0);
        let error = all.error();
        all.pct = Some(own + part);
        all.pct_lo = Some(own + part / (1.0 + error));
        // The upper end is limited to the loads that can be divided.
        all.pct_hi = Some(own + (estimate * (1.0 + error)).min(limit).max(part));
    }
    if rows.iter().any(|row| row.time.value.is_some()) {
        move_times(rows, to_divide);
    }
}

/// Moves shares of the time from the heap as a whole (`to_divide`) to the sites of its blocks.
fn move_times(rows: &mut [ObjectRow], to_divide: f64) {
    let mut moved = [0.0; 3];
    for row in rows.iter_mut() {
        let ends = row
            .sampled
            .and_then(|all| Some([all.pct_lo?, all.pct?, all.pct_hi?]));
        let Some(ends) = ends else {
            continue;
        };
        let own = row.time.value.unwrap_or(0.0);
        moved = std::array::from_fn(|end| moved[end] + ends[end] - own);
        let lo = row.time.lo.map_or(ends[0], |lo| lo.max(ends[0]));
        let hi = row.time.hi.map_or(ends[2], |hi| hi.max(ends[2]));
        row.time = TimeShare {
            value: Some(ends[1]),
            lo: Some(lo),
            hi: Some(hi),
            of_runs: None,
        };
    }
    // The heap as a whole keeps the rest.
    let left = moved.map(|part| (1.0 - part / to_divide.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
    for row in rows
        .iter_mut()
        .filter(|row| contains_others(&row.kind, &row.object))
    {
        let time = row.time;
        row.time = TimeShare {
            value: time.value.map(|v| v * left[1]),
            lo: time.lo.map(|lo| lo * left[2]),
            hi: time.hi.map(|hi| hi * left[0]),
            of_runs: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::object_map::Sampled;
    use crate::views::all_blocks::AllBlocks;

    fn row(kind: &str, object: &str, loads: u64, sampled: Option<AllBlocks>) -> ObjectRow {
        let mut row = ObjectRow {
            kind: kind.into(),
            object: object.into(),
            sampled,
            ..ObjectRow::default()
        };
        row.metrics.accesses = loads;
        row
    }

    #[test]
    fn loads_of_the_heap_are_divided_by_what_logged_blocks_stand_for() {
        let seen = |logged, weight: f64| Sampled {
            logged,
            bytes: 32.0 * logged as f64,
            stand_for: 32.0 * logged as f64 * weight,
        };
        let site = |loads, logged, weight| Some(AllBlocks::of(seen(logged, weight), loads, loads));
        let mut rows = [
            row("heap", "a", 60, site(60, 100, 11.0)),
            row("heap", "b", 30, site(30, 100, 11.0)),
            row("heap", "rare", 1, site(1, 100, 11.0)),
            row("heap", "[heap]", 810, None),
            row("global", "g", 99, None),
        ];
        divide(&mut rows, 1000);
        let of = |n: usize| rows[n].sampled.unwrap();
        // The weights give 910 loads, but there are only 810. The variances are as 120 to 60 to 2.
        let a = 6.0 + 60.0 - 10.0 * 120.0 / 182.0;
        assert!((of(0).pct.unwrap() - a).abs() < 1e-9);
        assert!(of(0).pct_lo.unwrap() < a && a < of(0).pct_hi.unwrap());
        let width = |n: usize| of(n).pct_hi.unwrap() / of(n).pct_lo.unwrap();
        assert!(width(1) > width(0), "fewer blocks, wider interval");
        assert_eq!(of(2).pct, None);
        assert!(rows[3].sampled.is_none() && rows[4].sampled.is_none());
    }

    /// Five logged blocks that were read a lot by chance must not shrink the share of a site whose
    /// estimate rests on many.
    #[test]
    fn a_site_of_few_blocks_does_not_shrink_others() {
        let site = |loads: u64, loaded: u64, weight: f64| {
            let seen = Sampled {
                logged: loaded,
                bytes: 32.0 * loaded as f64,
                stand_for: 32.0 * loaded as f64 * weight,
            };
            Some(AllBlocks::of(seen, loads, loaded))
        };
        let mut rows = [
            row("heap", "many", 2000, site(2000, 400, 301.0)),
            row("heap", "few", 3000, site(3000, 5, 301.0)),
            row("heap", "[heap]", 497_500, None),
            row("unknown", "[no known object]", 497_500, None),
        ];
        divide(&mut rows, 1_000_000);
        // 600,000 loads of `many`, 900,000 of `few`: their sum is above 995,000.
        let [many, few] = [0, 1].map(|n| rows[n].sampled.unwrap());
        let (low, high) = (many.pct_lo.unwrap(), many.pct_hi.unwrap());
        assert!(low < 60.2 && 60.2 < high, "{low} to {high}");
        assert!(many.pct.unwrap() > 58.0, "{many:?}");
        assert!(few.pct_hi.unwrap() > 90.0, "{few:?}");
    }

    /// Windows that began in blocks that were not logged count for the site of these blocks.
    #[test]
    fn the_time_of_the_heap_is_that_of_its_sites() {
        let site = AllBlocks::of(
            Sampled {
                logged: 100,
                bytes: 3200.0,
                stand_for: 320_000.0,
            },
            60,
            60,
        );
        let mut rows = [
            row("heap", "make a.c:4", 60, Some(site)),
            row("heap", "[heap]", 5940, None),
        ];
        for (row, pct) in rows.iter_mut().zip([0.0, 99.0]) {
            row.time = TimeShare {
                value: Some(pct),
                lo: Some(pct),
                hi: Some(pct + 1.0),
                of_runs: None,
            };
        }
        divide(&mut rows, 6000);
        let [make, heap] = rows.map(|row| row.time);
        assert!((make.value.unwrap() - 99.0).abs() < 1e-9, "{make:?}");
        assert!(make.lo.unwrap() < 99.0 && make.hi.unwrap() >= 99.0);
        assert!(
            heap.value.unwrap() < 1e-9 && heap.hi.unwrap() > 1.0,
            "{heap:?}"
        );
    }
}
