//! Columns on disk: each field of a table is one array, in a form in which it takes few bytes ([`Form`]), compressed by zstd.

use crate::atomic_replace::replace;
use crate::sidecar::{
    Column, Function, Gather, Header, Location, Loop, NO_RECORD, NONE, PtWrite, Record, Region,
    Sidecar, SidecarError, Site, SiteKind,
};
use mgz_abi::module_note::{Prelude, SIDECAR_MAGIC, SIDECAR_VERSION};
use rayon::prelude::*;
use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use zstd::bulk::Compressor;

/// Declares a table's row type and its conversion to and from columns. Behind each field's type stands the [`Form`] of its column.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ident => $form:ident, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )* }

        impl crate::sidecar::columns::Row for $name {
            const FIELDS: &'static [(&'static str, &'static str, crate::sidecar::columns::Form)] =
                &[ $( (stringify!($field), stringify!($ty), crate::sidecar::columns::Form::$form), )* ];
            fn encode(rows: &[Self], before: &Self, field: usize, room: &mut [u8]) -> usize {
                let mut at = 0;
                $( if field == at {
                    return crate::sidecar::columns::Form::$form.encode(rows.iter().map(|row| row.$field), before.$field, room);
                } at += 1; )*
                let _ = at;
                0
            }
            fn decode(rows: &mut [Self], field: usize, bytes: &[u8]) {
                let mut at = 0;
                $( if field == at {
                    for (row, chunk) in rows.iter_mut().zip(bytes.chunks_exact(size_of::<$ty>())) {
                        row.$field = <$ty>::from_le_bytes(chunk.try_into().expect("chunks_exact gives this length"));
                    }
                    return;
                } at += 1; )*
                let _ = at;
            }
        }
    };
}
pub(crate) use table;

/// A table row that can be taken apart into columns.
pub(crate) trait Row: Copy + Default + Send + Sync {
    /// Names, types and forms of the fields.
    const FIELDS: &'static [(&'static str, &'static str, Form)];
    /// Writes one field of all rows to the beginning of `room`, [`LONGEST`] bytes for each, and tells how many bytes that were. `before`: the row before them.
    fn encode(rows: &[Self], before: &Self, field: usize, room: &mut [u8]) -> usize;
    /// Sets one field of all rows, from little-endian elements.
    fn decode(rows: &mut [Self], field: usize, bytes: &[u8]);
}

/// The form of a column's elements before compression. Compression takes time by the byte, and finds less in wide numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Little-endian.
    Plain,
    /// LEB128, the sign in the lowest bit: for numbers that are small, of either sign.
    Varint,
    /// The difference to the element before (0 before the first), modulo the type's width, as [`Form::Varint`] has it: for numbers that follow each other.
    Delta,
}

/// Most bytes of a LEB128 number.
const LONGEST: usize = 10;

impl Form {
    /// [`Column::encoding`] of such a column.
    fn encoding(self) -> &'static str {
        match self {
            Form::Plain => "zstd",
            Form::Varint => "varint",
            Form::Delta => "delta",
        }
    }

    /// Writes elements, see [`Row::encode`].
    #[inline]
    pub(crate) fn encode<T: Element>(
        self,
        elements: impl ExactSizeIterator<Item = T>,
        before: T,
        room: &mut [u8],
    ) -> usize {
        match self {
            Form::Plain => {
                let bytes = elements.len() * size_of::<T>();
                elements
                    .zip(room.chunks_exact_mut(size_of::<T>()))
                    .for_each(|(element, to)| element.put(to));
                bytes
            }
            Form::Varint => varints(elements.map(|element| element.distance(T::default())), room),
            Form::Delta => {
                let mut last = before;
                varints(
                    elements.map(|element| element.distance(std::mem::replace(&mut last, element))),
                    room,
                )
            }
        }
    }
}

/// Writes LEB128 numbers, and tells their bytes.
#[inline]
fn varints(numbers: impl Iterator<Item = u64>, room: &mut [u8]) -> usize {
    let mut at = 0;
    for mut number in numbers {
        while number >= 0x80 {
            room[at] = number as u8 | 0x80;
            number >>= 7;
            at += 1;
        }
        room[at] = number as u8;
        at += 1;
    }
    at
}

