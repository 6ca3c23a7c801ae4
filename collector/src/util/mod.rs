//! Helpers of the recorder.

pub mod args;
pub mod pt_settings;
