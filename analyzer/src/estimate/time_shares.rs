//! Shares of time, from windows that begin at ticks of CPU time.
//!
//! A tick falls on the code that is running, so the share of windows that *begin* in a piece of
//! code is an unbiased estimate of its share of time. The rest of a window is not: it lasts for a
//! number of records, which takes less time in fast code than in slow code, and it leaves the code
//! in which it began.
//!
//! *Load of a window.* Each window counts for one load, which represents the time until the next
//! load. This is the load before the window's first, if the window shows it ([`Beginning`]) and
//! both are in the same function; otherwise the first load itself. If the recorder has seen the
//! tick in another function, it is a load of that function. The first load alone would be wrong if
//! loads wait for memory. The interrupt lets the waiting load finish. In a loop that misses in one
//! line and hits in the next, all windows would count for the line that hits. Since each window has
//! one load, functions, lines, loops, objects, regions and threads all have shares of the same
//! whole, and the shares of rows that do not overlap add up to it.
//!
//! *Interval.* Windows come at regular times, so they are a systematic sample of the run. Its
//! variance is estimated from successive differences (Wolter, Introduction to Variance Estimation,
//! 2nd ed., section 8.2, estimator v2): neighbours in one phase of the program are alike and add
//! nothing; only phase changes do. The variance of independent windows is an upper bound. The
//! interval is Wilson's for the number of independent windows that would give this variance.
//!
//! *Another run.* Phases of another run of the program may have other lengths. Comparisons of runs
//! therefore use batch means: the variance between batches of consecutive windows
//! ([`params::MAX_BATCHES_OF_WINDOWS`]).
//!
//! Windows represent different times if a budget sets their rate. Each counts by its time t, and n
//! is Kish's effective number (Σt)²/Σt².

use crate::data::code_map::{CodeMap, Target};
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo, Spot};
use crate::engine::EngineOutcome;
use crate::estimate::params;
use crate::input::weights::Weights;
use mgz_models::statistics::distributions::student_quantile;
use mgz_models::statistics::{NORMAL_QUANTILE_OF_95_PCT, wilson_interval};
use serde::Serialize;

/// A share of the time in percent, and its 95 % interval. All are `None` without windows by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeShare {
    /// The estimate.
    #[serde(rename = "time_pct")]
    pub value: Option<f64>,
    /// Lower end.
    #[serde(rename = "time_pct_lo")]
    pub lo: Option<f64>,
    /// Upper end.
    #[serde(rename = "time_pct_hi")]
    pub hi: Option<f64>,
    /// Ends of an interval for another run of the same program, percent. Only comparisons use it.
    #[serde(skip)]
    pub of_runs: Option<(f64, f64)>,
}

impl TimeShare {
    /// The share of the whole run.
    pub const ALL: TimeShare = TimeShare {
        value: Some(100.0),
        lo: Some(100.0),
        hi: Some(100.0),
        of_runs: Some((100.0, 100.0)),
    };

    /// The lower end, the estimate and the upper end; 0 if unknown.
    pub(crate) fn ends(self) -> [f64; 3] {
        let value = self.value.unwrap_or(0.0);
        [self.lo.unwrap_or(value), value, self.hi.unwrap_or(value)]
    }
}

/// A window with the load and the time that it represents.
#[derive(Clone, Copy)]
struct TimedWindow {
    sample: u32,
    /// The load that the window counts for.
    spot: Spot,
    /// Nanoseconds of its thread's time; 0 if unknown.
    ns: u64,
    /// Process and thread.
    thread: (u32, u32),
}

/// The windows of a trace by time, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct TimeShares {
    /// Sample number and load of each window.
    windows: Vec<(u32, Spot)>,
    /// The time that each window represents, as a multiple of the mean.
    times: Vec<f64>,
    /// The windows in the order of threads, and of time inside each thread.
    by_thread: Vec<usize>,
    /// By position in that order: the window's time less that of its predecessor in the thread.
    /// None for the first window of a thread.
    steps: Vec<Option<f64>>,
    /// Sum of the squares of these steps, and their number.
    squares: (f64, usize),
    /// Time of each batch.
    sizes: Counts,
    /// Time of all windows.
    all: f64,
    /// Number of windows of equal times with the same evidence.
    effective: f64,
}

/// Time of each batch.
type Counts = [f64; params::MAX_BATCHES_OF_WINDOWS];

