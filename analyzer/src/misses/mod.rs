//! Predicted cache misses.
//!
//! Each row of functions, lines, loops and objects, and the summary, has a field `misses`. It is
//! `None` where no prediction can be made. `docs/design/miss-prediction.md` explains the method.

pub mod caches;
mod cell_misses;
mod crowded_sets;
mod fill_time;
mod from_samples;
mod latencies;
mod line_returns;
mod load_weights;
mod pace_bias;
mod params;
mod predictor;
mod reuse_distance;
mod row_misses;
mod sample_places;
mod set_conflicts;
mod survival_bounds;
mod survival_curve;
mod variants;
mod visit_table;
mod walk_laps;
mod watch_survival;
mod watched_reuses;
mod window_pace;

pub(crate) use latencies::tlb;
pub use latencies::{Hierarchy, LatencySource};
pub(crate) use predictor::{Predictor, Watches};
pub use row_misses::Predicted;
pub(crate) use row_misses::replicate_spread;
pub(crate) use variants::Variant;
pub use watched_reuses::WatchedReuses;

use crate::util::human::bytes;
use serde::Serialize;

/// Lower end of the 95 % interval, estimate, upper end.
pub type Range = [f64; 3];

/// True if an interval of misses per load is so wide that they are not known.
pub(crate) fn is_vague([lo, _, hi]: Range) -> bool {
    hi - lo > params::MAX_KNOWN_WIDTH
}

/// Predicted misses of a row at each cache level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Misses {
    /// First level first.
    pub levels: Vec<LevelMisses>,
    /// Estimated time that the row's loads wait for memory, in nanoseconds per load: misses times
    /// latencies.
    pub stall_ns: Option<Range>,
    /// Share of the row's time that is spent waiting for memory, in percent, at most 100. Known if
    /// windows are taken by time.
    pub memory_bound_pct: Option<Range>,
    /// Misses per load of a fully associative cache, by size. Only rows with at least a hundredth
    /// of the loads have a curve.
    pub curve: Vec<CurvePoint>,
    /// Contribution of the watchpoints, if there were any. Only the summary has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<WatchedReuses>,
}

/// Predicted misses of a row at one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LevelMisses {
    /// `L1`, `L2`, `L3`.
    pub level: String,
    /// Bytes of the cache.
    pub size: u64,
    /// Bytes of the cache by the processor, if measurements show that less is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_size: Option<u64>,
    /// Misses per load, 0 to 1.
    pub ratio: Option<Range>,
    /// Share of the whole run's misses at this level, 0 to 1.
    pub share: Option<Range>,
    /// Misses of the whole run, if the number of executed loads is known.
    pub count: Option<Range>,
    /// Share of the misses that follow the order of memory, so that a prefetcher can hide them, 0
    /// to 1.
    pub prefetchable: Option<f64>,
}

/// A point of a miss-ratio curve. One minus the ratio is the share of loads whose reuse distance is
/// below `size` / 64 lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Bytes of the cache.
    pub size: u64,
    /// Misses per load, 0 to 1.
    pub ratio: Range,
}

impl LevelMisses {
    /// For example `11.3MiB (measured; the processor says 32.0MiB)`.
    pub(crate) fn size_in_words(&self) -> String {
        let differs = |whole| format!(" (measured; the processor says {})", bytes(whole));
        let note = self.processor_size.map_or_else(String::new, differs);
        format!("{}{note}", bytes(self.size))
    }
}

impl Misses {
    /// The last level before memory.
    pub fn last(&self) -> Option<&LevelMisses> {
        self.levels.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_the_processors_is_explained() {
        let mut level = LevelMisses {
            size: 11_863_040,
            ..LevelMisses::default()
        };
        assert_eq!(level.size_in_words(), "11.3MiB");
        level.processor_size = Some(32 << 20);
        assert_eq!(
            level.size_in_words(),
            "11.3MiB (measured; the processor says 32.0MiB)"
        );
    }
}
