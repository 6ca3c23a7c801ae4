//! Writes sidecars: each field of a table is one array, in a compact form
//! ([`Form`](crate::sidecar::codec::Form)), compressed by zstd.

use crate::atomic_replace::replace;
use crate::sidecar::macros::TableRow;
use crate::sidecar::{
    Function, Gather, Header, Location, Loop, PtWrite, Record, Region, Sidecar, Site, StoredColumn,
};
use mgz_abi::leb128::MAX_BYTES;
use mgz_abi::module_note::{Prelude, SIDECAR_MAGIC, SIDECAR_VERSION};
use rayon::prelude::*;
use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use zstd::bulk::Compressor;

/// Level of compression. Higher ones take several times as long for a tenth less space.
const LEVEL: i32 = 1;

/// Number of rows encoded at a time, as one frame of each column. It is fixed, so files are the
/// same on all machines.
pub(crate) const CHUNK: usize = 1 << 15;

/// Number of rows whose fields are encoded consecutively while they are in the fastest cache.
/// Source: Chosen.
pub(crate) const ROWS_PER_BATCH: usize = 256;

/// A table's rows before they are written.
pub struct Runs<'a, R> {
    runs: Vec<&'a [R]>,
    place: Box<dyn Fn(usize, &mut [R]) + Sync + 'a>,
    before: R,
}

impl<'a, R: Default> Runs<'a, R> {
    /// A table of consecutive runs of rows. `place` gets a run's number and some of its rows, and
    /// converts them to those of the table.
    pub fn new(runs: Vec<&'a [R]>, place: impl Fn(usize, &mut [R]) + Sync + 'a) -> Runs<'a, R> {
        Runs {
            runs,
            place: Box::new(place),
            before: R::default(),
        }
    }

    /// These runs behind other rows, of which `before` is the last.
    pub fn behind(self, before: R) -> Runs<'a, R> {
        Runs { before, ..self }
    }
}

impl<'a, R: Default> From<&'a [R]> for Runs<'a, R> {
    fn from(rows: &'a [R]) -> Runs<'a, R> {
        Runs::new(rows.chunks(CHUNK).collect(), |_, _| ())
    }
}

impl<R: Default> Default for Runs<'_, R> {
    fn default() -> Self {
        Runs::new(Vec::new(), |_, _| ())
    }
}

#[allow(private_bounds, reason = "rows are those of this crate")]
impl<R: TableRow> Runs<'_, R> {
    fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The ranges of runs that are encoded at a time.
    pub(crate) fn chunks(&self) -> Vec<Range<usize>> {
        let (mut chunks, mut start, mut rows) = (Vec::new(), 0, 0);
        for (number, run) in self.runs.iter().enumerate() {
            rows += run.len();
            if rows >= CHUNK {
                chunks.push(start..number + 1);
                (start, rows) = (number + 1, 0);
            }
        }
        if rows > 0 {
            chunks.push(start..self.runs.len());
        }
        chunks
    }

    /// The row before a run.
    fn before(&self, run: usize) -> R {
        let found = self.runs[..run]
            .iter()
            .enumerate()
            .rev()
            .find_map(|(number, run)| Some((number, *run.last()?)));
        found.map_or(self.before, |(number, mut row)| {
            (self.place)(number, std::slice::from_mut(&mut row));
            row
        })
    }

    /// Encodes all columns of some runs.
    fn encode(&self, runs: Range<usize>) -> std::io::Result<Chunk> {
        let rows: usize = self.runs[runs.clone()].iter().map(|run| run.len()).sum();
        let mut columns: Vec<Vec<u8>> = R::FIELDS
            .iter()
            .map(|_| Vec::with_capacity(rows + rows / 4))
            .collect();
        let mut before = self.before(runs.start);
        let mut batch: Vec<R> = Vec::with_capacity(ROWS_PER_BATCH);
        // A capacity check per element would take longer than the encoding.
        let mut room = [0; ROWS_PER_BATCH * MAX_BYTES];
        let mut take = |batch: &mut Vec<R>| {
            for (field, column) in columns.iter_mut().enumerate() {
                let bytes = R::encode(batch, &before, field, &mut room);
                column.extend_from_slice(&room[..bytes]);
            }
            before = batch.last().copied().unwrap_or(before);
            batch.clear();
        };
        for number in runs {
            let mut rest = self.runs[number];
            while !rest.is_empty() {
                let from = batch.len();
                let (now, later) = rest.split_at(rest.len().min(ROWS_PER_BATCH - from));
                batch.extend_from_slice(now);
                (self.place)(number, &mut batch[from..]);
                rest = later;
                if batch.len() == ROWS_PER_BATCH {
                    take(&mut batch);
                }
            }
        }
        take(&mut batch);
        Chunk::of(&columns)
    }
}

