//! Text, JSON, CSV and Parquet.

pub mod document;
pub mod export;
pub(crate) mod misses;
pub mod text;
pub(crate) mod text_parts;
