//! The result of an analysis, with the structure of its JSON (`docs/reference/analysis-json.md`).

pub mod additions;
pub mod build;
pub mod counted;
mod functions;
mod lines;
mod loops;
pub(crate) mod measured_beside;
mod prediction;
pub mod questions;
mod row_counts;
mod rows;
mod summary;
mod sums;
mod tables;
pub(crate) mod threads;
mod windows;

pub use functions::FunctionRow;
pub use lines::LineRow;
pub use loops::LoopRow;
pub use rows::LoadMetrics;
pub use summary::{Doubtful, StoreFootprint, Summary, TraceInfo};
pub use tables::Material;
pub use threads::{ProcessRow, ThreadRow};
pub use windows::WindowRow;

use crate::data::code_map::CodeMap;
use crate::data::counts::AccessCounts;
use crate::data::detail::Detail;
use crate::engine::EngineOutcome;
use crate::estimate::row_estimates::{Estimator, RegionEstimator};
use crate::estimate::time_shares::TimeShares;
use crate::findings::FindingList;
use crate::views::ByCode;
use crate::views::objects::Bounds;
use mgz_annotations_schema::manifest::Manifest;
use serde::Serialize;

/// `format` of the JSON.
pub const FORMAT: &str = "mgz-analysis";
/// `version` of the JSON. Additions keep it.
pub const VERSION: u32 = 1;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// Part of the trace that the rest refers to; none for the whole trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<crate::filter::FilterRow>,
    /// The whole trace.
    pub summary: Summary,
    /// By process.
    pub processes: Vec<ProcessRow>,
    /// By thread.
    pub threads: Vec<ThreadRow>,
    /// By function, most accesses first.
    pub functions: Vec<FunctionRow>,
    /// By source line, most accesses first.
    pub lines: Vec<LineRow>,
    /// By loop, most accesses first.
    pub loops: Vec<LoopRow>,
    /// By window size, ascending.
    pub windows: Vec<WindowRow>,
    /// For a sampled trace: footprint by window size, from parts of a sample to the whole run.
    pub growth: Vec<crate::estimate::growth_tables::GrowthRow>,
    /// For a sampled trace: reuse of pages between samples.
    pub inter_sample: Option<crate::estimate::growth_tables::InterSample>,
    /// Data objects, most loads first; with `--zoom` or `--objects`, if the trace has any.
    pub objects: Vec<crate::views::object_row::ObjectRow>,
    /// Call paths on which windows began.
    pub call_paths: crate::views::call_paths::CallPathTable,
    /// Functions and lines of Python, if windows began in any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<crate::views::python::PythonTables>,
    /// With `--by-path`: tables by the call path of the loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<Vec<crate::views::by_path::ByPathRow>>,
    /// Memory samples of the processor, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<crate::measured::Measured>,
    /// Counters of the processor over the run, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<crate::measured::counters::CountedRun>,
    /// Findings, or the reason why there are none.
    #[serde(flatten)]
    pub findings: FindingList,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat_map: Option<crate::views::heat_map::HeatMap>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zoom: Option<crate::views::time_tree::TimeZoom>,
    /// With `--zoom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location_zoom: Option<crate::views::location::LocationZoom>,
    /// Sentences on missing or doubtful data.
    pub warnings: Vec<String>,
}

/// Makes the result.
pub fn build(
    manifest: &Manifest,
    code: &CodeMap,
    outcome: &EngineOutcome,
    block: u64,
    estimator: Estimator,
    warnings: Vec<String>,
) -> Analysis {
    let material = Material {
        manifest,
        code,
        outcome,
        block,
        estimator,
        detail: Detail::All,
        bounds: &Bounds::default(),
        predicted: None,
    };
    material.build(warnings).analysis
}

/// The result, and data for further results from the same counts.
pub struct Built {
    /// The tables.
    pub analysis: Analysis,
    /// Counts of the whole.
    pub whole: AccessCounts,
    /// Counts by code.
    pub by_code: ByCode,
    /// Estimator for parts of memory or of the run.
    pub places: RegionEstimator,
    /// The windows, if they come by time.
    pub times: Option<TimeShares>,
}