/// Compressed parts of some columns.
struct Chunk {
    /// Length before and after compression of each column.
    lens: Vec<(usize, usize)>,
    /// The compressed bytes, column after column.
    bytes: Vec<u8>,
}

impl Chunk {
    fn of(columns: &[Vec<u8>]) -> std::io::Result<Chunk> {
        let mut compressor = Compressor::new(LEVEL)?;
        let mut chunk = Chunk {
            lens: Vec::with_capacity(columns.len()),
            bytes: Vec::new(),
        };
        let mut frame = Vec::new();
        for column in columns {
            frame.clear();
            frame.reserve(zstd::zstd_safe::compress_bound(column.len()));
            compressor.compress_to_buffer(column, &mut frame)?;
            chunk.lens.push((column.len(), frame.len()));
            chunk.bytes.extend_from_slice(&frame);
        }
        Ok(chunk)
    }
}

/// Makes one chunk.
type Job<'a> = Box<dyn Fn() -> std::io::Result<Chunk> + Sync + 'a>;

/// A table, and the source of its columns' bytes.
struct Table<'a> {
    head: TableHead,
    jobs: Vec<Job<'a>>,
}

impl<'a> Table<'a> {
    fn of<R: TableRow>(name: &'static str, runs: &'a Runs<R>) -> Table<'a> {
        let columns = R::FIELDS
            .iter()
            .map(|&(name, kind, form)| [name, kind, form.encoding()])
            .collect();
        let jobs = runs
            .chunks()
            .into_iter()
            .map(|chunk| Box::new(move || runs.encode(chunk.clone())) as Job);
        Table {
            head: TableHead {
                name,
                columns,
                rows: runs.len(),
            },
            jobs: jobs.collect(),
        }
    }

    /// A table of zero-terminated strings.
    fn of_strings(strings: &'a [String]) -> Table<'a> {
        let text = |strings: &[String]| {
            let mut text = Vec::new();
            for s in strings {
                // (Almost no string contains a zero.)
                match s.as_bytes().contains(&0) {
                    true => text.extend(s.bytes().filter(|&b| b != 0)),
                    false => text.extend_from_slice(s.as_bytes()),
                }
                text.push(0);
            }
            text
        };
        let jobs = strings
            .chunks(CHUNK / 8)
            .map(|strings| Box::new(move || Chunk::of(&[text(strings)])) as Job);
        Table {
            head: TableHead {
                name: "strings",
                columns: vec![["text", "utf8", "zstd"]],
                rows: strings.len(),
            },
            jobs: jobs.collect(),
        }
    }
}

/// A sidecar's tables before they are written, or parts of them.
#[derive(Default)]
pub struct Content<'a> {
    /// See [`Sidecar::functions`].
    pub functions: Runs<'a, Function>,
    /// See [`Sidecar::sites`].
    pub sites: Runs<'a, Site>,
    /// See [`Sidecar::regions`].
    pub regions: Runs<'a, Region>,
    /// See [`Sidecar::records`].
    pub records: Runs<'a, Record>,
    /// See [`Sidecar::ptwrites`].
    pub ptwrites: Runs<'a, PtWrite>,
    /// See [`Sidecar::gathers`].
    pub gathers: Runs<'a, Gather>,
    /// See [`Sidecar::loops`].
    pub loops: Runs<'a, Loop>,
    /// See [`Sidecar::locations`].
    pub locations: Runs<'a, Location>,
    /// See [`Sidecar::strings`].
    pub strings: &'a [String],
}

