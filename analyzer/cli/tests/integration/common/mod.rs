//! Writes trace folders for tests, with the same Parquet writer that the recorder uses.
#![allow(dead_code, reason = "examples use a part")]

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use mgz_annotations_schema::manifest;
use mgz_annotations_schema::manifest::{Manifest, Module, Stored};
use mgz_annotations_schema::sidecar::{Function, Header, Input, Location, NONE, Sidecar, Site};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use std::path::Path;
use std::sync::Arc;

/// A row as `samples/*.parquet` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    pub process: u32,
    pub thread: u32,
    pub seq: u64,
    pub sample: u32,
    pub time_ns: u64,
    pub module: u16,
    pub ip: u64,
    pub site: u32,
    pub address: u64,
    pub size: u32,
    pub class: u8,
    pub store: bool,
    pub implied_const: u16,
}

/// Writes one part, with dictionaries.
pub fn write_part(path: &Path, rows: &[SampleRow], row_group: usize) {
    write_part_as(
        path,
        rows,
        row_group,
        WriterProperties::builder().set_compression(Compression::LZ4_RAW),
    );
}

/// Writes one part as the recorder does.
pub fn write_plain_part(
    path: &Path,
    rows: &[SampleRow],
    row_group: usize,
    compression: Compression,
) {
    write_part_as(
        path,
        rows,
        row_group,
        WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(false),
    );
}

/// Writes one part with the given compression and row group size, as the recorder does.
pub fn write_recorded_part(
    path: &Path,
    rows: &[SampleRow],
    row_group: usize,
    compression: Compression,
) {
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 18)
        .set_write_batch_size(1 << 14);
    for (name, _) in manifest::COLUMNS {
        let encoding = match manifest::stored(name) {
            Stored::Differences => Encoding::DELTA_BINARY_PACKED,
            Stored::Split => Encoding::BYTE_STREAM_SPLIT,
            Stored::Plain => Encoding::PLAIN,
        };
        properties = properties.set_column_encoding(ColumnPath::from(name), encoding);
    }
    write_part_as(path, rows, row_group, properties);
}

fn write_part_as(
    path: &Path,
    rows: &[SampleRow],
    row_group: usize,
    properties: WriterPropertiesBuilder,
) {
    let schema = Arc::new(Schema::new(
        manifest::COLUMNS
            .iter()
            .map(|(name, kind)| {
                let data = match *kind {
                    "u8" => DataType::UInt8,
                    "u16" => DataType::UInt16,
                    "u32" => DataType::UInt32,
                    "bool" => DataType::Boolean,
                    _ => DataType::UInt64,
                };
                Field::new(*name, data, false)
            })
            .collect::<Vec<_>>(),
    ));
    let properties = properties
        .set_max_row_group_row_count(Some(row_group))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).unwrap();
    for rows in rows.chunks(row_group.max(1)) {
        macro_rules! column {
            ($array:ident, $field:ident) => {
                Arc::new($array::from_iter_values(rows.iter().map(|r| r.$field))) as ArrayRef
            };
        }
        let columns: Vec<ArrayRef> = vec![
            column!(UInt32Array, process),
            column!(UInt32Array, thread),
            column!(UInt64Array, seq),
            column!(UInt32Array, sample),
            column!(UInt64Array, time_ns),
            column!(UInt16Array, module),
            column!(UInt64Array, ip),
            column!(UInt32Array, site),
            column!(UInt64Array, address),
            column!(UInt32Array, size),
            column!(UInt8Array, class),
            Arc::new(BooleanArray::from(
                rows.iter().map(|r| r.store).collect::<Vec<_>>(),
            )),
            column!(UInt16Array, implied_const),
        ];
        writer
            .write(&RecordBatch::try_new(schema.clone(), columns).unwrap())
            .unwrap();
    }
    writer.close().unwrap();
}

/// A sidecar of `sites` sites: two functions, `main` (sites below half) and `helper`; site i is at
/// line 10 + i/2 of `app.c`, and odd ones are inlined from `inner` at line 100 of `app.h`.
pub fn sidecar(sites: u32) -> Sidecar {
    let strings: Vec<String> = ["main", "helper", "app.c", "inner", "/src/app.h"]
        .iter()
        .map(|s| s.to_string())
        .collect();
    let mut out = Sidecar {
        id: [9; 16],
        header: Header {
            flavour: "soft".into(),
            input: Input {
                path: "/bin/app".into(),
                ..Input::default()
            },
            ..Header::default()
        },
        functions: vec![
            Function {
                name: 0,
                left: NONE,
                start: 0x1000,
                end: 0x2000,
                clone_start: 0x9000,
                clone_end: 0x9800,
            },
            Function {
                name: 1,
                left: NONE,
                start: 0x2000,
                end: 0x3000,
                clone_start: 0x9800,
                clone_end: 0xa000,
            },
        ],
        strings,
        map: vec![0; 8],
        ..Sidecar::default()
    };
    for i in 0..sites {
        let function = u32::from(i >= sites / 2);
        let outer = out.locations.len() as u32;
        out.locations.push(Location {
            function,
            file: 2,
            line: 10 + i / 2,
            inlined_into: NONE,
        });
        let location = if i % 2 == 1 {
            out.locations.push(Location {
                function: 3,
                file: 4,
                line: 100,
                inlined_into: outer,
            });
            outer + 1
        } else {
            outer
        };
        out.sites.push(Site {
            function,
            region: NONE,
            location,
            size: 8,
            ip: 0x1000 + u64::from(i) * 4,
            class: 1 + (i % 2) as u8,
            a: mgz_annotations_schema::sidecar::NO_RECORD,
            b: mgz_annotations_schema::sidecar::NO_RECORD,
            ..Site::default()
        });
    }
    out
}