/// Sums over the windows of a row. Windows are added in the order of [`TimeShares::by_thread`].
#[derive(Clone, Default)]
struct RowSums {
    batches: Counts,
    /// Windows that are in the row, at least in part.
    windows: usize,
    /// With `y` the time of a window if it is in the row, else 0: sum of (y − y of the
    /// predecessor)².
    squares: f64,
    /// Sum of (y − y of the predecessor)·(time − time of the predecessor).
    products: f64,
    /// Position and `y` of the window that was added last.
    last: Option<(usize, f64)>,
}

impl TimeShares {
    /// Built from the samples that have loads.
    pub fn new(outcome: &EngineOutcome, code: &CodeMap) -> TimeShares {
        TimeShares::of_samples(&outcome.samples, outcome.weights.as_deref(), code)
    }

    /// As [`TimeShares::new`], from these samples.
    pub(crate) fn of_samples(
        samples: &[SampleInfo],
        weights: Option<&Weights>,
        code: &CodeMap,
    ) -> TimeShares {
        let mut order: Vec<(&SampleInfo, Beginning)> = samples
            .iter()
            .filter_map(|s| Some((s, s.begin?)))
            .filter(|(_, begin)| begin.first.group != NO_LOAD)
            .collect();
        order.sort_by_key(|(s, _)| (s.first_time, s.sample));
        let windows = order.into_iter().map(|(s, begin)| TimedWindow {
            sample: s.sample,
            spot: counts_for(begin, code),
            ns: weights.map_or(0, |w| w.time(s.sample)),
            thread: (s.process, s.thread),
        });
        TimeShares::of(windows.collect())
    }

