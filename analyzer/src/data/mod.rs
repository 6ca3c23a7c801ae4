//! Rows, counts, histograms, and the maps from addresses to code and objects.

pub mod call_paths;
pub mod code_map;
pub mod counts;
pub mod detail;
pub mod elements;
pub mod frame;
pub mod group;
pub mod histogram;
pub mod log_histogram;
pub use mgz_models::util::memory_units;
pub mod chunk;
pub mod object_map;
pub mod reuse_counts;
pub mod reuse_pairs;
pub mod rows;
pub mod samples;
