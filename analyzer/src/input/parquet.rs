//! Sample rows from `samples/*.parquet`, one row group at a time.
//!
//! A row group is decoded column by column into plain arrays. Files are untrusted: everything
//! passed to the decoder is checked first (types, null counts, lengths, byte ranges), and a panic
//! in the decoder is an error of that row group alone.

use crate::data::chunk::Chunk;
use crate::data::code_map::CodeMap;
use crate::data::group::Group;
use crate::data::rows::{RowColumns, Run};
use crate::data::samples::Waited;
use crate::input::catch_panic::quietly;
use crate::input::number::Number;
use crate::input::plain_column;
use crate::input::run_length::Steps;
use crate::input::source::ChunkSource;
use crate::input::trace_error::TraceError;
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;
use mgz_annotations_schema::expand::RowBatch;
use mgz_annotations_schema::manifest::COLUMNS;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, DataType as StoredType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};
use parquet::file::serialized_reader::SerializedPageReader;
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part, or a row group of it, that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct PartError {
    /// The file.
    pub path: String,
    /// The error.
    pub cause: String,
    /// Rows that are lost by it.
    pub rows: u64,
}

impl PartError {
    /// A sentence for the user.
    pub(crate) fn skipped(&self) -> String {
        let rows = self.rows;
        format!("{self}; {rows} rows are skipped, record again if they matter")
    }
}

/// Optional columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    /// `time_ns`.
    pub time: bool,
}

/// A part. Its columns are read when they are needed. They are not mapped: mapped memory counts as
/// memory of this process, and a system that maps files in large pieces maps released pages again.
/// The file is opened for each column, because a trace may have more parts than a process may have
/// open files.
struct PartFile {
    path: PathBuf,
    bytes: u64,
    metadata: ParquetMetaData,
    /// Numbers of the columns in the file, in the order of [`COLUMNS`].
    columns: [usize; COLUMNS.len()],
}

/// One row group of a part.
#[derive(Clone)]
pub(crate) struct RowGroup {
    part: Arc<PartFile>,
    group: usize,
}

/// Reads row groups.
pub(crate) struct PartSource<'a> {
    pieces: &'a [RowGroup],
    code: &'a CodeMap,
    waited: &'a Waited,
    columns: ColumnSet,
}

impl<'a> PartSource<'a> {
    pub(crate) fn new(
        pieces: &'a [RowGroup],
        code: &'a CodeMap,
        waited: &'a Waited,
        columns: ColumnSet,
    ) -> PartSource<'a> {
        PartSource {
            pieces,
            code,
            waited,
            columns,
        }
    }
}

impl ChunkSource for PartSource<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.pieces.get(piece).map_or(0, |p| p.rows() as u64)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let read = |&piece: &usize| match self.pieces.get(piece) {
            Some(piece) => piece
                .read(self.code, self.columns)
                .map(|mut chunk| {
                    chunk.waited = self.waited.clone();
                    chunk
                })
                .map_err(|e| (e.skipped(), e.rows)),
            None => Ok(Chunk::default()),
        };
        pieces.par_iter().with_max_len(1).map(read).collect()
    }

    fn runs(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let read = |&piece: &usize| match self.pieces.get(piece) {
            Some(piece) => piece.read_runs().map_err(|e| (e.to_string(), e.rows)),
            None => Ok(Chunk::default()),
        };
        pieces.par_iter().with_max_len(1).map(read).collect()
    }
}

/// Opens the parts in `folder`, in the order of their names. Those that cannot be opened are named
/// in `damage`.
pub(crate) fn list(folder: &Path, damage: &mut Vec<String>) -> Result<Vec<RowGroup>, TraceError> {
    let mut paths = Vec::new();
    match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            return Err(TraceError::NoSamples {
                path: folder.display().to_string(),
                cause: e.to_string(),
            });
        }
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(|e| TraceError::NoSamples {
                    path: folder.display().to_string(),
                    cause: e.to_string(),
                })?;
                let path = entry.path();
                if path.extension().is_some_and(|e| e == "parquet") {
                    paths.push(path);
                }
            }
        }
    }
    paths.sort();
    let mut pieces = Vec::new();
    for path in paths {
        match open(&path) {
            Ok(part) => {
                let part = Arc::new(part);
                pieces.extend((0..part.metadata.num_row_groups()).map(|group| RowGroup { part: part.clone(), group }));
            }
            Err(cause) => damage.push(format!(
                "{}: {cause}; this part is skipped (a recorder that was killed leaves its last part unfinished; else record again)",
                path.display()
            )),
        }
    }
    Ok(pieces)
}

