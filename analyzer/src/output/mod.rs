//! Text, JSON, CSV and Parquet.

pub mod document;
pub mod export;
pub(crate) mod names;
pub mod text;
pub(crate) mod text_parts;
pub(crate) mod text_threads;
