//! Weights of windows: the number of executed loads that each load of a window represents, and its
//! error.
//!
//! A window taken by time represents time. The loads executed in that time are known from another
//! run, or from the measured speed of the window's code. Without either, the speed of other code is
//! used, which may be wrong by a large factor. All windows of a function share that error. So it
//! cancels in the misses per load of the function, but not in those of the whole run.

use crate::engine::EngineOutcome;
use crate::input::weights::{UNIT, Weights};
use crate::misses::params;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// Weights of the loads of samples.
pub struct LoadWeights<'a> {
    weights: Option<&'a Weights>,
    by_time: bool,
    loads: HashMap<u32, u64, Mixed>,
    /// Loads per nanosecond in the windows whose speed is known.
    loads_per_ns: Option<f64>,
    /// Mean time that a window represents, nanoseconds.
    time: f64,
}

impl<'a> LoadWeights<'a> {
    /// Weights for the samples of a trace. `by_time`: windows were taken by time.
    pub fn new(outcome: &'a EngineOutcome, by_time: bool) -> LoadWeights<'a> {
        let weights = outcome.weights.as_deref();
        let loads = outcome
            .samples
            .iter()
            .map(|s| (s.sample, s.loads))
            .collect();
        let (mut executed, mut time) = (0.0, 0.0);
        let times = || weights.map_or(&[][..], |w| w.times_by_sample()).iter();
        let known = times().filter(|&&ns| ns > 0).count().max(1);
        for sample in &outcome.samples {
            let known =
                weights.and_then(|w| Some((w.executed(sample.sample)?, w.time(sample.sample))));
            if let Some(((loads, _), ns)) = known.filter(|k| k.1 > 0) {
                executed += loads;
                time += ns as f64;
            }
        }
        LoadWeights {
            weights,
            by_time,
            loads,
            loads_per_ns: (executed > 0.0).then(|| executed / time),
            time: times().sum::<u64>() as f64 / known as f64,
        }
    }

    /// True if another run has counted the executed loads.
    pub fn are_counted(&self) -> bool {
        self.weights.is_some_and(|w| w.counted().is_some())
    }

    /// The weight of a sample's loads, and half the width of the 95 % interval of its logarithm.
    pub fn of(&self, sample: u32) -> (f64, f64) {
        let Some(weights) = self.weights else {
            return (1.0, 0.0);
        };
        if weights.counted().is_some() {
            return (weights.of_loads(sample) as f64 / UNIT as f64, 0.0);
        }
        let here = self.loads.get(&sample).copied().unwrap_or(1).max(1) as f64;
        if let Some((executed, error)) = weights.executed(sample) {
            return (executed / here, error.ln_1p());
        }
        if !self.by_time {
            return (weights.of(sample) as f64, 0.0);
        }
        let weight = match self.loads_per_ns {
            Some(loads_per_ns) => loads_per_ns * self.time(sample) / here,
            None => weights.of(sample) as f64,
        };
        (weight, params::UNKNOWN_PACE_LOG_ERROR)
    }

    /// Nanoseconds per load in the sample, with the cost of recording; `None` if unknown.
    pub fn duration_per_load(&self, sample: u32) -> Option<f64> {
        let loads = self.loads.get(&sample).filter(|&&loads| loads > 0)?;
        let ns = self.weights?.duration(sample);
        (ns > 0).then(|| ns as f64 / *loads as f64)
    }

    /// Nanoseconds of its thread's time that the sample represents.
    pub fn time(&self, sample: u32) -> f64 {
        match self.weights.map_or(0, |w| w.time(sample)) {
            0 => self.time,
            ns => ns as f64,
        }
    }

    /// The sample's executed loads and half the width of the 95 % interval of their logarithm, if
    /// the speed of its code was measured.
    pub fn executed(&self, sample: u32) -> Option<(f64, f64)> {
        let (loads, error) = self.weights?.executed(sample)?;
        Some((loads, error.ln_1p()))
    }

    /// Sample lengths that the sample's code executes per nanosecond on its thread, if that is
    /// known. `here` is the number of loads in the sample, including implied ones.
    pub fn lengths_per_ns(&self, sample: u32, here: f64) -> Option<f64> {
        let weights = self.weights?;
        let time = self.time(sample);
        let here = here.max(1.0);
        let lengths = if weights.counted().is_some() {
            weights.of_loads(sample) as f64 / UNIT as f64 / time
        } else if let (Some((executed, _)), true) =
            (weights.executed(sample), weights.time(sample) > 0)
        {
            executed / here / time
        } else {
            self.loads_per_ns? / here
        };
        (lengths.is_finite() && lengths > 0.0).then_some(lengths)
    }
}

/// A function's part of a sum.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Misses by capacity.
    pub misses: Vec<f64>,
    /// Loads.
    pub loads: f64,
    /// Half the width of the interval of the logarithm of the function's weight.
    pub error: f64,
}

impl Part {
    /// The factors by which the function's weight may be wrong.
    pub fn factors(&self) -> Factors {
        factors(self.error)
    }
}

/// The greatest and the least factor by which a weight may be wrong.
pub type Factors = [f64; 2];

/// Factors of a weight. `error`: half the width of the interval of its logarithm.
pub fn factors(error: f64) -> Factors {
    [error.exp(), (-error).exp()]
}

/// Errors of a/b, downwards and upwards, if each function's parts of a and b are wrong by the same
/// factor. `parts`: part of a, part of b, and the factors.
pub fn spread(a: f64, b: f64, parts: impl Iterator<Item = (f64, f64, Factors)>) -> (f64, f64) {
    let value = a / b;
    let (mut down, mut up) = (0f64, 0f64);
    // Parts of nothing, and exact weights, add no error.
    for (in_a, in_b, factors) in parts.filter(|p| (p.0, p.1) != (0.0, 0.0) && p.2[1] < 1.0) {
        let with = |factor: f64| (a + in_a * (factor - 1.0)) / (b + in_b * (factor - 1.0));
        let ends = factors.map(with);
        up = hypot(up, ends[0].max(ends[1]).max(value) - value);
        down = hypot(down, value - ends[0].min(ends[1]).min(value));
    }
    (down, up)
}

/// The root of the sum of two squares. `a` is not negative.
fn hypot(a: f64, b: f64) -> f64 {
    match b == 0.0 {
        true => a,
        false => a.hypot(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_one_function_does_not_depend_on_its_weight() {
        let (down, up) = spread(10.0, 40.0, [(10.0, 40.0, factors(2.0))].into_iter());
        assert!(down < 1e-12 && up < 1e-12);
    }

    #[test]
    fn a_ratio_of_two_lies_between_theirs() {
        // Two functions have the same number of loads. One always misses, the other never.
        let parts = [
            (50.0, 50.0, factors(params::UNKNOWN_PACE_LOG_ERROR)),
            (0.0, 50.0, factors(params::UNKNOWN_PACE_LOG_ERROR)),
        ];
        let (down, up) = spread(50.0, 100.0, parts.into_iter());
        assert!(
            (0.4..0.6).contains(&up) && (0.4..0.6).contains(&down),
            "{down} {up}"
        );
        let known = spread(
            50.0,
            100.0,
            parts.map(|p| (p.0, p.1, factors(0.0))).into_iter(),
        );
        assert_eq!(known, (0.0, 0.0));
    }
}