/// Arrow's type of a column of samples, by its type in the schema.
pub fn arrow_type(name: &str) -> DataType {
    match name {
        "u8" => DataType::UInt8,
        "u16" => DataType::UInt16,
        "u32" => DataType::UInt32,
        "bool" => DataType::Boolean,
        _ => DataType::UInt64,
    }
}

/// The metadata of a part, without what is not read of it.
fn read_metadata(file: &File) -> Result<ParquetMetaData, String> {
    let options = ParquetMetaDataOptions::new()
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let reader = ParquetMetaDataReader::new().with_metadata_options(Some(options));
    quietly(|| reader.parse_and_finish(file))
        .and_then(|r| r.map_err(|e| e.to_string()))
        .map_err(|e| format!("damaged or unfinished Parquet file ({e})"))
}

fn open(path: &Path) -> Result<PartFile, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let bytes = file.metadata().map_err(|e| e.to_string())?.len();
    if bytes < 12 {
        return Err("not a Parquet file (too short)".into());
    }
    let metadata = read_metadata(&file)?;
    let stored = metadata.file_metadata().schema_descr();
    let schema = quietly(|| parquet_to_arrow_schema(stored, None))
        .and_then(|r| r.map_err(|e| e.to_string()))?;
    let mut columns = [0; COLUMNS.len()];
    for (column, (name, kind)) in columns.iter_mut().zip(COLUMNS) {
        let Ok(field) = schema.field_with_name(name) else {
            return Err(format!("column {name:?} is missing"));
        };
        if *field.data_type() != arrow_type(kind) {
            return Err(format!(
                "column {name:?} has type {:?}, expected {kind}",
                field.data_type()
            ));
        }
        let place = stored
            .columns()
            .iter()
            .position(|c| c.path().parts() == [name]);
        *column = place.ok_or_else(|| format!("column {name:?} is missing"))?;
    }
    Ok(PartFile {
        path: path.to_path_buf(),
        bytes,
        metadata,
        columns,
    })
}

/// Rows that the general decoder reads at once: it makes room for them before it knows that they are
/// there. Source: Chosen.
const ROWS_AT_ONCE: usize = 1 << 16;

impl RowGroup {
    /// Number of rows according to the file.
    pub(crate) fn rows(&self) -> usize {
        let rows = self.part.metadata.row_group(self.group).num_rows();
        rows.try_into().unwrap_or(0)
    }

    pub(crate) fn error(&self, cause: String) -> PartError {
        self.lacks(cause, self.rows())
    }

    /// The error that some of its rows cannot be read.
    pub(crate) fn lacks(&self, cause: String, rows: usize) -> PartError {
        PartError {
            path: self.part.path.display().to_string(),
            cause: format!("row group {}: {cause}", self.group),
            rows: rows as u64,
        }
    }

    /// Reads the rows.
    pub(crate) fn read(&self, code: &CodeMap, columns: ColumnSet) -> Result<Chunk, PartError> {
        let decoded = quietly(|| self.decode(columns))
            .and_then(|r| r)
            .map_err(|cause| self.error(cause))?;
        Ok(decoded.into_chunk(code))
    }

    /// Reads only the begins and ends of samples.
    fn read_runs(&self) -> Result<Chunk, PartError> {
        let decode = || -> Result<Decoded, String> {
            let (process, thread, sample) = (
                self.steps::<u32>("process")?,
                self.steps::<u32>("thread")?,
                self.steps::<u32>("sample")?,
            );
            Ok(Decoded {
                process,
                thread,
                sample,
                time: self.times()?,
                store: self.flags("store")?,
                rows: self.rows(),
                ..Decoded::default()
            })
        };
        let decoded = quietly(decode)
            .and_then(|r| r)
            .map_err(|cause| self.error(cause))?;
        let mut runs = decoded.runs(&mut 0);
        if let Some(store) = &decoded.store {
            part_stores(store, &mut runs);
        }
        Ok(Chunk {
            runs,
            ..Chunk::default()
        })
    }

