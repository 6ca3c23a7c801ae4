//! `call_paths.parquet` and `window_paths.parquet` out.

use crate::paths::names::Call;
use crate::util::small_table;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use mgz_annotations_schema::manifest::{CALL_PATHS, WINDOW_PATHS};
use std::path::Path;
use std::sync::Arc;

/// Value of unknown loads in the columns about a thread's waiting.
const NO_LOAD: u32 = u32::MAX;

/// The path of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePath {
    /// Sample.
    pub sample: u32,
    /// Number of the innermost call; 0 if it is not known.
    pub path: u32,
    /// Its callers are known up to the thread's first function.
    pub whole: bool,
    /// The load for which its thread waited, if known: module (index into the manifest's) and site.
    pub waited: Option<(u16, u32)>,
    /// A load of the function in which its thread was, in the same form.
    pub within: Option<(u16, u32)>,
}

/// Writes both files into a trace folder, mode 0600.
pub fn write_call_paths(folder: &Path, all: &[Call], samples: &[SamplePath]) -> anyhow::Result<()> {
    calls(folder, all)?;
    windows(folder, samples)
}

/// Writes `call_paths.parquet`. The first of `calls` is left out.
pub fn calls(folder: &Path, calls: &[Call]) -> anyhow::Result<()> {
    let of_calls = || (1u32..).zip(calls.iter().skip(1));
    let texts = |of: &dyn Fn(&Call) -> &str| {
        Arc::new(
            of_calls()
                .map(|(_, c)| Some(of(c)))
                .collect::<StringArray>(),
        ) as ArrayRef
    };
    table(
        folder,
        CALL_PATHS,
        vec![
            ("path", u32s(&mut of_calls().map(|(number, _)| number))),
            ("parent", u32s(&mut of_calls().map(|(_, c)| c.parent))),
            ("function", texts(&|c| &c.function)),
            ("module", texts(&|c| &c.module)),
            ("file", texts(&|c| &c.file)),
            ("call_file", texts(&|c| &c.call_file)),
            ("call_line", u32s(&mut of_calls().map(|(_, c)| c.call_line))),
            (
                "inlined",
                Arc::new(BooleanArray::from_iter(
                    of_calls().map(|(_, c)| Some(c.inlined)),
                )),
            ),
            (
                "python",
                Arc::new(BooleanArray::from_iter(
                    of_calls().map(|(_, c)| Some(c.python)),
                )),
            ),
        ],
    )
}

fn u32s(values: &mut dyn Iterator<Item = u32>) -> ArrayRef {
    Arc::new(values.collect::<UInt32Array>())
}

fn windows(folder: &Path, samples: &[SamplePath]) -> anyhow::Result<()> {
    let modules = |of: fn(&SamplePath) -> Option<(u16, u32)>| {
        u32s(
            &mut samples
                .iter()
                .map(|s| of(s).map_or(NO_LOAD, |w| w.0.into())),
        )
    };
    let sites = |of: fn(&SamplePath) -> Option<(u16, u32)>| {
        u32s(&mut samples.iter().map(|s| of(s).map_or(NO_LOAD, |w| w.1)))
    };
    table(
        folder,
        WINDOW_PATHS,
        vec![
            ("sample", u32s(&mut samples.iter().map(|s| s.sample))),
            ("path", u32s(&mut samples.iter().map(|s| s.path))),
            (
                "whole",
                Arc::new(BooleanArray::from_iter(
                    samples.iter().map(|s| Some(s.whole)),
                )),
            ),
            ("waited_module", modules(|s| s.waited)),
            ("waited_site", sites(|s| s.waited)),
            ("within_module", modules(|s| s.within)),
            ("within_site", sites(|s| s.within)),
        ],
    )
}

fn table(folder: &Path, name: &str, columns: Vec<(&str, ArrayRef)>) -> anyhow::Result<()> {
    let kind = |column: &ArrayRef| -> DataType { column.data_type().clone() };
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, kind(column), false))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    small_table::write_small_table(folder, name, schema, [Ok(batch)])
}