    /// From windows in the order of time.
    fn of(windows: Vec<TimedWindow>) -> TimeShares {
        let known = || windows.iter().map(|w| w.ns as f64).filter(|&ns| ns > 0.0);
        let mean = known().sum::<f64>() / known().count().max(1) as f64;
        let times: Vec<f64> = (windows.iter())
            .map(|w| if w.ns > 0 { w.ns as f64 / mean } else { 1.0 })
            .collect();
        let mut by_thread: Vec<usize> = (0..windows.len()).collect();
        // The sort is stable, so windows of a thread stay in the order of time.
        by_thread.sort_by_key(|&number| windows[number].thread);
        let steps: Vec<Option<f64>> = (0..windows.len())
            .map(|at| {
                let (before, here) = (by_thread[at.checked_sub(1)?], by_thread[at]);
                let same = windows[before].thread == windows[here].thread;
                same.then(|| times[here] - times[before])
            })
            .collect();
        let known_steps = || steps.iter().flatten();
        let squares_of_steps = (known_steps().map(|d| d * d).sum(), known_steps().count());
        let all: f64 = times.iter().sum();
        let squares: f64 = times.iter().map(|t| t * t).sum();
        let mut shares = TimeShares {
            times,
            by_thread,
            steps,
            squares: squares_of_steps,
            windows: windows.into_iter().map(|w| (w.sample, w.spot)).collect(),
            sizes: [0.0; params::MAX_BATCHES_OF_WINDOWS],
            all,
            effective: if squares > 0.0 {
                all * all / squares
            } else {
                0.0
            },
        };
        for number in 0..shares.len() {
            shares.sizes[shares.batch(number)] += shares.times[number];
        }
        shares
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Number of batches.
    fn batches(&self) -> usize {
        (self.len() / params::MIN_WINDOWS_OF_BATCH).min(params::MAX_BATCHES_OF_WINDOWS)
    }

    /// The batch of a window.
    fn batch(&self, number: usize) -> usize {
        number * self.batches().max(1) / self.len().max(1)
    }

    /// Adds the window at a position of [`TimeShares::by_thread`] to a row, with `y` of its time.
    fn add(&self, row: &mut RowSums, at: usize, y: f64) {
        row.batches[self.batch(self.by_thread[at])] += y;
        row.windows += usize::from(y > 0.0);
        if let Some(step) = self.steps[at] {
            let mut previous = 0.0;
            if let Some((_, before)) = row.last.filter(|last| last.0 + 1 == at) {
                // When the predecessor was added, this window was assumed to be outside of the row:
                // undo that.
                previous = before;
                row.squares -= previous * previous;
                row.products += previous * step;
            }
            row.squares += (y - previous).powi(2);
            row.products += (y - previous) * step;
        }
        if let Some(Some(step)) = self.steps.get(at + 1) {
            row.squares += y * y;
            row.products -= y * step;
        }
        row.last = Some((at, y));
    }

    /// Shares of all rows of a kind.
    pub fn by_code(&self, code: &CodeMap, target: Target) -> Vec<TimeShare> {
        let mut rows = vec![RowSums::default(); code.rows(target)];
        for (at, &number) in self.by_thread.iter().enumerate() {
            for &row in code.targets(target, self.windows[number].1.group) {
                self.add(&mut rows[row as usize], at, self.times[number]);
            }
        }
        rows.iter().map(|row| self.share(row)).collect()
    }

    /// The share of the windows whose load satisfies `has`.
    pub(crate) fn of_spots(&self, has: impl Fn(u32, Spot) -> bool) -> TimeShare {
        let mut row = RowSums::default();
        for (at, &number) in self.by_thread.iter().enumerate() {
            let (sample, spot) = self.windows[number];
            if has(sample, spot) {
                self.add(&mut row, at, self.times[number]);
            }
        }
        self.share(&row)
    }

    /// The shares of rows. `of`: the rows of a sample's window.
    pub(crate) fn by_rows(&self, rows: usize, of: impl Fn(u32) -> Vec<usize>) -> Vec<TimeShare> {
        let mut sums = vec![RowSums::default(); rows];
        for (at, &number) in self.by_thread.iter().enumerate() {
            for row in of(self.windows[number].0) {
                self.add(&mut sums[row], at, self.times[number]);
            }
        }
        sums.iter().map(|row| self.share(row)).collect()
    }

    /// Number of each window, in the order of time, and the load that it counts for.
    pub(crate) fn spots(&self) -> &[(u32, Spot)] {
        &self.windows
    }

    /// The time share of anything that has a part of each window, 0 to 1.
    pub fn of_windows(&self, part: impl Fn(u32) -> f64) -> TimeShare {
        let mut row = RowSums::default();
        for (at, &number) in self.by_thread.iter().enumerate() {
            self.add(
                &mut row,
                at,
                part(self.windows[number].0) * self.times[number],
            );
        }
        self.share(&row)
    }

    /// Windows that begin in each row of a kind.
    pub fn windows_by_code(&self, code: &CodeMap, target: Target) -> Vec<Vec<u32>> {
        let mut windows = vec![Vec::new(); code.rows(target)];
        for &(sample, spot) in &self.windows {
            code.targets(target, spot.group)
                .iter()
                .for_each(|&row| windows[row as usize].push(sample));
        }
        windows
    }

    fn share(&self, row: &RowSums) -> TimeShare {
        if self.is_empty() {
            return TimeShare::default();
        }
        let n = self.effective;
        let p = (row.batches.iter().sum::<f64>() / self.all).clamp(0.0, 1.0);
        let independent = p * (1.0 - p) / n;
        let ((lo, hi), of_runs) = if independent > 0.0 {
            let few =
                row.windows.min(self.len() - row.windows) < params::MIN_WINDOWS_FOR_DIFFERENCES;
            let effect = match few {
                true => 1.0,
                false => (self.variance(row, p) / independent).min(1.0),
            };
            // The effective number of windows is at least `n`, that of independent windows, and is
            // limited to its square.
            let here = wilson_interval(p, n / effect.max(1.0 / n), NORMAL_QUANTILE_OF_95_PCT);
            let (effect, quantile) = self.effect_of_batches(&row.batches, p, independent);
            (here, wilson_interval(p, n / effect, quantile))
        } else {
            (
                wilson_interval(p, n, NORMAL_QUANTILE_OF_95_PCT),
                wilson_interval(p, n, NORMAL_QUANTILE_OF_95_PCT),
            )
        };
        TimeShare {
            value: Some(100.0 * p),
            lo: Some(100.0 * lo),
            hi: Some(100.0 * hi),
            of_runs: Some((100.0 * of_runs.0, 100.0 * of_runs.1)),
        }
    }

    /// The variance of a row's share `p` by successive differences inside threads.
    fn variance(&self, row: &RowSums, p: f64) -> f64 {
        let (squares, pairs) = self.squares;
        if pairs == 0 {
            return f64::INFINITY;
        }
        let sum = (row.squares - 2.0 * p * row.products + p * p * squares).max(0.0);
        self.len() as f64 * sum / (2.0 * pairs as f64) / (self.all * self.all)
    }

    /// The design effect by batch means, at least 1, and the quantile for its interval.
    fn effect_of_batches(&self, counts: &Counts, p: f64, independent: f64) -> (f64, f64) {
        let batches = self.batches();
        // Phases may be longer than a batch. Longer batches show that, but there are fewer of them.
        let least = params::MIN_BATCHES_FOR_VARIANCE;
        let widest = params::BATCHES_TAKEN_TOGETHER
            .into_iter()
            .filter(|&together| batches >= least && batches / together >= least)
            .map(|together| {
                let parts = batches.div_ceil(together) as f64;
                let varies: f64 = counts[..batches]
                    .chunks(together)
                    .zip(self.sizes[..batches].chunks(together))
                    // A ratio estimate: batches of more time have more weight.
                    .map(|(c, s)| {
                        let off = c.iter().sum::<f64>() - p * s.iter().sum::<f64>();
                        (off * parts / self.all).powi(2)
                    })
                    .sum::<f64>()
                    / (parts * (parts - 1.0));
                (
                    (varies / independent).max(1.0),
                    student_quantile(parts - 1.0),
                )
            })
            .max_by(|a, b| (a.0 * a.1 * a.1).total_cmp(&(b.0 * b.1 * b.1)));
        widest.unwrap_or((1.0, NORMAL_QUANTILE_OF_95_PCT))
    }
}

/// The load that a window counts for.
pub(crate) fn counts_for(begin: Beginning, code: &CodeMap) -> Spot {
    begin.chosen(|spot| code.targets(Target::Function, spot.group).first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;

    fn spot(group: u32) -> Spot {
        let group = Group::from_raw(group);
        Spot { group, address: 0 }
    }

    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 33) as f64 / (1u64 << 31) as f64
    }