    /// A column as plain numbers.
    pub(crate) fn plain(&self, name: &str) -> Result<Vec<u64>, String> {
        let kind = COLUMNS.iter().find(|c| c.0 == name).map_or("", |c| c.1);
        let read = || -> Result<Vec<u64>, String> {
            Ok(match kind {
                "u8" => self
                    .numbers::<u8>(name)?
                    .iter()
                    .map(|&v| v.into())
                    .collect(),
                "u16" => self
                    .numbers::<u16>(name)?
                    .iter()
                    .map(|&v| v.into())
                    .collect(),
                "u32" => self
                    .numbers::<u32>(name)?
                    .iter()
                    .map(|&v| v.into())
                    .collect(),
                "bool" => match self.flags(name)? {
                    Some(flags) => flags.into_iter().map(u64::from).collect(),
                    None => vec![0; self.rows()],
                },
                _ if name == "time_ns" => self.times()?.to_vec(),
                _ => self.numbers::<u64>(name)?.to_vec(),
            })
        };
        quietly(read)
            .and_then(|r| r)
            .map_err(|cause| self.error(cause).to_string())
    }

    fn decode(&self, columns: ColumnSet) -> Result<Decoded, String> {
        let rows = self.rows();
        Ok(Decoded {
            process: self.steps::<u32>("process")?,
            thread: self.steps::<u32>("thread")?,
            seq: self.steps::<u64>("seq")?,
            sample: self.steps::<u32>("sample")?,
            time: if columns.time {
                self.times()?
            } else {
                ScalarBuffer::default()
            },
            module: self.steps::<u16>("module")?,
            site: self.numbers("site")?,
            address: self.numbers("address")?,
            size: self.numbers("size")?,
            class: self.numbers("class")?,
            store: self.flags("store")?,
            implied: self.numbers("implied_const")?,
            rows,
        })
    }

    /// The metadata of a column.
    fn described(&self, name: &str) -> Result<&ColumnChunkMetaData, String> {
        let known = COLUMNS.iter().position(|c| c.0 == name);
        let place = known.map(|at| self.part.columns[at]);
        let columns = self.part.metadata.row_group(self.group).columns();
        place
            .and_then(|place| columns.get(place))
            .ok_or_else(|| format!("column {name:?} is missing"))
    }

