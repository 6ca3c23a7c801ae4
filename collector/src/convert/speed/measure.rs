//! Speed of the code of windows when it is not recorded, from the measurements that the runtime
//! makes behind some of them (`collector/runtime/src/record/speed_probe.rs`).
//!
//! A measurement gives the nanoseconds for a number of records, plus its own cost. The median of
//! the *near* measurements of the run gives that cost. The rest, per record, is pooled by median
//! over the windows that end in the same function. Watched measurements are noisy. Laps measure
//! code that records, which takes longer by a roughly known amount. So laps are informative for
//! slow code, and hardly for fast code. Both are pooled as logarithms, weighted by their errors.
//! Functions without a measurement are assumed to be like the others. Windows that lead from one
//! function to another give the ratio of their speeds (`balance`).
//!
//! The errors, and the part of a lap that the original code takes, come from a comparison with two
//! references: the counts of `ring`, and native run time. The comparison was made by function, over
//! community detection, page rank, connected components, layers, kernels of `benches/`, gzip, mawk,
//! perl and python3 (0.2 to 10 ns a record).

use crate::convert::expanded_window::{ExpandedWindow, ModuleFunction};
use crate::convert::speed::balance::{Rate, balanced};
use crate::convert::speed::executed::Executed;
use crate::convert::speed::params::{
    ADDED_FACTOR_OF_NEW_CODE, ADDED_NS_PER_CHANGE, ADDED_NS_PER_RECORD, CHANGE_LOG_ERROR,
    ERROR_OF_TRIGGER_COST, FEW_AND_MANY_WAYS, LAP_LOG_ERROR, MAX_BALANCED_FUNCTIONS,
    MAX_TIME_OUTSIDE_OF_LAPS, MAX_WATCH_OVER_LAP, MIN_ADDED_NS_PER_RECORD, MIN_FUNCTIONS_MEASURED,
    MIN_LOG_ERROR_OF_UNMEASURED, MIN_NS_PER_RECORD, MIN_SHARED_ERROR, NEW_CODE_LOG_ERROR,
    ROUNDS_OF_COST_AND_SPEED, USUAL_LOG_ERROR, USUAL_NS_PER_CHANGE, USUAL_NS_PER_RECORD,
    WATCH_LOG_ERROR,
};
use mgz_annotations_schema::spill::{cause, pace};
use mgz_annotations_schema::window_loads;
use mgz_models::statistics::{
    DEVIATIONS_PER_MEDIAN_DEVIATION, ROUNDED_NORMAL_QUANTILE_OF_95_PCT, upper_median,
    weighted_median,
};
use std::collections::{BTreeMap, BTreeSet};

/// The known speed of a window's code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// Nanoseconds for a load of the original code.
    pub ns_per_load: f64,
    /// Its 95 % interval reaches from 1 / (1 + this) to (1 + this) times the value.
    pub error: f64,
    /// `watched`, `lap`, `alike`, `others` or `balance`.
    pub source: &'static str,
}

/// The kind's name in `windows.parquet`.
pub(crate) fn pace_kind_name(kind: u8) -> &'static str {
    match kind {
        pace::WATCHED => "watched",
        pace::WATCHED_NEAR => "watched_near",
        pace::LAP => "lap",
        pace::LAP_NEAR => "lap_near",
        _ => "none",
    }
}

/// Speeds of all windows, by the code where they begin; all `None` if nothing was measured.
/// `outside`: time outside instrumented code, relative to the time inside.
pub(crate) fn speeds(windows: &[ExpandedWindow], outside: f64) -> Vec<Option<Speed>> {
    let functions = measured(windows, outside);
    let Some(others) = unmeasured(&functions) else {
        return vec![None; windows.len()];
    };
    let numbers = numbers(windows);
    let number = |code: &ModuleFunction| numbers.get(code).copied().unwrap_or(numbers.len());
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
    let balanced = balanced(&moves, &rates);
    // The balance gives only ratios of speeds. The level in the code with most of the time was
    // measured as well. Where both differ, the middle is used, and the error covers either.
    let level = mean(
        windows
            .iter()
            .map(|w| number(&w.first))
            .map(|n| (balanced[n].log - rates[n].log) / 2.0),
    );
    for (known, rate) in known.iter_mut().zip(balanced) {
        // The error shared by all functions remains.
        let sigma = (rate.sigma.hypot(others.shared))
            .min(known.sigma)
            .hypot(level);
        // The source is `balance` if it contributes more than half of the information. With too few
        // measured functions, the level still comes from other code.
        let source = if sigma < known.sigma * std::f64::consts::FRAC_1_SQRT_2
            && functions.len() >= MIN_FUNCTIONS_MEASURED
        {
            "balance"
        } else {
            known.source
        };
        *known = Pooled {
            ns: (level - rate.log).exp().max(MIN_NS_PER_RECORD),
            sigma,
            source,
            ..*known
        };
    }
    let of = |w: &ExpandedWindow| {
        let Pooled {
            ns, sigma, source, ..
        } = known[number(&w.first)];
        // Records per load of the code in this window.
        (w.loads > 0).then(|| Speed {
            ns_per_load: ns * f64::from(w.records) / f64::from(w.loads),
            error: (ROUNDED_NORMAL_QUANTILE_OF_95_PCT * sigma).exp_m1(),
            source,
        })
    };
    windows.iter().map(of).collect()
}

