//! A row of the table of objects.

use crate::data::counts::Metrics;
use crate::data::object_map::contains_others;
use crate::estimate::row_estimates::Hats;
use crate::estimate::time_shares::TimeShare;
use crate::findings::fields::FieldShare;
use crate::misses::Misses;
use crate::stages::strides::StrideShare;
use crate::views::all_blocks::AllBlocks;
use crate::views::location_code::CodePart;
use mgz_annotations_schema::ObjectKind;
use serde::Serialize;

/// An object.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ObjectRow {
    /// Variable, allocation site or file.
    pub object: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Type, if known.
    #[serde(rename = "type")]
    pub of_type: String,
    /// Module of a global.
    pub module: String,
    /// Call stack of the allocation, from the inside out.
    pub stack: Vec<String>,
    /// Return addresses of the allocation, one text per call stack of the site.
    pub return_addresses: Vec<String>,
    /// Lifetimes: blocks that were allocated there.
    pub instances: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Share of the time, if windows are triggered by time.
    #[serde(flatten)]
    pub time: TimeShare,
    /// Share of the loads, percent; unknown if windows are triggered by time.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Distinct blocks touched.
    pub blocks: u64,
    /// Loads per block.
    #[serde(rename = "A_per_block")]
    pub accesses_per_block: Option<f64>,
    /// Share of the loads that are Irregular, percent.
    #[serde(rename = "A_irr_pct")]
    pub irregular_share: Option<f64>,
    /// Metrics of its loads; D and intervals of the touches of its blocks, over all blocks in
    /// between.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Estimates for the whole run.
    #[serde(flatten)]
    pub hats: Hats,
    /// The most frequent strides of its loads, estimated.
    #[serde(rename = "strides_hat")]
    pub strides: Vec<StrideShare>,
    /// Functions that load it, most loads first.
    pub functions: Vec<CodePart>,
    /// Lines that load it.
    pub lines: Vec<CodePart>,
    /// Predicted cache misses.
    pub misses: Option<Misses>,
    /// Bytes of an element, from the type or else from the step of loads that walk through it; 0 if
    /// unknown.
    pub element_bytes: u64,
    /// Loads by field of the element.
    pub fields: Vec<FieldShare>,
    /// Estimates for all blocks, if only a sample of them was logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<AllBlocks>,
    /// Bytes of its largest block, if they are known for certain.
    #[serde(rename = "largest_bytes")]
    pub largest: Option<u64>,
    /// Index among the trace's objects.
    #[serde(skip)]
    pub number: u32,
}

impl ObjectRow {
    /// True if the object is only memory that contains others, as the heap is.
    pub(crate) fn contains_others(&self) -> bool {
        contains_others(&self.kind, &self.object)
    }
}