    /// A column and its bytes.
    pub(crate) fn column(&self, name: &str) -> Result<(&ColumnChunkMetaData, Vec<u8>), String> {
        let column = self.described(name)?;
        let (start, length) = column.byte_range();
        if start
            .checked_add(length)
            .is_none_or(|end| end > self.part.bytes)
        {
            return Err(format!("column {name:?} lies beyond the end of the file"));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        let mut read = || -> io::Result<usize> {
            let mut file = File::open(&self.part.path)?;
            file.seek(SeekFrom::Start(start))?;
            file.take(length).read_to_end(&mut bytes)
        };
        match read() {
            Ok(read) if read as u64 == length => Ok((column, bytes)),
            Ok(_) => Err(format!("column {name:?} lies beyond the end of the file")),
            Err(error) => Err(format!("column {name:?}: {error}")),
        }
    }

    /// Decodes a column of any form, and checks lengths and nulls.
    fn decoded<T: StoredType>(&self, name: &str) -> Result<Vec<T::T>, String> {
        let failed = |e: ParquetError| format!("column {name:?}: {e}");
        let column = self.described(name)?;
        let file = File::open(&self.part.path).map_err(|e| format!("column {name:?}: {e}"))?;
        let pages = SerializedPageReader::new(Arc::new(file), column, self.rows(), None);
        let pages = Box::new(pages.map_err(failed)?);
        let mut reader = ColumnReaderImpl::<T>::new(column.column_descr_ptr(), pages);
        let (mut values, mut levels, mut rows) = (Vec::new(), Vec::new(), 0);
        while rows <= self.rows() {
            levels.clear();
            let read = reader.read_records(ROWS_AT_ONCE, Some(&mut levels), None, &mut values);
            let (records, present, _) = read.map_err(failed)?;
            if present != records {
                return Err(format!("column {name:?} has empty fields"));
            }
            if records == 0 {
                break;
            }
            rows += records;
        }
        if rows != self.rows() {
            return Err(format!(
                "column {name:?} has {rows} rows, expected {}",
                self.rows()
            ));
        }
        Ok(values)
    }

    pub(crate) fn numbers<T: Number>(&self, name: &str) -> Result<ScalarBuffer<T>, String> {
        let (column, bytes) = self.column(name)?;
        if let Some(values) = plain_column::numbers::<T>(bytes, column, self.rows()) {
            return Ok(values.into());
        }
        let values = self.decoded::<T::Stored>(name)?;
        Ok(values.into_iter().map(T::narrowed).collect())
    }

    fn times(&self) -> Result<ScalarBuffer<u64>, String> {
        let name = "time_ns";
        let (column, bytes) = self.column(name)?;
        match plain_column::unsteady(bytes, column, self.rows()) {
            Some(values) => Ok(values.into()),
            None => self.numbers(name),
        }
    }

    /// A column whose values mostly stay the same or advance by a constant step.
    pub(crate) fn steps<T: Number>(&self, name: &str) -> Result<Steps, String> {
        let (column, bytes) = self.column(name)?;
        match plain_column::steps::<T>(bytes, column, self.rows()) {
            Some(steps) => Ok(steps),
            None => Ok(Steps::of(
                self.numbers::<T>(name)?.iter().map(|&v| v.into()),
            )),
        }
    }

    /// A Boolean column; `None` if no bit is set.
    pub(crate) fn flags(&self, name: &str) -> Result<Option<Vec<bool>>, String> {
        let (column, bytes) = self.column(name)?;
        if let Some(flags) = plain_column::flags(bytes, column, self.rows()) {
            return Ok(flags);
        }
        let flags = self.decoded::<BoolType>(name)?;
        Ok(flags.contains(&true).then_some(flags))
    }
}

/// Converts ranges of rows to ranges of loads and of stores.
fn part_stores(store: &[bool], runs: &mut [Run]) {
    let (mut loads, mut stores) = (0, 0);
    for run in runs {
        let written = store[run.loads.clone()].iter().filter(|&&s| s).count();
        let read = run.loads.len() - written;
        run.loads = loads..loads + read;
        run.stores = stores..stores + written;
        loads += read;
        stores += written;
    }
}

/// The columns of a row group, all of one length, or empty if not requested.
#[derive(Default)]
pub(crate) struct Decoded {
    process: Steps,
    thread: Steps,
    seq: Steps,
    sample: Steps,
    time: ScalarBuffer<u64>,
    module: Steps,
    site: ScalarBuffer<u32>,
    address: ScalarBuffer<u64>,
    size: ScalarBuffer<u32>,
    class: ScalarBuffer<u8>,
    /// True for each store; none if there are no stores.
    store: Option<Vec<bool>>,
    implied: ScalarBuffer<u16>,
    rows: usize,
}

impl Decoded {
    /// Rows of one thread that were expanded from spill files.
    pub(crate) fn from_rows(process: u32, thread: u32, rows: RowBatch) -> Decoded {
        let length = rows.len();
        Decoded {
            process: Steps::constant(process.into(), length),
            thread: Steps::constant(thread.into(), length),
            seq: Steps::of(rows.seq.iter().copied()),
            sample: Steps::of(rows.sample.iter().map(|&s| s.into())),
            time: rows.time_ns.into(),
            module: Steps::of(rows.module.iter().map(|&m| m.into())),
            site: rows.site.into(),
            address: rows.address.into(),
            size: rows.size.into(),
            class: rows.class.into(),
            store: rows.store.contains(&true).then_some(rows.store),
            implied: rows.implied_const.into(),
            rows: length,
        }
    }

