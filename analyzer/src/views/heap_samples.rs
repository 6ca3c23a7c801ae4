//! Sites whose heap blocks are logged as a sample: the share of the loads of all blocks of each
//! site.
//!
//! A block below 4 KiB is logged with a known probability and represents the inverse of that. So
//! loads of logged blocks, with that weight, estimate the loads of all blocks of their site
//! (Horvitz–Thompson). The trace attributes loads of other blocks to the heap as a whole. They are
//! divided among the sites in proportion to these estimates, up to their number.
//! Shares of the time and of the misses are estimates anyway, so those of sites and heap are moved
//! accordingly.

use crate::estimate::time_shares::TimeShare;
use crate::misses::Range;
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
    let containers = rows.iter().filter(|r| r.contains_others());
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
        all.moved = part / scale.max(f64::MIN_POSITIVE);
        all.pct = Some(own + part);
        all.pct_lo = Some(own + part / (1.0 + error));
        // The upper end is limited to the loads that can be divided.
        all.pct_hi = Some(own + (estimate * (1.0 + error)).min(limit).max(part));
    }
    move_misses(rows);
    if rows.iter().any(|row| row.time.value.is_some()) {
        move_times(rows, to_divide);
    }
}

/// Ends of an interval for another run, as parts of their value.
#[derive(Clone, Copy)]
struct Spread {
    down: f64,
    up: f64,
}

impl Spread {
    /// Spread of the sum of some shares. `None` without a share for another run.
    fn of<'a>(shares: impl Iterator<Item = &'a TimeShare>) -> Option<Spread> {
        let mut sum = [0.0; 3];
        for share in shares {
            let (lo, hi) = share.of_runs?;
            let ends = [lo, share.value?, hi];
            sum = std::array::from_fn(|end| sum[end] + ends[end]);
        }
        let [lo, value, hi] = sum;
        (value > 0.0).then(|| Spread {
            down: 1.0 - lo / value,
            up: hi / value - 1.0,
        })
    }
}

