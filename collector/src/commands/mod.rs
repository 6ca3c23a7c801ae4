//! One function for each way that `mgz-record` runs.

pub mod analyze;
mod calibrate;
pub mod enter;
pub mod hot;
pub mod intel_pt;
pub mod probe;
pub mod record;
pub mod record_watch;
