//! Estimates for the unsampled part of a run, with 95 % intervals.
//!
//! **Footprint.** A run is a population of windows, of which a share q = 1/ρ was sampled without
//! replacement. Let f1 (f2) be the number of addresses that exactly one (two) of the T sampled
//! windows has seen: singletons and doubletons. The number of addresses that no sampled window has
//! seen is estimated by
//!
//! > f0 = f1 / (y + q/(1−q)), y = 2·T/(T−1)·f2/f1
//!
//! (Chao and Lin, *Nonparametric lower bounds for species richness and shared species richness
//! under sampling without replacement*, Biometrics 2012, for incidence data), and F_hat = F + f0.
//! This estimator was chosen for three properties. It is exact in expectation if all addresses
//! occur in the same number of windows, whatever that number is (loops over data), and otherwise a
//! lower bound, so it does not overestimate. Without overlap between samples (f2 = 0) it equals
//! ρ·F, the report's estimator, and it never exceeds that. It tends to F as q tends to 1.
//! Good–Turing coverage and the plain Chao estimator lack the second and third property, and
//! footprint theory needs reuse intervals of all lengths, most of which samples hide.
//!
//! The estimator has these refinements:
//!
//! - *Chance.* Addresses that are used at random occur in a Poisson number of windows, for which f0
//!   = f1/y·(1 − exp(−y·(1−q)/q)), with the same limits. The two formulas are mixed by the share of
//!   addresses that Irregular loads touch.
//! - *Uneven use.* If the mean numbers of windows follow a gamma distribution, as those of vertices
//!   of a graph nearly do, f0 = f1·∫(1 + v·y·t)^(−1/v) dt from 0 to (1−q)/q, again with the same
//!   limits, and 1 + v = 1.5·f1·f3/f2².
//! - *Clusters.* The addresses of one window are seen together, so the independent evidence is in
//!   coincidences of windows, not of addresses. Bias correction and intervals use the effective
//!   number of these.
//! - *Strata.* Addresses with similar use lie together. The address range is cut where both sides
//!   differ, and each part is estimated separately, which tightens the lower bound.
//! - *Room.* The unseen addresses must fit in the lines of 64 addresses that are in use. The number
//!   of these lines is estimated in the same way (and limited by that of pages, and so on). If few
//!   samples have seen some data, coincidences say little about addresses, but more about lines and
//!   pages.
//! - *Samples that represent different numbers of loads.* q is that of the samples from which the
//!   singletons of the stratum come.
//! - *Intervals.* The number of coincidences is Poisson (exact bounds). The number of singletons
//!   varies by sample (its observed variance). The share of chance, the unevenness and the weights
//!   of samples are uncertain, and the unseen number itself varies around its expectation. All of
//!   these go through the formula; strata add up in quadrature.
//!
//! **Totals and means** (A, D): samples of `burst` are taken by time, and each load counts as many
//! times as its window represents executed loads (`windows.parquet`). The error of that number is
//! added in quadrature, as a factor. Samples are divided into 32 replicates. Leaving out one at a
//! time gives the variance (delete-a-group jackknife).

pub(crate) mod capacity;
mod clusters;
pub(crate) mod curve;
pub(crate) mod curve_order;
pub(crate) mod curve_points;
pub(crate) mod curve_sightings;
pub(crate) mod curve_strata;
pub(crate) mod groups;
pub mod growth_tables;
pub(crate) mod params;
pub(crate) mod part_loads;
pub mod raking;
pub(crate) mod recapture;
pub mod row_estimates;
pub mod sample_shares;
pub mod time_shares;

use crate::estimate::time_shares::TimeShare;
use crate::input::weights::{UNIT, Weights};
use crate::stages::reuse::{REPLICATES, RepSums};
use mgz_annotations_schema::window_loads;
use mgz_models::statistics::distributions::student_quantile;
use mgz_models::statistics::{NORMAL_QUANTILE_OF_95_PCT, jackknife_variance};
use serde::Serialize;
use std::cmp::Ordering;

pub use crate::estimate::curve::{Curve, CurvePoint, Order, curve};
pub use crate::estimate::groups::{Blocks, Grouped, Kinds, Sightings};
pub use crate::estimate::recapture::{Block, Listed};

/// The sampling design.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Share of the run that was sampled: 1/ρ.
    pub share: f64,
    /// Samples.
    pub samples: u64,
    /// Share of the samples whose addresses are known ([`crate::stages::incidence`]).
    pub kept: f64,
    /// Relative error of the samples' weights if samples represent different numbers of loads
    /// ([`crate::input::weights`]): known to within a factor of 1 + this (95 % interval).
    pub weights: Option<f64>,
    /// In that case: the number of windows that the samples with known addresses represent
    /// ([`crate::estimate::sample_shares`]).
    pub windows: Option<f64>,
}

