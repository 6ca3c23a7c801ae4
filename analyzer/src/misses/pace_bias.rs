//! Correction for windows that run slower because they miss more.
//!
//! Slow windows are overrepresented in windows by time. So there are fewer misses per load than in
//! the mean of the windows. Durations of windows show the difference in speed (`window_pace.rs`).
//! Without them it is assumed.

use crate::data::group::Group;
use crate::misses::load_weights::LoadWeights;
use crate::misses::params;
use crate::misses::visit_table::VisitTable;
use crate::misses::window_pace::{MeanNsPerLoad, WindowPace, slow_down};
use crate::util::fast_hash::Mixed;
use std::collections::{BTreeMap, HashMap};

/// A group's part of a window.
#[derive(Clone, Copy, Default)]
struct Share {
    /// Late first touches of lines.
    late: f64,
    accesses: f64,
}

/// Groups of a window.
type Window = HashMap<Group, Share, Mixed>;

/// Factors on each group's misses per load that correct for slower windows with many new lines: the
/// least, the likely and the greatest factor.
pub(crate) type SpeedFactors = HashMap<Group, [f64; 3], Mixed>;

/// Computes [`SpeedFactors`]. `function` returns the function of a group.
pub(crate) fn speed_factors(
    table: &VisitTable<'_>,
    weights: &LoadWeights<'_>,
    function: impl Fn(Group) -> u32,
) -> SpeedFactors {
    let mut windows: HashMap<u32, Window, Mixed> = HashMap::default();
    for of in &table.lines.samples {
        let share = windows.entry(of.sample).or_default().entry(of.group);
        share.or_default().accesses += f64::from(of.accesses);
    }
    for (sample, cells) in (0..).zip(&table.beside) {
        for &(cell, late) in cells {
            let group = table.cells[cell as usize].0.0;
            if let Some(share) = windows.get_mut(&sample).and_then(|w| w.get_mut(&group)) {
                share.late += late;
            }
        }
    }
    // Floating-point sums depend on the order.
    let mut windows: Vec<(u32, Window)> = windows.into_iter().collect();
    windows.sort_unstable_by_key(|w| w.0);
    let rates = new_line_rates(windows.iter().map(|w| &w.1));
    let main: Vec<u32> = windows
        .iter()
        .map(|w| main_function(&w.1, &function))
        .collect();
    let mut of_functions: BTreeMap<u32, (Vec<WindowPace>, Totals)> = BTreeMap::new();
    for (((sample, _), &new_line_rate), &function) in windows.iter().zip(&rates).zip(&main) {
        let entry = of_functions.entry(function).or_default();
        let time = weights.time(*sample);
        if let Some((loads, error)) = weights.executed(*sample) {
            entry.1.add(time, loads, error);
        }
        if let Some(duration) = weights.duration_per_load(*sample) {
            entry.0.push(WindowPace {
                new_line_rate,
                duration,
                time,
            });
        }
    }
    let measured: HashMap<u32, [f64; 3], Mixed> = of_functions
        .into_iter()
        .filter_map(|(function, (windows, totals))| {
            Some((function, slow_down(&windows, totals.ns_per_load()?)?))
        })
        .collect();
    let ratios = main.iter().map(|f| measured.get(f).copied());
    let of_windows = windows.iter().zip(rates).zip(ratios);
    factors(of_windows.map(|((w, rate), ratios)| (&w.1, rate, ratios.unwrap_or_else(assumed))))
}

/// The result of [`slow_down`] if durations do not show it.
fn assumed() -> [f64; 3] {
    let most = params::MAX_TIME_OF_NEW_LINES;
    [1.0, params::LIKELY_TIME_OF_NEW_LINES, most]
}

/// Sums of a function's windows.
#[derive(Default)]
struct Totals {
    time: f64,
    loads: f64,
    /// Loads times their error.
    error: f64,
}

impl Totals {
    fn add(&mut self, time: f64, loads: f64, error: f64) {
        self.time += time;
        self.loads += loads;
        self.error += loads * error;
    }

    fn ns_per_load(&self) -> Option<MeanNsPerLoad> {
        let mean = (self.time / self.loads, self.error / self.loads);
        (mean.0.is_finite() && mean.1.is_finite()).then_some(mean)
    }
}