    /// Separates loads and stores, adds their code, and divides them into samples.
    pub(crate) fn into_chunk(self, code: &CodeMap) -> Chunk {
        let mut chunk = Chunk::default();
        let mut group = self.groups(code, &mut chunk);
        let site = self.instructions(code);
        let mut runs = self.runs(&mut chunk.out_of_order);
        chunk.time = self.time.clone();
        match &self.store {
            None => {
                chunk.loads = RowColumns {
                    address: self.address,
                    size: self.size,
                    group,
                    implied: self.implied,
                    site,
                };
            }
            Some(store) => {
                for (g, &is_store) in group.iter_mut().zip(store) {
                    if is_store {
                        *g = g.stores();
                    }
                }
                part_stores(store, &mut runs);
                let pick = |want: bool| {
                    let keep = |i: &usize| store[*i] == want;
                    let indices: Vec<usize> = (0..self.rows).filter(keep).collect();
                    RowColumns {
                        address: indices
                            .iter()
                            .map(|&i| self.address[i])
                            .collect::<Vec<_>>()
                            .into(),
                        size: indices
                            .iter()
                            .map(|&i| self.size[i])
                            .collect::<Vec<_>>()
                            .into(),
                        group: indices.iter().map(|&i| group[i]).collect(),
                        implied: indices
                            .iter()
                            .map(|&i| self.implied[i])
                            .collect::<Vec<_>>()
                            .into(),
                        site: indices.iter().map(|&i| site[i]).collect::<Vec<_>>().into(),
                    }
                };
                let mut before = 0;
                for &is_store in store {
                    if is_store {
                        chunk.loads_before.push(before);
                    } else {
                        before += 1;
                    }
                }
                chunk.loads = pick(false);
                chunk.stores = pick(true);
            }
        }
        chunk.runs = runs;
        chunk
    }

    /// Load instructions, numbered over all modules.
    fn instructions(&self, code: &CodeMap) -> ScalarBuffer<u32> {
        // With one module (nearly always) sites already have these numbers, and unknown ones are
        // above all known ones.
        if code.modules() == 1 && self.module.runs().all(|(module, _)| module == 0) {
            return self.site.clone();
        }
        let mut rest = &self.site[..self.rows];
        let mut all = Vec::with_capacity(self.rows);
        for (module, rows) in self.module.runs() {
            let (sites, behind) = rest.split_at(rows.min(rest.len()));
            all.extend(sites.iter().map(|&site| code.site(module as u16, site)));
            rest = behind;
        }
        all.into()
    }

    fn groups(&self, code: &CodeMap, chunk: &mut Chunk) -> Vec<Group> {
        let mut rest = (&self.site[..self.rows], &self.class[..self.rows]);
        let mut all = Vec::with_capacity(self.rows);
        for (module, rows) in self.module.runs() {
            let ((sites, other_sites), (classes, other_classes)) = (
                rest.0.split_at(rows.min(rest.0.len())),
                rest.1.split_at(rows.min(rest.1.len())),
            );
            let (pieces, unknown, known) = code.pieces_of(module as u16);
            let mut no_site = 0;
            all.extend(sites.iter().zip(classes).map(|(&site, &class)| {
                let piece = pieces.get(site as usize);
                no_site += u64::from(piece.is_none());
                Group::of_load(*piece.unwrap_or(&unknown), class)
            }));
            chunk.unknown_class += classes
                .iter()
                .map(|&class| u64::from(class > 2))
                .sum::<u64>();
            *if known {
                &mut chunk.unknown_site
            } else {
                &mut chunk.unknown_module
            } += no_site;
            rest = (other_sites, other_classes);
        }
        all
    }

    fn runs(&self, out_of_order: &mut u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let time = |i: usize| self.time.get(i).copied().unwrap_or(0);
        let mut seq = self.seq.reader();
        let mut columns = [
            Cursor::new(&self.process),
            Cursor::new(&self.thread),
            Cursor::new(&self.sample),
        ];
        let mut start = 0;
        while start < self.rows {
            let end = columns
                .iter_mut()
                .map(|c| c.end_of_run(start))
                .min()
                .unwrap_or(self.rows)
                .min(self.rows);
            let [process, thread, sample] = [0, 1, 2].map(|c: usize| columns[c].value as u32);
            let stretch = seq.next(end - start);
            *out_of_order += stretch.falls;
            if let Some(last) = runs.last()
                && (last.process, last.thread) == (process, thread)
                && stretch.first <= last.last_seq
            {
                *out_of_order += 1;
            }
            runs.push(Run {
                process,
                thread,
                sample,
                bucket: 0,
                column: 0,
                loads: start..end,
                stores: 0..0,
                first_seq: stretch.first,
                last_seq: stretch.last,
                first_time: time(start),
                last_time: time(end - 1),
            });
            start = end;
        }
        runs
    }
}

/// The run of equal values of a column that a row is in.
struct Cursor<R> {
    runs: R,
    value: u64,
    end: usize,
}

impl<'a> Cursor<Box<dyn Iterator<Item = (u64, usize)> + 'a>> {
    fn new(column: &'a Steps) -> Self {
        Cursor {
            runs: Box::new(column.runs()),
            value: 0,
            end: 0,
        }
    }

