//! How fast the code of windows runs when it is not recorded, from the measurements that the runtime makes behind some of them
//! (`collector/runtime/src/pace.rs`).
//!
//! A measurement takes so many nanoseconds for so many records, and its own cost besides. That cost is what the *near* measurements of the run take in the middle. What is left, by
//! record, is pooled over the windows that have most of their loads in the same function, likewise. Watched measurements are noisy and without bias; laps are of code that records, which
//! takes one to ten times as long, so they tell less. Both are pooled as logarithms, weighted by their errors.
//! Functions without a measurement are taken to be like the others.
//!
//! What the errors are, and what a lap says of the original code, comes from a comparison with `ring`, which counts, over the kernels of `benches/`, gzip, bzip2, xz and python3
//! (0.25 to 8 ns a record).

use super::windows::Window;
use mgz_annotations_schema::spill::pace;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the speed of a window's code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    /// Nanoseconds for a load of the original code.
    pub ns_per_load: f64,
    /// Its 95 % interval reaches from 1 / (1 + this) to (1 + this) times the value.
    pub error: f64,
    /// `watched`, `lap` or `others`.
    pub source: &'static str,
}

/// Nanoseconds that recording usually adds to a record of a lap: 0 to 4 where code is bound by throughput or waits for memory. Calls through hooks add more: code that does little
/// else (interpreters) may be several times as fast as is reckoned here.
const ADDED: f64 = 1.8;
/// Of what a lap takes per record, the original takes this share at least.
const LEAST_SHARE: f64 = 0.25;
/// Of a lap's nanoseconds per record, `l`, the original takes about `LAP_SCALE · l^LAP_POWER`: a regression of logarithms, which underrates slow code as much as the difference
/// overrates fast code. The geometric mean of both is taken.
const LAP_SCALE: f64 = 0.17;
/// See [`LAP_SCALE`].
const LAP_POWER: f64 = 1.5;
/// Standard deviation of the logarithm of that.
const LAP_SIGMA: f64 = 0.9;
/// Standard deviation of the logarithm of what was watched, however often: what runs behind a window is not quite the window's code.
const WATCHED_SIGMA: f64 = 0.45;
/// A record takes this long at least, nanoseconds: a third of a cycle, the share of a load where three are done in each.
const LEAST: f64 = 0.1;
/// Nanoseconds that a record of the original code usually takes: the middle of the same programs.
const USUAL: f64 = 0.7;
/// Standard deviation of the logarithm of that.
const USUAL_SIGMA: f64 = 1.0;
/// Times that costs and speeds are found from each other: enough for a thousandth where near ways are an eighth of the others.
const ROUNDS: usize = 4;
/// What was watched cannot take longer than code that records; so many times a lap's nanoseconds are let pass as noise.
const SLOWER: f64 = 1.1;

/// The kind's name in `windows.parquet`.
pub(super) fn name(kind: u8) -> &'static str {
    match kind {
        pace::WATCHED => "watched",
        pace::WATCHED_NEAR => "watched_near",
        pace::LAP => "lap",
        pace::LAP_NEAR => "lap_near",
        _ => "none",
    }
}

/// Speeds of all windows; `None` for all if nothing was measured.
pub(super) fn speeds(windows: &[Window]) -> Vec<Option<Speed>> {
    let laps = by_function(windows, pace::LAP, pace::LAP_NEAR, &BTreeMap::new());
    let watched = by_function(windows, pace::WATCHED, pace::WATCHED_NEAR, &laps);
    let codes: BTreeSet<(u16, u32)> = watched.keys().chain(laps.keys()).copied().collect();
    let functions: BTreeMap<(u16, u32), Pooled> = codes.into_iter().map(|code| (code, pooled(watched.get(&code).copied(), laps.get(&code).copied()))).collect();
    let others = median(&mut windows.iter().filter_map(|w| functions.get(&w.code).map(|f| f.ns)).collect::<Vec<_>>());
    let others = others.map(|ns| Pooled { ns, sigma: USUAL_SIGMA, source: "others" });
    let of = |w: &Window| {
        let Pooled { ns, sigma, source } = functions.get(&w.code).copied().or(others)?;
        // Records of the code in this window, by load.
        (w.loads > 0).then(|| Speed { ns_per_load: ns * f64::from(w.records) / f64::from(w.loads), error: (1.96 * sigma).exp_m1(), source })
    };
    windows.iter().map(of).collect()
}

/// What is known of a function.
#[derive(Clone, Copy)]
struct Pooled {
    /// Nanoseconds for a record of the original code.
    ns: f64,
    /// Standard error of the logarithm of that.
    sigma: f64,
    source: &'static str,
}

