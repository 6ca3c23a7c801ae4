//! `reuse_pairs.parquet` out.

use crate::util::small_table;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema};
use mgz_annotations_schema::manifest::REUSE_PAIRS;
use std::path::Path;
use std::sync::Arc;

/// Value of an unknown load in its columns.
const NO_LOAD: u32 = u32::MAX;

/// A word that a sample has accessed, and its reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sample.
    pub sample: u32,
    /// The word's address.
    pub address: u64,
    /// CPU time of the thread from the sample's end on, nanoseconds.
    pub cpu_ns: u64,
    /// True if the word was accessed then; false if the watch was given up.
    pub reused: bool,
    /// The load that accessed it, if known: module (index into the manifest's) and site.
    pub load: Option<(u16, u32)>,
}

/// Writes the table into a trace folder, mode 0600.
pub fn write_pairs(folder: &Path, pairs: &[Pair]) -> anyhow::Result<()> {
    fn u32s(values: impl Iterator<Item = u32>) -> ArrayRef {
        Arc::new(values.collect::<UInt32Array>())
    }
    fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
        Arc::new(values.collect::<UInt64Array>())
    }
    let reused = pairs.iter().map(|p| Some(p.reused));
    let loads = || pairs.iter().map(|p| p.load);
    let columns: [(&str, ArrayRef); 6] = [
        ("sample", u32s(pairs.iter().map(|p| p.sample))),
        ("address", u64s(pairs.iter().map(|p| p.address))),
        ("cpu_ns", u64s(pairs.iter().map(|p| p.cpu_ns))),
        ("reused", Arc::new(BooleanArray::from_iter(reused))),
        (
            "module",
            u32s(loads().map(|load| load.map_or(NO_LOAD, |l| l.0.into()))),
        ),
        (
            "site",
            u32s(loads().map(|load| load.map_or(NO_LOAD, |l| l.1))),
        ),
    ];
    let field =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), false);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    small_table::write_small_table(folder, REUSE_PAIRS, schema, [Ok(batch)])
}