    /// End of the run of `row`; rows ascend.
    fn end_of_run(&mut self, row: usize) -> usize {
        while self.end <= row {
            let Some((value, rows)) = self.runs.next() else {
                return usize::MAX;
            };
            (self.value, self.end) = (value, self.end + rows);
        }
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        ArrayRef, BooleanArray, RecordBatch, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
    };
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, Encoding};
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

    const ROWS: u64 = 1000;

    fn value(row: u64) -> u64 {
        row / 3 * 7 % 250
    }

    /// A part by the crate's writer. `empty`: the row whose fields are empty.
    fn part(folder: &Path, properties: WriterPropertiesBuilder, empty: Option<u64>) -> RowGroup {
        let values = || (0..ROWS).map(|row| (empty != Some(row)).then(|| value(row)));
        let columns = COLUMNS.map(|(name, kind)| {
            let cells: ArrayRef = match kind {
                "u8" => Arc::new(values().map(|v| v.map(|v| v as u8)).collect::<UInt8Array>()),
                "u16" => Arc::new(
                    values()
                        .map(|v| v.map(|v| v as u16))
                        .collect::<UInt16Array>(),
                ),
                "u32" => Arc::new(
                    values()
                        .map(|v| v.map(|v| v as u32))
                        .collect::<UInt32Array>(),
                ),
                "bool" => Arc::new(
                    values()
                        .map(|v| v.map(|v| v % 2 == 1))
                        .collect::<BooleanArray>(),
                ),
                _ => Arc::new(values().collect::<UInt64Array>()),
            };
            (name, cells, empty.is_some())
        });
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let file = File::create(folder.join("part.parquet")).unwrap();
        let properties = properties
            .set_data_page_row_count_limit(300)
            .set_write_batch_size(100);
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let mut damage = Vec::new();
        let groups = list(folder, &mut damage).unwrap();
        assert_eq!((groups.len(), damage), (1, Vec::new()));
        groups[0].clone()
    }

    #[test]
    fn columns_of_all_forms_have_the_same_values() {
        let folder = tempfile::tempdir().unwrap();
        let plain = || WriterProperties::builder().set_dictionary_enabled(false);
        let forms = [
            plain(),
            plain().set_compression(Compression::LZ4_RAW),
            plain().set_compression(Compression::SNAPPY),
            plain().set_encoding(Encoding::DELTA_BINARY_PACKED),
            plain().set_writer_version(WriterVersion::PARQUET_2_0),
            WriterProperties::builder(),
        ];
        for (form, properties) in forms.into_iter().enumerate() {
            // DELTA_BINARY_PACKED is for numbers alone.
            let properties = properties.set_column_encoding(
                "store".into(),
                match form {
                    4 => Encoding::RLE,
                    _ => Encoding::PLAIN,
                },
            );
            let group = part(folder.path(), properties, None);
            for (name, kind) in COLUMNS {
                let want = (0..ROWS)
                    .map(value)
                    .map(|v| if kind == "bool" { v % 2 } else { v });
                let got = group.plain(name).unwrap();
                assert_eq!(got, want.collect::<Vec<_>>(), "form {form}, {name}");
            }
        }
    }

    #[test]
    fn empty_fields_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for empty in [0, 700, ROWS - 1] {
            let group = part(folder.path(), WriterProperties::builder(), Some(empty));
            for (name, _) in COLUMNS {
                let error = group.plain(name).unwrap_err();
                assert!(error.contains("empty fields"), "{name}: {error}");
            }
        }
        // Columns that may have empty fields, and have none, are read.
        let group = part(folder.path(), WriterProperties::builder(), Some(ROWS));
        assert_eq!(group.plain("address").unwrap().len() as u64, ROWS);
    }
}
