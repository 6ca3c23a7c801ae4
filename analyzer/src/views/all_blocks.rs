//! Estimates for all heap blocks of an object.

use crate::data::object_map::Sampled;
use mgz_models::statistics::ROUNDED_NORMAL_QUANTILE_OF_95_PCT;
use serde::Serialize;

/// Estimates for all blocks of a site.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct AllBlocks {
    /// Number of logged blocks in the sample.
    pub logged: u64,
    /// Upper bound of the number of logged blocks that were loaded.
    pub loaded: u64,
    /// Number of blocks that each represents, on average by bytes.
    pub weight: f64,
    /// Percent of the loads (of the time if windows are triggered by time) in all blocks of the
    /// site. `None` if too few logged blocks were loaded.
    pub pct: Option<f64>,
    /// Its 95% interval.
    pub pct_lo: Option<f64>,
    /// See `pct_lo`.
    pub pct_hi: Option<f64>,
    /// Estimated loads of blocks that were not logged.
    #[serde(skip)]
    pub(super) unlogged: f64,
    /// These loads, as far as the heap as a whole has them.
    #[serde(skip)]
    pub(super) moved: f64,
    /// Sum of the squares of the loads of each piece of memory, as a part of the square of all
    /// loads.
    #[serde(skip)]
    concentration: f64,
    /// Variance of the blocks' weights, as a part of the square of their mean.
    #[serde(skip)]
    weight_variance: f64,
}

/// Minimum number of loaded logged blocks for an estimate. Source: Chosen.
pub(super) const MIN_LOADED_BLOCKS: u64 = 4;

impl AllBlocks {
    /// Estimates for the blocks that a sample represents. `loads` is the number of loads of the
    /// sampled blocks, `squares` the sum of the squares of the loads of each piece of their memory,
    /// and `blocks` the number of their cache blocks.
    pub(crate) fn of(seen: Sampled, (loads, squares): (u64, f64), blocks: u64) -> AllBlocks {
        let weight = seen.stand_for / seen.bytes.max(1.0);
        let mean_square = seen.weights_squared / seen.bytes.max(1.0);
        AllBlocks {
            logged: seen.logged,
            loaded: seen.logged.min(loads).min(blocks),
            weight,
            unlogged: loads as f64 * (weight - 1.0),
            concentration: squares / (loads.max(1) as f64).powi(2),
            weight_variance: (mean_square / weight.powi(2).max(1.0) - 1.0).max(0.0),
            ..AllBlocks::default()
        }
    }

    /// The percentage with the ends of its interval, if it is known.
    pub(crate) fn ends(&self) -> Option<[f64; 3]> {
        Some([self.pct_lo?, self.pct?, self.pct_hi?])
    }

    /// Variance of the estimate of unlogged loads, times the square of `scale`.
    pub(super) fn variance(&self, scale: f64) -> f64 {
        (self.unlogged * scale).powi(2) * self.relative_variance()
    }

    /// The estimate's 95% interval reaches from 1 / (1 + this) to (1 + this) times its value.
    pub(super) fn error(&self) -> f64 {
        ROUNDED_NORMAL_QUANTILE_OF_95_PCT * self.relative_variance().sqrt()
    }

    /// As [`AllBlocks::error`], for another run of the program: its budget may give other weights to
    /// the blocks with most loads.
    pub(super) fn error_of_runs(&self) -> f64 {
        let variance = self.relative_variance() + self.weight_variance;
        ROUNDED_NORMAL_QUANTILE_OF_95_PCT * variance.sqrt()
    }

    /// Variance of the loads of all blocks, as a part of their square: that of a Poisson sample of
    /// the pieces of memory that were loaded. It is at least that of blocks whose loads vary like an
    /// exponential distribution.
    fn relative_variance(&self) -> f64 {
        (2.0 / self.loaded.max(1) as f64).max(self.concentration)
    }
}