/// Numbers of the functions in which most windows begin or end.
fn numbers(windows: &[ExpandedWindow]) -> BTreeMap<ModuleFunction, usize> {
    let mut ends: BTreeMap<ModuleFunction, usize> = BTreeMap::new();
    windows
        .iter()
        .flat_map(|w| [w.first, w.last])
        .for_each(|code| *ends.entry(code).or_default() += 1);
    let mut list: Vec<(usize, ModuleFunction)> =
        ends.into_iter().map(|(code, n)| (n, code)).collect();
    list.sort_unstable_by_key(|&(n, code)| (std::cmp::Reverse(n), code));
    list.into_iter()
        .take(MAX_BALANCED_FUNCTIONS)
        .enumerate()
        .map(|(number, (_, code))| (code, number))
        .collect()
}

/// Results of the measurements, by function.
fn measured(windows: &[ExpandedWindow], outside: f64) -> BTreeMap<ModuleFunction, Pooled> {
    let laps = by_function(windows, pace::LAP, pace::LAP_NEAR, &BTreeMap::new());
    let watched = by_function(windows, pace::WATCHED, pace::WATCHED_NEAR, &laps);
    let laps = if outside < MAX_TIME_OUTSIDE_OF_LAPS {
        laps
    } else {
        BTreeMap::new()
    };
    let changes = changes(windows);
    let codes: BTreeSet<ModuleFunction> = watched.keys().chain(laps.keys()).copied().collect();
    let known = |code| {
        let changes = changes.get(&code).copied().unwrap_or_default();
        let of = |list: &BTreeMap<ModuleFunction, (f64, f64)>| list.get(&code).copied();
        (code, pooled(of(&watched), of(&laps), changes))
    };
    codes.into_iter().map(known).collect()
}

/// Changes from one function to another in windows that end in a function.
#[derive(Clone, Copy, Default)]
struct Changes {
    /// Changes per record.
    rate: f64,
    /// Median number of different pairs of loads.
    ways: f64,
    /// Share of the different loads of a window that no earlier window of the run had.
    new: f64,
}

impl Changes {
    /// Nanoseconds that changes usually add to a record of a lap.
    fn added(self) -> f64 {
        self.of(ADDED_NS_PER_CHANGE) * (1.0 + ADDED_FACTOR_OF_NEW_CODE * self.new)
    }

    /// Standard deviation of the logarithm of that.
    fn sigma(self) -> f64 {
        CHANGE_LOG_ERROR.hypot(NEW_CODE_LOG_ERROR * self.new)
    }

    /// Nanoseconds that a record usually takes in the original.
    fn usual(self) -> f64 {
        USUAL_NS_PER_RECORD + self.of(USUAL_NS_PER_CHANGE)
    }

    /// Nanoseconds per record, given the nanoseconds of a change with few ways and with many.
    fn of(self, [few, many]: [f64; 2]) -> f64 {
        self.rate
            * (few
                + (many - few)
                    * ((self.ways - FEW_AND_MANY_WAYS[0])
                        / (FEW_AND_MANY_WAYS[1] - FEW_AND_MANY_WAYS[0]))
                        .clamp(0.0, 1.0))
    }
}

