//! The plan of a function.

use crate::plan::types::{GatherPlan, ImplicitLoads, RegionPlan};

/// The plan of a whole function.
#[derive(Clone, Debug, Default)]
pub struct FunctionPlan {
    /// Regions with at least one site.
    pub regions: Vec<RegionPlan>,
    /// Gathers among the sites.
    pub gathers: Vec<GatherPlan>,
    /// Implicit stack reads.
    pub implicit: ImplicitLoads,
    /// True if regions have counters instead of records.
    pub counts: bool,
}