    fn window(sample: u32, group: u32, ns: u64) -> TimedWindow {
        TimedWindow {
            sample,
            spot: spot(group),
            ns,
            thread: (1, 1),
        }
    }

    /// A run that alternates between two pieces of code, in phases of random lengths, in units of
    /// the distance between windows. Returns the ends of the phases; the first is in code 1.
    fn phases(mean: [f64; 2], windows: usize, state: &mut u64) -> Vec<f64> {
        let (mut ends, mut at) = (Vec::new(), 0.0);
        while at < windows as f64 {
            let mean = mean[ends.len() % 2];
            at += mean * (0.5 + random(state));
            ends.push(at.min(windows as f64));
        }
        ends
    }

    fn in_first(ends: &[f64], at: f64) -> bool {
        ends.partition_point(|&end| end <= at) % 2 == 0
    }

    fn share_of_first(ends: &[f64]) -> f64 {
        let begins = std::iter::once(&0.0).chain(ends);
        let lengths = begins.zip(ends).map(|(b, e)| e - b).step_by(2);
        100.0 * lengths.sum::<f64>() / ends.last().unwrap()
    }

    /// Intervals contain the share of the run's time, and are narrow for long phases.
    #[test]
    fn intervals_hold_the_share_of_a_run_with_phases() {
        // Lengths of phases, and the width that Wilson's interval has for 400 windows, percent.
        for (mean, widest) in [([0.3, 0.9], 9.0), ([4.0, 12.0], 6.0), ([40.0, 120.0], 2.2)] {
            let (mut state, cases) = (5, 400);
            let (mut held, mut width) = (0, 0.0);
            for _ in 0..cases {
                let ends = phases(mean, 400, &mut state);
                let start = random(&mut state);
                // The second half of the run has half as many windows, each for twice the time.
                let windows = (0..400u32)
                    .filter(|at| *at < 200 || at % 2 == 0)
                    .map(|at| {
                        let first = in_first(&ends, f64::from(at) + start);
                        window(at, u32::from(first), if at < 200 { 1000 } else { 2000 })
                    })
                    .collect();
                let found = TimeShares::of(windows).of_spots(|_, spot| spot.group.raw() == 1);
                let (lo, hi) = (found.lo.unwrap(), found.hi.unwrap());
                held += u32::from((lo..=hi).contains(&share_of_first(&ends)));
                width += (hi - lo) / f64::from(cases);
            }
            assert!(
                f64::from(held) >= 0.93 * f64::from(cases) && width < 1.3 * widest,
                "{mean:?}: {held} of {cases}, width {width}"
            );
        }
    }