/// Compressed columns of some rows of all tables. Those of several parts follow each other in the
/// file.
pub struct EncodedTables(Vec<(TableHead, Vec<Chunk>)>);

/// The header's data on a table's columns.
struct TableHead {
    name: &'static str,
    /// Name, type and encoding of each column.
    columns: Vec<[&'static str; 3]>,
    rows: usize,
}

/// The columns of a sidecar in the form of the file.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// Offsets count from the first one.
    columns: Vec<StoredColumn>,
    bytes: Vec<u8>,
}

impl Content<'_> {
    /// Encodes the columns, on all cores.
    pub fn encode(&self) -> std::io::Result<EncodedTables> {
        let tables = [
            Table::of_strings(self.strings),
            Table::of("functions", &self.functions),
            Table::of("sites", &self.sites),
            Table::of("regions", &self.regions),
            Table::of("records", &self.records),
            Table::of("ptwrites", &self.ptwrites),
            Table::of("gathers", &self.gathers),
            Table::of("loops", &self.loops),
            Table::of("locations", &self.locations),
        ];
        let jobs: Vec<&Job> = tables.iter().flat_map(|table| &table.jobs).collect();
        let chunks: Vec<Chunk> = jobs
            .par_iter()
            .with_max_len(1)
            .map(|job| job())
            .collect::<std::io::Result<_>>()?;
        let mut chunks = chunks.into_iter();
        Ok(EncodedTables(
            tables
                .into_iter()
                .map(|table| (table.head, chunks.by_ref().take(table.jobs.len()).collect()))
                .collect(),
        ))
    }
}

impl Encoded {
    /// Joins consecutive parts.
    pub fn of(pieces: &[EncodedTables]) -> std::io::Result<Encoded> {
        let mut encoded = Encoded::default();
        let chunks = || {
            pieces
                .iter()
                .flat_map(|piece| &piece.0)
                .flat_map(|table| &table.1)
        };
        // The reserved bytes include padding.
        encoded.bytes.reserve(
            chunks()
                .map(|chunk| chunk.bytes.len() + 8 * chunk.lens.len())
                .sum(),
        );
        for (n, (table, _)) in pieces.first().iter().flat_map(|piece| &piece.0).enumerate() {
            // A column has at least one frame.
            let none = [Chunk::of(&vec![Vec::new(); table.columns.len()])?];
            let mut chunks: Vec<&Chunk> = pieces.iter().flat_map(|piece| &piece.0[n].1).collect();
            if chunks.is_empty() {
                chunks.extend(&none);
            }
            let rows: usize = pieces.iter().map(|piece| piece.0[n].0.rows).sum();
            let mut at = vec![0; chunks.len()];
            for (column, [name, kind, encoding]) in table
                .columns
                .iter()
                .map(|c| c.map(str::to_owned))
                .enumerate()
            {
                encoded
                    .bytes
                    .resize(encoded.bytes.len().next_multiple_of(8), 0);
                let offset = encoded.bytes.len() as u64;
                let mut raw_bytes = 0;
                for (chunk, at) in chunks.iter().zip(&mut at) {
                    let (raw, stored) = chunk.lens[column];
                    encoded
                        .bytes
                        .extend_from_slice(&chunk.bytes[*at..*at + stored]);
                    *at += stored;
                    raw_bytes += raw as u64;
                }
                let bytes = encoded.bytes.len() as u64 - offset;
                encoded.columns.push(StoredColumn {
                    table: table.name.into(),
                    name,
                    kind,
                    rows: rows as u64,
                    encoding,
                    offset,
                    bytes,
                    raw_bytes,
                });
            }
        }
        Ok(encoded)
    }
}

/// The parts of a sidecar for writing.
#[derive(Clone, Copy, Debug)]
pub struct SidecarParts<'a> {
    /// [`Prelude::id`].
    pub id: [u8; 16],
    /// The JSON header; `format`, `version` and `columns` are filled in.
    pub header: &'a Header,
    /// Consecutive parts of [`Sidecar::map`].
    pub map: &'a [Vec<u8>],
    /// All other columns.
    pub columns: &'a Encoded,
}

