//! Text, JSON, CSV and Parquet.

pub mod document;
pub mod export;
pub mod text;
pub(crate) mod text_threads;
pub(crate) mod text_parts;
