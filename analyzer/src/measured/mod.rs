//! Memory samples of the processor, as tables: shares of loads by the level that served them, mean
//! latencies, and the misses of levels next to the predicted ones.
//!
//! Samples are taken at regular numbers of events. So a share has the interval of a share in a
//! random sample, and a sample represents the events of its period. Only samples of all loads show
//! how many loads miss. A recording of loads above a latency does not, and neither does one by
//! cycles. In those cases the prediction is not assessed.
//!
//! * [`counters`]: counts of a run, without samples.
//! * [`shares`]: numbers of a set of samples.
//! * [`tables`]: rows by function, line and object.

pub mod counters;
pub mod shares;
pub mod tables;

use crate::misses::Range;
use mgz_annotations_schema::SamplePopulation;
use serde::Serialize;

/// Memory samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// The trace with the samples, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The accesses from which the samples of loads were drawn.
    pub drawn: SamplePopulation,
    /// True if samples are drawn from all loads, so that their shares are shares of loads.
    pub of_all_loads: bool,
    /// Samples that are not loads.
    pub others: u64,
    /// Samples of recorded code. Their misses are compared in `misses` with the prediction for this
    /// code. None without a prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_recorded_code: Option<u64>,
    /// All loads.
    #[serde(flatten)]
    pub loads: MeasuredLoads,
    /// By function, most samples first.
    pub functions: Vec<MeasuredRow>,
    /// By source line.
    pub lines: Vec<MeasuredRow>,
    /// By object.
    pub objects: Vec<MeasuredRow>,
}

/// Samples of some code or object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredRow {
    /// Function; in rows of lines the innermost one.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Object.
    pub object: String,
    /// Kind of the object.
    pub kind: String,
    /// Share of all loads' weight, percent.
    pub share_pct: Option<Range>,
    /// Numbers of the row's loads.
    #[serde(flatten)]
    pub loads: MeasuredLoads,
}

/// Numbers of a set of sampled loads. Ranges are 95 % intervals with the value in the middle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredLoads {
    /// Samples.
    pub samples: u64,
    /// By the level that served them, the nearest first.
    pub levels: Vec<ServedShare>,
    /// Mean latency in cycles of the samples with a latency.
    pub latency: Option<Range>,
    /// Number of samples with a latency.
    pub latency_samples: u64,
    /// Loads that missed all levels of the TLB, percent of those with known outcome.
    pub tlb_miss_pct: Option<Range>,
    /// Loads of lines that another cache had modified, percent of those with known outcome.
    pub hitm_pct: Option<Range>,
    /// Loads served by another core, node or socket, percent of those with known outcome.
    pub remote_pct: Option<Range>,
    /// By NUMA node of the memory, if that is known.
    pub nodes: Vec<NodeShare>,
    /// Misses of the levels, with the predicted ones if there are any.
    pub misses: Vec<MeasuredMisses>,
}

/// Loads that a level served.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedShare {
    /// Level.
    pub level: String,
    /// Samples.
    pub samples: u64,
    /// Share of the loads, percent.
    pub share_pct: Range,
}

/// Loads from the memory of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeShare {
    /// Node.
    pub node: u32,
    /// Samples.
    pub samples: u64,
    /// Share of the loads whose node is known, percent.
    pub share_pct: Range,
}

/// Misses of a level per load: measured, and predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredMisses {
    /// `L1`, `L2` or `L3`.
    pub level: String,
    /// Measured misses per load. The ends of the range count loads of lines in flight and loads
    /// with unknown level as hits or as misses.
    pub measured: Range,
    /// Predicted misses per load, if available.
    pub predicted: Option<Range>,
    /// True if the intervals do not overlap; none if one of them is missing.
    pub differs: Option<bool>,
}