impl SidecarParts<'_> {
    fn map_len(&self) -> usize {
        self.map.iter().map(Vec::len).sum()
    }

    /// The bytes before the map.
    fn head(&self) -> std::io::Result<Vec<u8>> {
        let map_len = self.map_len() as u64;
        let behind = map_len.next_multiple_of(8);
        let map = StoredColumn {
            table: "map".into(),
            name: "map".into(),
            kind: "u8".into(),
            rows: map_len,
            encoding: "raw".into(),
            offset: 0,
            bytes: map_len,
            raw_bytes: map_len,
        };
        let others = self.columns.columns.iter().map(|c| StoredColumn {
            offset: behind + c.offset,
            ..c.clone()
        });
        let columns = std::iter::once(map).chain(others).collect();
        let header = Header {
            format: "mgz-annotations".into(),
            version: SIDECAR_VERSION,
            columns,
            ..self.header.clone()
        };
        let mut json = serde_json::to_vec(&header)?;
        while !(size_of::<Prelude>() + json.len()).is_multiple_of(8) {
            json.push(b' ');
        }
        let mut head = Vec::with_capacity(size_of::<Prelude>() + json.len());
        head.extend_from_slice(&SIDECAR_MAGIC);
        head.extend_from_slice(&SIDECAR_VERSION.to_le_bytes());
        head.extend_from_slice(&self.id);
        for word in [
            json.len() as u64,
            (size_of::<Prelude>() + json.len()) as u64,
            map_len,
        ] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&json);
        Ok(head)
    }

    fn pieces(&self) -> std::io::Result<Vec<Cow<'_, [u8]>>> {
        let map_len = self.map_len();
        let padding = &[0; 8][..map_len.next_multiple_of(8) - map_len];
        let behind = [padding, &self.columns.bytes];
        Ok(std::iter::once(self.head()?.into())
            .chain(self.map.iter().map(Into::into))
            .chain(behind.map(Into::into))
            .collect())
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        Ok(self.pieces()?.concat())
    }

    /// Writes the file under a temporary name beside its final path.
    pub fn write_beside(&self, path: &Path) -> std::io::Result<Beside> {
        let pieces = self.pieces()?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".tmp{}", std::process::id()));
        let mut file = File::create(&name)?;
        let beside = Beside {
            written: Some(name.into()),
            path: path.into(),
        };
        pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        Ok(beside)
    }

    /// Writes the file. An existing one is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        self.write_beside(path)?.persist()
    }
}

/// A complete sidecar under a temporary name. It is removed unless [`Beside::persist`] is called.
#[derive(Debug)]
pub struct Beside {
    written: Option<PathBuf>,
    path: PathBuf,
}

impl Beside {
    /// Renames it to its final name, and replaces an existing file.
    pub fn persist(mut self) -> std::io::Result<()> {
        self.written
            .iter()
            .try_for_each(|written| replace(written, &self.path))?;
        self.written = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.written
            .iter()
            .for_each(|written| drop(std::fs::remove_file(written)));
    }
}

impl Sidecar {
    pub(crate) fn columns(&self) -> std::io::Result<Encoded> {
        let content = Content {
            functions: self.functions[..].into(),
            sites: self.sites[..].into(),
            regions: self.regions[..].into(),
            records: self.records[..].into(),
            ptwrites: self.ptwrites[..].into(),
            gathers: self.gathers[..].into(),
            loops: self.loops[..].into(),
            locations: self.locations[..].into(),
            strings: &self.strings,
        };
        Encoded::of(&[content.encode()?])
    }

    /// The file's bytes. `header.columns` is computed here.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        SidecarParts {
            id: self.id,
            header: &self.header,
            map: std::slice::from_ref(&self.map),
            columns: &self.columns()?,
        }
        .to_bytes()
    }

    /// Writes the file. An existing one is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        SidecarParts {
            id: self.id,
            header: &self.header,
            map: std::slice::from_ref(&self.map),
            columns: &self.columns()?,
        }
        .write(path)
    }
}
