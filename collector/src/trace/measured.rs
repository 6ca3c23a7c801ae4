//! `measured.parquet`: one row per memory sample of the processor.

use crate::util::small_table;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use mgz_annotations_schema::manifest::MEASURED;
use mgz_annotations_schema::{ObjectKind, SamplePopulation};
use std::path::Path;
use std::sync::Arc;

/// Names of an instruction. Empty texts and line 0 are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeNames {
    /// Path of the original file; `[kernel]` for the kernel.
    pub module: String,
    /// Function.
    pub function: String,
    /// Innermost function that was inlined there; empty if none was.
    pub inlined: String,
    /// Source file of the innermost function.
    pub file: String,
    /// Its line.
    pub line: u32,
}

/// Names of accessed memory. Empty texts are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectNames {
    /// Kind of the object, as in `objects.parquet`.
    pub kind: ObjectKind,
    /// Variable, file, or the kernel's name.
    pub name: String,
    /// File name of a variable's module.
    pub module: String,
}

/// A sample. Unknown values are `None`.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRow {
    /// Process; 0 if unknown.
    pub process: u32,
    /// Thread; 0 if unknown.
    pub thread: u32,
    /// perf's clock, ns.
    pub time: Option<u64>,
    /// Processor.
    pub cpu: Option<u32>,
    /// Run-time address of the instruction.
    pub ip: Option<u64>,
    /// Names of the instruction.
    pub code: Arc<CodeNames>,
    /// Accessed address.
    pub address: Option<u64>,
    /// Names of the accessed memory.
    pub object: Arc<ObjectNames>,
    /// Kind of the access.
    pub operation: &'static str,
    /// Memory level that served the access.
    pub level: &'static str,
    /// Cycles.
    pub latency: Option<u32>,
    /// Result of the address translation.
    pub tlb: Option<String>,
    /// Result of snooping other caches.
    pub snoop: Option<&'static str>,
    /// True if another core, node or socket served it.
    pub remote: Option<bool>,
    /// Distance to it.
    pub hops: Option<u8>,
    /// True for a locked access.
    pub locked: Option<bool>,
    /// Reason for a delay.
    pub blocked: Option<&'static str>,
    /// NUMA node of the physical address.
    pub node: Option<u32>,
    /// Physical address.
    pub physical: Option<u64>,
    /// Events that the sample stands for.
    pub period: Option<u64>,
    /// The population of accesses that it is drawn from.
    pub drawn: SamplePopulation,
}

/// Source: Chosen.
const ROWS_PER_BATCH: usize = 1 << 16;

fn texts<'a>(rows: &'a [MeasuredRow], of: impl Fn(&'a MeasuredRow) -> Option<&'a str>) -> ArrayRef {
    let texts = rows.iter().map(|row| of(row).filter(|t| !t.is_empty()));
    Arc::new(texts.collect::<StringArray>())
}

fn populations(rows: &[MeasuredRow]) -> ArrayRef {
    let texts = rows.iter().map(|row| row.drawn.to_string());
    Arc::new(StringArray::from_iter_values(texts))
}

fn longs(rows: &[MeasuredRow], of: impl Fn(&MeasuredRow) -> Option<u64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<UInt64Array>())
}

fn words(rows: &[MeasuredRow], of: impl Fn(&MeasuredRow) -> Option<u32>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<UInt32Array>())
}

fn flags(rows: &[MeasuredRow], of: impl Fn(&MeasuredRow) -> Option<bool>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<BooleanArray>())
}

fn batch(rows: &[MeasuredRow]) -> Result<RecordBatch, ArrowError> {
    let columns = [
        ("process", words(rows, |r| Some(r.process)), false),
        ("thread", words(rows, |r| Some(r.thread)), false),
        ("time_ns", longs(rows, |r| r.time), true),
        ("cpu", words(rows, |r| r.cpu), true),
        ("ip", longs(rows, |r| r.ip), true),
        ("module", texts(rows, |r| Some(&r.code.module)), true),
        ("function", texts(rows, |r| Some(&r.code.function)), true),
        ("inlined", texts(rows, |r| Some(&r.code.inlined)), true),
        ("file", texts(rows, |r| Some(&r.code.file)), true),
        (
            "line",
            words(rows, |r| Some(r.code.line).filter(|&l| l > 0)),
            true,
        ),
        ("address", longs(rows, |r| r.address), true),
        ("object", texts(rows, |r| Some(&r.object.name)), true),
        (
            "object_kind",
            texts(rows, |r| Some(r.object.kind.as_str())),
            true,
        ),
        (
            "object_module",
            texts(rows, |r| Some(&r.object.module)),
            true,
        ),
        ("operation", texts(rows, |r| Some(r.operation)), false),
        ("level", texts(rows, |r| Some(r.level)), false),
        ("latency", words(rows, |r| r.latency), true),
        ("tlb", texts(rows, |r| r.tlb.as_deref()), true),
        ("snoop", texts(rows, |r| r.snoop), true),
        ("remote", flags(rows, |r| r.remote), true),
        ("hops", words(rows, |r| r.hops.map(u32::from)), true),
        ("locked", flags(rows, |r| r.locked), true),
        ("blocked", texts(rows, |r| r.blocked), true),
        ("node", words(rows, |r| r.node), true),
        ("physical", longs(rows, |r| r.physical), true),
        ("period", longs(rows, |r| r.period), true),
        ("drawn", populations(rows), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns)
}

/// Writes the file into a trace folder, mode 0600.
pub fn write_measured(
    folder: &Path,
    rows: impl IntoIterator<Item = MeasuredRow>,
) -> anyhow::Result<()> {
    let mut rows = rows.into_iter().peekable();
    let schema = batch(&[])?.schema();
    let batches = std::iter::from_fn(|| {
        rows.peek()?;
        let next: Vec<MeasuredRow> = rows.by_ref().take(ROWS_PER_BATCH).collect();
        Some(batch(&next).map_err(Into::into))
    });
    small_table::write_small_table(folder, MEASURED, schema, batches)
}
