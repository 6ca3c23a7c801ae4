//! One function for each way that `mgz-record` runs.

pub mod analyze;
mod calibrate;
pub mod hot;
pub mod import_probe;
pub mod record;
pub mod record_pt;
pub mod record_watch;