/// Moves shares of the time from the heap as a whole (`to_divide`) to the sites of its blocks.
fn move_times(rows: &mut [ObjectRow], to_divide: f64) {
    let heap = rows.iter().filter(|row| row.contains_others());
    let of_heap = Spread::of(heap.map(|row| &row.time));
    let mut moved = [0.0; 3];
    for row in rows.iter_mut() {
        let Some(all) = row.sampled else {
            continue;
        };
        let Some(ends) = all.ends() else {
            // The time of the logged blocks alone depends on their number.
            row.time.of_runs = None;
            continue;
        };
        let own = row.time.value.unwrap_or(0.0);
        moved = std::array::from_fn(|end| moved[end] + ends[end] - own);
        let lo = row.time.lo.map_or(ends[0], |lo| lo.max(ends[0]));
        let hi = row.time.hi.map_or(ends[2], |hi| hi.max(ends[2]));
        let value = ends[1];
        let error = all.error_of_runs();
        row.time = TimeShare {
            value: Some(value),
            lo: Some(lo),
            hi: Some(hi),
            of_runs: of_heap.map(|heap| {
                let down = (error / (1.0 + error)).hypot(heap.down);
                let up = error.hypot(heap.up);
                let ends = [(1.0 - down).max(0.0), 1.0 + up];
                (lo.min(value * ends[0]), hi.max(value * ends[1]).min(100.0))
            }),
        };
    }
    // The heap as a whole keeps the rest.
    let left = moved.map(|part| (1.0 - part / to_divide.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
    for row in rows.iter_mut().filter(|row| row.contains_others()) {
        let time = row.time;
        row.time = TimeShare {
            value: time.value.map(|v| v * left[1]),
            lo: time.lo.map(|lo| lo * left[2]),
            hi: time.hi.map(|hi| hi * left[0]),
            of_runs: None,
        };
    }
}

/// Moves misses from the heap as a whole to the sites of its blocks. Blocks that were not logged are
/// assumed to miss as often per load as the logged ones of their site.
fn move_misses(rows: &mut [ObjectRow]) {
    let levels = rows.iter().filter_map(|row| row.misses.as_ref());
    let levels = levels.map(|misses| misses.levels.len()).max().unwrap_or(0);
    for level in 0..levels {
        let heap = rows.iter().filter(|row| row.contains_others());
        let available: f64 = heap.filter_map(|row| Some(share_at(row, level)?[1])).sum();
        let estimates: Vec<Option<Range>> = rows.iter().map(|row| unlogged(row, level)).collect();
        let wanted: f64 = estimates.iter().flatten().map(|estimate| estimate[1]).sum();
        if wanted <= 0.0 || available <= 0.0 {
            continue;
        }
        let scale = (available / wanted).min(1.0);
        let mut moved = [0.0; 3];
        for (row, estimate) in rows.iter_mut().zip(estimates) {
            let Some(estimate) = estimate.map(|ends| ends.map(|end| end * scale)) else {
                continue;
            };
            moved = std::array::from_fn(|end| moved[end] + estimate[end]);
            change_share(row, level, |own, end| (own + estimate[end]).min(1.0));
        }
        let left = moved.map(|part| (1.0 - part / available).clamp(0.0, 1.0));
        for row in rows.iter_mut().filter(|row| row.contains_others()) {
            change_share(row, level, |own, end| own * left[2 - end]);
        }
    }
}

/// Share of the run's misses at a level.
fn share_at(row: &ObjectRow, level: usize) -> Option<Range> {
    row.misses.as_ref()?.levels.get(level)?.share
}

/// Share of the run's misses at a level in blocks of a site that were not logged. `None` if too few
/// logged blocks were loaded.
fn unlogged(row: &ObjectRow, level: usize) -> Option<Range> {
    let all = row.sampled.filter(|all| all.pct.is_some())?;
    let times = all.moved / row.metrics.accesses.max(1) as f64;
    let error = 1.0 + all.error();
    let [lo, value, hi] = share_at(row, level)?;
    Some([lo * times / error, value * times, hi * times * error])
}

/// Changes a row's share of the run's misses at a level, and its number of misses accordingly. `new`
/// gets an end and its number.
fn change_share(row: &mut ObjectRow, level: usize, new: impl Fn(f64, usize) -> f64) {
    let levels = row.misses.as_mut().map(|misses| &mut misses.levels);
    let Some(level) = levels.and_then(|levels| levels.get_mut(level)) else {
        return;
    };
    let Some(old) = level.share else { return };
    let share: Range = std::array::from_fn(|end| new(old[end], end));
    let growth = share[1] / old[1].max(f64::MIN_POSITIVE);
    level.share = Some(share);
    level.count = level.count.map(|count| count.map(|misses| misses * growth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::object_map::Sampled;
    use crate::misses::{LevelMisses, Misses};
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

    /// A site with `loads` in `lines` lines of `logged` blocks, each of which has the same weight.
    fn of_site(loads: u64, (logged, lines): (u64, u64), weight: f64) -> AllBlocks {
        let bytes = 32.0 * logged as f64;
        let seen = Sampled {
            logged,
            bytes,
            stand_for: bytes * weight,
            weights_squared: bytes * weight * weight,
        };
        AllBlocks::of(seen, (loads, 0.0), lines)
    }

    #[test]
    fn loads_of_the_heap_are_divided_by_what_logged_blocks_stand_for() {
        let site = |loads, logged, weight| Some(of_site(loads, (logged, loads), weight));
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
        let site = |loads, loaded, weight| Some(of_site(loads, (loaded, loaded), weight));
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
        let site = of_site(60, (100, 60), 100.0);
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

    /// A site and the heap as a whole, each with a share of the time.
    fn times_of(site: AllBlocks, of_runs: Option<(f64, f64)>) -> [ObjectRow; 2] {
        let mut rows = [
            row("heap", "make a.c:4", 60, Some(site)),
            row("heap", "[heap]", 5940, None),
        ];
        for (row, pct) in rows.iter_mut().zip([0.0, 50.0]) {
            row.time = TimeShare {
                value: Some(pct),
                lo: Some(pct),
                hi: Some(pct + 1.0),
                of_runs,
            };
        }
        divide(&mut rows, 6000);
        rows
    }

    /// Two runs of one program log different blocks, so the time of a site differs by their number.
    #[test]
    fn the_time_of_few_logged_blocks_differs_from_run_to_run() {
        let ends = |site: AllBlocks| {
            let [make, _] = times_of(site, Some((45.0, 55.0)));
            let (lo, hi) = make.time.of_runs.unwrap();
            let value = make.time.value.unwrap();
            assert!(lo <= value && value <= hi);
            hi / lo
        };
        let (many, few) = (of_site(60, (100, 60), 100.0), of_site(60, (8, 8), 100.0));
        assert!(ends(few) > 2.0 * ends(many), "{} {}", ends(few), ends(many));
        // The loads may be in the blocks with the greatest or in those with the least weight.
        let uneven = Sampled {
            logged: 1000,
            bytes: 32_000.0,
            stand_for: 3_200_000.0,
            weights_squared: 640_000_000.0,
        };
        let uneven = AllBlocks::of(uneven, (6000, 0.0), 1000);
        let even = of_site(6000, (1000, 1000), 100.0);
        assert!(ends(uneven) > 2.0 * ends(even));
        // All loads are in one of many blocks.
        let one = Sampled {
            logged: 100,
            bytes: 3200.0,
            stand_for: 320_000.0,
            weights_squared: 32_000_000.0,
        };
        let one = AllBlocks::of(one, (60, 3600.0), 60);
        assert!(ends(one) > 2.0 * ends(many));
        // Too few blocks, or no interval of the heap: nothing is known of another run.
        let [make, _] = times_of(of_site(3, (3, 3), 100.0), Some((45.0, 55.0)));
        assert_eq!(make.time.of_runs, None);
        let [make, _] = times_of(many, None);
        assert_eq!(make.time.of_runs, None);
    }

    /// Misses in blocks that were not logged are those of their site.
    #[test]
    fn the_misses_of_the_heap_are_those_of_its_sites() {
        let misses = |share: f64| {
            let level = LevelMisses {
                share: Some([share; 3]),
                count: Some([1000.0 * share; 3]),
                ..LevelMisses::default()
            };
            Misses {
                levels: vec![level],
                ..Misses::default()
            }
        };
        let mut rows = [
            row("heap", "make a.c:4", 60, Some(of_site(60, (100, 60), 50.0))),
            row("heap", "[heap]", 5940, None),
            row("global", "table", 100, None),
        ];
        for (row, share) in rows.iter_mut().zip([0.01, 0.89, 0.1]) {
            row.misses = Some(misses(share));
        }
        divide(&mut rows, 6100);
        let of = |n: usize| share_at(&rows[n], 0).unwrap();
        assert!((of(0)[1] - 0.5).abs() < 1e-9, "{:?}", of(0));
        assert!(of(0)[0] < 0.5 && of(0)[2] > 0.5, "{:?}", of(0));
        assert!((of(1)[1] - 0.4).abs() < 1e-9, "{:?}", of(1));
        assert!((of(2)[1] - 0.1).abs() < 1e-9, "{:?}", of(2));
        let count = rows[0].misses.as_ref().unwrap().levels[0].count.unwrap();
        assert!((count[1] - 500.0).abs() < 1e-6, "{count:?}");
    }
}
