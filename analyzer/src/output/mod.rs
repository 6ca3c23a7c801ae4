//! Text, JSON, CSV and Parquet.

pub(crate) mod by_path;
pub(crate) mod call_paths;
pub mod document;
pub(crate) mod executed_text;
pub mod export;
pub(crate) mod fields;
pub(crate) mod findings;
pub(crate) mod generated;
mod headline;
pub(crate) mod measured;
pub(crate) mod misses;
pub(crate) mod names;
pub mod paint;
pub(crate) mod python;
pub(crate) mod readable;
pub mod screen;
pub mod text;
pub(crate) mod text_parts;
mod text_summary;
pub mod text_table;
pub(crate) mod text_threads;
