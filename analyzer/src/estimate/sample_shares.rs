//! Weights of samples in means over the windows of a run.
//!
//! Footprints per window are means over windows of equally many loads. Samples of `ring` represent
//! equally many loads, so the mean over samples is such a mean. Samples of `burst` with the clock
//! as trigger represent equal times, in which fast code executes more loads than slow code. There
//! each of the n_k rows of sample k represents w_k executed loads ([`crate::input::weights`]), so
//! that the sample represents v_k = w_k·n_k loads of the run. With n the mean of n_k,
//!
//! - the samples represent Σ w_k·n_k / n windows of n loads, and the mean footprint of these is n ·
//!   Σ w_k·F_k / Σ w_k·n_k (windows that were cut short count only for the loads that they have);
//! - windows of W loads inside samples have weight w_k each, which gives Σ w·F / Σ w over them
//!   ([`crate::stages::windows`]);
//! - windows of several samples have the sum of their v_k as weight
//!   ([`mod@crate::estimate::curve`]).
//!
//! If all w_k are equal, these are plain means. In variances, samples with weights v_k are worth
//! (Σv)²/Σv² equal samples.

use crate::data::samples::SampleInfo;
use crate::engine::EngineOutcome;
use crate::input::weights::UNIT;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// The weights of the samples of a trace.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// By sample: executed loads per row, and number of rows.
    by_sample: HashMap<u32, (f64, f64), Mixed>,
    /// Loads that the samples with marks represent ([`crate::stages::incidence`]), and loads that
    /// all samples represent.
    marked: f64,
    all: f64,
    /// Recorded loads.
    rows: f64,
}

/// Relative weight of a sample if all samples represent equally many loads per row: the unit of
/// [`Shares::relative`].
pub const EVEN_SHARE: u32 = 1 << 16;

impl Shares {
    /// The weights of the samples of a trace; `None` if all are equal.
    pub fn new(outcome: &EngineOutcome) -> Option<Shares> {
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

    /// Executed loads that each row of a sample represents.
    #[inline(always)]
    pub fn weight(&self, sample: u32) -> f64 {
        self.by_sample.get(&sample).map_or(0.0, |s| s.0)
    }

    /// That number as a multiple of the mean over all recorded loads, in units of 1/[`EVEN_SHARE`].
    pub fn relative(&self, sample: u32) -> u32 {
        (self.weight(sample) * self.rows / self.all * f64::from(EVEN_SHARE))
            .round()
            .max(1.0) as u32
    }

    /// Loads of the run that a sample represents. Only loads that get a row if recorded count.
    pub fn loads(&self, sample: u32) -> f64 {
        self.by_sample.get(&sample).map_or(0.0, |s| s.0 * s.1)
    }

    /// Loads that all samples represent.
    pub fn all(&self) -> f64 {
        self.all
    }

    /// Share of these loads that belongs to samples with marks.
    pub fn marked(&self) -> f64 {
        self.marked / self.all
    }

    /// Number of windows, of these samples' mean size, that the samples represent.
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
