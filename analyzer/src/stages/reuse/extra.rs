//! Receivers of the touches of a sample.

use crate::data::object_map::{OwnStack, Resolver};
use crate::data::reuse_counts::GroupReuse;
use crate::stages::reuse::by_region::HeatRegions;
use arrow_buffer::ScalarBuffer;
use std::sync::Arc;

/// Place and time of rows, for counts by unit.
pub(crate) struct SampleOrigin {
    /// Address space.
    pub(crate) space: u32,
    /// System process id.
    pub(crate) process: u32,
    /// Distinguishes objects that share a page; none if no objects are known.
    pub(crate) objects: Option<Arc<Resolver>>,
    /// The stack of the thread.
    pub(crate) stack: OwnStack,
    /// `time_ns` of the rows; empty if unknown.
    pub(crate) times: ScalarBuffer<u64>,
    /// `time_ns` of the first row, and estimated nanoseconds per row for the others.
    pub(crate) clock: (u64, f64),
    /// Regions of a heat map; none if no map is made.
    pub(crate) heat: Option<Arc<HeatRegions>>,
    /// Column of the heat map.
    pub(crate) column: u32,
    /// Part of the run, if parts are counted.
    pub(crate) part: u32,
}

/// Further processing of a touch besides the sums.
pub(crate) trait Extra {
    /// Processes `touch`, a touch of a block by a row of the sample.
    fn touch(&mut self, row: u64, block: u64, tag: u32, touch: &GroupReuse);
}

impl Extra for () {
    #[inline(always)]
    fn touch(&mut self, _row: u64, _block: u64, _tag: u32, _touch: &GroupReuse) {}
}
