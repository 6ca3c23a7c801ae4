//! How fast the code of windows runs when it is not recorded, from the measurements that the
//! runtime makes behind some of them (`collector/runtime/src/record/speed_probe.rs`).
//!
//! A measurement takes so many nanoseconds for so many records, and its own cost besides. That cost
//! is what the *near* measurements of the run take in the middle. What is left, by record, is
//! pooled over the windows that end in the same function, likewise. Watched measurements are noisy;
//! laps are of code that records, which takes longer, by what is known roughly: so they tell a lot
//! of slow code and little of fast code. Both are pooled as logarithms, weighted by their errors.
//! Functions without a measurement are taken to be like the others. Where windows lead from one
//! function to another, that tells how their speeds compare (`balance`).
//!
//! What the errors are, and what a lap says of the original code, comes from a comparison with
//! `ring`, which counts, and the time that programs take by themselves: by function, over community
//! detection, page rank, connected components, layers, kernels of `benches/`, gzip, mawk, perl and
//! python3 (0.2 to 10 ns a record).

use crate::convert::speed::balance::{Rate, balanced};
use crate::convert::windows::{Code, Window};
use mgz_annotations_schema::spill::{cause, pace};
use mgz_annotations_schema::window_loads;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the speed of a window's code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// Nanoseconds for a load of the original code.
    pub ns_per_load: f64,
    /// Its 95 % interval reaches from 1 / (1 + this) to (1 + this) times the value.
    pub error: f64,
    /// `watched`, `lap`, `others` or `balance`.
    pub source: &'static str,
}

/// Nanoseconds that recording usually adds to a record of a lap, and their standard deviation: 0
/// where the original waits for memory, 1 to 2.5 elsewhere.
const ADDED: [f64; 2] = [1.2, 0.9];
/// Nanoseconds that it adds where a lap goes from one function to another, by a call or a return,
/// through a hook: where there are few ways from function to function, and many. A processor
/// foresees where the hook's jump leads as long as there are few.
const ADDED_BY_CHANGE: [f64; 2] = [1.0, 11.0];
/// How many are few, and many. What lies between is in proportion.
const WAYS: [f64; 2] = [10.0, 35.0];
/// Standard deviation of the latter, as a share of it.
const CHANGE_SIGMA: f64 = 0.5;
/// Of what a lap takes per record, the original takes this share at least.
const LEAST_SHARE: f64 = 0.15;
/// Standard deviation of the logarithm of what is left, besides: recording evicts the program's
/// data, and the code behind a window is not quite the window's.
const LAP_SIGMA: f64 = 0.4;
/// What is left of a lap that recording has taken most of tells no less than this: the logarithm's
/// standard deviation.
const LAP_SIGMA_MOST: f64 = 1.0;
/// Standard deviation of the logarithm of what was watched, however often: what runs behind a
/// window is not quite the window's code.
const WATCHED_SIGMA: f64 = 0.4;
/// A record takes this long at least, nanoseconds: a third of a cycle, the share of a load where
/// three are done in each.
const LEAST: f64 = 0.1;
/// Nanoseconds that a record of the original code usually takes: the middle of the same programs.
/// Known before anything is measured, and never forgotten: measurements that drown in noise
/// count for little beside it, good ones much more.
const USUAL: f64 = 0.8;
/// Standard deviation of the logarithm of that.
const USUAL_SIGMA: f64 = 1.0;
/// Functions whose windows are balanced one by one; those that fewest windows begin and end in are
/// taken together.
const BALANCED: usize = 128;
/// Times that costs and speeds are found from each other: enough for a thousandth where near ways
/// are an eighth of the others.
const ROUNDS: usize = 4;
/// What was watched cannot take longer than code that records; so many times a lap's nanoseconds
/// are let pass as noise.
const SLOWER: f64 = 1.1;

/// The kind's name in `windows.parquet`.
pub(crate) fn name(kind: u8) -> &'static str {
    match kind {
        pace::WATCHED => "watched",
        pace::WATCHED_NEAR => "watched_near",
        pace::LAP => "lap",
        pace::LAP_NEAR => "lap_near",
        _ => "none",
    }
}

