//! The trace folder.

pub mod call_paths;
mod counted;
pub mod coverage;
pub mod dir;
pub mod measured;
pub mod no_samples;
pub(crate) mod objects_to_write;
pub mod progress;
pub mod recording;
pub(crate) mod reuse_pairs;
pub mod summary;
pub(crate) mod thread_names;