fn changes(windows: &[ExpandedWindow]) -> BTreeMap<ModuleFunction, Changes> {
    let mut lists: BTreeMap<ModuleFunction, Vec<&ExpandedWindow>> = BTreeMap::new();
    windows
        .iter()
        .for_each(|w| lists.entry(w.last).or_default().push(w));
    let sum = |which: usize| {
        windows
            .iter()
            .map(|w| u64::from(w.sites[which]))
            .sum::<u64>()
    };
    let new = sum(1) as f64 / sum(0).max(1) as f64;
    let of = |list: Vec<&ExpandedWindow>| {
        let sum =
            |of: fn(&ExpandedWindow) -> u32| list.iter().map(|w| u64::from(of(w))).sum::<u64>();
        let ways =
            median(&mut list.iter().map(|w| f64::from(w.ways)).collect::<Vec<_>>()).unwrap_or(0.0);
        Changes {
            rate: sum(|w| w.changes) as f64 / sum(|w| w.records).max(1) as f64,
            ways,
            new,
        }
    };
    lists
        .into_iter()
        .map(|(code, list)| (code, of(list)))
        .collect()
}

/// The known speed of a function.
#[derive(Clone, Copy)]
struct Pooled {
    /// Nanoseconds for a record of the original code.
    ns: f64,
    /// Standard error of the logarithm of `ns`.
    sigma: f64,
    /// The part of `sigma` that is shared with other functions of the run.
    shared: f64,
    source: &'static str,
}

/// Estimate for functions without measurements, from those with. It assumes that they have the same
/// distribution. `None` if no function was measured.
fn unmeasured(functions: &BTreeMap<ModuleFunction, Pooled>) -> Option<Pooled> {
    let ns = median(&mut functions.values().map(|f| f.ns).collect::<Vec<_>>())?;
    let shared = median(&mut functions.values().map(|f| f.shared).collect::<Vec<_>>())?;
    let few = Pooled {
        ns,
        sigma: USUAL_LOG_ERROR,
        shared,
        source: "others",
    };
    let count = functions.len() as f64;
    if functions.len() < MIN_FUNCTIONS_MEASURED {
        return Some(few);
    }
    let squares: f64 = functions.values().map(|f| (f.ns / ns).ln().powi(2)).sum();
    let spread = (squares / (count - 1.0))
        .sqrt()
        .max(MIN_LOG_ERROR_OF_UNMEASURED);
    // Student's t at 97.5 % over the normal distribution's, to a few percent.
    let few_of_them = 1.0 + 1.2 / (count - 2.0) + 1.0 / (count - 2.0).powi(2) * 0.2;
    let sigma = (spread * few_of_them * (1.0 + 1.0 / count).sqrt()).hypot(shared);
    Some(if sigma < USUAL_LOG_ERROR {
        Pooled {
            sigma,
            source: "alike",
            ..few
        }
    } else {
        few
    })
}

/// Both kinds of measurement are (nanoseconds, standard error). The result is the posterior of the
/// speed: its prior is the usual distribution, and recording adds time with a distribution of its
/// own.
fn pooled(watched: Option<(f64, f64)>, lap: Option<(f64, f64)>, changes: Changes) -> Pooled {
    let source = match (watched, lap) {
        (Some(_), _) => "watched",
        (None, Some(_)) => "lap",
        (None, None) => "others",
    };
    let watched = watched.map(|(ns, error)| {
        let ns = ns.max(MIN_NS_PER_RECORD);
        (ns.ln(), WATCH_LOG_ERROR.hypot(error / ns))
    });
    let lap_chances = lap.and_then(|lap| from_lap(lap, changes));
    let usual = changes.usual().ln();
    let chances: Vec<(f64, f64)> = logs()
        .enumerate()
        .map(|(k, log)| {
            let lap = lap_chances.as_ref().map_or(1.0, |of| of[k]);
            let watched = watched.map_or(1.0, |w| normal(log, w));
            (log, lap * watched * normal(log, (usual, USUAL_LOG_ERROR)))
        })
        .collect();
    let all: f64 = chances.iter().map(|c| c.1).sum();
    // Measurements that contradict each other beyond the range of numbers are ignored.
    let (mean, sigma) = if all > 0.0 {
        let mean = chances.iter().map(|c| c.0 * c.1).sum::<f64>() / all;
        let squares: f64 = chances.iter().map(|c| (c.0 - mean).powi(2) * c.1).sum();
        (mean, (squares / all).sqrt())
    } else {
        (usual, USUAL_LOG_ERROR)
    };
    // The error of the time in hooks is nearly the same for all functions.
    let by_change = lap.map_or(0.0, |(ns, _)| {
        (changes.added() / ns.max(MIN_NS_PER_RECORD)).min(1.0)
    });
    Pooled {
        ns: mean.exp().max(MIN_NS_PER_RECORD),
        sigma,
        shared: sigma * (MIN_SHARED_ERROR + (1.0 - MIN_SHARED_ERROR) * by_change),
        source,
    }
}

