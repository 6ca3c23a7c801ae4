//! Reuse counts of one group of rows.

use crate::data::counts::LogHistogram;
use crate::data::histogram::Histogram;
use crate::data::object_map::{OwnStack, Resolver};
use crate::data::rows::Rows;
use crate::input::weights::{UNIT, Weights};
use crate::reuse::{NEVER, Narrow, ReuseEngine, ReuseSink};
use crate::stages::reuse::by_page::ZoomSums;
use crate::stages::reuse::by_region::{HeatRegions, HeatSums};
use crate::stages::windows::Levels;
use std::sync::Arc;

/// Reuse counts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupReuse {
    /// Touches that are reuses.
    pub reuses: u64,
    /// First touches.
    pub firsts: u64,
    /// Sum of D.
    pub distance: u64,
    /// Greatest D.
    pub distance_max: u64,
    /// Sum of intervals.
    pub interval: u64,
}

impl GroupReuse {
    /// Adds another one.
    #[inline(always)]
    pub fn merge(&mut self, other: &GroupReuse) {
        self.reuses += other.reuses;
        self.firsts += other.firsts;
        self.distance += other.distance;
        self.distance_max = self.distance_max.max(other.distance_max);
        self.interval += other.interval;
    }
}
