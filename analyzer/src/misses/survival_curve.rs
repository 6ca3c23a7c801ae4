//! Survival beyond a sample: the chance that a line is not visited for some number of sample
//! lengths.
//!
//! Other samples show how often a line is visited. Take a visit to a line that `y` of `n` other
//! samples have seen. Then (1 − v/n)^y is an unbiased estimate of exp(−λ·v): the probability that
//! random visits, λ per sample length, do not touch the line for `v` sample lengths. It holds for
//! any λ, so lines may have different rates. Beyond `n` sample lengths, a gamma distribution of λ
//! is fitted to the lines that no other sample has seen.
//!
//! Loops return after equal times, not at random: their lines are not touched until 1/λ. Reuses
//! inside samples distinguish loops from random visits, which return early as often as late.

use crate::misses::params;
use crate::stages::line_visits::{PARTS, bin, bin_start};
use mgz_models::statistics::distributions::{gamma_below, ln_gamma};

/// Points of the grid at which survival is tabulated, in sample lengths.
pub(crate) fn grid() -> impl Iterator<Item = f64> {
    (0..GRID_POINTS).map(grid_time)
}
/// Number of sample lengths at a point of the grid.
pub(crate) fn grid_time(at: usize) -> f64 {
    2f64.powf(at as f64 / params::GRID_POINTS_PER_DOUBLING + params::GRID_START_LOG2)
}
/// Length of the grid.
pub(crate) const GRID_POINTS: usize = 50;

/// Middle of a bin's values.
fn middle(at: usize) -> f64 {
    (bin_start(at) + bin_start(at + 1) - 1) as f64 / 2.0
}

/// Visits of a cell, by the number of other samples within one radius that saw the line.
#[derive(Clone, Debug)]
pub(crate) struct Met {
    /// By replicate and bin of that number.
    counts: [Vec<f32>; PARTS],
    /// By replicate: number of samples searched, summed over the visits.
    looked: [f64; PARTS],
    /// By replicate: number of samples that saw the line, summed over the visits.
    sum: [f64; PARTS],
}

impl Met {
    fn new() -> Met {
        Met {
            counts: Default::default(),
            looked: [0.0; PARTS],
            sum: [0.0; PARTS],
        }
    }

    /// Standard error of the rate, from the replicates. Visits are not independent: two samples of
    /// a walk share hundreds of lines or none.
    fn error(&self) -> f64 {
        let rates = (self.sum.iter().zip(&self.looked)).filter(|(_, looked)| **looked > 0.0);
        let rates: Vec<f64> = rates.map(|(sum, looked)| sum / looked).collect();
        let n = rates.len() as f64;
        if n < 2.0 {
            return f64::INFINITY;
        }
        let mean = rates.iter().sum::<f64>() / n;
        let squares: f64 = rates.iter().map(|r| (r - mean).powi(2)).sum();
        (squares / (n * (n - 1.0))).sqrt()
    }
}

/// Late visits of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    /// Coincidences by radius.
    met: Vec<Met>,
    /// Visits by replicate.
    visits: [f64; PARTS],
}

impl Default for Far {
    fn default() -> Far {
        Far {
            met: vec![Met::new(); params::SEARCH_RADII.len()],
            visits: [0.0; PARTS],
        }
    }
}

/// Rates of visits at the chosen radius.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    counts: Vec<f64>,
    visits: f64,
    /// Mean number of samples searched per visit.
    looked: f64,
    /// Mean number of samples that saw the line.
    mean: f64,
    /// Variance of λ over its mean squared.
    spread: f64,
    /// Number of coincidences.
    pub(crate) evidence: f64,
    /// Logarithm of the gamma function of [`Fit::shape`].
    ln_gamma: f64,
}

impl Far {
    /// Adds a visit of a replicate. `seen` has, for each radius, the samples searched and those
    /// that saw the line.
    pub(crate) fn add(&mut self, part: usize, seen: &[(usize, usize); params::SEARCH_RADII.len()]) {
        self.visits[part] += 1.0;
        for (met, &(looked, count)) in self.met.iter_mut().zip(seen) {
            let (counts, at) = (&mut met.counts[part], bin(count as u64));
            if counts.len() <= at {
                counts.resize(at + 1, 0.0);
            }
            counts[at] += 1.0;
            met.looked[part] += looked as f64;
            met.sum[part] += count as f64;
        }
    }

