//! Helpers of the recorder.

pub mod args;
pub mod options;
pub mod pt_settings;
