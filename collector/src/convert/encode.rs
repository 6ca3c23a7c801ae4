//! The writing half: row groups to Parquet files, encoded in parallel and appended in order.

use crate::convert::convert_error::{ConvertError, io};
use crate::convert::expand::{ExpansionSource, Pool, RowGroup};
use crate::convert::pages::{Buffers, Chunk, ColumnValues, PageEncoder, PageSource};
use crate::convert::{ConvertOptions, ConvertOutcome};
use arrow_schema::{DataType, Field, Schema};
use mgz_annotations_schema::expand::Tables;
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::{COLUMNS, TRACE_FORMAT, TRACE_VERSION, stored};
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// `--compress`: codec of the columns.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Fast to read
    #[default]
    Lz4,
    /// Small, for the archive
    Zstd,
    /// None
    None,
}

fn schema() -> Schema {
    let kind = |name: &str| match name {
        "u8" => DataType::UInt8,
        "u16" => DataType::UInt16,
        "u32" => DataType::UInt32,
        "bool" => DataType::Boolean,
        _ => DataType::UInt64,
    };
    Schema::new(
        COLUMNS
            .iter()
            .map(|(name, k)| Field::new(*name, kind(k), false))
            .collect::<Vec<_>>(),
    )
}

fn codec(compression: Compression) -> Result<Codec, ConvertError> {
    Ok(match compression {
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(3)?),
        Compression::None => Codec::UNCOMPRESSED,
    })
}

/// Properties of a file. Its columns are encoded by [`crate::convert::pages`].
fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(concat!("mgz-record ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(vec![
            KeyValue::new("format".into(), TRACE_FORMAT.to_owned()),
            KeyValue::new("version".into(), TRACE_VERSION.to_string()),
        ]))
        .build()
}

/// Values that all encoders and writers share.
struct Shape {
    root: TypePtr,
    descriptor: SchemaDescriptor,
    properties: WriterPropertiesPtr,
    codec: Codec,
}

impl Shape {
    fn new(compression: Compression) -> Result<Shape, ConvertError> {
        let root = ArrowSchemaConverter::new()
            .convert(&schema())?
            .root_schema_ptr();
        Ok(Shape {
            descriptor: SchemaDescriptor::new(root.clone()),
            root,
            properties: Arc::new(properties()),
            codec: codec(compression)?,
        })
    }

    fn encode(
        &self,
        group: &RowGroup,
        tables: &Tables,
        encoder: &mut PageEncoder,
    ) -> Result<Encoded, ConvertError> {
        let chunk = |(i, (name, kind))| {
            // Readers skip row groups by these.
            let bounds = matches!(name, "process" | "thread" | "sample");
            encoder.chunk(
                self.descriptor.column(i),
                kind,
                &GroupColumn {
                    group,
                    tables,
                    name,
                },
                stored(name),
                bounds,
            )
        };
        let chunks = COLUMNS
            .into_iter()
            .enumerate()
            .map(chunk)
            .collect::<Result<_, _>>()?;
        Ok(Encoded {
            rows: group.rows.len(),
            chunks,
        })
    }
}

/// A column of a row group.
struct GroupColumn<'a> {
    group: &'a RowGroup,
    tables: &'a Tables,
    name: &'static str,
}

impl PageSource for GroupColumn<'_> {
    fn len(&self) -> usize {
        self.group.rows.len()
    }

    fn page<'s>(&'s self, rows: Range<usize>, buffers: &'s mut Buffers) -> ColumnValues<'s> {
        let (staged, tables) = (&self.group.rows, self.tables);
        macro_rules! made {
            ($kind:ident, $buffer:ident, |$to:ident| $make:expr) => {{
                let $to = &mut buffers.$buffer;
                $to.clear();
                $make;
                ColumnValues::$kind($to)
            }};
        }
        let same = match self.name {
            "process" => self.group.same_thread(&rows).map(|key| key.process),
            "thread" => self.group.same_thread(&rows).map(|key| key.thread),
            "sample" => staged.same_sample(&rows),
            "module" => staged.same_module(&rows).map(u32::from),
            _ => None,
        };
        if let Some(value) = same {
            return ColumnValues::Same(value, rows.len());
        }
        if self.name == "seq"
            && let Some(first) = staged.counting_seq(&rows)
        {
            return ColumnValues::Counting(first, rows.len());
        }
        match self.name {
            "process" => made!(U32, u32s, |to| self
                .group
                .by_thread(rows, to, |key| key.process)),
            "thread" => made!(U32, u32s, |to| self
                .group
                .by_thread(rows, to, |key| key.thread)),
            "seq" => made!(U64, u64s, |to| staged.seq(rows, to)),
            "sample" => made!(U32, u32s, |to| staged.sample(rows, to)),
            "time_ns" => made!(U64, u64s, |to| staged.time_ns(rows, to)),
            "module" => made!(U16, u16s, |to| staged.module(rows, to)),
            "ip" => made!(U64, u64s, |to| staged.ip(tables, rows, to)),
            "site" => made!(U32, u32s, |to| staged.site(tables, rows, to)),
            "address" => made!(U64, u64s, |to| staged.address(rows, to)),
            "size" => made!(U32, u32s, |to| staged.size(tables, rows, to)),
            "class" => made!(U8, u8s, |to| staged.class(tables, rows, to)),
            "store" => made!(Bool, bools, |to| staged.store(tables, rows, to)),
            "implied_const" => made!(U16, u16s, |to| staged.implied_const(tables, rows, to)),
            _ => unreachable!("COLUMNS has no such column"),
        }
    }
}

struct Encoded {
    rows: usize,
    chunks: Vec<Chunk>,
}