    /// Number of visits, without one of the replicates.
    pub(crate) fn visits(&self, without: Option<usize>) -> f64 {
        (0..PARTS)
            .filter(|p| Some(*p) != without)
            .map(|p| self.visits[p])
            .sum()
    }

    /// The widest radius in which visits are as frequent as nearby, within the errors from the
    /// replicates.
    pub(crate) fn radius(&self) -> usize {
        let (mut most, mut chosen) = (0.0f64, params::SEARCH_RADII.len() - 1);
        let mut met_any = false;
        for (at, met) in self.met.iter().enumerate() {
            let (sum, looked): (f64, f64) = (met.sum.iter().sum(), met.looked.iter().sum());
            if sum < params::MIN_COINCIDENCES_FOR_RADIUS || looked <= 0.0 {
                continue;
            }
            let rate = sum / looked;
            if !met_any || rate >= params::MIN_STEADY_RATE_RATIO * most {
                chosen = at;
            }
            met_any = true;
            most = most.max(rate - params::NEARBY_RATE_STANDARD_ERRORS * met.error());
        }
        chosen
    }

    /// Fits the rates at a radius, without one of the replicates.
    pub(crate) fn fit(&self, radius: usize, without: Option<usize>) -> Fit {
        let met = &self.met[radius];
        let mut fit = Fit {
            counts: Vec::new(),
            visits: self.visits(without),
            looked: 0.0,
            mean: 0.0,
            spread: 0.0,
            evidence: 0.0,
            ln_gamma: 0.0,
        };
        for part in (0..PARTS).filter(|p| Some(*p) != without) {
            let counts = &met.counts[part];
            fit.counts.resize(fit.counts.len().max(counts.len()), 0.0);
            fit.counts
                .iter_mut()
                .zip(counts)
                .for_each(|(a, &b)| *a += f64::from(b));
            fit.looked += met.looked[part];
            fit.evidence += met.sum[part];
        }
        let visits = fit.visits.max(1.0);
        fit.looked = (fit.looked / visits).max(1.0);
        fit.mean = fit.evidence / visits;
        let of_bin = |(at, count): (usize, &f64)| {
            let y = middle(at);
            count * y * (y - 1.0)
        };
        let pairs: f64 = fit.counts.iter().enumerate().map(of_bin).sum::<f64>() / visits;
        if fit.mean > 0.0 {
            fit.spread = (pairs / (fit.mean * fit.mean) - 1.0).clamp(0.0, params::MAX_RATE_SPREAD);
        }
        fit.ln_gamma = ln_gamma(fit.shape());
        fit
    }
}

impl Fit {
    /// Visits to a line per sample length.
    pub(crate) fn rate(&self) -> f64 {
        self.mean / self.looked
    }

    /// Rate of random visits. It is corrected for samples that visit a line several times but count
    /// once.
    pub(crate) fn hazard(&self) -> f64 {
        let of_bin = |(at, &count): (usize, &f64)| {
            let met = (middle(at) / self.looked).min(1.0 - 0.5 / self.looked.max(1.0));
            count * -(1.0 - met).ln()
        };
        self.counts.iter().enumerate().map(of_bin).sum::<f64>() / self.visits.max(1.0)
    }

    /// Probability that random visits do not touch a line for `v` sample lengths.
    pub(crate) fn at_random(&self, v: f64) -> f64 {
        let s = v / self.looked;
        if s < 1.0 {
            let log = (1.0 - s).ln();
            let of_bin = |(at, &count): (usize, &f64)| match count {
                0.0 => 0.0,
                _ => count * (log * middle(at)).exp(),
            };
            return self.counts.iter().enumerate().map(of_bin).sum::<f64>() / self.visits.max(1.0);
        }
        let of = |met: usize| self.counts.get(met).copied().unwrap_or(0.0);
        // Lines that one or two other samples have seen give the rate of lines that no other sample
        // has seen. A gamma distribution of λ with this mean and variance is used. (Good and
        // Toulmin, Biometrika 43, 1956. Their series diverges beyond twice the samples.)
        let (alone, rate) = (of(0), of(1) / of(0).max(1.0));
        let spread = 2.0 * of(2) / of(0).max(1.0) / (rate * rate).max(f64::MIN_POSITIVE) - 1.0;
        let spread = if rate > 0.0 {
            spread.clamp(0.0, params::MAX_RATE_SPREAD)
        } else {
            0.0
        };
        alone / self.visits.max(1.0) * left(rate, spread, s - 1.0)
    }