/// Both kinds of measurement are (nanoseconds, standard error).
fn pooled(watched: Option<(f64, f64)>, lap: Option<(f64, f64)>) -> Pooled {
    let log = |(ns, error): (f64, f64), sigma: f64| (ns.max(LEAST).ln(), sigma.hypot(error / ns.max(LEAST)));
    let watched = watched.map(|w| log(w, WATCHED_SIGMA));
    let bare = |lap: f64| ((lap - ADDED).max(LEAST_SHARE * lap) * (LAP_SCALE * lap.powf(LAP_POWER)).min(lap)).sqrt();
    let lap = lap.map(|(ns, error)| log((bare(ns.max(LEAST)), error), LAP_SIGMA));
    let (mut weights, mut sum) = (0.0, 0.0);
    let mut add = |(value, sigma): (f64, f64)| {
        weights += sigma.powi(-2);
        sum += value * sigma.powi(-2);
        weights
    };
    let measured = [watched, lap].into_iter().flatten().map(&mut add).last().unwrap_or(0.0);
    // What is usual counts for little beside a good measurement; where there is no lap, or all drowns in noise, it is better than nothing.
    if lap.is_none() || measured < USUAL_SIGMA.powi(-2) {
        add((USUAL.ln(), USUAL_SIGMA));
    }
    let source = if watched.is_some() { "watched" } else if lap.is_some() { "lap" } else { "others" };
    Pooled { ns: (sum / weights).exp().max(LEAST), sigma: weights.powf(-0.5), source }
}

/// By function: nanoseconds by record, and the standard error of that. `bounds` has functions of which it is known what they take at most.
fn by_function(windows: &[Window], far: u8, near: u8, bounds: &BTreeMap<(u16, u32), (f64, f64)>) -> BTreeMap<(u16, u32), (f64, f64)> {
    let of = |kind| windows.iter().filter(move |w| w.pace.kind == kind && w.pace.records > 0);
    let (ns, records) = (|w: &Window| f64::from(w.pace.ns), |w: &Window| f64::from(w.pace.records));
    let Some((mut cost, mut cost_error)) = typical(&mut of(near).map(ns).collect::<Vec<_>>()) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    // The near ones have some records as well: cost and speeds are found in turns.
    for _ in 0..ROUNDS {
        let mut measured: BTreeMap<(u16, u32), Vec<(f64, f64)>> = BTreeMap::new();
        for w in of(far) {
            // Nor is the window itself, recorded and cold, faster than the code by itself: what took longer has gone another way.
            let own = 1.5 * w.end_ns.saturating_sub(w.begin_ns) as f64 / f64::from(w.records.max(1));
            if (ns(w) - cost) / records(w) <= bounds.get(&w.code).map_or(own, |b| SLOWER * b.0) {
                measured.entry(w.code).or_default().push((ns(w), records(w)));
            }
        }
        found = measured.into_iter().filter_map(|(code, list)| Some((code, speed_of(&list, cost, cost_error)?))).collect();
        let usual = median(&mut found.values().map(|f: &(f64, f64)| f.0).collect::<Vec<_>>()).unwrap_or(0.0);
        let costs = of(near).map(|w| ns(w) - records(w) * found.get(&w.code).map_or(usual, |f| f.0).max(0.0));
        let Some(next) = typical(&mut costs.collect::<Vec<_>>()) else { break };
        (cost, cost_error) = (next.0.max(0.0), next.1);
    }
    found
}

/// The speed of a function from its measurements (nanoseconds, records). Where all drowns in the cost's noise it may be negative, with an error to match.
fn speed_of(list: &[(f64, f64)], cost: f64, cost_error: f64) -> Option<(f64, f64)> {
    let (ns, own_error) = typical(&mut list.iter().map(|(ns, records)| (ns - cost) / records).collect::<Vec<_>>())?;
    // The error of the cost counts for less, the longer the measured ways are.
    let (records, _) = typical(&mut list.iter().map(|l| l.1).collect::<Vec<_>>())?;
    Some((ns, own_error.hypot(cost_error / records)))
}

/// The middle of what was measured, and its standard error by how far half of it lies from there: some are interrupted.
fn typical(list: &mut [f64]) -> Option<(f64, f64)> {
    /// Standard deviations in the middle of absolute deviations, for a normal distribution; and of a median in those of a mean.
    const BY_MIDDLE: f64 = 1.4826 * 1.2533;
    let value = median(list)?;
    let middle = median(&mut list.iter().map(|x| (x - value).abs()).collect::<Vec<_>>())?;
    // One or two measurements may be anything.
    let spread = if list.len() < 3 { 0.5 * value.abs() } else { (BY_MIDDLE * middle).max(0.02 * value.abs()) };
    Some((value, spread / (list.len() as f64).sqrt()))
}