impl Design {
    /// A design with the given sample ratio.
    pub fn new(rho: f64, samples: u64) -> Design {
        Design {
            share: (1.0 / rho.max(1.0)).clamp(f64::MIN_POSITIVE, 1.0),
            samples,
            kept: 1.0,
            weights: None,
            windows: None,
        }
    }

    /// Sets the relative error of the weights.
    pub fn weighted(self, error: Option<f64>) -> Design {
        Design {
            weights: error,
            ..self
        }
    }

    /// Sets the number of windows that the samples represent, if they do not all represent equally
    /// many ([`crate::estimate::sample_shares`]).
    pub fn standing_for(self, windows: Option<f64>) -> Design {
        Design { windows, ..self }
    }

    /// Divisor that makes sums over samples means over windows of the run.
    pub(crate) fn windows(&self) -> f64 {
        self.windows.unwrap_or(self.marked().samples.max(1) as f64)
    }

    /// Sets the share of samples that have marks.
    pub fn keeping(self, kept: f64) -> Design {
        Design {
            kept: kept.clamp(0.0, 1.0),
            ..self
        }
    }

    /// The design restricted to the samples that have marks.
    pub(crate) fn marked(self) -> Design {
        if self.kept >= 1.0 {
            return self;
        }
        Design {
            share: (self.share * self.kept).max(f64::MIN_POSITIVE),
            samples: (self.samples as f64 * self.kept).round().max(1.0) as u64,
            kept: 1.0,
            ..self
        }
    }

    /// True if the whole run was recorded.
    pub fn complete(&self) -> bool {
        self.share >= 1.0 - 1e-9
    }
}

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Estimate {
    /// A known value.
    pub fn exact(value: f64) -> Estimate {
        Estimate {
            value,
            lo: value,
            hi: value,
        }
    }

    /// Multiplies value and bounds by a known factor.
    pub(crate) fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            lo: self.lo * factor,
            hi: self.hi * factor,
        }
    }

    /// Raises value and bounds to a known minimum.
    pub(crate) fn at_least(self, known: f64) -> Estimate {
        Estimate {
            value: self.value.max(known),
            lo: self.lo.max(known),
            hi: self.hi.max(known),
        }
    }

    /// Widens the interval downward and upward by these additional errors.
    fn widened(self, [less, more]: [f64; 2]) -> Estimate {
        Estimate {
            value: self.value,
            lo: self.value - (self.value - self.lo).hypot(less),
            hi: self.value + (self.hi - self.value).hypot(more),
        }
    }

    /// True if the interval is too wide to act on: its ends differ by more than a factor of two.
    pub fn is_vague(&self) -> bool {
        !matches!(
            self.hi
                .partial_cmp(&(params::MAX_RATIO_OF_INTERVAL_ENDS * self.lo)),
            Some(Ordering::Less | Ordering::Equal)
        )
    }
}

/// Delete-a-group jackknife over replicates. `samples` are the samples of each replicate. `of`
/// computes the statistic without one of them (or with all); its second argument is the remaining
/// share of all samples. `None` with fewer than four replicates in use.
fn jackknife(
    samples: &[u64; REPLICATES],
    share: f64,
    of: impl Fn(Option<usize>, f64) -> Option<f64>,
) -> Option<(f64, f64, f64)> {
    let total: u64 = samples.iter().sum();
    let value = of(None, 1.0)?;
    let used: Vec<usize> = (0..REPLICATES).filter(|&r| samples[r] > 0).collect();
    let rest = used.iter().filter(|&&r| total > samples[r]);
    let without: Vec<f64> = rest
        .filter_map(|&r| of(Some(r), (total - samples[r]) as f64 / total as f64))
        .collect();
    let n = without.len() as f64;
    if n < params::MIN_REPLICATES_FOR_JACKKNIFE || without.len() < used.len() {
        return None;
    }
    let variance = jackknife_variance(&without) * (1.0 - share).max(0.0);
    let half = student_quantile(n - 1.0) * variance.sqrt();
    Some((value, value - half, value + half))
}

/// Loads of a group of code by replicate of samples, including implied loads. Code of one class
/// differs in the number of loads that it implies, so touches are not a measure of loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicateLoads {
    /// Recorded and implied loads.
    plain: [f64; REPLICATES],
    /// These loads, weighted by the number that each load's sample represents.
    weighted: [f64; REPLICATES],
}