    /// Probability that a line is not seen again within `v` sample lengths, if it returns after equal
    /// times.
    pub(crate) fn in_loops(&self, v: f64) -> f64 {
        let rate = self.rate();
        if rate <= 0.0 {
            return 1.0;
        }
        // Rates of lines have a gamma distribution. If all rates are equal, it represents the
        // varying lengths of iterations.
        let shape = self.shape();
        gamma_below(shape, shape / (rate * v.max(1e-9)), self.ln_gamma)
    }

    fn shape(&self) -> f64 {
        1.0 / self
            .spread
            .clamp(params::MIN_RATE_SPREAD_OF_LOOPS, params::MAX_RATE_SPREAD)
    }
}

/// Probability of no visit within a time. Rates have a gamma distribution with this mean. `spread`
/// is its variance divided by the mean squared.
fn left(rate: f64, spread: f64, time: f64) -> f64 {
    match spread < 1e-3 {
        true => (-rate * time).exp(),
        false => (1.0 + spread * rate * time).powf(-1.0 / spread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk of 200 sample lengths: two samples share all their lines or none. `nearby` is the
    /// ratio of the rate of coincidences with the nearest four samples to the rate with the others.
    fn of_walks(seed: u64, nearby: f64) -> Far {
        let mut state = seed;
        let mut random = || {
            state = (state.wrapping_mul(6364136223846793005)).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let mut far = Far::default();
        for sample in 0..1000u32 {
            let mut meet = |samples, rate| (0..samples).filter(|_| random() < rate).count();
            let near = meet(4, nearby / 200.0);
            let all = near + meet(996, 1.0 / 200.0);
            let seen = params::SEARCH_RADII
                .map(|radius| if radius == 2 { (4, near) } else { (1000, all) });
            (0..400).for_each(|_| far.add(crate::stages::line_visits::part(sample), &seen));
        }
        far
    }

    /// A surplus of nearby coincidences within the error is no phase. A surplus by a factor of ten
    /// is one.
    #[test]
    fn radii_are_narrow_where_samples_meet_more_often_nearby() {
        let narrow = |nearby: f64| {
            (1..=100)
                .filter(|&seed| of_walks(seed, nearby).radius() == 0)
                .count()
        };
        assert!(narrow(1.0) <= 5, "{}", narrow(1.0));
        assert!(narrow(10.0) >= 95, "{}", narrow(10.0));
    }

    /// Lines have two rates and are seen by chance. The estimate is their mixture; a single rate
    /// would be far off.
    #[test]
    fn lines_that_are_used_differently_are_mixed() {
        let mut state = 9u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let mut far = Far::default();
        for at in 0..20_000 {
            // Half of the visits are to lines that a tenth of the samples see, half to lines that
            // one in 400 sees.
            let rate = if at % 2 == 0 { 0.1 } else { 0.0025 };
            let met = (0..200).filter(|_| random() < rate).count();
            far.add(at % PARTS, &[(200, met); params::SEARCH_RADII.len()]);
        }
        let fit = far.fit(params::SEARCH_RADII.len() - 1, None);
        for v in [5.0, 40.0, 150.0, 400.0] {
            let truth = 0.5 * (0.9f64.powf(v) + 0.9975f64.powf(v));
            let found = fit.at_random(v);
            // Beyond the number of samples, in sample lengths, the gamma distribution extrapolates.
            let most = if v <= 200.0 { 0.03 } else { 0.05 };
            assert!((found - truth).abs() < most, "{v}: {found} for {truth}");
        }
        assert!(fit.in_loops(1.0) > 0.9);
    }
}
