//! Predicted cache misses.
//!
//! A row of functions, lines, loops and objects, and the summary, has a field `misses`; it is `None` where nothing is known. `docs/design/miss-prediction.md` tells how it is found.

mod alone;
pub mod caches;
mod crowded;
mod far;
mod filling;
mod laps;
mod load_weights;
mod near;
mod predict;
mod rows;
mod sets;
mod slower;
mod survival;
mod visit_table;
mod watched;

pub use rows::Predicted;
pub use watched::WatchedReuses;

use serde::Serialize;

/// An estimate within its 95 % interval: lower end, estimate, upper end.
pub type Range = [f64; 3];

/// Predicted misses of a row, at each level of the caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Misses {
    /// First level first.
    pub levels: Vec<LevelMisses>,
    /// Time that its loads wait for memory, nanoseconds per load: misses times latencies, an estimate.
    pub stall_ns: Option<Range>,
    /// Which share of its time that is, percent, at most 100; where windows come by time.
    pub memory_bound_pct: Option<Range>,
    /// Misses per load of a fully associative cache against its size, for rows with at least a hundredth of the loads.
    pub curve: Vec<CurvePoint>,
    /// Of the whole run: what watchpoints contributed, where there were any.
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
    /// Misses per load, 0 to 1.
    pub ratio: Option<Range>,
    /// Share of the whole run's misses at this level, 0 to 1.
    pub share: Option<Range>,
    /// Misses of the whole run, where it is known how many loads were executed.
    pub count: Option<Range>,
    /// Part of the misses that come in the order of memory, which a prefetcher sees ahead, 0 to 1.
    pub prefetchable: Option<f64>,
}

/// A point of a miss-ratio curve. One minus it is the share of loads with a reuse distance below `size` / 64 lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Bytes of the cache.
    pub size: u64,
    /// Misses per load, 0 to 1.
    pub ratio: Range,
}

impl Misses {
    /// The level that the data is looked for last, before memory.
    pub fn last(&self) -> Option<&LevelMisses> {
        self.levels.last()
    }
}