/// Logarithms of the nanoseconds that a record may take: from [`MIN_NS_PER_RECORD`] to 5,000.
fn logs() -> impl Iterator<Item = f64> {
    const LOG_STEP: f64 = 0.05;
    const LOG_STEPS: u32 = 217;
    (0..LOG_STEPS).map(|k| MIN_NS_PER_RECORD.ln() + f64::from(k) * LOG_STEP)
}

/// The normal density up to a constant factor.
fn normal(x: f64, (mean, sigma): (f64, f64)) -> f64 {
    (-0.5 * ((x - mean) / sigma).powi(2)).exp()
}

/// Likelihood of each of [`logs`] as the original's part of a lap (nanoseconds per record, standard
/// error), where recording added the rest.
fn left_of((ns, error): (f64, f64), changes: Changes) -> Vec<f64> {
    /// Range in standard deviations to either side, and the number of steps in it.
    const DEVIATIONS_AND_STEPS: (f64, i32) = (2.6, 8);
    let usual = changes.added();
    let sigma = ADDED_NS_PER_RECORD[1].hypot(error);
    // The time that changes add is positive and may be many times the usual. If it is small beside
    // the rest, its mean and deviation suffice.
    if usual < ADDED_NS_PER_RECORD[1] {
        let added = (
            ADDED_NS_PER_RECORD[0] + usual * (changes.sigma().powi(2) / 2.0).exp(),
            sigma.hypot(usual),
        );
        let of = |log: f64| match ns - log.exp() {
            rest if rest < MIN_ADDED_NS_PER_RECORD => 0.0,
            rest => normal(rest, added),
        };
        return logs().map(of).collect();
    }
    let draws: Vec<(f64, f64)> = (-DEVIATIONS_AND_STEPS.1..=DEVIATIONS_AND_STEPS.1)
        .map(|k| {
            let z = DEVIATIONS_AND_STEPS.0 * f64::from(k) / f64::from(DEVIATIONS_AND_STEPS.1);
            (
                (ADDED_NS_PER_RECORD[0] + sigma * z).max(MIN_ADDED_NS_PER_RECORD),
                normal(z, (0.0, 1.0)),
            )
        })
        .collect();
    let of = |log: f64| {
        let by_changes = |&(added, chance): &(f64, f64)| match ns - log.exp() - added {
            rest if rest <= 0.0 => 0.0,
            rest => chance * normal(rest.ln(), (usual.ln(), changes.sigma())) / rest,
        };
        draws.iter().map(by_changes).sum()
    };
    logs().map(of).collect()
}

/// Likelihood of each of [`logs`], given a lap. The code after a window differs a little from the
/// window's. `None` if recording takes longer than the lap.
fn from_lap(lap: (f64, f64), changes: Changes) -> Option<Vec<f64>> {
    let left = left_of(lap, changes);
    let any = left.iter().any(|&chance| chance > 0.0);
    let of = |log: f64| {
        let near = logs().zip(&left).filter(|(_, chance)| **chance > 0.0);
        near.map(|(l, chance)| chance * normal(log, (l, LAP_LOG_ERROR)))
            .sum()
    };
    any.then(|| logs().map(of).collect())
}