/// The little-endian elements of `size` bytes that so many LEB128 numbers stand for; `None` if they are not so many, or do not fit.
fn expand(numbers: &[u8], rows: u64, size: usize, is_delta: bool) -> Option<Vec<u8>> {
    // Each has a byte at least, so that a damaged count cannot ask for more memory than the file has earned.
    let rows = usize::try_from(rows)
        .ok()
        .filter(|&rows| rows <= numbers.len())?;
    let mut out = Vec::with_capacity(rows * size);
    let mut bytes = numbers.iter();
    let mut last = 0u64;
    for _ in 0..rows {
        let mut number = 0u64;
        for shift in (0..).step_by(7) {
            let byte = *bytes.next()?;
            let part = u64::from(byte & 0x7f);
            if shift >= 64 || part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if size < 8 && number >> (8 * size) != 0 {
            return None;
        }
        let value = number >> 1 ^ (number & 1).wrapping_neg();
        last = if is_delta {
            last.wrapping_add(value)
        } else {
            value
        };
        out.extend_from_slice(&last.to_le_bytes()[..size]);
    }
    bytes.as_slice().is_empty().then_some(out)
}

/// The type of a field.
pub(crate) trait Element: Copy + Default {
    /// Writes it little-endian.
    fn put(self, to: &mut [u8]);
    /// The difference to another one, the sign in the lowest bit.
    fn distance(self, other: Self) -> u64;
}

macro_rules! elements {
    ($($ty:ident $signed:ident $unsigned:ident),*) => {
        $(impl Element for $ty {
            #[inline]
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn distance(self, other: Self) -> u64 {
                let difference = self.wrapping_sub(other) as $signed;
                u64::from((difference << 1 ^ difference >> ($signed::BITS - 1)) as $unsigned)
            }
        })*
    };
}
elements!(u8 i8 u8, u32 i32 u32, u64 i64 u64, i64 i64 u64);

fn width(kind: &str) -> Option<usize> {
    Some(match kind {
        "u8" => 1,
        "u32" => 4,
        "u64" | "i64" => 8,
        _ => return None,
    })
}

/// Columns that were added since the version's first files: where one is missing, its fields are zero.
const ADDED: [(&str, &str); 1] = [("sites", "in_loop")];

/// Upper bound for the raw size of one column: guards against absurd headers.
const MAX_COLUMN: u64 = 1 << 34;

/// Level of compression. Higher ones take several times as long for a tenth less.
const LEVEL: i32 = 1;

/// Rows that are encoded at a time, as one frame of each column: by their number, which is the same on all machines.
const CHUNK: usize = 1 << 15;

/// Rows whose fields are taken one after the other while they are in the fastest cache.
const BATCH: usize = 256;

/// A table's rows before they are written.
pub struct Runs<'a, R> {
    runs: Vec<&'a [R]>,
    place: Box<dyn Fn(usize, &mut [R]) + Sync + 'a>,
    before: R,
}

impl<'a, R: Default> Runs<'a, R> {
    /// Runs of rows that follow each other. `place` is given each run's number, and makes of some of its rows those of the table.
    pub fn new(runs: Vec<&'a [R]>, place: impl Fn(usize, &mut [R]) + Sync + 'a) -> Runs<'a, R> {
        Runs {
            runs,
            place: Box::new(place),
            before: R::default(),
        }
    }

    /// The same behind others, of which the last row is given.
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
impl<R: Row> Runs<'_, R> {
    fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The numbers of runs that are encoded at a time.
    fn chunks(&self) -> Vec<Range<usize>> {
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

    /// All columns of some runs.
    fn encode(&self, runs: Range<usize>) -> std::io::Result<Chunk> {
        let rows: usize = self.runs[runs.clone()].iter().map(|run| run.len()).sum();
        let mut columns: Vec<Vec<u8>> = R::FIELDS
            .iter()
            .map(|_| Vec::with_capacity(rows + rows / 4))
            .collect();
        let mut before = self.before(runs.start);
        let mut batch: Vec<R> = Vec::with_capacity(BATCH);
        // A check of a column's capacity for each element would take longer than the rest.
        let mut room = [0; BATCH * LONGEST];
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
                let (now, later) = rest.split_at(rest.len().min(BATCH - from));
                batch.extend_from_slice(now);
                (self.place)(number, &mut batch[from..]);
                rest = later;
                if batch.len() == BATCH {
                    take(&mut batch);
                }
            }
        }
        take(&mut batch);
        Chunk::of(&columns)
    }
}

/// Parts of some columns, compressed.
struct Chunk {
    /// Of each column: length before compression and after.
    lens: Vec<(usize, usize)>,
    /// One after the other.
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

/// A table, and what makes its columns' bytes.
struct Table<'a> {
    head: TableHead,
    jobs: Vec<Job<'a>>,
}

impl<'a> Table<'a> {
    fn of<R: Row>(name: &'static str, runs: &'a Runs<R>) -> Table<'a> {
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

