//! Reads a trace only by its documented format.

use crate::age::oldest_first;
use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use mgz_annotations_schema::manifest::{MANIFEST, Manifest, SAMPLES_DIR};
use std::collections::BTreeMap;
use std::path::Path;

/// One row of `samples/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRow {
    /// Sample number.
    pub sample: u32,
    /// Order within the thread.
    pub seq: u64,
    /// Module number.
    pub module: u16,
    /// Original link-time address.
    pub ip: u64,
    /// Site.
    pub site: u32,
    /// Address read.
    pub address: u64,
    /// Bytes.
    pub size: u32,
    /// Class.
    pub class: u8,
    /// True for a store.
    pub store: bool,
    /// Implied Constant loads.
    pub implied_const: u16,
}

/// A trace in memory.
pub struct Trace {
    /// `manifest.json`.
    pub manifest: Manifest,
    /// Rows of each `(process, thread)`, in file order.
    pub threads: BTreeMap<(u32, u32), Vec<RecordedRow>>,
}

impl Trace {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.threads.values().map(Vec::len).sum()
    }

    /// Rows of the oldest thread.
    ///
    /// # Panics
    /// If no thread has a row.
    pub fn first_thread(&self) -> &[RecordedRow] {
        oldest_first(&self.threads)
            .first()
            .expect("no thread has a row")
            .1
    }

    /// Index of the module with this sidecar.
    pub fn module(&self, sidecar_id: &str) -> Option<u16> {
        self.manifest
            .modules
            .iter()
            .position(|m| m.sidecar_id == sidecar_id)
            .map(|i| i as u16)
    }
}

/// Weights from `windows.parquet`: the number of executed loads that each load of a sample
/// represents.
pub fn weights(dir: &Path) -> Result<BTreeMap<u32, Option<f64>>> {
    let mut weights = BTreeMap::new();
    let file = std::fs::File::open(dir.join(mgz_annotations_schema::manifest::WINDOWS))?;
    for batch in
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)?.build()?
    {
        let batch = batch?;
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .with_context(|| format!("no column {name}"))
        };
        let sample = column("sample")?.as_primitive::<UInt32Type>();
        let weight = column("stands_for")?.as_primitive::<arrow_array::types::Float64Type>();
        weights.extend(sample.iter().flatten().zip(weight.iter()));
    }
    Ok(weights)
}

/// Reads a trace folder.
pub fn read_trace(dir: &Path) -> Result<Trace> {
    let text = std::fs::read(dir.join(MANIFEST))
        .with_context(|| format!("{}/{MANIFEST}", dir.display()))?;
    let manifest = serde_json::from_slice(&text)?;
    let mut parts: Vec<_> = std::fs::read_dir(dir.join(SAMPLES_DIR))?
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    parts.retain(|p| p.extension().is_some_and(|e| e == "parquet"));
    parts.sort();
    let mut threads: BTreeMap<(u32, u32), Vec<RecordedRow>> = BTreeMap::new();
    for part in parts {
        let file = std::fs::File::open(&part)?;
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
            .with_context(|| part.display().to_string())?;
        for batch in reader.build()? {
            let batch = batch?;
            let column = |name: &str| {
                batch
                    .column_by_name(name)
                    .with_context(|| format!("no column {name}"))
            };
            let process = column("process")?.as_primitive::<UInt32Type>();
            let thread = column("thread")?.as_primitive::<UInt32Type>();
            let sample = column("sample")?.as_primitive::<UInt32Type>();
            let seq = column("seq")?.as_primitive::<UInt64Type>();
            let module = column("module")?.as_primitive::<UInt16Type>();
            let ip = column("ip")?.as_primitive::<UInt64Type>();
            let site = column("site")?.as_primitive::<UInt32Type>();
            let address = column("address")?.as_primitive::<UInt64Type>();
            let size = column("size")?.as_primitive::<UInt32Type>();
            let class = column("class")?.as_primitive::<UInt8Type>();
            let store = column("store")?.as_boolean();
            let implied = column("implied_const")?.as_primitive::<UInt16Type>();
            for i in 0..batch.num_rows() {
                threads
                    .entry((process.value(i), thread.value(i)))
                    .or_default()
                    .push(RecordedRow {
                        sample: sample.value(i),
                        seq: seq.value(i),
                        module: module.value(i),
                        ip: ip.value(i),
                        site: site.value(i),
                        address: address.value(i),
                        size: size.value(i),
                        class: class.value(i),
                        store: store.value(i),
                        implied_const: implied.value(i),
                    });
            }
        }
    }
    Ok(Trace { manifest, threads })
}
