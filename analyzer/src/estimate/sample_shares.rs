//! What each sample stands for in means over the windows of a run.
//!
//! Footprints per window are means over windows of equally many loads. Samples of `ring` stand for equally many loads, so there the mean over samples is such a mean. Samples
//! of `burst` stand for equal times where the clock is the trigger, in which fast code executes more loads than slow code. There each of the n_k rows of sample k stands for
//! w_k executed loads ([`crate::input::weights`]), so that the sample is v_k = w_k·n_k loads of the run. With n the mean of n_k,
//!
//! - the samples stand for Σ w_k·n_k / n windows of n loads, and the mean footprint of these is n · Σ w_k·F_k / Σ w_k·n_k (windows that were cut short count for the loads that they have);
//! - windows of W loads inside samples count w_k each, which is Σ w·F / Σ w over them ([`crate::stages::windows`]);
//! - windows of several samples count for the sum of their v_k ([`mod@crate::estimate::curve`]).
//!
//! Where all w_k are equal these are plain means. For variances, samples of the weights v_k are worth (Σv)²/Σv² samples that are alike.

use crate::data::samples::SampleInfo;
use crate::engine::Outcome;
use crate::input::weights::UNIT;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// What the samples of a trace stand for.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// By sample: executed loads that each row stands for, and rows.
    by_sample: HashMap<u32, (f64, f64), Mixed>,
    /// Loads that those samples stand for of which it is known what they have seen ([`crate::stages::incidence`]), and all.
    marked: f64,
    all: f64,
    /// Recorded loads.
    rows: f64,
}

/// What a sample stands for, over the mean, where all samples stand for equally many loads per row: the unit of [`Shares::relative`].
pub const EVEN: u32 = 1 << 16;

impl Shares {
    /// Of the samples of a trace; `None` if all stand for the same.
    pub fn new(outcome: &Outcome) -> Option<Shares> {
        let weights = outcome.weights.as_deref()?;
        let mut shares = Shares::default();
        for sample in &outcome.samples {
            let (weight, rows) = (
                weights.of_loads(sample.sample) as f64 / UNIT as f64,
                sample.loads as f64,
            );
            let entry = shares.by_sample.entry(sample.sample).or_default();
            *entry = (weight, entry.1 + rows);
            shares.all += weight * rows;
            shares.rows += rows;
            shares.marked += if outcome.incidence.has(sample.sample) {
                weight * rows
            } else {
                0.0
            };
        }
        (shares.marked > 0.0).then_some(shares)
    }

    /// Executed loads that each row of a sample stands for.
    #[inline(always)]
    pub fn weight(&self, sample: u32) -> f64 {
        self.by_sample.get(&sample).map_or(0.0, |s| s.0)
    }

    /// The same as a multiple of the mean over all recorded loads, in units of 1/[`EVEN`].
    pub fn relative(&self, sample: u32) -> u32 {
        (self.weight(sample) * self.rows / self.all * f64::from(EVEN))
            .round()
            .max(1.0) as u32
    }

    /// Loads of the run (those that have a row when they are recorded) that a sample stands for.
    pub fn loads(&self, sample: u32) -> f64 {
        self.by_sample.get(&sample).map_or(0.0, |s| s.0 * s.1)
    }

    /// Loads that all samples stand for.
    pub fn all(&self) -> f64 {
        self.all
    }

    /// Which part of these is that of the samples of which it is known what they have seen.
    pub fn marked(&self) -> f64 {
        self.marked / self.all
    }

    /// Windows of the mean size of some samples that these stand for.
    pub fn windows(&self, samples: impl Iterator<Item = u32>) -> f64 {
        let of = |sample| self.by_sample.get(&sample).copied().unwrap_or_default();
        let (count, rows, loads) = samples
            .map(of)
            .fold((0.0, 0.0, 0.0), |(count, rows, loads), (w, n)| {
                (count + 1.0, rows + n, loads + w * n)
            });
        loads * count / f64::max(rows, 1.0)
    }

    /// Rows of a sample, as a mean over the loads of the run.
    pub fn mean_rows(&self, samples: &[SampleInfo]) -> f64 {
        samples
            .iter()
            .map(|s| self.loads(s.sample) * s.loads as f64)
            .sum::<f64>()
            / self.all
    }
}
