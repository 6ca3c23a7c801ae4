//! Writer of other tools' traces as a trace folder: parts for each thread, one sidecar whose sites
//! are the instructions that occurred, and a manifest.

use crate::named_output::NamedOutput;
use anyhow::Context;
use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema, SchemaRef};
use mgz_analyzer::data::memory_units::PAGE_BYTES;
use mgz_analyzer::input::arrow_type;
use mgz_annotations_schema::manifest::{
    ANNOTATIONS_DIR, COLUMNS, MANIFEST, Manifest, Module, SAMPLES_DIR, TRACE_FORMAT, TRACE_VERSION,
    Thread,
};
use mgz_annotations_schema::sidecar::{Function, Header, Input, NO_RECORD, NONE, Sidecar, Site};
use mgz_annotations_schema::{RowsIn, SamplingUnit, TraceMode, TraceState};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a row group.
const GROUP: usize = 1 << 18;
/// Row groups of a part.
const GROUPS: usize = 64;
/// Bytes of a page, about.
const PAGE_LIMIT_BYTES: usize = 256 << 10;
/// A class that is not known.
const UNKNOWN_CLASS: u8 = 3;

/// An access of another tool's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedAccess {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Address of the instruction; 0 if unknown.
    pub ip: u64,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u32,
    /// A store.
    pub store: bool,
    /// Number of the instruction in its thread, used as its time, or simulated nanoseconds.
    pub time: u64,
}

#[derive(Default)]
struct Columns {
    seq: Vec<u64>,
    time: Vec<u64>,
    ip: Vec<u64>,
    site: Vec<u32>,
    address: Vec<u64>,
    size: Vec<u32>,
    store: Vec<bool>,
}

/// Rows of one thread.
struct Rows {
    columns: Columns,
    rows: u64,
    loads: u64,
    sample: u32,
    parts: usize,
    groups: usize,
    file: Option<ArrowWriter<NamedOutput<File>>>,
}

/// Writes a trace.
pub struct TraceWriter {
    folder: PathBuf,
    schema: SchemaRef,
    threads: BTreeMap<(u32, u32), Rows>,
    sites: HashMap<u64, u32>,
    order: Vec<(u64, u32)>,
    /// Names of threads by process and thread, as far as they are known.
    pub names: HashMap<(u32, u32), String>,
    /// The manifest, as far as the other trace gives it.
    pub manifest: Manifest,
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_size_limit(PAGE_LIMIT_BYTES)
        .build()
}

