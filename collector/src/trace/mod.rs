//! The trace folder.

pub mod coverage;
pub mod dir;
pub mod progress;
pub mod summary;