/// Nanoseconds per record and its standard error, by function. `bounds`: upper bounds of some
/// functions.
fn by_function(
    windows: &[ExpandedWindow],
    far: u8,
    near: u8,
    bounds: &BTreeMap<ModuleFunction, (f64, f64)>,
) -> BTreeMap<ModuleFunction, (f64, f64)> {
    let of = |kind| {
        windows
            .iter()
            .filter(move |w| w.pace.kind == kind && w.pace.records > 0)
    };
    let (ns, records) = (
        |w: &ExpandedWindow| f64::from(w.pace.ns),
        |w: &ExpandedWindow| f64::from(w.pace.records),
    );
    let Some((mut cost, mut cost_error)) = typical(&mut of(near).map(ns).collect::<Vec<_>>())
    else {
        return BTreeMap::new();
    };
    let nears = (of(near).count() as f64).sqrt();
    let mut found = BTreeMap::new();
    // Near measurements have some records too, so cost and speeds are computed alternately.
    for _ in 0..ROUNDS_OF_COST_AND_SPEED {
        let mut measured: BTreeMap<ModuleFunction, (Vec<(f64, f64)>, usize)> = BTreeMap::new();
        for w in of(far) {
            // A recorded, cold window is not faster than its code alone. A measurement that took
            // longer has followed another path.
            let own =
                1.5 * w.end_ns.saturating_sub(w.begin_ns) as f64 / f64::from(w.records.max(1));
            let (list, astray) = measured.entry(w.last).or_default();
            if (ns(w) - cost) / records(w)
                <= bounds
                    .get(&w.last)
                    .map_or(own, |b| MAX_WATCH_OVER_LAP * b.0)
            {
                list.push((ns(w), records(w)));
            } else {
                *astray += 1;
            }
        }
        found = measured
            .into_iter()
            // If most measurements of a function followed another path, some of the others did too.
            .filter(|(_, (list, astray))| list.len() > *astray)
            .filter_map(|(code, (list, _))| {
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

/// The speed of a function from its measurements (nanoseconds, records). It may be negative where
/// the noise of the cost exceeds it; its error is large then. `noise`: of a single measurement,
/// nanoseconds, since a few measurements may agree by chance.
fn speed_of(list: &[(f64, f64)], cost: f64, cost_error: f64, noise: f64) -> Option<(f64, f64)> {
    // Noise and cost do not depend on the number of records, so long measurements are more
    // accurate.
    let mut each: Vec<(f64, f64)> = list
        .iter()
        .map(|&(ns, records)| ((ns - cost) / records, records))
        .collect();
    let all: f64 = each.iter().map(|m| m.1).sum();
    let squares: f64 = each.iter().map(|m| m.1 * m.1).sum();
    let ns = weighted_median(&mut each)?;
    let mut deviations: Vec<(f64, f64)> = each.iter().map(|m| ((m.0 - ns).abs(), m.1)).collect();
    let spread = standard_error(ns, weighted_median(&mut deviations)?, all * all / squares);
    let count = list.len() as f64;
    let own_error = spread.max(noise * count.sqrt() / all);
    Some((ns, own_error.hypot(cost_error * count / all)))
}

/// Standard error of a median, from the median absolute deviation and the number of measurements.
fn standard_error(value: f64, deviation: f64, count: f64) -> f64 {
    /// Standard error of a median by median absolute deviation, for a normal distribution.
    const BY_MIDDLE: f64 = DEVIATIONS_PER_MEDIAN_DEVIATION * 1.2533;
    // The spread of one or two measurements is unknown.
    let spread = if count < 3.0 {
        0.5 * value.abs()
    } else {
        (BY_MIDDLE * deviation).max(0.02 * value.abs())
    };
    spread / count.sqrt()
}

/// The median of the measurements and its standard error from the median absolute deviation.
/// Medians are used because some measurements are interrupted.
fn typical(list: &mut [f64]) -> Option<(f64, f64)> {
    let value = median(list)?;
    let deviation = median(&mut list.iter().map(|x| (x - value).abs()).collect::<Vec<_>>())?;
    Some((value, standard_error(value, deviation, list.len() as f64)))
}

fn mean(list: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = list.fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    sum / f64::max(count, 1.0)
}

fn median(list: &mut [f64]) -> Option<f64> {
    upper_median(list, f64::total_cmp)
}

/// Factor on the time in instrumented code that makes it comparable with measured speeds. A
/// measurement includes the functions without instrumentation that the code calls. The share of the
/// time outside (`outside`, relative to that inside) that is theirs is unknown: this is the
/// geometric mean of none and all of it.
pub(crate) fn called_time(outside: f64) -> f64 {
    (1.0 + outside).sqrt()
}

/// Number of executed loads that each load of a window stands for. A window stands for `ns` of its
/// thread's time in instrumented code. Triggers took `toll` of that, and the window took some
/// itself. `called`: see [`called_time`]. `None` if the window's speed is unknown.
pub(crate) fn stands_for(
    window: &ExpandedWindow,
    speed: Option<&Speed>,
    (ns, toll): (f64, f64),
    called: f64,
) -> Option<f64> {
    let own = ns - toll;
    let elsewhere = (own - window.end_ns.saturating_sub(window.begin_ns) as f64).max(own / 2.0);
    Some(1.0 + elsewhere * called / speed?.ns_per_load / f64::from(window.loads.max(1)))
}

/// Relative error of an estimate from the time that triggers leave.
pub(crate) fn toll_error(ns: f64, toll: f64) -> f64 {
    ERROR_OF_TRIGGER_COST * toll / (ns - toll).max(f64::MIN_POSITIVE)
}

/// Relative error of the loads that a window stands for. It comes from the window's speed, the
/// triggers' part of its time (both in nanoseconds) and [`called_time`], which may be wholly wrong.
pub(crate) fn stands_for_error(speed: &Speed, (ns, toll): (f64, f64), called: f64) -> f64 {
    (1.0 + window_loads::both(speed.error, toll_error(ns, toll))) * called - 1.0
}

/// The estimate from windows with known speeds. `stand_for`: executed loads per load of each
/// window. `errors`: relative errors of these. `times`: the time that each window stands for.
/// `None` unless nearly all speeds are known.
pub(crate) fn known(
    windows: &[ExpandedWindow],
    stand_for: &[Option<f64>],
    (speeds, errors): (&[Option<Speed>], &[Option<f64>]),
    times: &[Option<(f64, f64)>],
) -> Option<Executed> {
    let each = windows.iter().zip(stand_for).zip(speeds.iter().zip(errors));
    let each = each
        .zip(times)
        .map(|(((window, weight), (speed, error)), time)| {
            let own = speed.as_ref().filter(|s| window_loads::is_own(s.source));
            let loads = own.and_then(|_| Some((f64::from(window.loads) * (*weight)?, (*error)?)));
            (time.map_or(0.0, |t| t.0), loads)
        });
    let (loads, error) = window_loads::loads_of_windows(each)?;
    Some(Executed { loads, error })
}

/// The estimate where windows without a measurement have the speed of other code. `error` is added
/// to the errors of the speeds. `None` where nothing was measured.
pub(crate) fn assumed(
    windows: &[ExpandedWindow],
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
    use mgz_annotations_schema::spill::{SpeedMeasurement, ThreadKey};

    fn window(function: u32, loads: u32, kind: u8, records: u32, ns: u32) -> ExpandedWindow {
        ExpandedWindow {
            key: ThreadKey::default(),
            sample: 0,
            records: 1000,
            loads,
            changes: 0,
            ways: 0,
            sites: [100, 0],
            begin_ns: 0,
            end_ns: 5_000,
            cause: 0,
            first: (0, function),
            last: (0, function),
            pace: SpeedMeasurement { kind, records, ns },
            period: 0,
        }
    }

    #[test]
    fn functions_have_the_speed_that_was_watched_less_its_cost() {
        let mut list: Vec<ExpandedWindow> = (0..5)
            .map(|k| window(1, 2000, pace::WATCHED, 10_000, 15_000 + 20_000 + 100 * k))
            .collect();
        list.extend(
            (0..3).map(|k| window(1, 2000, pace::WATCHED_NEAR, 512, 15_000 + 1024 + 100 * k)),
        );
        // The watched word was accessed on another path.
        list.push(window(1, 2000, pace::WATCHED, 10_000, 4_000_000));
        list.extend((0..4).map(|k| window(2, 1000, pace::LAP, 2048, 2_000 + 3 * 2048 + 10 * k)));
        list.extend((0..3).map(|_| window(2, 1000, pace::LAP_NEAR, 256, 2_000 + 3 * 256)));
        list.push(window(3, 1000, pace::NONE, 0, 0));
        let speeds = speeds(&list, 0.0);
        // 2 ns a record, two loads a record.
        let first = speeds[0].unwrap();
        assert!(
            (0.8..1.02).contains(&first.ns_per_load)
                && (0.5..1.6).contains(&first.error)
                && first.source == "watched",
            "{first:?}"
        );
        // A lap of 3 ns per record means one or two in the original, or less.
        let lap = speeds[9].unwrap();
        assert!(
            (0.7..1.5).contains(&lap.ns_per_load)
                && (1.2..3.5).contains(&lap.error)
                && lap.source == "lap",
            "{lap:?}"
        );
        assert_eq!(speeds[16].unwrap().source, "others");
        let known = |to: usize| {
            let own = vec![Some(10.0); to];
            let errors: Vec<_> = speeds[..to]
                .iter()
                .map(|s| Some(stands_for_error(s.as_ref()?, (1e6, 0.0), 1.0)))
                .collect();
            let times = vec![Some((1e6, 0.0)); to];
            super::known(&list[..to], &own, (&speeds[..to], &errors), &times)
        };
        // The loads of windows with a measured speed are known. Their errors have the same sign.
        let own = known(16).unwrap();
        assert!(
            own.loads == 9.0 * 20_000.0 + 7.0 * 10_000.0
                && (first.error..=lap.error).contains(&own.error)
        );
        // One window of 17 without a measurement is tolerated and widens the interval.
        let most = known(17).unwrap();
        assert!(most.loads > own.loads && most.error > own.error);
        // Nine windows of function 1 at about 1 ns a load, each for a millisecond: about a million
        // loads each.
        let stand_for: Vec<_> = list
            .iter()
            .zip(&speeds)
            .map(|(w, s)| stands_for(w, s.as_ref(), (1e6, 0.0), 1.0))
            .collect();
        let all = assumed(&list[..9], &stand_for, &speeds, 0.0).unwrap();
        assert!(
            (0.95..1.25).contains(&(all.loads / 9e6)) && (first.error - all.error).abs() < 1e-9,
            "{all:?}"
        );
        // Triggers that take half of the time leave half of the loads, with a larger error.
        let stand_for: Vec<_> = list
            .iter()
            .zip(&speeds)
            .map(|(w, s)| stands_for(w, s.as_ref(), (1e6, 5e5), 1.0))
            .collect();
        let half = assumed(&list[..9], &stand_for, &speeds, toll_error(1e6, 5e5)).unwrap();
        assert!(
            (0.49..0.51).contains(&(half.loads / all.loads)) && half.error > all.error + 0.3,
            "{half:?}"
        );
    }

    /// Laps of a function, of `ns` a record.
    fn laps(
        function: u32,
        ns: u32,
        changes: u32,
        ways: u32,
    ) -> impl Iterator<Item = ExpandedWindow> {
        let far = (0..4)
            .map(move |k| window(function, 1000, pace::LAP, 2048, 2_000 + ns * 2048 + 10 * k));
        let near =
            (0..3).map(move |_| window(function, 1000, pace::LAP_NEAR, 256, 2_000 + ns * 256));
        far.chain(near).map(move |w| ExpandedWindow {
            changes,
            ways,
            end_ns: 30_000,
            ..w
        })
    }

    #[test]
    fn calls_that_nobody_foresees_are_what_makes_a_lap_slow() {
        let list: Vec<ExpandedWindow> = laps(1, 4, 0, 0)
            .chain(laps(2, 4, 150, 80))
            .chain(laps(3, 4, 150, 4))
            .collect();
        let speeds = speeds(&list, 0.0);
        let [plain, calling, foreseen] = [0, 7, 14].map(|k| speeds[k].unwrap().ns_per_load);
        assert!(
            (1.2..2.8).contains(&plain)
                && (0.4..0.7 * plain).contains(&calling)
                && (0.5 * plain..0.8 * plain).contains(&foreseen),
            "{plain} {calling} {foreseen}"
        );
    }

    #[test]
    fn laps_tell_a_lot_of_slow_code_and_little_of_fast_code() {
        let list: Vec<ExpandedWindow> = laps(1, 2, 0, 0).chain(laps(2, 15, 0, 0)).collect();
        let speeds = speeds(&list, 0.0);
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
        // Both functions are equally likely to be left after a record. The second takes four times
        // as long per record, so four times as many windows begin there.
        let go = |first, last, n| {
            (0..n).map(move |_| ExpandedWindow {
                last: (0, last),
                ..window(first, 1000, pace::NONE, 0, 0)
            })
        };
        let list: Vec<ExpandedWindow> = laps(1, 3, 0, 0)
            .chain(laps(3, 3, 0, 0))
            .chain(laps(4, 3, 0, 0))
            .chain(go(1, 1, 100))
            .chain(go(1, 2, 100))
            .chain(go(2, 2, 400))
            .chain(go(2, 1, 400))
            .collect();
        let speeds = speeds(&list, 0.0);
        let [fast, slow] = [21, 21 + 200].map(|k| speeds[k].unwrap());
        assert!(
            (3.2..4.8).contains(&(slow.ns_per_load / fast.ns_per_load)) && slow.source == "alike",
            "{fast:?} {slow:?}"
        );
        let alone = super::speeds(&list[..7], 0.0);
        assert!(
            fast.ns_per_load < alone[0].unwrap().ns_per_load
                && slow.error < 2.0 * alone[0].unwrap().error,
            "{fast:?} {alone:?}"
        );
    }

    #[test]
    fn functions_of_which_there_are_too_many_are_one() {
        let list: Vec<ExpandedWindow> = (0..3 * MAX_BALANCED_FUNCTIONS as u32)
            .flat_map(|f| laps(f, 3, 0, 0))
            .collect();
        let speeds = speeds(&list, 0.0);
        let all: Vec<f64> = speeds.iter().map(|s| s.unwrap().ns_per_load).collect();
        assert!(
            all.iter().all(|ns| (0.6..2.2).contains(ns)),
            "{:?}",
            &all[..9]
        );
        assert!(speeds.iter().any(|s| s.unwrap().source == "alike"));
    }

    /// Measured programs whose code is spread over small functions: nanoseconds per record in laps,
    /// changes per record, ways, and the original's nanoseconds per record.
    const SPREAD_PROGRAMS: [(&str, f64, f64, u32, f64); 6] = [
        ("table of functions", 42.4, 0.577, 512, 6.9),
        ("opcodes", 9.6, 0.487, 295, 2.86),
        ("parser", 5.3, 0.601, 97, 1.58),
        ("web of calls", 22.5, 0.515, 289, 8.8),
        ("virtual methods", 21.3, 0.519, 384, 4.94),
        ("python3", 4.5, 0.141, 81, 0.53),
    ];

    #[test]
    fn the_stated_factor_holds_where_code_is_spread_over_small_functions() {
        const FUNCTIONS: u32 = 300;
        for (name, lap, changes, ways, truth) in SPREAD_PROGRAMS {
            // Every third window has a lap, and each of these ends in another function.
            let list: Vec<ExpandedWindow> = (0..FUNCTIONS)
                .map(|f| {
                    let (kind, records) = match f % 9 {
                        0 | 3 => (pace::LAP, 2048),
                        6 => (pace::LAP_NEAR, 256),
                        _ => (pace::NONE, 0),
                    };
                    // Laps differ by a tenth.
                    let ns = lap * (0.9 + 0.02 * f64::from(f % 11));
                    ExpandedWindow {
                        last: (0, (f * 7) % FUNCTIONS),
                        changes: (changes * 1000.0) as u32,
                        ways,
                        end_ns: 100_000,
                        ..window(
                            f,
                            1000,
                            kind,
                            records,
                            (2000.0 + ns * f64::from(records)) as u32,
                        )
                    }
                })
                .collect();
            let speeds = speeds(&list, 0.0);
            let time = Some((1e6, 0.0));
            let stand_for: Vec<_> = list
                .iter()
                .zip(&speeds)
                .map(|(w, s)| stands_for(w, s.as_ref(), (1e6, 0.0), 1.0))
                .collect();
            let errors: Vec<_> = speeds
                .iter()
                .map(|s| Some(stands_for_error(s.as_ref()?, (1e6, 0.0), 1.0)))
                .collect();
            let times = vec![time; list.len()];
            let found = known(&list, &stand_for, (&speeds, &errors), &times)
                .unwrap_or_else(|| panic!("{name}: unknown"));
            let off = found.loads / (1e6 * f64::from(FUNCTIONS) / truth);
            assert!(
                off.max(1.0 / off) < 1.0 + found.error && found.error < 7.0,
                "{name}: off by {off:.2}, within {:.2}",
                1.0 + found.error
            );
        }
    }

    #[test]
    fn functions_that_were_not_measured_are_like_the_others_if_these_tell_how_they_differ() {
        let of = |list: &[ExpandedWindow]| speeds(list, 0.0).last().unwrap().unwrap();
        let last = window(9, 1000, pace::NONE, 0, 0);
        let few: Vec<ExpandedWindow> = laps(1, 3, 0, 0)
            .chain(laps(2, 9, 0, 0))
            .chain([last])
            .collect();
        assert_eq!(of(&few).source, "others");
        let alike: Vec<ExpandedWindow> = (0..8)
            .flat_map(|f| laps(f, 8 + f % 3, 0, 0))
            .chain([last])
            .collect();
        let alike = of(&alike);
        assert!(alike.source == "alike" && alike.error < 3.0, "{alike:?}");
        // The measured functions differ by factors, so this one may too.
        let unlike: Vec<ExpandedWindow> = (0..8)
            .flat_map(|f| laps(f, 3 << f, 0, 0))
            .chain([last])
            .collect();
        assert_eq!(of(&unlike).source, "others");
    }

    #[test]
    fn a_single_watch_that_drowns_in_noise_says_little() {
        let near = |k: u32| window(1, 1000, pace::WATCHED_NEAR, 512, 11_000 + 512 * k);
        let mut list: Vec<ExpandedWindow> = (0..16).map(near).collect();
        let of = |list: &[ExpandedWindow]| speeds(list, 0.0).last().unwrap().unwrap();
        list.push(window(2, 1000, pace::WATCHED, 4096, 14_000));
        let one = of(&list);
        assert!(
            (0.5..0.9).contains(&one.ns_per_load) && one.error > 4.0,
            "{one:?}"
        );
        // A hundred measurements have a smaller error.
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
        // Without a near measurement, the cost is unknown.
        let found = speeds(&list, 0.0);
        assert_eq!(found, [None, None]);
        assert_eq!(assumed(&list, &[None, None], &found, 0.0), None);
        assert_eq!(assumed(&[], &[], &[], 0.0), None);
    }
}