    /// Another run may have other phases. Comparisons need an interval that includes these.
    #[test]
    fn intervals_of_runs_hold_the_mean_of_runs() {
        let (mut state, cases, mut held) = (7, 400, 0);
        for _ in 0..cases {
            let ends = phases([10.0, 30.0], 400, &mut state);
            let begin = |at: u32| window(at, u32::from(in_first(&ends, f64::from(at))), 0);
            let shares = TimeShares::of((0..400).map(begin).collect());
            let (lo, hi) = shares
                .of_spots(|_, spot| spot.group.raw() == 1)
                .of_runs
                .unwrap();
            held += u32::from((lo..=hi).contains(&25.0));
        }
        assert!(
            f64::from(held) >= 0.93 * f64::from(cases),
            "{held} of {cases}"
        );
    }

    /// If few windows see a short phase, its number of windows is as random as with independent
    /// windows.
    #[test]
    fn few_windows_of_a_phase_are_as_independent_ones() {
        let met = |few: u32| {
            let shares = TimeShares::of(
                (0..600)
                    .map(|at| window(at, u32::from(at < few), 0))
                    .collect(),
            );
            let found = shares.of_spots(|_, spot| spot.group.raw() == 1);
            (found.lo.unwrap(), found.hi.unwrap())
        };
        let (lo, hi) = wilson_interval(3.0 / 600.0, 600.0, NORMAL_QUANTILE_OF_95_PCT);
        assert_eq!(met(3), (100.0 * lo, 100.0 * hi));
        let (lo, hi) = met(300);
        assert!(hi - lo < 1.0, "{lo} {hi}");
    }

    /// Windows of several threads alternate in time. Each thread is sampled separately.
    #[test]
    fn threads_are_sampled_each_by_itself() {
        let begin = |at: u32| TimedWindow {
            thread: (1, at % 2),
            ..window(at, at % 2, 0)
        };
        let shares = TimeShares::of((0..400).map(begin).collect());
        let half = shares.of_spots(|_, spot| spot.group.raw() == 1);
        assert!(half.value == Some(50.0) && half.hi.unwrap() - half.lo.unwrap() < 1.0);
    }

    /// Sums by steps agree with the definition for any selection of windows in the row.
    #[test]
    fn variance_is_that_of_successive_differences() {
        let mut state = 3;
        for _ in 0..100 {
            let mut windows: Vec<TimedWindow> = (0..40).map(|at| window(at, 0, 0)).collect();
            for w in &mut windows {
                w.spot = spot((random(&mut state) * 2.0) as u32);
                w.ns = 1 + (random(&mut state) * 100.0) as u64;
                w.thread.1 = (random(&mut state) * 3.0) as u32;
            }
            let shares = TimeShares::of(windows.clone());
            let mut row = RowSums::default();
            for (at, &number) in shares.by_thread.iter().enumerate() {
                if windows[number].spot.group.raw() == 1 {
                    shares.add(&mut row, at, shares.times[number]);
                }
            }
            let p = row.batches.iter().sum::<f64>() / shares.all;
            let rest = |number: usize| {
                let inside = f64::from(windows[number].spot.group.raw());
                shares.times[number] * (inside - p)
            };
            let pairs = shares.by_thread.windows(2);
            let pairs = pairs.filter(|p| windows[p[0]].thread == windows[p[1]].thread);
            let differences: Vec<f64> = pairs.map(|p| rest(p[1]) - rest(p[0])).collect();
            let sum: f64 = differences.iter().map(|d| d * d).sum();
            let expected = 40.0 * sum / (2.0 * differences.len() as f64) / shares.all.powi(2);
            let found = shares.variance(&row, p);
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn windows_count_by_the_time_that_they_stand_for() {
        let shares = TimeShares::of(vec![window(0, 0, 1_000), window(1, 1, 3_000)]);
        let first = shares.of_windows(|s| f64::from(s == 0));
        assert_eq!(first.value, Some(25.0));
    }

    #[test]
    fn few_windows_say_little() {
        let shares = TimeShares::of((0..3).map(|at| window(at, 0, 0)).collect());
        let none = shares.of_windows(|_| 0.0);
        assert!(none.value == Some(0.0) && none.hi.unwrap() > 50.0);
        assert_eq!(
            TimeShares::default().of_windows(|_| 1.0),
            TimeShare::default()
        );
    }
}