/// Speeds of all windows, by where they begin; `None` for all if nothing was measured.
pub(crate) fn speeds(windows: &[Window]) -> Vec<Option<Speed>> {
    let functions = measured(windows);
    let others = median(
        &mut windows
            .iter()
            .filter_map(|w| functions.get(&w.last).map(|f| f.ns))
            .collect::<Vec<_>>(),
    );
    let Some(others) = others.map(|ns| Pooled {
        ns,
        sigma: USUAL_SIGMA,
        source: "others",
    }) else {
        return vec![None; windows.len()];
    };
    let numbers = numbers(windows);
    let number = |code: &Code| numbers.get(code).copied().unwrap_or(numbers.len());
    let mut known = vec![others; numbers.len() + 1];
    numbers
        .iter()
        .for_each(|(code, &number)| known[number] = functions.get(code).copied().unwrap_or(others));
    let moves: Vec<(usize, usize)> = windows
        .iter()
        .filter(|w| w.cause == cause::WHOLE)
        .map(|w| (number(&w.first), number(&w.last)))
        .collect();
    let rates: Vec<Rate> = known
        .iter()
        .map(|p| Rate {
            log: -p.ns.ln(),
            sigma: p.sigma,
        })
        .collect();
    for (known, rate) in known.iter_mut().zip(balanced(&moves, &rates)) {
        // The greater part of what is known then.
        let source = if rate.sigma < known.sigma * std::f64::consts::FRAC_1_SQRT_2 {
            "balance"
        } else {
            known.source
        };
        *known = Pooled {
            ns: (-rate.log).exp().max(LEAST),
            sigma: rate.sigma,
            source,
        };
    }
    let of = |w: &Window| {
        let Pooled { ns, sigma, source } = known[number(&w.first)];
        // Records of the code in this window, by load.
        (w.loads > 0).then(|| Speed {
            ns_per_load: ns * f64::from(w.records) / f64::from(w.loads),
            error: (1.96 * sigma).exp_m1(),
            source,
        })
    };
    windows.iter().map(of).collect()
}

/// Numbers of the functions that most windows begin and end in.
fn numbers(windows: &[Window]) -> BTreeMap<Code, usize> {
    let mut ends: BTreeMap<Code, usize> = BTreeMap::new();
    windows
        .iter()
        .flat_map(|w| [w.first, w.last])
        .for_each(|code| *ends.entry(code).or_default() += 1);
    let mut list: Vec<(usize, Code)> = ends.into_iter().map(|(code, n)| (n, code)).collect();
    list.sort_unstable_by_key(|&(n, code)| (std::cmp::Reverse(n), code));
    list.into_iter()
        .take(BALANCED)
        .enumerate()
        .map(|(number, (_, code))| (code, number))
        .collect()
}

/// What the measurements tell, by function.
fn measured(windows: &[Window]) -> BTreeMap<Code, Pooled> {
    let laps = by_function(windows, pace::LAP, pace::LAP_NEAR, &BTreeMap::new());
    let watched = by_function(windows, pace::WATCHED, pace::WATCHED_NEAR, &laps);
    let changes = changes(windows);
    let codes: BTreeSet<Code> = watched.keys().chain(laps.keys()).copied().collect();
    let known = |code| {
        let lap = laps
            .get(&code)
            .map(|&lap| (lap, changes.get(&code).copied().unwrap_or_default()));
        (code, pooled(watched.get(&code).copied(), lap))
    };
    codes.into_iter().map(known).collect()
}

/// How often windows that end in a function go from one to another.
#[derive(Clone, Copy, Default)]
struct Changes {
    /// By record.
    rate: f64,
    /// By so many ways, usually.
    ways: f64,
}

impl Changes {
    /// Nanoseconds that they add to a record of a lap.
    fn added(self) -> f64 {
        let [few, many] = ADDED_BY_CHANGE;
        self.rate
            * (few + (many - few) * ((self.ways - WAYS[0]) / (WAYS[1] - WAYS[0])).clamp(0.0, 1.0))
    }
}

