//! The types of all columns of Parquet files. They are listed in `columns.txt` beside this file,
//! and do not depend on the data in a trace.
//!
//! `MGZ_UPDATE=1 cargo test --release --workspace --test integration columns` writes the list anew.

use crate::common::{SampleRow, manifest, sidecar, write_lives, write_trace, write_watch};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn row(seq: u64, sample: u32, address: u64) -> SampleRow {
    SampleRow {
        process: 7,
        thread: 8,
        seq,
        sample,
        time_ns: 1000 + seq * 10,
        site: (seq % 8) as u32,
        address,
        size: 8,
        class: 1 + (seq % 2) as u8,
        store: seq % 11 == 3,
        ip: 0x1000,
        ..SampleRow::default()
    }
}

/// A trace of `samples` samples that walk, repeat and jump, with objects.
fn write(folder: &Path, mode: &str, samples: u32, rows: u64) {
    let sidecar = sidecar(8);
    let mut manifest = manifest(mode, &sidecar);
    if mode == "ring" {
        (manifest.period, manifest.window) = (10_000, rows);
        manifest.totals.records_executed = 10_000 * u64::from(samples);
        manifest.totals.records_kept = rows * u64::from(samples);
    }
    let all: Vec<SampleRow> = (0..u64::from(samples) * rows)
        .map(|i| {
            let address = 0x10000 + i % 700 * 16 + i % 3 * 5;
            row(i, (i / rows) as u32, address)
        })
        .collect();
    write_trace(folder, &manifest, &sidecar, &[all], 1 << 20);
    write_lives(
        folder,
        &[
            (0x10000, 6000, 0, u64::MAX, 1, "heap", "f a.c:1"),
            (0x12000, 4096, 0, u64::MAX, 2, "global", "table"),
        ],
    );
}

fn short(kind: &DataType) -> String {
    match kind {
        DataType::UInt64 => "u64".into(),
        DataType::Int64 => "i64".into(),
        DataType::Float64 => "f64".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".into(),
        DataType::Boolean => "bool".into(),
        DataType::List(item) | DataType::LargeList(item) => {
            format!("list of {}", short(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|f| format!("{} {}", f.name(), short(f.data_type())));
            format!("({})", fields.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Columns of all tables that a command writes: by table, lines of name and type.
fn columns(words: &[&str], folder: &Path) -> BTreeMap<String, Vec<String>> {
    let _ = std::fs::remove_dir_all(folder);
    let output = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(words)
        .args(["--format", "parquet", "-o"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut out = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        let fields = reader
            .schema()
            .fields()
            .iter()
            .map(|f| format!("{} {}", f.name(), short(f.data_type())))
            .collect();
        // All of it can be read.
        assert!(
            reader.build().unwrap().all(|batch| batch.is_ok()),
            "{}",
            path.display()
        );
        out.insert(name, fields);
    }
    out
}

#[test]
fn all_columns_have_the_types_that_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    write(Path::new(&at("full")), "full", 1, 20_000);
    write(Path::new(&at("larger")), "full", 1, 30_000);
    write(Path::new(&at("ring")), "ring", 40, 500);
    write_trace(
        Path::new(&at("watch")),
        &manifest("watch", &sidecar(8)),
        &sidecar(8),
        &[],
        1,
    );
    write_watch(Path::new(&at("watch")), &[(1, true), (2, false), (3, true)]);
    let out = folder.path().join("out");
    let [full, larger, ring, watch] = ["full", "larger", "ring", "watch"].map(at);
    let commands: [(&str, Vec<&str>); 11] = [
        ("mgz-analyze --zoom", vec![&ring, "--zoom"]),
        (
            "mgz-analyze reuse",
            vec!["reuse", &full, "--relative-error", "0.1"],
        ),
        (
            "mgz-analyze reuse --rdx --compare",
            vec!["reuse", &full, "--rdx", "--period", "50", "--compare"],
        ),
        (
            "mgz-analyze reuse --rdx, watched",
            vec!["reuse", &watch, "--rdx"],
        ),
        ("mgz-analyze spectra", vec!["spectra", &full]),
        (
            "mgz-analyze cache",
            vec!["cache", &full, "--level", "32K:8", "--weights-from", &ring],
        ),
        (
            "mgz-analyze cache --turns",
            vec!["cache", &full, "--level", "32K:8", "--turns", "round-robin"],
        ),
        (
            "mgz-analyze cache --misses --tlb",
            vec![
                "cache", &full, "--level", "32K:8", "--misses", "--tlb", "64:4",
            ],
        ),
        (
            "mgz-analyze predict",
            vec![
                "predict", "--train", &full, "--train", &larger, "--test", &larger,
            ],
        ),
        ("mgz-analyze affinity", vec!["affinity", &full]),
        ("mgz-analyze simpoints", vec!["simpoints", &full]),
    ];
    let mut list = String::new();
    for (name, words) in &commands {
        list.push_str(&format!("# {name}\n"));
        for (table, columns) in columns(words, &out) {
            list.push_str(&format!("{table}: {}\n", columns.join(", ")));
        }
        list.push('\n');
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/columns.txt");
    if std::env::var_os("MGZ_UPDATE").is_some() {
        std::fs::write(&file, &list).unwrap();
    }
    let want = std::fs::read_to_string(&file).unwrap();
    for (got, want) in list.lines().zip(want.lines()) {
        assert_eq!(got, want);
    }
    assert_eq!(list.lines().count(), want.lines().count());
    // Text that looks like a list or a flag is still text.
    for line in want.lines().filter(|l| !l.starts_with('#')) {
        for column in line.split(": ").nth(1).unwrap_or("").split(", ") {
            let (name, kind) = column.split_once(' ').unwrap_or((column, ""));
            assert!(
                !name.ends_with("undersampled") || kind == "bool",
                "{column}"
            );
            assert!(
                !(name.starts_with("strides") || name.ends_with("hist"))
                    || kind.starts_with("list of ("),
                "{column}"
            );
        }
    }
}

#[test]
fn types_do_not_depend_on_what_is_in_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut found: Vec<BTreeMap<String, Vec<String>>> = Vec::new();
    for (samples, rows) in [(40, 500), (1, 3), (2, 1), (0, 0)] {
        let trace = folder.path().join(format!("{samples} {rows}"));
        write(&trace, "ring", samples, rows);
        found.push(columns(&[trace.to_str().unwrap(), "--objects"], &out));
    }
    for other in &found[1..] {
        assert_eq!(
            other.keys().collect::<Vec<_>>(),
            found[0].keys().collect::<Vec<_>>()
        );
        for (table, columns) in other {
            assert_eq!(columns, &found[0][table], "{table}");
        }
    }
}

#[test]
fn csv_has_the_lists_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (folder.path().join("t"), folder.path().join("out"));
    write(&trace, "full", 1, 2000);
    let output = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .arg(&trace)
        .args(["--format", "csv", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = std::fs::read_to_string(out.join("functions.csv")).unwrap();
    assert!(
        text.contains(r#""{""count"":"#) && text.contains("}; {") && text.contains(",false"),
        "{text:.600}"
    );
}