/// The part being written.
struct PartFile {
    writer: SerializedFileWriter<BufWriter<File>>,
    temporary: PathBuf,
    path: PathBuf,
    rows: usize,
}

/// Appends row groups to parts.
struct PartWriter<'a> {
    shape: &'a Shape,
    dir: &'a Path,
    part_rows: usize,
    open: Option<PartFile>,
    done: usize,
    bytes: u64,
    max_bytes: Option<u64>,
}

impl PartWriter<'_> {
    fn begin(&self) -> Result<PartFile, ConvertError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.dir.join(format!("part-{:05}.parquet", self.done));
        let temporary = path.with_extension("parquet.tmp");
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(io(&temporary))?;
        let buffered = BufWriter::with_capacity(1 << 20, file);
        let writer = SerializedFileWriter::new(
            buffered,
            self.shape.root.clone(),
            self.shape.properties.clone(),
        )?;
        Ok(PartFile {
            writer,
            temporary,
            path,
            rows: 0,
        })
    }

    fn append(&mut self, encoded: Encoded) -> Result<(), ConvertError> {
        let mut part = match self.open.take() {
            Some(part) => part,
            None => self.begin()?,
        };
        let mut group = part.writer.next_row_group()?;
        for chunk in encoded.chunks {
            group.append_column(&chunk.bytes, chunk.close)?;
        }
        group.close()?;
        part.rows += encoded.rows;
        if let Some(limit) = self
            .max_bytes
            .filter(|&limit| self.bytes + part.writer.bytes_written() as u64 > limit)
        {
            return Err(ConvertError::TooLarge { limit });
        }
        if part.rows >= self.part_rows {
            self.finish(part)
        } else {
            self.keep(part)
        }
    }

    fn keep(&mut self, part: PartFile) -> Result<(), ConvertError> {
        self.open = Some(part);
        Ok(())
    }

    fn finish(&mut self, part: PartFile) -> Result<(), ConvertError> {
        let buffered = part.writer.into_inner()?;
        let file = buffered.into_inner().map_err(|e| ConvertError::Io {
            path: part.temporary.clone(),
            error: e.into_error(),
        })?;
        self.bytes += file.metadata().map_err(io(&part.temporary))?.len();
        drop(file);
        std::fs::rename(&part.temporary, &part.path).map_err(io(&part.path))?;
        self.done += 1;
        Ok(())
    }
}

type Sent = (usize, RowGroup);
type Done = (usize, Result<Encoded, ConvertError>);

/// Converts everything that `source` has into parts in `dir`.
pub(crate) fn convert_source(
    source: ExpansionSource,
    dir: &Path,
    options: &ConvertOptions,
) -> Result<ConvertOutcome, ConvertError> {
    let shape = Shape::new(options.compression)?;
    let mut parts = PartWriter {
        shape: &shape,
        dir,
        part_rows: options.part_rows.max(1),
        open: None,
        done: 0,
        bytes: 0,
        max_bytes: options.max_bytes,
    };
    let threads = options.threads.max(1);
    let encoders = (0..threads)
        .map(|_| PageEncoder::new(shape.codec))
        .collect::<Result<Vec<_>, _>>()?;
    // Together with the groups that the encoders hold, this bounds the row groups in memory.
    let (send, receive) = sync_channel::<Sent>(1);
    // Held by the encoders alone, so that the reader notices when they are gone.
    let receive = Arc::new(Mutex::new(receive));
    let (send_done, receive_done) = sync_channel::<Done>(threads);
    let pool = Pool::default();
    let mut outcome = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&source, options.group_rows.max(1), &pool, send));
        for encoder in encoders {
            let (shape, tables, pool, receive, send_done) = (
                &shape,
                &source.tables,
                &pool,
                receive.clone(),
                send_done.clone(),
            );
            scope.spawn(move || encode(shape, tables, encoder, pool, &receive, &send_done));
        }
        drop((receive, send_done));
        let written = write(&mut parts, receive_done);
        let outcome = reader
            .join()
            .map_err(|_| ConvertError::Worker("expanding records".into()));
        written.and(outcome)
    })?;
    if let Some(part) = parts.open.take() {
        parts.finish(part)?;
    }
    outcome.bytes = parts.bytes;
    outcome.parts = parts.done;
    Ok(outcome)
}

fn read(
    source: &ExpansionSource,
    group_rows: usize,
    pool: &Pool,
    send: SyncSender<Sent>,
) -> ConvertOutcome {
    let mut number = 0;
    source.expand(group_rows, pool, |group| {
        number += 1;
        // It fails when the encoders are gone because of an error, which the writer reports.
        send.send((number - 1, group)).is_ok()
    })
}

fn encode(
    shape: &Shape,
    tables: &Tables,
    mut encoder: PageEncoder,
    pool: &Pool,
    receive: &Mutex<Receiver<Sent>>,
    done: &SyncSender<Done>,
) {
    loop {
        let next = locked(receive).recv();
        let Ok((number, group)) = next else { return };
        let encoded = shape.encode(&group, tables, &mut encoder);
        pool.give_back(group);
        if done.send((number, encoded)).is_err() {
            return;
        }
    }
}

/// Puts the row groups in order and appends them.
fn write(parts: &mut PartWriter<'_>, done: Receiver<Done>) -> Result<(), ConvertError> {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    for (number, encoded) in done {
        waiting.insert(number, encoded?);
        while let Some(encoded) = waiting.remove(&next) {
            parts.append(encoded)?;
            next += 1;
        }
    }
    if waiting.is_empty() {
        Ok(())
    } else {
        Err(ConvertError::Worker("encoding rows".into()))
    }
}
