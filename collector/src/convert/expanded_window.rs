//! A window whose records are expanded.

use mgz_annotations_schema::spill::{SpeedMeasurement, ThreadKey};

/// Module and function.
pub(crate) type ModuleFunction = (u16, u32);

/// A window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpandedWindow {
    pub key: ThreadKey,
    pub sample: u32,
    /// Slots in it.
    pub records: u32,
    /// Loads in it, implied ones included.
    pub loads: u32,
    /// Number of loads in another function than the load before. These are calls and returns, which
    /// take longer in a recording thread.
    pub changes: u32,
    /// Number of different pairs of loads at these changes. Branch predictors miss many of them if
    /// the number is large.
    pub ways: u32,
    /// Different loads in it, and those of them that no window before had.
    pub sites: [u32; 2],
    pub begin_ns: u64,
    pub end_ns: u64,
    pub cause: u8,
    /// Code at the window's start: the code of most loads of its first part.
    pub first: ModuleFunction,
    /// Code at its end, likewise.
    pub last: ModuleFunction,
    /// The measurement behind it.
    pub pace: SpeedMeasurement,
    /// Average distance between triggers when its own came; 0 if unknown.
    pub period: u64,
}
