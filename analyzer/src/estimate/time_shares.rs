//! Shares of time, from windows that begin at ticks of CPU time.
//!
//! A tick falls on whatever runs then, so the part of the windows that *begin* in a piece of code is an unbiased estimate of its part of the time. What a window holds further on is not: it goes
//! on for a number of records, which in fast code is less time than in slow code, and it leaves the code in which it began.
//!
//! *Which load.* Each window counts for one load, which stands for the time up to the load that follows it: the one that came before the window's first, as far as the window tells
//! ([`Beginning`]), if both are in the same function, and else the first itself; or a load of the function that the tick fell on, if the recorder tells that it was another one. The first one is no good where loads wait for memory: the interrupt lets the
//! load that waits finish, so a loop that misses in one line and hits in the next would have all of its windows in the line that hits. One load per window, so functions, lines, loops, objects,
//! regions and threads all have shares of the same thing, and those of a table's rows that do not overlap add up to the whole.
//!
//! *Interval.* With n windows of which a share p begins in the row, Wilson's interval for a share, for n_eff = n / d windows. The design effect d ≥ 1 tells how much more the shares of
//! [`BATCHES`] batches of consecutive windows differ than those of independent windows would (batch means): phases of the program make windows alike that follow each other. With few
//! windows there are no batches, and Wilson's interval alone remains, which is wide then. Quantiles are Student's for the number of batches.
//!
//! Windows stand for different times where a budget sets their rate. Each counts by its time t, and n is Kish's effective number (Σt)²/Σt².

use crate::data::code_map::{CodeMap, Target};
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo, Spot};
use crate::engine::Outcome;
use crate::estimate::{Z, student};
use crate::input::weights::Weights;
use serde::Serialize;

/// Batches of consecutive windows.
pub const BATCHES: usize = 32;
/// Batches that say how much they differ, at least.
const FEWEST: usize = 4;
/// Windows of a batch at least.
const LEAST: usize = 8;

/// A share of the time in percent, and its 95 % interval. Without windows by time nothing is known.
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
}

impl TimeShare {
    /// Of what takes all the time.
    pub const ALL: TimeShare = TimeShare {
        value: Some(100.0),
        lo: Some(100.0),
        hi: Some(100.0),
    };

    fn of((share, lo, hi): (f64, f64, f64)) -> TimeShare {
        TimeShare {
            value: Some(share * 100.0),
            lo: Some(lo * 100.0),
            hi: Some(hi * 100.0),
        }
    }
}

/// The windows of a trace by time, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct TimeShares {
    /// Number of each, and the load that it counts for.
    windows: Vec<(u32, Spot)>,
    /// What each stands for, in parts of the mean.
    times: Vec<f64>,
    /// The same of each batch.
    sizes: Counts,
    /// And of all.
    all: f64,
    /// Windows of equal times that would tell as much.
    effective: f64,
}

/// How much of each batch's time has something.
type Counts = [f64; BATCHES];

impl TimeShares {
    /// The windows that have loads.
    pub fn new(outcome: &Outcome, code: &CodeMap) -> TimeShares {
        TimeShares::of_samples(&outcome.samples, outcome.weights.as_deref(), code)
    }

    /// As [`TimeShares::new`], of these samples.
    pub(crate) fn of_samples(
        samples: &[SampleInfo],
        weights: Option<&Weights>,
        code: &CodeMap,
    ) -> TimeShares {
        let mut order: Vec<(u64, u32, Spot)> = samples
            .iter()
            .filter_map(|s| Some((s.first_time, s.sample, s.begin?)))
            .filter(|(.., begin)| begin.first.group != NO_LOAD)
            .map(|(time, sample, begin)| (time, sample, counts_for(begin, code)))
            .collect();
        order.sort_by_key(|&(time, sample, _)| (time, sample));
        let time = |sample: u32| weights.map_or(0, |w| w.time(sample));
        TimeShares::of(
            order
                .into_iter()
                .map(|(_, sample, spot)| (sample, spot, time(sample)))
                .collect(),
        )
    }