fn changes(windows: &[Window]) -> BTreeMap<Code, Changes> {
    let mut lists: BTreeMap<Code, Vec<&Window>> = BTreeMap::new();
    windows
        .iter()
        .for_each(|w| lists.entry(w.last).or_default().push(w));
    let of = |list: Vec<&Window>| {
        let sum = |of: fn(&Window) -> u32| list.iter().map(|w| u64::from(of(w))).sum::<u64>();
        let ways =
            median(&mut list.iter().map(|w| f64::from(w.ways)).collect::<Vec<_>>()).unwrap_or(0.0);
        Changes {
            rate: sum(|w| w.changes) as f64 / sum(|w| w.records).max(1) as f64,
            ways,
        }
    };
    lists
        .into_iter()
        .map(|(code, list)| (code, of(list)))
        .collect()
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
fn pooled(watched: Option<(f64, f64)>, lap: Option<((f64, f64), Changes)>) -> Pooled {
    let source = if watched.is_some() {
        "watched"
    } else if lap.is_some() {
        "lap"
    } else {
        "others"
    };
    let watched = watched.map(|(ns, error)| {
        let ns = ns.max(LEAST);
        (ns.ln(), WATCHED_SIGMA.hypot(error / ns))
    });
    let lap = lap.map(|((ns, error), changes)| {
        let ns = ns.max(LEAST);
        let bare = (ns - ADDED[0] - changes.added()).max(LEAST_SHARE * ns);
        let unsure = error.hypot(ADDED[1]).hypot(CHANGE_SIGMA * changes.added());
        (
            bare.ln(),
            LAP_SIGMA.hypot(unsure / bare).min(LAP_SIGMA_MOST),
        )
    });
    let all = [watched, lap, Some((USUAL.ln(), USUAL_SIGMA))];
    let (weights, sum) = all
        .into_iter()
        .flatten()
        .fold((0.0, 0.0), |(weights, sum), (value, sigma)| {
            (weights + sigma.powi(-2), sum + value * sigma.powi(-2))
        });
    Pooled {
        ns: (sum / weights).exp().max(LEAST),
        sigma: weights.powf(-0.5),
        source,
    }
}

/// By function: nanoseconds by record, and the standard error of that. `bounds` has functions of
/// which it is known what they take at most.
fn by_function(
    windows: &[Window],
    far: u8,
    near: u8,
    bounds: &BTreeMap<Code, (f64, f64)>,
) -> BTreeMap<Code, (f64, f64)> {
    let of = |kind| {
        windows
            .iter()
            .filter(move |w| w.pace.kind == kind && w.pace.records > 0)
    };
    let (ns, records) = (
        |w: &Window| f64::from(w.pace.ns),
        |w: &Window| f64::from(w.pace.records),
    );
    let Some((mut cost, mut cost_error)) = typical(&mut of(near).map(ns).collect::<Vec<_>>())
    else {
        return BTreeMap::new();
    };
    let nears = (of(near).count() as f64).sqrt();
    let mut found = BTreeMap::new();
    // The near ones have some records as well: cost and speeds are found in turns.
    for _ in 0..ROUNDS {
        let mut measured: BTreeMap<Code, Vec<(f64, f64)>> = BTreeMap::new();
        for w in of(far) {
            // Nor is the window itself, recorded and cold, faster than the code by itself: what
            // took longer has gone another way.
            let own =
                1.5 * w.end_ns.saturating_sub(w.begin_ns) as f64 / f64::from(w.records.max(1));
            if (ns(w) - cost) / records(w) <= bounds.get(&w.last).map_or(own, |b| SLOWER * b.0) {
                measured
                    .entry(w.last)
                    .or_default()
                    .push((ns(w), records(w)));
            }
        }
        found = measured
            .into_iter()
            .filter_map(|(code, list)| {
                Some((code, speed_of(&list, cost, cost_error, cost_error * nears)?))
            })
            .collect();
        let usual = median(&mut found.values().map(|f: &(f64, f64)| f.0).collect::<Vec<_>>())
            .unwrap_or(0.0);
        let costs = of(near)
            .map(|w| ns(w) - records(w) * found.get(&w.last).map_or(usual, |f| f.0).max(0.0));
        let Some(next) = typical(&mut costs.collect::<Vec<_>>()) else {
            break;
        };
        (cost, cost_error) = (next.0.max(0.0), next.1);
    }
    found
}

/// The speed of a function from its measurements (nanoseconds, records). Where all drowns in the
/// cost's noise it may be negative, with an error to match. `noise`: of a single measurement,
/// nanoseconds. (Few of them may agree by chance.)
fn speed_of(list: &[(f64, f64)], cost: f64, cost_error: f64, noise: f64) -> Option<(f64, f64)> {
    let (ns, own_error) = typical(
        &mut list
            .iter()
            .map(|(ns, records)| (ns - cost) / records)
            .collect::<Vec<_>>(),
    )?;
    // The error of the cost counts for less, the longer the measured ways are.
    let (records, _) = typical(&mut list.iter().map(|l| l.1).collect::<Vec<_>>())?;
    let own_error = own_error.max(noise / records / (list.len() as f64).sqrt());
    Some((ns, own_error.hypot(cost_error / records)))
}

/// The middle of what was measured, and its standard error by how far half of it lies from there:
/// some are interrupted.
fn typical(list: &mut [f64]) -> Option<(f64, f64)> {
    /// Standard deviations in the middle of absolute deviations, for a normal distribution; and of
    /// a median in those of a mean.
    const BY_MIDDLE: f64 = 1.4826 * 1.2533;
    let value = median(list)?;
    let middle = median(&mut list.iter().map(|x| (x - value).abs()).collect::<Vec<_>>())?;
    // One or two measurements may be anything.
    let spread = if list.len() < 3 {
        0.5 * value.abs()
    } else {
        (BY_MIDDLE * middle).max(0.02 * value.abs())
    };
    Some((value, spread / (list.len() as f64).sqrt()))
}

fn median(list: &mut [f64]) -> Option<f64> {
    let middle = list.len() / 2;
    (!list.is_empty()).then(|| *list.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// How many executed loads each load of a window stands for: a window stands for `ns` of its
/// thread's time in instrumented code, of which triggers took `toll` and it took some itself.
/// `None` where its speed is not known.
pub(crate) fn stands_for(
    window: &Window,
    speed: Option<&Speed>,
    ns: f64,
    toll: f64,
) -> Option<f64> {
    let own = ns - toll;
    let elsewhere = (own - window.end_ns.saturating_sub(window.begin_ns) as f64).max(own / 2.0);
    Some(1.0 + elsewhere / speed?.ns_per_load / f64::from(window.loads.max(1)))
}

/// Relative error of an estimate from what triggers leave of the time: their cost is known to about
/// a third.
pub(crate) fn toll_error(ns: f64, toll: f64) -> f64 {
    const UNKNOWN: f64 = 0.33;
    UNKNOWN * toll / (ns - toll).max(f64::MIN_POSITIVE)
}

/// Loads that were executed in instrumented code, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executed {
    /// The estimate.
    pub loads: f64,
    /// Its 95 % interval, as far as it comes from the speeds, reaches from 1 / (1 + this) to (1 +
    /// this) times the estimate.
    pub error: f64,
}

/// Loads that were executed, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExecutedLoads {
    /// Where the speed of all code was measured.
    pub known: Option<Executed>,
    /// Where code that was not measured is taken to be like other code.
    pub assumed: Option<Executed>,
}

/// The error of what a window stands for: that of its speed, and that of what triggers took of its
/// time (nanoseconds, and the triggers').
pub(crate) fn stands_for_error(speed: &Speed, (ns, toll): (f64, f64)) -> f64 {
    window_loads::both(speed.error, toll_error(ns, toll))
}

/// From windows, what each of their loads stands for, the errors of that, and their speeds. `None`
/// unless all speeds were measured in the windows' own code.
pub(crate) fn known(
    windows: &[Window],
    stand_for: &[Option<f64>],
    speeds: &[Option<Speed>],
    errors: &[Option<f64>],
) -> Option<Executed> {
    let each = windows.iter().zip(stand_for).zip(speeds.iter().zip(errors));
    let each = each.map(|((window, weight), (speed, error))| {
        let own = speed.as_ref().filter(|s| window_loads::is_own(s.source));
        own.and_then(|_| Some((f64::from(window.loads) * (*weight)?, (*error)?)))
    });
    let (loads, error) = window_loads::executed(each)?;
    Some(Executed { loads, error })
}

/// The same with windows whose speed is that of other code; `error`: what comes on top of the
/// speeds' errors. `None` where nothing was measured.
pub(crate) fn assumed(
    windows: &[Window],
    stand_for: &[Option<f64>],
    speeds: &[Option<Speed>],
    error: f64,
) -> Option<Executed> {
    let (mut loads, mut errors) = (0.0, 0.0);
    for ((window, weight), speed) in windows.iter().zip(stand_for).zip(speeds) {
        let here = f64::from(window.loads) * (*weight)?;
        loads += here;
        errors += here * speed.as_ref()?.error;
    }
    (loads > 0.0).then(|| Executed {
        loads,
        error: errors / loads + error,
    })
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
            changes: 0,
            ways: 0,
            begin_ns: 0,
            end_ns: 5_000,
            cause: 0,
            first: (0, function),
            last: (0, function),
            pace: Pace { kind, records, ns },
            period: 0,
        }
    }

    #[test]
    fn functions_have_the_speed_that_was_watched_less_its_cost() {
        let mut list: Vec<Window> = (0..5)
            .map(|k| window(1, 2000, pace::WATCHED, 10_000, 15_000 + 20_000 + 100 * k))
            .collect();
        list.extend(
            (0..3).map(|k| window(1, 2000, pace::WATCHED_NEAR, 512, 15_000 + 1024 + 100 * k)),
        );
        // One that was met by another way.
        list.push(window(1, 2000, pace::WATCHED, 10_000, 4_000_000));
        list.extend((0..4).map(|k| window(2, 1000, pace::LAP, 2048, 2_000 + 3 * 2048 + 10 * k)));
        list.extend((0..3).map(|_| window(2, 1000, pace::LAP_NEAR, 256, 2_000 + 3 * 256)));
        list.push(window(3, 1000, pace::NONE, 0, 0));
        let speeds = speeds(&list);
        // 2 ns a record, two loads a record.
        let first = speeds[0].unwrap();
        assert!(
            (0.8..1.02).contains(&first.ns_per_load)
                && (0.5..1.6).contains(&first.error)
                && first.source == "watched",
            "{first:?}"
        );
        // 3 ns in a lap are two in the original, give or take; or less, since usually it is less.
        let lap = speeds[9].unwrap();
        assert!(
            (1.3..1.75).contains(&lap.ns_per_load)
                && (1.2..2.0).contains(&lap.error)
                && lap.source == "lap",
            "{lap:?}"
        );
        assert_eq!(speeds[16].unwrap().source, "others");
        let known = |to: usize| {
            let own = vec![Some(10.0); to];
            let errors: Vec<_> = speeds[..to]
                .iter()
                .map(|s| Some(stands_for_error(s.as_ref()?, (1e6, 0.0))))
                .collect();
            super::known(&list[..to], &own, &speeds[..to], &errors)
        };
        // What was measured of its own code is known, with the greatest of the errors; with code
        // that was not measured nothing is.
        let own = known(16).unwrap();
        assert!(own.loads == 9.0 * 20_000.0 + 7.0 * 10_000.0 && own.error >= lap.error);
        assert_eq!(known(17), None);
        // Nine windows of function 1 at about 1 ns a load, each for a millisecond: about a million
        // loads each.
        let stand_for: Vec<_> = list
            .iter()
            .zip(&speeds)
            .map(|(w, s)| stands_for(w, s.as_ref(), 1e6, 0.0))
            .collect();
        let all = assumed(&list[..9], &stand_for, &speeds, 0.0).unwrap();
        assert!(
            (0.95..1.25).contains(&(all.loads / 9e6)) && (first.error - all.error).abs() < 1e-9,
            "{all:?}"
        );
        // Triggers that take half of the time leave half of the loads, less surely so.
        let stand_for: Vec<_> = list
            .iter()
            .zip(&speeds)
            .map(|(w, s)| stands_for(w, s.as_ref(), 1e6, 5e5))
            .collect();
        let half = assumed(&list[..9], &stand_for, &speeds, toll_error(1e6, 5e5)).unwrap();
        assert!(
            (0.49..0.51).contains(&(half.loads / all.loads)) && half.error > all.error + 0.3,
            "{half:?}"
        );
    }

    /// Laps of a function, of `ns` a record.
    fn laps(function: u32, ns: u32, changes: u32, ways: u32) -> impl Iterator<Item = Window> {
        let far = (0..4)
            .map(move |k| window(function, 1000, pace::LAP, 2048, 2_000 + ns * 2048 + 10 * k));
        let near =
            (0..3).map(move |_| window(function, 1000, pace::LAP_NEAR, 256, 2_000 + ns * 256));
        far.chain(near).map(move |w| Window {
            changes,
            ways,
            end_ns: 30_000,
            ..w
        })
    }

    #[test]
    fn calls_that_nobody_foresees_are_what_makes_a_lap_slow() {
        let list: Vec<Window> = laps(1, 4, 0, 0)
            .chain(laps(2, 4, 150, 80))
            .chain(laps(3, 4, 150, 4))
            .collect();
        let speeds = speeds(&list);
        let [plain, calling, foreseen] = [0, 7, 14].map(|k| speeds[k].unwrap().ns_per_load);
        assert!(
            (1.9..2.8).contains(&plain)
                && (0.8..1.4).contains(&calling)
                && (0.9 * plain..plain).contains(&foreseen),
            "{plain} {calling} {foreseen}"
        );
    }

    #[test]
    fn laps_tell_a_lot_of_slow_code_and_little_of_fast_code() {
        let list: Vec<Window> = laps(1, 2, 0, 0).chain(laps(2, 15, 0, 0)).collect();
        let speeds = speeds(&list);
        let [fast, slow] = [0, 7].map(|k| speeds[k].unwrap());
        assert!(
            (8.5..14.0).contains(&slow.ns_per_load)
                && slow.error < 1.2
                && fast.error > 1.5 * slow.error,
            "{fast:?} {slow:?}"
        );
    }

    #[test]
    fn windows_that_lead_from_one_function_to_another_tell_how_fast_these_are() {
        // As likely to be left after a record, both; but the second takes four times as long, so
        // that four times as many windows begin there.
        let go = |first, last, n| {
            (0..n).map(move |_| Window {
                last: (0, last),
                ..window(first, 1000, pace::NONE, 0, 0)
            })
        };
        let list: Vec<Window> = laps(1, 3, 0, 0)
            .chain(go(1, 1, 100))
            .chain(go(1, 2, 100))
            .chain(go(2, 2, 400))
            .chain(go(2, 1, 400))
            .collect();
        let speeds = speeds(&list);
        let [fast, slow] = [7, 7 + 200].map(|k| speeds[k].unwrap());
        assert!(
            (3.2..4.8).contains(&(slow.ns_per_load / fast.ns_per_load)) && slow.source == "balance",
            "{fast:?} {slow:?}"
        );
        let alone = super::speeds(&list[..7]);
        assert!(
            fast.ns_per_load < alone[0].unwrap().ns_per_load
                && slow.error < 2.0 * alone[0].unwrap().error,
            "{fast:?} {alone:?}"
        );
    }

    #[test]
    fn functions_of_which_there_are_too_many_are_one() {
        let list: Vec<Window> = (0..3 * BALANCED as u32)
            .flat_map(|f| laps(f, 3, 0, 0))
            .collect();
        let speeds = speeds(&list);
        let all: Vec<f64> = speeds.iter().map(|s| s.unwrap().ns_per_load).collect();
        assert!(all.iter().all(|ns| (0.9..2.2).contains(ns)), "{all:?}");
        assert!(speeds.iter().any(|s| s.unwrap().source == "others"));
    }

    #[test]
    fn a_single_watch_that_drowns_in_noise_says_little() {
        let near = |k: u32| window(1, 1000, pace::WATCHED_NEAR, 512, 11_000 + 512 * k);
        let mut list: Vec<Window> = (0..16).map(near).collect();
        let of = |list: &[Window]| speeds(list).last().unwrap().unwrap();
        list.push(window(2, 1000, pace::WATCHED, 4096, 14_000));
        let one = of(&list);
        assert!(
            (0.5..0.9).contains(&one.ns_per_load) && one.error > 4.0,
            "{one:?}"
        );
        // A hundred are worth more.
        list.extend((0..100).map(|k| window(2, 1000, pace::WATCHED, 4096, 12_000 + 40 * k)));
        let many = of(&list);
        assert!(
            many.ns_per_load < one.ns_per_load && many.error < one.error,
            "{many:?}"
        );
    }

    #[test]
    fn nothing_measured_is_nothing_known() {
        let list = [
            window(1, 1000, pace::NONE, 0, 0),
            window(1, 1000, pace::WATCHED, 1000, 30_000),
        ];
        // Without a near one its cost is not known.
        let found = speeds(&list);
        assert_eq!(found, [None, None]);
        assert_eq!(assumed(&list, &[None, None], &found, 0.0), None);
        assert_eq!(assumed(&[], &[], &[], 0.0), None);
    }
}
