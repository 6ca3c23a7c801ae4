//! Stages: single passes over the rows, each with its own counts.

pub mod fetches;
pub mod footprint;
pub mod incidence;
mod last_accesses;
pub mod line_visits;
pub mod observed_class;
pub mod pages;
pub mod reuse;
pub mod set_conflicts;
pub mod stride_bins;
pub mod strides;
pub mod walks;
pub mod windows;