impl TraceWriter {
    /// Makes the folder, which must not hold anything.
    pub fn new(folder: &Path) -> anyhow::Result<TraceWriter> {
        let occupied = std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
        anyhow::ensure!(
            !occupied,
            "{}: the folder is not empty; give another one with -o, or remove it",
            folder.display()
        );
        for part in [SAMPLES_DIR, ANNOTATIONS_DIR] {
            let path = folder.join(part);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("{}: cannot make the folder", path.display()))?;
        }
        let fields = COLUMNS.map(|(name, kind)| Field::new(name, arrow_type(kind), false));
        Ok(TraceWriter {
            folder: folder.to_path_buf(),
            schema: Arc::new(Schema::new(fields.to_vec())),
            threads: BTreeMap::new(),
            sites: HashMap::new(),
            order: Vec::new(),
            names: HashMap::new(),
            manifest: Manifest::default(),
        })
    }

    /// Adds an access. Those of a thread must come in order.
    pub fn add(&mut self, access: ImportedAccess) -> anyhow::Result<()> {
        let site = self.site(access);
        let sample = self.threads.len() as u32;
        let key = (access.process, access.thread);
        let rows = self.threads.entry(key).or_insert_with(|| Rows {
            columns: Columns::default(),
            rows: 0,
            loads: 0,
            sample,
            parts: 0,
            groups: 0,
            file: None,
        });
        let columns = &mut rows.columns;
        columns.seq.push(rows.rows);
        columns.time.push(access.time);
        columns.ip.push(access.ip);
        columns.site.push(site);
        columns.address.push(access.address);
        columns.size.push(access.size);
        columns.store.push(access.store);
        rows.rows += 1;
        rows.loads += u64::from(!access.store);
        if columns.seq.len() == GROUP {
            flush(&self.folder, &self.schema, key, rows)?;
        }
        Ok(())
    }

    /// The number of an access's instruction; [`NONE`] if it is not known.
    fn site(&mut self, access: ImportedAccess) -> u32 {
        if access.ip == 0 {
            return NONE;
        }
        let next = self.order.len() as u32;
        let site = *self.sites.entry(access.ip).or_insert(next);
        if site == next {
            self.order.push((access.ip, access.size));
        }
        site
    }

    /// Writes the rest and returns the number of rows. `program` is the name of the code and the
    /// path of its instructions.
    pub fn finish(mut self, program: &str) -> anyhow::Result<u64> {
        let (mut rows, mut loads) = (0, 0);
        for (&key, thread) in &mut self.threads {
            flush(&self.folder, &self.schema, key, thread)?;
            close(thread)?;
            rows += thread.rows;
            loads += thread.loads;
        }
        let sidecar = self.sidecar(program);
        let name = format!("{ANNOTATIONS_DIR}/import.mgza");
        let path = self.folder.join(&name);
        sidecar
            .write(&path)
            .with_context(|| format!("{}: cannot write", path.display()))?;
        let threads = self.threads.iter().map(|(&(process, thread), of)| Thread {
            process,
            thread,
            name: self
                .names
                .get(&(process, thread))
                .cloned()
                .unwrap_or_default(),
            rows: of.rows,
            samples: 1,
            records_executed: of.rows,
            records_kept: of.rows,
        });
        let mut manifest = Manifest {
            format: TRACE_FORMAT.into(),
            version: TRACE_VERSION,
            tool: concat!("mgz-analyze ", env!("CARGO_PKG_VERSION")).into(),
            mode: TraceMode::Full,
            unit: SamplingUnit::Records,
            state: TraceState::Complete,
            data: RowsIn::Samples,
            modules: vec![Module {
                path: program.into(),
                sidecar: name,
                sidecar_id: sidecar.id_hex(),
                ..Module::default()
            }],
            threads: threads.collect(),
            ..self.manifest
        };
        let totals = &mut manifest.totals;
        (totals.rows, totals.samples) = (rows, self.threads.len() as u64);
        (totals.records_executed, totals.records_kept) = (rows, rows);
        totals.loads_executed = Some(loads);
        let path = self.folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest)?;
        std::fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
        Ok(rows)
    }

    /// The instructions as sites. Each page of code becomes a function.
    fn sidecar(&self, program: &str) -> Sidecar {
        let mut pages: Vec<u64> = self
            .order
            .iter()
            .map(|o| o.0 / PAGE_BYTES * PAGE_BYTES)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let functions = pages.iter().map(|&start| Function {
            name: NONE,
            left: NONE,
            start,
            end: start.saturating_add(PAGE_BYTES),
            ..Function::default()
        });
        let sites = self.order.iter().map(|&(ip, size)| Site {
            function: pages
                .binary_search(&(ip / PAGE_BYTES * PAGE_BYTES))
                .unwrap_or(0) as u32,
            region: NONE,
            location: NONE,
            ip,
            size,
            class: 2,
            a: NO_RECORD,
            b: NO_RECORD,
            ..Site::default()
        });
        Sidecar {
            id: *b"mgz imported run",
            header: Header {
                input: Input {
                    path: program.into(),
                    ..Input::default()
                },
                tool: concat!("mgz-analyze ", env!("CARGO_PKG_VERSION")).into(),
                flavour: "soft".into(),
                ..Header::default()
            },
            functions: functions.collect(),
            sites: sites.collect(),
            ..Sidecar::default()
        }
    }
}

/// Writes the waiting rows as a row group.
fn flush(
    folder: &Path,
    schema: &SchemaRef,
    (process, thread): (u32, u32),
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let columns = std::mem::take(&mut rows.columns);
    let length = columns.seq.len();
    if length == 0 {
        return Ok(());
    }
    if rows.groups == GROUPS {
        close(rows)?;
    }
    let file = match &mut rows.file {
        Some(file) => file,
        None => {
            // Parts are read in the order of their names, rows by process and thread.
            let name = format!("part-{process:010}-{thread:010}-{:06}.parquet", rows.parts);
            let path = folder.join(SAMPLES_DIR).join(name);
            let to = NamedOutput::create(&path)?;
            rows.parts += 1;
            let file = ArrowWriter::try_new(to, schema.clone(), Some(properties()))?;
            rows.file.insert(file)
        }
    };
    let u16s = |value: u16| Arc::new(UInt16Array::from_value(value, length));
    let u32s = |values: Vec<u32>| Arc::new(UInt32Array::from(values));
    let u64s = |values: Vec<u64>| Arc::new(UInt64Array::from(values));
    let arrays: Vec<ArrayRef> = vec![
        u32s(vec![process; length]),
        u32s(vec![thread; length]),
        u64s(columns.seq),
        u32s(vec![rows.sample; length]),
        u64s(columns.time),
        u16s(0),
        u64s(columns.ip),
        u32s(columns.site),
        u64s(columns.address),
        u32s(columns.size),
        Arc::new(UInt8Array::from_value(UNKNOWN_CLASS, length)),
        Arc::new(BooleanArray::from(columns.store)),
        u16s(0),
    ];
    file.write(&RecordBatch::try_new(schema.clone(), arrays)?)?;
    file.flush()?;
    rows.groups += 1;
    Ok(())
}

fn close(rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(file) = rows.file.take() {
        file.close()?;
    }
    rows.groups = 0;
    Ok(())
}