    /// From number, load and time of each window, where a time that is not known is 0.
    fn of(windows: Vec<(u32, Spot, u64)>) -> TimeShares {
        let known: Vec<f64> = windows
            .iter()
            .filter(|w| w.2 > 0)
            .map(|w| w.2 as f64)
            .collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let times: Vec<f64> = (windows.iter())
            .map(|w| if w.2 > 0 { w.2 as f64 / mean } else { 1.0 })
            .collect();
        let all: f64 = times.iter().sum();
        let squares: f64 = times.iter().map(|t| t * t).sum();
        let mut shares = TimeShares {
            times,
            windows: windows.into_iter().map(|w| (w.0, w.1)).collect(),
            sizes: [0.0; BATCHES],
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Batches that there are windows for.
    fn batches(&self) -> usize {
        (self.len() / LEAST).min(BATCHES)
    }

    /// The batch of a window.
    fn batch(&self, number: usize) -> usize {
        number * self.batches().max(1) / self.len().max(1)
    }

    /// Shares of all rows of a kind.
    pub fn by_code(&self, code: &CodeMap, target: Target) -> Vec<TimeShare> {
        let mut counts: Vec<Counts> = vec![[0.0; BATCHES]; code.rows(target)];
        for (number, &(_, spot)) in self.windows.iter().enumerate() {
            let batch = self.batch(number);
            code.targets(target, spot.group)
                .iter()
                .for_each(|&row| counts[row as usize][batch] += self.times[number]);
        }
        counts.iter().map(|of| self.share(of)).collect()
    }

    /// The share of the windows whose loads these are.
    pub(crate) fn of_spots(&self, has: impl Fn(u32, Spot) -> bool) -> TimeShare {
        let mut counts = [0.0; BATCHES];
        for (number, &(sample, spot)) in self.windows.iter().enumerate() {
            if has(sample, spot) {
                counts[self.batch(number)] += self.times[number];
            }
        }
        self.share(&counts)
    }

    /// The shares of so many rows, each of the windows for which `of` names it.
    pub(crate) fn by_rows(&self, rows: usize, of: impl Fn(u32) -> Vec<usize>) -> Vec<TimeShare> {
        let mut counts: Vec<Counts> = vec![[0.0; BATCHES]; rows];
        for (number, &(sample, _)) in self.windows.iter().enumerate() {
            let batch = self.batch(number);
            for row in of(sample) {
                counts[row][batch] += self.times[number];
            }
        }
        counts.iter().map(|of| self.share(of)).collect()
    }

    /// Number of each window, in the order of time, and the load that it counts for.
    pub(crate) fn spots(&self) -> &[(u32, Spot)] {
        &self.windows
    }

    /// The share of what begins some windows, or has a part of each.
    pub fn of_windows(&self, part: impl Fn(u32) -> f64) -> TimeShare {
        let mut counts = [0.0; BATCHES];
        for (number, &(sample, _)) in self.windows.iter().enumerate() {
            counts[self.batch(number)] += part(sample) * self.times[number];
        }
        self.share(&counts)
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

    fn share(&self, counts: &Counts) -> TimeShare {
        if self.is_empty() {
            return TimeShare::default();
        }
        let (n, all) = (self.effective, self.all);
        let p = (counts.iter().sum::<f64>() / all).clamp(0.0, 1.0);
        let batches = self.batches();
        let simple = p * (1.0 - p) / n;
        if batches < FEWEST || simple == 0.0 {
            let (lo, hi) = wilson(p, n, Z);
            return TimeShare::of((p, lo, hi));
        }
        // Phases may be longer than a batch. Longer ones tell that, but there are fewer of them.
        let widest = [1, 2, 4]
            .into_iter()
            .filter(|&together| batches / together >= FEWEST)
            .map(|together| {
                let parts = batches.div_ceil(together) as f64;
                let varies: f64 = counts[..batches]
                    .chunks(together)
                    .zip(self.sizes[..batches].chunks(together))
                    // Of a ratio: batches that stand for more time count for more.
                    .map(|(c, s)| {
                        let off = c.iter().sum::<f64>() - p * s.iter().sum::<f64>();
                        (off * parts / all).powi(2)
                    })
                    .sum::<f64>()
                    / (parts * (parts - 1.0));
                ((varies / simple).max(1.0), student(parts - 1.0))
            })
            .max_by(|a, b| (a.0 * a.1 * a.1).total_cmp(&(b.0 * b.1 * b.1)));
        let (effect, quantile) = widest.unwrap_or((1.0, Z));
        let (lo, hi) = wilson(p, n / effect, quantile);
        TimeShare::of((p, lo, hi))
    }
}

/// The load that a window counts for.
pub(crate) fn counts_for(begin: Beginning, code: &CodeMap) -> Spot {
    begin.chosen(|spot| code.targets(Target::Function, spot.group).first().copied())
}

/// Wilson's interval of a share that was found in `n` windows.
fn wilson(p: f64, n: f64, z: f64) -> (f64, f64) {
    let square = z * z / n;
    let middle = (p + square / 2.0) / (1.0 + square);
    let half = z / (1.0 + square) * (p * (1.0 - p) / n + square / (4.0 * n)).sqrt();
    ((middle - half).clamp(0.0, p), (middle + half).clamp(p, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(group: u32) -> Spot {
        Spot { group, address: 0 }
    }

    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 33) as f64 / (1u64 << 31) as f64
    }

    #[test]
    fn wilsons_interval_is_that_of_tables() {
        let (lo, hi) = wilson(0.0, 10.0, Z);
        assert!(lo == 0.0 && (hi - 0.2775).abs() < 1e-3, "{hi}");
        let (lo, hi) = wilson(0.25, 400.0, Z);
        assert!((lo - 0.210).abs() < 1e-3 && (hi - 0.2946).abs() < 1e-3);
    }

    /// Windows of a program that stays in one of two places for a while cover the truth as often as they should, and independent ones have no wider intervals than needed.
    #[test]
    fn intervals_cover_the_share_of_clustered_windows() {
        for (stay, most_width) in [(0.0, 16.0), (0.8, 48.0)] {
            let mut state = 5;
            let (mut covered, mut width) = (0, 0.0);
            let cases = 400;
            for _ in 0..cases {
                let mut inside = random(&mut state) < 0.25;
                let windows: Vec<(u32, u32)> = (0..400)
                    .map(|sample| {
                        if random(&mut state) >= stay {
                            inside = random(&mut state) < 0.25;
                        }
                        (sample, u32::from(inside))
                    })
                    .collect();
                // Early windows stand for less time, as with a budget.
                let with_time =
                    |&(s, code): &(u32, u32)| (s, spot(code), if s < 200 { 1_000 } else { 1_500 });
                let shares = TimeShares::of(windows.iter().map(with_time).collect());
                let found = shares.of_windows(|s| f64::from(windows[s as usize].1));
                let (lo, hi) = (found.lo.unwrap(), found.hi.unwrap());
                covered += u32::from((lo..=hi).contains(&25.0));
                width += (hi - lo) / f64::from(cases);
            }
            assert!(
                f64::from(covered) >= 0.93 * f64::from(cases) && width < most_width,
                "stay {stay}: {covered} of {cases}, width {width}"
            );
        }
    }

    #[test]
    fn windows_count_by_the_time_that_they_stand_for() {
        let shares = TimeShares::of(vec![(0, spot(0), 1_000), (1, spot(1), 3_000)]);
        let first = shares.of_windows(|s| f64::from(s == 0));
        assert_eq!(first.value, Some(25.0));
    }

    #[test]
    fn few_windows_say_little() {
        let shares = TimeShares::of(vec![(0, spot(0), 0), (1, spot(0), 0), (2, spot(0), 0)]);
        let none = shares.of_windows(|_| 0.0);
        assert!(none.value == Some(0.0) && none.hi.unwrap() > 50.0);
        assert_eq!(
            TimeShares::default().of_windows(|_| 1.0),
            TimeShare::default()
        );
    }
}