impl ReplicateLoads {
    /// Adds a group with `loads` recorded and implied loads, in proportion to its touches.
    pub fn add(&mut self, sums: &[RepSums; REPLICATES], loads: u64) {
        let touches: u64 = sums.iter().map(|s| s.touches).sum();
        // An access may touch two blocks.
        let by_touch = loads as f64 / touches.max(1) as f64;
        for (at, sum) in sums.iter().enumerate() {
            self.plain[at] += sum.touches as f64 * by_touch;
            self.weighted[at] += sum.weighted as f64 * by_touch / UNIT as f64;
        }
    }
}

/// Number of loads that a group of code has executed in the whole run. The run need not begin and
/// end with a period; the interval includes this, as a uniform distribution over one period. It is
/// the only variation if all samples are alike.
pub fn executed_loads(
    loads: &ReplicateLoads,
    samples: &[u64; REPLICATES],
    design: Design,
) -> Option<Estimate> {
    let observed: f64 = loads.plain.iter().sum();
    if design.complete() {
        return Some(Estimate::exact(observed));
    }
    let ends = NORMAL_QUANTILE_OF_95_PCT / 12f64.sqrt() / design.samples.max(1) as f64;
    let total = |of: &[f64; REPLICATES], without: Option<usize>| {
        of.iter()
            .enumerate()
            .filter(|(r, _)| Some(*r) != without)
            .map(|(_, loads)| loads)
            .sum::<f64>()
    };
    if let Some(error) = design.weights {
        let (value, lo, _) = jackknife(samples, design.share, |without, part| {
            Some(total(&loads.weighted, without) / part)
        })?;
        // The errors of the choice of samples and of their weights.
        let factor = 1.0 + ((value - lo) / value).hypot(ends).hypot(error);
        return (value > 0.0).then(|| Estimate {
            value,
            lo: (value / factor).max(observed),
            hi: value * factor,
        });
    }
    let (value, lo, _) = jackknife(samples, design.share, |without, part| {
        Some(total(&loads.plain, without) / part)
    })?;
    let half = (value - lo).hypot(ends * value);
    (value > 0.0).then(|| Estimate {
        value: value / design.share,
        lo: ((value - half) / design.share).max(observed),
        hi: (value + half) / design.share,
    })
}

/// Number of loads that a row executes in these windows, from the measured speed of its own code.
/// `None` unless the speed was measured for nearly all windows. The interval includes the error of
/// the speed and that of the row's share of time.
pub fn loads_by_speed(windows: &[u32], weights: &Weights, share: TimeShare) -> Option<Estimate> {
    let each = windows
        .iter()
        .map(|&sample| (weights.time(sample) as f64, weights.executed(sample)));
    let (value, error) = window_loads::loads_of_windows(each)?;
    let speed = error.ln_1p();
    let (time, lo, hi) = (share.value?, share.lo?, share.hi?);
    let less = (time / lo.max(f64::MIN_POSITIVE)).ln().hypot(speed);
    let more = (hi / time).ln().hypot(speed);
    Some(Estimate {
        value,
        lo: value * (-less).exp(),
        hi: value * more.exp(),
    })
}