/// A complete manifest with one module.
pub fn manifest(mode: &str, sidecar: &Sidecar) -> Manifest {
    Manifest {
        format: manifest::TRACE_FORMAT.into(),
        version: manifest::TRACE_VERSION,
        command: vec!["./app".into(), "input".into()],
        backend: "soft".into(),
        mode: mode.into(),
        state: "complete".into(),
        program_status: mgz_annotations_schema::ProgramStatus::Exited(0),
        modules: vec![Module {
            path: "/tmp/app.inst".into(),
            sidecar: "annotations/app.mgza".into(),
            sidecar_id: sidecar.id_hex(),
            ..Module::default()
        }],
        ..Manifest::default()
    }
}

/// Writes a whole trace; each element of `parts` becomes a file.
pub fn write_trace(
    folder: &Path,
    manifest: &Manifest,
    sidecar: &Sidecar,
    parts: &[Vec<SampleRow>],
    row_group: usize,
) {
    std::fs::create_dir_all(folder.join(manifest::SAMPLES_DIR)).unwrap();
    std::fs::create_dir_all(folder.join(manifest::ANNOTATIONS_DIR)).unwrap();
    std::fs::write(
        folder.join(manifest::MANIFEST),
        serde_json::to_vec_pretty(manifest).unwrap(),
    )
    .unwrap();
    sidecar.write(&folder.join("annotations/app.mgza")).unwrap();
    for (i, rows) in parts.iter().enumerate() {
        write_part(
            &folder
                .join(manifest::SAMPLES_DIR)
                .join(format!("part-{i:05}.parquet")),
            rows,
            row_group,
        );
    }
}

/// A small generator of pseudo-random numbers (the constants of Knuth's MMIX).
pub struct TestRandom(pub u64);

impl TestRandom {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// Writes columns as a Parquet file.
pub fn write_columns(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, c)| Field::new(*name, c.data_type().clone(), c.null_count() > 0))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), schema.clone(), None).unwrap();
    writer
        .write(&RecordBatch::try_new(schema, columns.into_iter().map(|c| c.1).collect()).unwrap())
        .unwrap();
    writer.close().unwrap();
}

/// Rows of `objects.parquet`: start, bytes, begin, end, number, kind, name.
pub type Life = (u64, u64, u64, u64, u64, &'static str, &'static str);

/// Writes `objects.parquet` for process 7, with the columns of docs/reference/trace.md.
pub fn write_lives(folder: &Path, lives: &[Life]) {
    let u64s = |of: fn(&Life) -> u64| {
        Arc::new(UInt64Array::from_iter_values(lives.iter().map(of))) as ArrayRef
    };
    let texts = |of: fn(&Life) -> &str| {
        Arc::new(StringArray::from_iter_values(lives.iter().map(of))) as ArrayRef
    };
    let process = Arc::new(UInt32Array::from(vec![7; lives.len()]));
    write_columns(
        &folder.join(manifest::OBJECTS),
        vec![
            ("process", process),
            ("object", u64s(|l| l.4)),
            ("kind", texts(|l| l.5)),
            ("name", texts(|l| l.6)),
            ("type", texts(|_| "")),
            ("module", texts(|_| "")),
            ("stack", texts(|_| "")),
            ("start", u64s(|l| l.0)),
            ("bytes", u64s(|l| l.1)),
            ("begin_ns", u64s(|l| l.2)),
            ("end_ns", u64s(|l| l.3)),
            ("times", u64s(|_| 1)),
        ],
    );
}

/// A row of `watch.parquet`: number of the sample, and whether it was reused.
pub type Watched = (u64, bool);

/// Writes `watch.parquet` of one thread, with the columns of docs/reference/trace.md.
pub fn write_watch(folder: &Path, rows: &[Watched]) {
    let u64s = |of: fn(&Watched) -> u64| {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef
    };
    let texts = |of: fn(&Watched) -> &'static str| {
        Arc::new(StringArray::from_iter_values(rows.iter().map(of))) as ArrayRef
    };
    let id = || Arc::new(UInt32Array::from(vec![7; rows.len()])) as ArrayRef;
    let nulls = || Arc::new(UInt64Array::from(vec![None; rows.len()])) as ArrayRef;
    let lines = || Arc::new(Int32Array::from(vec![3; rows.len()])) as ArrayRef;
    write_columns(
        &folder.join(manifest::WATCH),
        vec![
            ("process", id()),
            ("thread", id()),
            ("sample", u64s(|r| r.0)),
            ("until", u64s(|r| r.0 + 1)),
            (
                "outcome",
                texts(|r| if r.1 { "watched" } else { "replaced" }),
            ),
            ("address", u64s(|_| 0x1000)),
            (
                "write",
                Arc::new(BooleanArray::from(vec![false; rows.len()])),
            ),
            ("counts", texts(|_| "both")),
            ("stepped_loads", u64s(|_| 5)),
            ("stepped_stores", u64s(|_| 5)),
            ("cpu_ns", u64s(|r| r.0 * 100)),
            ("loads", nulls()),
            ("stores", nulls()),
            ("use_module", texts(|_| "app")),
            ("use_function", texts(|_| "main")),
            ("use_file", texts(|_| "app.c")),
            ("use_line", lines()),
            ("reuse_module", texts(|_| "app")),
            ("reuse_function", texts(|_| "main")),
            ("reuse_file", texts(|_| "app.c")),
            ("reuse_line", lines()),
        ],
    );
}