fn median(list: &mut [f64]) -> Option<f64> {
    let middle = list.len() / 2;
    (!list.is_empty()).then(|| *list.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// How many executed loads each load of a window stands for: a window stands for `ns` of its thread's time in instrumented code, of which it took some itself. `None` where its speed is not known.
pub(super) fn stands_for(window: &Window, speed: Option<&Speed>, ns: f64) -> Option<f64> {
    let elsewhere = (ns - window.end_ns.saturating_sub(window.begin_ns) as f64).max(ns / 2.0);
    Some(1.0 + elsewhere / speed?.ns_per_load / f64::from(window.loads.max(1)))
}

/// Loads that were executed in instrumented code, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executed {
    /// The estimate.
    pub loads: f64,
    /// Its 95 % interval, as far as it comes from the speeds, reaches from 1 / (1 + this) to (1 + this) times the estimate.
    pub error: f64,
}

/// From windows, what each of their loads stands for, and their speeds. `None` where those are not known.
pub(super) fn executed(windows: &[Window], stand_for: &[Option<f64>], speeds: &[Option<Speed>]) -> Option<Executed> {
    let (mut loads, mut errors) = (0.0, 0.0);
    for ((window, weight), speed) in windows.iter().zip(stand_for).zip(speeds) {
        let here = f64::from(window.loads) * (*weight)?;
        loads += here;
        errors += here * speed.as_ref()?.error;
    }
    (loads > 0.0).then(|| Executed { loads, error: errors / loads })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::spill::{Pace, ThreadKey};

    fn window(function: u32, loads: u32, kind: u8, records: u32, ns: u32) -> Window {
        Window {
            key: ThreadKey::default(),
            sample: 0,
            records: 1000,
            loads,
            begin_ns: 0,
            end_ns: 5_000,
            cause: 0,
            code: (0, function),
            pace: Pace { kind, records, ns },
        }
    }

    #[test]
    fn functions_have_the_speed_that_was_watched_less_its_cost() {
        let mut list: Vec<Window> = (0..5).map(|k| window(1, 2000, pace::WATCHED, 10_000, 15_000 + 20_000 + 100 * k)).collect();
        list.extend((0..3).map(|k| window(1, 2000, pace::WATCHED_NEAR, 512, 15_000 + 1024 + 100 * k)));
        // One that was met by another way.
        list.push(window(1, 2000, pace::WATCHED, 10_000, 4_000_000));
        list.extend((0..4).map(|k| window(2, 1000, pace::LAP, 2048, 2_000 + 3 * 2048 + 10 * k)));
        list.extend((0..3).map(|_| window(2, 1000, pace::LAP_NEAR, 256, 2_000 + 3 * 256)));
        list.push(window(3, 1000, pace::NONE, 0, 0));
        let speeds = speeds(&list);
        // 2 ns a record, two loads a record.
        let first = speeds[0].unwrap();
        assert!((0.8..1.02).contains(&first.ns_per_load) && (0.5..1.6).contains(&first.error) && first.source == "watched", "{first:?}");
        // 3 ns in a lap are one in the original, give or take, and less than three.
        let lap = speeds[9].unwrap();
        assert!((0.9..1.2).contains(&lap.ns_per_load) && (4.0..6.0).contains(&lap.error) && lap.source == "lap", "{lap:?}");
        assert_eq!(speeds[16].unwrap().source, "others");
        // Nine windows of function 1 at about 1 ns a load, each for a millisecond: about a million loads each.
        let stand_for: Vec<_> = list.iter().zip(&speeds).map(|(w, s)| stands_for(w, s.as_ref(), 1e6)).collect();
        let all = executed(&list[..9], &stand_for, &speeds).unwrap();
        assert!((0.95..1.25).contains(&(all.loads / 9e6)) && (first.error - all.error).abs() < 1e-9, "{all:?}");
    }

    #[test]
    fn nothing_measured_is_nothing_known() {
        let list = [window(1, 1000, pace::NONE, 0, 0), window(1, 1000, pace::WATCHED, 1000, 30_000)];
        // Without a near one its cost is not known.
        let found = speeds(&list);
        assert_eq!(found, [None, None]);
        assert_eq!(executed(&list, &[None, None], &found), None);
        assert_eq!(executed(&[], &[], &[]), None);
    }
}