/// Mean D of a group of code.
pub fn mean_distance(
    sums: &[RepSums; REPLICATES],
    samples: &[u64; REPLICATES],
    design: Design,
) -> Option<Estimate> {
    let mean = |without: Option<usize>| {
        let rest = || {
            sums.iter()
                .enumerate()
                .filter(move |(r, _)| Some(*r) != without)
                .map(|(_, s)| s)
        };
        let reuses: u64 = rest().map(|s| s.reuses).sum();
        (reuses > 0).then(|| rest().map(|s| s.distance).sum::<u64>() as f64 / reuses as f64)
    };
    if design.complete() {
        return mean(None).map(Estimate::exact);
    }
    let (value, lo, hi) = jackknife(samples, design.share, |without, _| mean(without))?;
    Some(Estimate {
        value,
        lo: lo.max(0.0),
        hi,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals of a total and of a ratio cover the truth in about 95 of 100 cases.
    #[test]
    fn jackknife_intervals_cover_the_truth() {
        let mut state = 77u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let (mut totals, mut means) = (0, 0);
        let cases = 600;
        for _ in 0..cases {
            // 200 samples of a population in which a sample has k touches with mean 30 and D is a
            // function of k.
            let mut sums = [RepSums::default(); REPLICATES];
            let mut samples = [0u64; REPLICATES];
            for sample in 0..200u32 {
                let class = crate::stages::reuse::replicate(sample);
                let touches = if random() < 0.5 {
                    0
                } else {
                    (random() * 120.0) as u64
                };
                let reuses = touches / 2;
                let distance = reuses * ((random() * 20.0) as u64 + touches / 10);
                sums[class].merge(&RepSums {
                    touches,
                    reuses,
                    distance,
                    samples: 1,
                    weighted: touches * UNIT,
                });
                samples[class] += 1;
            }
            let design = Design::new(1000.0, 200);
            let mut loads = ReplicateLoads::default();
            loads.add(&sums, sums.iter().map(|s| s.touches).sum());
            let total = executed_loads(&loads, &samples, design).unwrap();
            let truth = 0.5 * 59.5 * 200.0 * 1000.0;
            totals += u32::from(total.lo <= truth && truth <= total.hi);
            let mean = mean_distance(&sums, &samples, design).unwrap();
            // E[reuses · (9.5 + touches / 10)] / E[reuses] over touches 0 to 119.
            let (mut d, mut r) = (0.0, 0.0);
            for touches in 0..120u64 {
                d += (touches / 2) as f64 * (9.5 + (touches / 10) as f64);
                r += (touches / 2) as f64;
            }
            means += u32::from(mean.lo <= d / r && d / r <= mean.hi);
        }
        for (name, hits) in [("total", totals), ("mean", means)] {
            let rate = f64::from(hits) / f64::from(cases);
            assert!((0.91..=0.99).contains(&rate), "{name}: {rate}");
        }
    }

    /// Samples have equally many rows, and each row in one kind of code implies two more loads. The
    /// variation comes from the code in which samples begin.
    #[test]
    fn implied_loads_vary_too() {
        let mut random = 9u64;
        let (mut one, mut two) = (
            [RepSums::default(); REPLICATES],
            [RepSums::default(); REPLICATES],
        );
        let mut samples = [0; REPLICATES];
        for sample in 0..400 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let class = crate::stages::reuse::replicate(sample);
            let code = if random >> 63 == 0 {
                &mut one
            } else {
                &mut two
            };
            code[class].merge(&RepSums {
                touches: 1000,
                samples: 1,
                ..RepSums::default()
            });
            samples[class] += 1;
        }
        let mut loads = ReplicateLoads::default();
        loads.add(&one, one.iter().map(|s| s.touches).sum());
        loads.add(&two, two.iter().map(|s| 3 * s.touches).sum());
        let total = executed_loads(&loads, &samples, Design::new(20.0, 400)).unwrap();
        // Half of the samples are in each kind of code: a mean of 2,000 loads, of which a twentieth
        // is two standard deviations of the mean of 400 samples.
        let truth = 400.0 * 2000.0 * 20.0;
        assert!(
            total.lo < truth && truth < total.hi,
            "{total:?}, truth {truth}"
        );
        assert!(
            (0.06..0.16).contains(&((total.hi - total.lo) / total.value)),
            "{total:?}"
        );
    }

    /// Samples represent different numbers of loads. The estimate is the weighted sum, and its
    /// interval also covers the error of the weights.
    #[test]
    fn weighted_totals_are_sums_of_weights() {
        let mut sums = [RepSums::default(); REPLICATES];
        let samples = [4; REPLICATES];
        for (class, sum) in sums.iter_mut().enumerate() {
            // Fast code in odd replicates: each of its loads represents 300, those of slow code
            // 100.
            let weight = if class % 2 == 0 { 100 } else { 300 };
            *sum = RepSums {
                touches: 1000,
                reuses: 0,
                distance: 0,
                samples: 4,
                weighted: 1000 * weight * UNIT,
            };
        }
        let design = Design::new(200.0, 128).weighted(Some(0.2));
        let observed = 1000 * REPLICATES as u64;
        let mut loads = ReplicateLoads::default();
        loads.add(&sums, observed);
        let total = executed_loads(&loads, &samples, design).unwrap();
        assert!(
            (total.value - 200.0 * observed as f64).abs() < 1.0,
            "{total:?}"
        );
        assert!(
            total.lo < 0.84 * total.value && total.hi > 1.19 * total.value,
            "{total:?}"
        );
        // Without weights, all represent equally many loads.
        let plain = executed_loads(&loads, &samples, Design::new(200.0, 128)).unwrap();
        assert!(
            plain.hi - plain.value < 0.01 * plain.value && plain.hi > 1.004 * plain.value,
            "{plain:?}"
        );
    }
}