    /// Zero-terminated.
    fn of_strings(strings: &'a [String]) -> Table<'a> {
        let text = |strings: &[String]| {
            let mut text = Vec::new();
            for s in strings {
                // (Nearly none has one.)
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

struct Source<'a> {
    body: &'a [u8],
    columns: &'a [Column],
}

impl Source<'_> {
    fn bytes(&self, column: &Column) -> Result<Vec<u8>, SidecarError> {
        let what = || format!("column {}.{}", column.table, column.name);
        let end = column
            .offset
            .checked_add(column.bytes)
            .filter(|&e| e <= self.body.len() as u64);
        let Some(end) = end else {
            return Err(SidecarError::Damaged(format!(
                "{} lies beyond the end of the file",
                what()
            )));
        };
        if column.raw_bytes > MAX_COLUMN {
            return Err(SidecarError::Damaged(format!(
                "{} claims {} bytes",
                what(),
                column.raw_bytes
            )));
        }
        let stored = &self.body[column.offset as usize..end as usize];
        let raw = match column.encoding.as_str() {
            "raw" => stored.to_vec(),
            "zstd" | "varint" | "delta" => {
                let mut raw = Vec::new();
                let mut decoder = zstd::stream::Decoder::new(stored).map_err(SidecarError::Io)?;
                std::io::copy(
                    &mut std::io::Read::take(&mut decoder, column.raw_bytes + 1),
                    &mut raw,
                )
                .map_err(|e| SidecarError::Damaged(format!("{}: {e}", what())))?;
                raw
            }
            other => {
                return Err(SidecarError::Damaged(format!(
                    "{} has unknown encoding {other:?}",
                    what()
                )));
            }
        };
        if raw.len() as u64 != column.raw_bytes {
            return Err(SidecarError::Damaged(format!(
                "{} has the wrong length",
                what()
            )));
        }
        Ok(raw)
    }

    fn find(&self, table: &str, name: &str) -> Result<&Column, SidecarError> {
        self.columns
            .iter()
            .find(|c| c.table == table && c.name == name)
            .ok_or_else(|| SidecarError::Damaged(format!("column {table}.{name} is missing")))
    }

    fn table<R: Row>(&self, table: &str) -> Result<Vec<R>, SidecarError> {
        let mut rows: Vec<R> = Vec::new();
        for (i, (name, kind, _)) in R::FIELDS.iter().enumerate() {
            let column = match self.find(table, name) {
                Err(_) if ADDED.contains(&(table, name)) => continue,
                found => found?,
            };
            let size = width(kind).unwrap_or(8);
            let wrong = || {
                SidecarError::Damaged(format!(
                    "column {table}.{name} does not match its description"
                ))
            };
            if column.kind != *kind {
                return Err(wrong());
            }
            let raw = match column.encoding.as_str() {
                encoding @ ("varint" | "delta") => {
                    expand(&self.bytes(column)?, column.rows, size, encoding == "delta")
                        .ok_or_else(wrong)?
                }
                _ if column.rows.checked_mul(size as u64) != Some(column.raw_bytes) => {
                    return Err(wrong());
                }
                _ => self.bytes(column)?,
            };
            if i == 0 {
                rows.resize(column.rows as usize, R::default());
            } else if rows.len() as u64 != column.rows {
                return Err(SidecarError::Damaged(format!(
                    "columns of {table} differ in length"
                )));
            }
            R::decode(&mut rows, i, &raw);
        }
        Ok(rows)
    }
}

/// A sidecar's tables before they are written, or pieces of them.
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

/// Pieces of all columns, as they are in the file.
pub struct Piece(Vec<(TableHead, Vec<Chunk>)>);

/// What stands in the header of a table's columns.
struct TableHead {
    name: &'static str,
    /// Name, type and encoding of each.
    columns: Vec<[&'static str; 3]>,
    rows: usize,
}

/// The columns of a sidecar as they are in the file.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// Offsets count from the first one.
    columns: Vec<Column>,
    bytes: Vec<u8>,
}

impl Content<'_> {
    /// Makes the columns, on all cores.
    pub fn encode(&self) -> std::io::Result<Piece> {
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
        Ok(Piece(
            tables
                .into_iter()
                .map(|table| (table.head, chunks.by_ref().take(table.jobs.len()).collect()))
                .collect(),
        ))
    }
}

impl Encoded {
    /// Of pieces that follow each other.
    pub fn of(pieces: &[Piece]) -> std::io::Result<Encoded> {
        let mut encoded = Encoded::default();
        let chunks = || {
            pieces
                .iter()
                .flat_map(|piece| &piece.0)
                .flat_map(|table| &table.1)
        };
        // With padding.
        encoded.bytes.reserve(
            chunks()
                .map(|chunk| chunk.bytes.len() + 8 * chunk.lens.len())
                .sum(),
        );
        for (n, (table, _)) in pieces.first().iter().flat_map(|piece| &piece.0).enumerate() {
            // A column has a frame at least.
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
                encoded.columns.push(Column {
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

/// A sidecar as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// [`Prelude::id`].
    pub id: [u8; 16],
    /// The JSON header; `format`, `version` and `columns` are filled in.
    pub header: &'a Header,
    /// Pieces of [`Sidecar::map`], which follow each other.
    pub map: &'a [Vec<u8>],
    /// All other columns.
    pub columns: &'a Encoded,
}

impl Parts<'_> {
    fn map_len(&self) -> usize {
        self.map.iter().map(Vec::len).sum()
    }

    /// What stands before the map.
    fn head(&self) -> std::io::Result<Vec<u8>> {
        let map_len = self.map_len() as u64;
        let behind = map_len.next_multiple_of(8);
        let map = Column {
            table: "map".into(),
            name: "map".into(),
            kind: "u8".into(),
            rows: map_len,
            encoding: "raw".into(),
            offset: 0,
            bytes: map_len,
            raw_bytes: map_len,
        };
        let others = self.columns.columns.iter().map(|c| Column {
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

    /// Writes the file beside where it is to stand.
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

    /// Writes the file. One that exists is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        self.write_beside(path)?.persist()
    }
}

/// A complete sidecar under another name, which is removed if it does not get its own.
#[derive(Debug)]
pub struct Beside {
    written: Option<PathBuf>,
    path: PathBuf,
}

impl Beside {
    /// Gives it its name; a file that has it is replaced.
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
    fn columns(&self) -> std::io::Result<Encoded> {
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

    /// The file's bytes. `header.columns` is made here.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        Parts {
            id: self.id,
            header: &self.header,
            map: std::slice::from_ref(&self.map),
            columns: &self.columns()?,
        }
        .to_bytes()
    }

    /// Writes the file. A file that exists is replaced only once the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        Parts {
            id: self.id,
            header: &self.header,
            map: std::slice::from_ref(&self.map),
            columns: &self.columns()?,
        }
        .write(path)
    }

    /// Reads a file and checks every index in it.
    pub fn read(path: &Path) -> Result<Sidecar, SidecarError> {
        let file = std::fs::File::open(path)?;
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Sidecar::from_bytes(&map)
    }

    /// Reads only the prelude and the header: cheap identity check.
    pub fn read_header(path: &Path) -> Result<([u8; 16], Header), SidecarError> {
        let file = std::fs::File::open(path)?;
        // SAFETY: as in `read`.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        split(&map).map(|(id, header, _)| (id, header))
    }

    /// Parses the bytes of a sidecar and checks every index in it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Sidecar, SidecarError> {
        let (id, header, body) = split(bytes)?;
        let columns = header.columns.clone();
        let source = Source {
            body,
            columns: &columns,
        };
        let text = source.bytes(source.find("strings", "text")?)?;
        let mut strings: Vec<String> = text
            .split(|&b| b == 0)
            .map(|s| String::from_utf8_lossy(s).into_owned())
            .collect();
        strings.pop();
        let sidecar = Sidecar {
            id,
            header,
            functions: source.table::<Function>("functions")?,
            sites: source.table::<Site>("sites")?,
            regions: source.table::<Region>("regions")?,
            records: source.table::<Record>("records")?,
            ptwrites: source.table::<PtWrite>("ptwrites")?,
            gathers: source.table::<Gather>("gathers")?,
            // Files of before there was such a table have none.
            loops: if columns.iter().any(|c| c.table == "loops") {
                source.table::<Loop>("loops")?
            } else {
                Vec::new()
            },
            locations: source.table::<Location>("locations")?,
            strings,
            map: source.bytes(source.find("map", "map")?)?,
        };
        sidecar.check()?;
        Ok(sidecar)
    }

    /// Checks that all indices lie inside their tables, so that readers may follow them.
    fn check(&self) -> Result<(), SidecarError> {
        let bad = |what: &str, i: usize| {
            Err(SidecarError::Damaged(format!(
                "{what} {i} points outside its table"
            )))
        };
        let within = |index: u32, len: usize| (index as usize) < len;
        let within_or_none = |index: u32, len: usize| index == NONE || (index as usize) < len;
        let range =
            |first: u32, count: u32, len: usize| u64::from(first) + u64::from(count) <= len as u64;
        for (i, s) in self.sites.iter().enumerate() {
            let fits = within(s.function, self.functions.len())
                && within_or_none(s.region, self.regions.len())
                && within_or_none(s.location, self.locations.len())
                && s.in_loop as usize <= self.loops.len()
                && s.class <= 2
                && SiteKind::from_u8(s.kind).is_some();
            if !fits {
                return bad("site", i);
            }
            if s.region != NONE {
                let records = self.regions[s.region as usize].record_count;
                let inside = |r: u8, extra: u32| r == NO_RECORD || u32::from(r) + extra < records;
                let until = u32::from(s.kind == SiteKind::StringUntil as u8);
                if !inside(s.a, 0) || !inside(s.b, until) {
                    return bad("record of site", i);
                }
            }
        }
        for (i, r) in self.regions.iter().enumerate() {
            if !within(r.function, self.functions.len())
                || !range(r.first_record, r.record_count, self.records.len())
                || !range(r.first_site, r.site_count, self.sites.len())
            {
                return bad("region", i);
            }
        }
        for (i, r) in self.records.iter().enumerate() {
            let Some(region) = self.regions.get(r.region as usize) else {
                return bad("record", i);
            };
            let inside = (i as u64).wrapping_sub(u64::from(region.first_record))
                < u64::from(region.record_count);
            let alone = i as u32 == region.first_record;
            if !inside
                || r.slots == 0 && alone
                || r.slots as usize > mgz_abi::slot::MAX_REGION_SLOTS
            {
                return bad("record", i);
            }
        }
        self.check_regions()?;
        for (i, p) in self.ptwrites.iter().enumerate() {
            let fits = self
                .records
                .get(p.record as usize)
                .is_some_and(|r| p.part < crate::sidecar::ptwrites(r.slots));
            if !fits {
                return bad("ptwrite", i);
            }
        }
        for (i, g) in self.gathers.iter().enumerate() {
            if !within(g.site, self.sites.len())
                || g.lanes > 64
                || g.mask_bytes > 8
                || g.index_bytes > 512
            {
                return bad("gather", i);
            }
        }
        for (i, l) in self.loops.iter().enumerate() {
            // The chain must end: a loop is enclosed by a later one only.
            let encloses =
                l.parent == NONE || (l.parent as usize > i && within(l.parent, self.loops.len()));
            if !within(l.function, self.functions.len())
                || !within_or_none(l.location, self.locations.len())
                || !encloses
            {
                return bad("loop", i);
            }
        }
        for (i, l) in self.locations.iter().enumerate() {
            // The chain must end: a location is inlined into an earlier one only.
            if l.inlined_into != NONE && l.inlined_into as usize >= i {
                return bad("location", i);
            }
        }
        Ok(())
    }

    /// Checks that regions have records and sites of their own: none is in two ranges, so that numbers inside a region stay
    /// small and work over all regions is bounded by the tables. The ranges themselves are known to lie in their tables.
    fn check_regions(&self) -> Result<(), SidecarError> {
        let mut records = vec![0u32; self.regions.len()];
        for r in &self.records {
            // Each was found inside the range of the region it names; if the counts agree, no range holds another's.
            records[r.region as usize] += 1;
        }
        let mut sites = vec![0u32; self.regions.len()];
        for (i, s) in self
            .sites
            .iter()
            .enumerate()
            .filter(|(_, s)| s.region != NONE)
        {
            let region = &self.regions[s.region as usize];
            if (i as u64).wrapping_sub(u64::from(region.first_site)) >= u64::from(region.site_count)
            {
                return Err(SidecarError::Damaged(format!(
                    "site {i} is not among those of its region"
                )));
            }
            sites[s.region as usize] += 1;
        }
        for (i, r) in self.regions.iter().enumerate() {
            if (r.record_count, r.site_count) != (records[i], sites[i]) {
                return Err(SidecarError::Damaged(format!(
                    "region {i} names records or sites of another one"
                )));
            }
        }
        Ok(())
    }
}

/// Splits a file into identity, header and body.
fn split(bytes: &[u8]) -> Result<([u8; 16], Header, &[u8]), SidecarError> {
    if bytes.get(..4) != Some(&SIDECAR_MAGIC[..]) {
        return Err(SidecarError::NotASidecar);
    }
    let word = |at: usize| {
        bytes
            .get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
    };
    let cut = || SidecarError::Damaged("it is cut off inside its header".into());
    let version = u32::from_le_bytes(
        bytes
            .get(4..8)
            .ok_or_else(cut)?
            .try_into()
            .expect("four bytes"),
    );
    if version != SIDECAR_VERSION {
        return Err(SidecarError::Version { found: version });
    }
    let id: [u8; 16] = bytes
        .get(8..24)
        .ok_or_else(cut)?
        .try_into()
        .expect("sixteen bytes");
    let header_len = word(24).ok_or_else(cut)?;
    let start = size_of::<Prelude>();
    let end = usize::try_from(header_len)
        .ok()
        .and_then(|l| l.checked_add(start))
        .filter(|&e| e <= bytes.len())
        .ok_or_else(cut)?;
    let header: Header = serde_json::from_slice(&bytes[start..end])
        .map_err(|e| SidecarError::Damaged(format!("its header is not valid JSON ({e})")))?;
    Ok((id, header, &bytes[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::SiteFlags;

    fn small() -> Sidecar {
        Sidecar {
            id: [7; 16],
            header: Header {
                flavour: "soft".into(),
                ..Header::default()
            },
            functions: vec![Function {
                name: 0,
                left: NONE,
                start: 0x1000,
                end: 0x1100,
                clone_start: 0x9000,
                clone_end: 0x9200,
            }],
            sites: vec![Site {
                region: 0,
                location: 1,
                in_loop: 1,
                size: 8,
                ip: 0x1004,
                kind: 0,
                class: 2,
                a: 0,
                b: NO_RECORD,
                flags: SiteFlags::RMW,
                ..Site::default()
            }],
            regions: vec![Region {
                record_count: 1,
                site_count: 1,
                ..Region::default()
            }],
            records: vec![Record {
                slots: 1,
                ..Record::default()
            }],
            loops: vec![
                Loop {
                    parent: 1,
                    location: 1,
                    header: 0x1004,
                    ..Loop::default()
                },
                Loop {
                    parent: NONE,
                    location: NONE,
                    header: 0x1000,
                    ..Loop::default()
                },
            ],
            locations: vec![
                Location {
                    function: 0,
                    file: 1,
                    line: 3,
                    inlined_into: NONE,
                },
                Location {
                    function: 0,
                    file: 1,
                    line: 4,
                    inlined_into: 0,
                },
            ],
            strings: vec!["main".into(), "a.c".into()],
            map: vec![1, 2, 3],
            ..Sidecar::default()
        }
    }

    #[test]
    fn a_sidecar_survives_the_round_trip() {
        let before = small();
        let after = Sidecar::from_bytes(&before.to_bytes().unwrap()).unwrap();
        assert_eq!(after.sites, before.sites);
        assert_eq!(after.functions, before.functions);
        assert_eq!(after.regions, before.regions);
        assert_eq!(after.loops, before.loops);
        assert_eq!(after.locations, before.locations);
        assert_eq!(after.strings, before.strings);
        assert_eq!(after.map, before.map);
        assert_eq!(after.id, before.id);
    }

    #[test]
    fn numbers_of_all_sizes_come_back_in_every_form() {
        let wide = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, i64::MAX, 5];
        let check = |plain: Vec<u8>, encoded: [Vec<u8>; 2], size: usize| {
            for (numbers, is_delta) in encoded.iter().zip([false, true]) {
                assert_eq!(
                    expand(numbers, wide.len() as u64, size, is_delta).as_ref(),
                    Some(&plain),
                    "{size} {is_delta}"
                );
                for rows in [0, wide.len() as u64 - 1, wide.len() as u64 + 1, u64::MAX] {
                    assert_eq!(expand(numbers, rows, size, is_delta), None);
                }
                for len in 0..numbers.len() {
                    assert_eq!(
                        expand(&numbers[..len], wide.len() as u64, size, is_delta),
                        None
                    );
                }
            }
        };
        fn forms<T: Element>(elements: impl ExactSizeIterator<Item = T> + Clone) -> [Vec<u8>; 3] {
            [Form::Plain, Form::Varint, Form::Delta].map(|form| {
                let mut room = vec![0; elements.len() * LONGEST];
                let bytes = form.encode(elements.clone(), T::default(), &mut room);
                room.truncate(bytes);
                room
            })
        }
        let [plain, encoded @ ..] = forms(wide.iter().copied());
        check(plain, encoded, 8);
        let [plain, encoded @ ..] = forms(wide.iter().map(|&n| n as u64));
        check(plain, encoded, 8);
        let [plain, encoded @ ..] = forms(wide.iter().map(|&n| (n ^ n >> 32) as u32));
        check(plain, encoded, 4);
        let [plain, encoded @ ..] = forms(wide.iter().map(|&n| (n ^ n >> 56) as u8));
        check(plain, encoded, 1);
        // Too large for the type, and for any.
        assert_eq!(expand(&[0x80, 0x80, 0x80, 0x80, 0x10], 1, 4, false), None);
        assert_eq!(
            expand(
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
                1,
                8,
                false
            ),
            None
        );
        assert_eq!(
            expand(
                &[
                    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0
                ],
                1,
                8,
                false
            ),
            None
        );
    }

    #[test]
    fn rows_in_runs_are_those_of_one_table() {
        // Some runs are empty; others are longer than what is encoded at a time, or end with it.
        let lens = [0, 3, CHUNK, 0, 0, CHUNK - 1, 1, 2 * CHUNK + 5, BATCH, 0];
        let runs: Vec<Vec<Function>> = lens
            .iter()
            .map(|&len| {
                (0..len as u64)
                    .map(|n| Function {
                        start: n * n,
                        end: n,
                        ..Function::default()
                    })
                    .collect()
            })
            .collect();
        let place = |run: usize, rows: &mut [Function]| {
            rows.iter_mut().for_each(|row| row.end += run as u64 * 1000)
        };
        let content = Content {
            functions: Runs::new(runs.iter().map(|run| &run[..]).collect(), place),
            ..Content::default()
        };
        assert_eq!(content.functions.chunks(), [0..3, 3..7, 7..8, 8..10]);
        // Others follow, among them none at all.
        let more = [Function {
            start: 7,
            end: 1 << 40,
            ..Function::default()
        }; 3];
        let last = Function {
            start: 255 * 255,
            end: 255 + 8000,
            ..Function::default()
        };
        let next = Content {
            functions: Runs::from(&more[..]).behind(last),
            ..Content::default()
        };
        let columns = Encoded::of(&[
            content.encode().unwrap(),
            Content::default().encode().unwrap(),
            next.encode().unwrap(),
        ])
        .unwrap();
        let read = Sidecar::from_bytes(
            &Parts {
                id: [0; 16],
                header: &Header::default(),
                map: &[],
                columns: &columns,
            }
            .to_bytes()
            .unwrap(),
        )
        .unwrap();
        let wanted: Vec<Function> = runs
            .iter()
            .enumerate()
            .flat_map(|(number, run)| {
                run.iter().map(move |row| Function {
                    end: row.end + number as u64 * 1000,
                    ..*row
                })
            })
            .chain(more)
            .collect();
        assert!(read.functions == wanted);
    }

    #[test]
    fn a_sidecar_that_does_not_get_its_name_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.mgza");
        let there = || std::fs::read_dir(folder.path()).unwrap().count();
        let (small, columns) = (small(), small().columns().unwrap());
        let parts = Parts {
            id: small.id,
            header: &small.header,
            map: &[vec![1], vec![], vec![2, 3]],
            columns: &columns,
        };
        let beside = parts.write_beside(&path).unwrap();
        assert_eq!((there(), path.exists()), (1, false));
        drop(beside);
        assert_eq!(there(), 0);
        parts.write(&path).unwrap();
        assert_eq!(there(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), small.to_bytes().unwrap());
    }

    #[test]
    fn columns_of_the_version_s_first_files_are_read() {
        // Elements as they are, in one frame or not compressed.
        let before = small();
        let mut header = Header {
            version: SIDECAR_VERSION,
            ..before.header.clone()
        };
        let mut body = Vec::new();
        fn old<R: Row>(table: &str, rows: &[R], header: &mut Header, body: &mut Vec<u8>) {
            for (field, (name, kind, _)) in R::FIELDS.iter().enumerate() {
                let mut raw = vec![0; rows.len() * width(kind).unwrap()];
                let mut numbers = vec![0; rows.len() * LONGEST];
                let bytes = R::encode(rows, &R::default(), field, &mut numbers);
                numbers.truncate(bytes);
                match R::FIELDS[field].2 {
                    Form::Plain => raw.copy_from_slice(&numbers),
                    form => {
                        raw = expand(
                            &numbers,
                            rows.len() as u64,
                            width(kind).unwrap(),
                            form == Form::Delta,
                        )
                        .unwrap()
                    }
                }
                let stored = if field % 2 == 0 {
                    zstd::bulk::compress(&raw, 1).unwrap()
                } else {
                    raw.clone()
                };
                let encoding = if field % 2 == 0 { "zstd" } else { "raw" };
                header.columns.push(Column {
                    table: table.into(),
                    name: (*name).into(),
                    kind: (*kind).into(),
                    rows: rows.len() as u64,
                    encoding: encoding.into(),
                    offset: body.len() as u64,
                    bytes: stored.len() as u64,
                    raw_bytes: raw.len() as u64,
                });
                body.extend(stored);
            }
        }
        old("functions", &before.functions, &mut header, &mut body);
        old("sites", &before.sites, &mut header, &mut body);
        old("regions", &before.regions, &mut header, &mut body);
        old("records", &before.records, &mut header, &mut body);
        old("ptwrites", &before.ptwrites, &mut header, &mut body);
        old("gathers", &before.gathers, &mut header, &mut body);
        old("loops", &before.loops, &mut header, &mut body);
        old("locations", &before.locations, &mut header, &mut body);
        for (table, name, kind, bytes) in [
            ("map", "map", "u8", &before.map[..]),
            ("strings", "text", "utf8", b"main\0a.c\0"),
        ] {
            let len = bytes.len() as u64;
            let column = Column {
                table: table.into(),
                name: name.into(),
                kind: kind.into(),
                encoding: "raw".into(),
                offset: body.len() as u64,
                bytes: len,
                raw_bytes: len,
                rows: len,
            };
            header.columns.push(column);
            body.extend(bytes);
        }
        let json = serde_json::to_vec(&header).unwrap();
        let mut file = small().to_bytes().unwrap()[..size_of::<Prelude>()].to_vec();
        file[24..32].copy_from_slice(&(json.len() as u64).to_le_bytes());
        file.extend(json);
        file.extend(body);
        let after = Sidecar::from_bytes(&file).unwrap();
        assert_eq!(
            (after.sites, after.functions, after.regions),
            (before.sites, before.functions, before.regions)
        );
        assert_eq!(
            (after.records, after.loops, after.locations),
            (before.records, before.loops, before.locations)
        );
        assert_eq!((after.strings, after.map), (before.strings, before.map));
    }

    #[test]
    fn the_prelude_points_at_the_map() {
        let bytes = small().to_bytes().unwrap();
        let offset = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
        assert_eq!(offset % 8, 0);
        assert_eq!(&bytes[offset..offset + 3], &[1, 2, 3]);
    }

    #[test]
    fn a_wild_index_is_refused() {
        let mut wild = small();
        wild.sites[0].function = 5;
        let error = Sidecar::from_bytes(&wild.to_bytes().unwrap()).unwrap_err();
        assert!(matches!(error, SidecarError::Damaged(_)), "{error}");
    }

    #[test]
    fn loops_lead_outwards_and_to_what_there_is() {
        let with = |change: fn(&mut Sidecar)| {
            let mut sidecar = small();
            change(&mut sidecar);
            Sidecar::from_bytes(&sidecar.to_bytes().unwrap())
        };
        assert!(with(|s| s.loops[0].parent = NONE).is_ok());
        for wrong in [
            with(|s| s.sites[0].in_loop = 3),
            with(|s| s.loops[1].parent = 0),
            with(|s| s.loops[0].parent = 2),
            with(|s| s.loops[0].function = 1),
            with(|s| s.loops[0].location = 2),
        ] {
            assert!(matches!(wrong, Err(SidecarError::Damaged(_))));
        }
    }

    #[test]
    fn files_of_before_there_were_loops_are_read() {
        let bytes = small().to_bytes().unwrap();
        let (_, mut header, body) = split(&bytes).unwrap();
        header
            .columns
            .retain(|c| c.table != "loops" && c.name != "in_loop");
        let mut json = serde_json::to_vec(&header).unwrap();
        let padded = (size_of::<Prelude>() + json.len()).next_multiple_of(8) - size_of::<Prelude>();
        json.resize(padded, b' ');
        let mut old = bytes[..size_of::<Prelude>()].to_vec();
        old[24..32].copy_from_slice(&(json.len() as u64).to_le_bytes());
        old.extend(json);
        old.extend(body);
        let read = Sidecar::from_bytes(&old).unwrap();
        assert_eq!((read.sites[0].in_loop, read.loops.len()), (0, 0));
        assert_eq!(read.sites[0].ip, small().sites[0].ip);
    }

    #[test]
    fn regions_that_share_records_or_sites_are_refused() {
        // A chain of ranges that overlap by one: each range is short, and each record names the last region that has it.
        let mut chained = small();
        chained.regions = (0..5)
            .map(|i| Region {
                first_record: 63 * i,
                record_count: 64,
                ..Region::default()
            })
            .collect();
        chained.records = (0..63 * 5 + 1)
            .map(|i: u32| Record {
                slots: 1,
                region: (i.saturating_sub(1) / 63).min(4),
                ..Record::default()
            })
            .collect();
        chained.sites.clear();
        let error = Sidecar::from_bytes(&chained.to_bytes().unwrap()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("region 1 names records or sites of another one"),
            "{error}"
        );

        let mut shared = small();
        shared.regions.push(Region {
            first_record: 1,
            site_count: 1,
            ..Region::default()
        });
        let error = Sidecar::from_bytes(&shared.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("region 1 names"), "{error}");

        let mut outside = small();
        outside.regions[0].site_count = 0;
        let error = Sidecar::from_bytes(&outside.to_bytes().unwrap()).unwrap_err();
        assert!(error.to_string().contains("site 0 is not among"), "{error}");
    }

    #[test]
    fn a_part_that_its_record_does_not_have_is_refused() {
        let with = |part| Sidecar {
            ptwrites: vec![PtWrite {
                ip: 0x9004,
                record: 0,
                part,
            }],
            records: vec![Record {
                slots: 3,
                ..Record::default()
            }],
            ..small()
        };
        assert!(Sidecar::from_bytes(&with(4).to_bytes().unwrap()).is_ok());
        assert!(matches!(
            Sidecar::from_bytes(&with(5).to_bytes().unwrap()),
            Err(SidecarError::Damaged(_))
        ));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = small().to_bytes().unwrap();
        for len in 0..bytes.len() {
            assert!(
                Sidecar::from_bytes(&bytes[..len]).is_err(),
                "{len} of {} bytes were accepted",
                bytes.len()
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_damage_makes_the_reader_panic(at in 0usize..4096, value: u8) {
            let mut bytes = small().to_bytes().unwrap();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Sidecar::from_bytes(&bytes);
        }
    }
}