/// The function with the most accesses.
fn main_function(window: &Window, function: impl Fn(Group) -> u32) -> u32 {
    let mut accesses: BTreeMap<u32, f64> = BTreeMap::new();
    for (&group, share) in window {
        *accesses.entry(function(group)).or_default() += share.accesses;
    }
    let most = accesses.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or(0, |m| m.0)
}

/// New lines per load of each window, divided by the rate of the slowest windows.
fn new_line_rates<'a>(windows: impl Iterator<Item = &'a Window>) -> Vec<f64> {
    let rate = |window: &Window| {
        let sum = |of: fn(&Share) -> f64| window.values().map(of).sum::<f64>();
        sum(|s| s.late) / sum(|s| s.accesses).max(1.0)
    };
    let rates: Vec<f64> = windows.map(rate).collect();
    let mut sorted = rates.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let slowest = sorted.get((sorted.len() as f64 * params::QUANTILE_OF_SLOWEST_WINDOW) as usize);
    match slowest.copied().filter(|&rate| rate > 0.0) {
        Some(slowest) => rates.iter().map(|r| (r / slowest).min(1.0)).collect(),
        None => vec![0.0; rates.len()],
    }
}

/// The factors, from windows with their rates of new lines and the ratios of [`slow_down`].
fn factors<'a>(windows: impl Iterator<Item = (&'a Window, f64, [f64; 3])>) -> SpeedFactors {
    let mut sums: HashMap<Group, [Share; 4], Mixed> = HashMap::default();
    for (window, rate, [least, likely, most]) in windows {
        for (&group, share) in window {
            let sums = sums.entry(group).or_default();
            for (sum, slower) in sums.iter_mut().zip([most, likely, least, 1.0]) {
                sum.add(share, 1.0 / (1.0 + (slower - 1.0) * rate));
            }
        }
    }
    let of_group = |[most, likely, least, plain]: [Share; 4]| {
        [most, likely, least].map(|weighed| {
            let less = weighed.late / weighed.accesses * plain.accesses / plain.late;
            if less.is_finite() { less.min(1.0) } else { 1.0 }
        })
    };
    (sums
        .into_iter()
        .map(|(group, sums)| (group, of_group(sums))))
    .collect()
}

impl Share {
    fn add(&mut self, other: &Share, times: f64) {
        self.late += times * other.late;
        self.accesses += times * other.accesses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(groups: &[(u32, f64, f64)]) -> Window {
        (groups.iter())
            .map(|&(group, late, accesses)| (Group::from_raw(group), Share { late, accesses }))
            .collect()
    }

    fn with_assumed(windows: &[Window]) -> SpeedFactors {
        let rates = new_line_rates(windows.iter());
        factors((windows.iter().zip(rates)).map(|(w, rate)| (w, rate, assumed())))
    }

    #[test]
    fn windows_that_are_alike_change_nothing() {
        let alike = vec![window(&[(1, 300.0, 1000.0)]); 50];
        assert_eq!(with_assumed(&alike)[&Group::from_raw(1)], [1.0; 3]);
        // Windows contain code that misses and code that hits in varying parts. The misses per load
        // of each are independent of the speed.
        let mixed = [
            window(&[(1, 300.0, 300.0), (2, 0.0, 700.0)]),
            window(&[(1, 900.0, 900.0), (2, 0.0, 100.0)]),
        ];
        let mixed: Vec<Window> = mixed.iter().cycle().take(50).cloned().collect();
        let found = with_assumed(&mixed);
        assert!(
            (found[&Group::from_raw(1)][0] - 1.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!(with_assumed(&[]).is_empty());
    }

    /// One of three parts of a loop never misses. Its loads are underrepresented in samples by
    /// time.
    #[test]
    fn windows_of_a_loop_that_never_miss_stand_for_more_loads() {
        let parts = [
            window(&[(1, 1000.0, 1000.0)]),
            window(&[(1, 1000.0, 1000.0)]),
            window(&[(1, 0.0, 1000.0)]),
        ];
        let parts: Vec<Window> = parts.iter().cycle().take(60).cloned().collect();
        let [least, likely, most] = with_assumed(&parts)[&Group::from_raw(1)];
        // 2/3 becomes 1/2 if misses take twice as long.
        assert!(
            (least - 0.75).abs() < 1e-9 && least < likely && likely < 1.0 && most == 1.0,
            "{least} {likely}"
        );
    }
}
