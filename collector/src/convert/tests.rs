use crate::convert::online::Online;
use crate::convert::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use mgz_abi::slot::Slot;
use mgz_annotations_schema::manifest::{COLUMNS, Module};
use mgz_annotations_schema::row_stream::{Batch, RowReader};
use mgz_annotations_schema::sidecar::{Function, NO_RECORD, NONE, Record, Region, Site};
use mgz_annotations_schema::spill::{EncodedSegment, SegmentHeader, SegmentKind, SpillWriter};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::path::PathBuf;

const ID: u32 = 77;

/// Two regions: one record with two loads, one with a load and an implied one.
fn sidecar() -> Sidecar {
    let site = |region: u32, ip: u64, disp: i64, flags: u8| Site {
        region,
        ip,
        disp,
        flags,
        size: 8,
        class: 2,
        scale: 1,
        a: 0,
        b: NO_RECORD,
        location: NONE,
        ..Site::default()
    };
    let mut s = Sidecar {
        id: [9; 16],
        functions: vec![Function::default()],
        ..Sidecar::default()
    };
    s.header.id_first = ID;
    s.sites = vec![
        site(0, 0x10, 0, 0),
        site(0, 0x14, 8, 1),
        site(1, 0x20, 0, 0),
        Site {
            flags: 2,
            a: NO_RECORD,
            ..site(1, 0x24, 0, 0)
        },
    ];
    s.regions = vec![
        Region {
            first_record: 0,
            record_count: 1,
            first_site: 0,
            site_count: 2,
            ..Region::default()
        },
        Region {
            first_record: 1,
            record_count: 1,
            first_site: 2,
            site_count: 2,
            implied_const: 1,
            ..Region::default()
        },
    ];
    s.records = vec![
        Record {
            slots: 1,
            ip: 0x10,
            ..Record::default()
        },
        Record {
            region: 1,
            slots: 1,
            ip: 0x20,
            ..Record::default()
        },
    ];
    s
}

/// A trace folder with this sidecar and no spill files yet.
fn folder(dir: &Path) -> Manifest {
    for sub in ["annotations", SPILL_DIR] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    let sidecar = sidecar();
    sidecar.write(&dir.join("annotations/a.mgza")).unwrap();
    let module = Module {
        path: "a".into(),
        sidecar: "annotations/a.mgza".into(),
        sidecar_id: sidecar.id_hex(),
        ..Module::default()
    };
    Manifest {
        modules: vec![module],
        ..Manifest::default()
    }
}

fn write(
    dir: &Path,
    process: u32,
    thread: u32,
    segments: &[(SegmentHeader, Vec<Slot>)],
) -> PathBuf {
    let mut writer =
        SpillWriter::create(&dir.join(SPILL_DIR), ThreadKey { process, thread }).unwrap();
    for (header, slots) in segments {
        writer.write(header, slots).unwrap();
    }
    writer.path().to_owned()
}

fn full(first_slot: u64, payloads: std::ops::Range<u64>) -> (SegmentHeader, Vec<Slot>) {
    let slots = payloads
        .map(|p| Slot {
            payload: p * 16,
            id: ID + (p % 2) as u32,
            aux: 0,
        })
        .collect();
    (
        SegmentHeader {
            kind: SegmentKind::Full,
            first_slot,
            begin_ns: first_slot,
            end_ns: first_slot + 100,
            ..SegmentHeader::default()
        },
        slots,
    )
}

/// `(process, thread, seq, sample, ip, address, store, implied_const)` of all rows in file order.
type Row = (u32, u32, u64, u32, u64, u64, bool, u16);

fn rows(trace: &Path) -> Vec<Row> {
    let mut paths: Vec<_> = std::fs::read_dir(trace.join(SAMPLES_DIR))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        assert_eq!(path.extension().unwrap(), "parquet");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        for batch in ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap())
            .unwrap()
            .build()
            .unwrap()
        {
            let batch = batch.unwrap();
            let schema = batch.schema();
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            assert_eq!(names, COLUMNS.map(|c| c.0));
            let u32s = |i: usize| batch.column(i).as_primitive::<UInt32Type>();
            let u64s = |i: usize| batch.column(i).as_primitive::<UInt64Type>();
            assert!(
                batch
                    .column(5)
                    .as_primitive::<UInt16Type>()
                    .values()
                    .iter()
                    .all(|&m| m == 0)
            );
            assert!(
                batch
                    .column(10)
                    .as_primitive::<UInt8Type>()
                    .values()
                    .iter()
                    .all(|&c| c == 2)
            );
            for i in 0..batch.num_rows() {
                out.push((
                    u32s(0).value(i),
                    u32s(1).value(i),
                    u64s(2).value(i),
                    u32s(3).value(i),
                    u64s(6).value(i),
                    u64s(8).value(i),
                    batch.column(11).as_boolean().value(i),
                    batch.column(12).as_primitive::<UInt16Type>().value(i),
                ));
            }
        }
    }
    out
}

/// The rows that `full` segments over `payloads` give.
fn expected(
    process: u32,
    thread: u32,
    sample: u32,
    payloads: std::ops::Range<u64>,
    seq: &mut u64,
) -> Vec<Row> {
    let mut out = Vec::new();
    let mut push = |ip, address, store, implied| {
        out.push((process, thread, *seq, sample, ip, address, store, implied));
        *seq += 1;
    };
    for p in payloads {
        if p % 2 == 0 {
            push(0x10, p * 16, false, 0);
            push(0x14, p * 16 + 8, true, 0);
        } else {
            push(0x20, p * 16, false, 1);
        }
    }
    out
}

/// The rows of a stream, as (address, store, implied).
fn streamed(path: &Path) -> Vec<(u64, bool, u16)> {
    let mut reader = RowReader::new(std::fs::File::open(path).unwrap());
    let (mut batch, mut out) = (Batch::default(), Vec::new());
    while reader.batch(&mut batch).unwrap() {
        assert_eq!((batch.process, batch.thread), (20, 21));
        let rows = batch.address.iter().zip(&batch.store).zip(&batch.implied);
        out.extend(rows.map(|((&address, &store), &implied)| (address, store, implied)));
    }
    out
}

/// Wherever records begin to be kept, even inside a pass: the rows that were sent and those of the
/// trace are those of the whole trace, and so are all counts.
#[test]
fn rows_sent_while_a_program_runs_and_rows_kept_are_all_rows() {
    let key = ThreadKey {
        process: 20,
        thread: 21,
    };
    // Cut anywhere; the last ones have a gap before them.
    let mut first = Vec::new();
    for (slot, payloads) in [
        (0, 0..700),
        (700, 700..701),
        (701, 701..1500),
        (1600, 1600..1700),
    ] {
        first.push(full(slot, payloads));
    }
    let options = ConvertOptions {
        group_rows: 100,
        ..ConvertOptions::default()
    };
    let others = |dir: &Path| {
        write(dir, 3, 3, &[full(0, 0..500)]);
        write(dir, 20, 22, &[full(0, 0..50)]);
        // The ids of the first thread, taken over by another, or by an image that the process
        // executes.
        let mut taken_over = full(0, 0..60);
        taken_over.0.begin_ns += 10_000;
        taken_over.0.end_ns += 10_000;
        write(dir, 20, 21, &[taken_over]);
    };
    let whole = tempfile::tempdir().unwrap();
    let manifest = folder(whole.path());
    write(whole.path(), 20, 21, &first);
    others(whole.path());
    let want = convert(whole.path(), &manifest, &options).unwrap();
    let of_first = |rows: Vec<Row>| -> Vec<(u64, bool, u16)> {
        let rows = rows.into_iter().filter(|r| (r.0, r.1) == (20, 21));
        rows.map(|r| (r.5, r.6, r.7)).collect()
    };
    let all = of_first(rows(whole.path()));
    let mut segment = EncodedSegment::default();
    for sent in 0..=first.len() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = folder(dir.path());
        let pipe = dir.path().join("rows");
        let online = Online::new(std::fs::File::create(&pipe).unwrap()).unwrap();
        assert!(sent == 0 || online.begin(key) && !online.begin(key));
        let carried = std::thread::scope(|scope| {
            let run = scope.spawn(|| online.run(dir.path()));
            for (header, slots) in &first[..sent] {
                segment.begin(slots.len());
                segment.push(slots);
                segment.finish(header).unwrap();
                // The module is reported after the segment.
                online.take(1, &segment).unwrap();
            }
            online.know(&manifest.modules);
            online.told(1);
            online.close();
            run.join().unwrap().unwrap()
        });
        online.finish().unwrap();
        assert_eq!(carried.is_some(), sent > 0);
        // Another thread may create its file before this one.
        others(dir.path());
        if sent < first.len() {
            write(dir.path(), 20, 21, &first[sent..]);
        }
        let begun = Begun {
            carried,
            ..Begun::default()
        };
        let outcome = convert_rest(dir.path(), &manifest, &options, begun).unwrap();
        let mut got = streamed(&pipe);
        got.extend(of_first(rows(dir.path())));
        assert!(got == all, "{sent} segments sent");
        assert_eq!(outcome.counters, want.counters, "{sent} segments sent");
        assert_eq!(outcome.threads, want.threads, "{sent} segments sent");
        assert_eq!(outcome.stores, want.stores, "{sent} segments sent");
    }
}

/// A recorder does not wait once its analysis has ended.
#[test]
fn records_are_refused_when_nobody_takes_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = folder(dir.path());
    let (reader, writer) = std::io::pipe().unwrap();
    let online = Online::new(std::fs::File::from(std::os::fd::OwnedFd::from(writer))).unwrap();
    drop(reader);
    online.know(&manifest.modules);
    let mut segment = EncodedSegment::default();
    let refused = std::thread::scope(|scope| {
        let run = scope.spawn(|| online.run(dir.path()));
        let mut slot = 0;
        let refused = loop {
            let (header, slots) = full(slot, slot..slot + 1000);
            slot += 1000;
            segment.begin(slots.len());
            segment.push(&slots);
            segment.finish(&header).unwrap();
            if let Err(error) = online.take(0, &segment) {
                break error;
            }
        };
        online.close();
        run.join().unwrap().unwrap();
        refused
    });
    assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn rows_are_sorted_by_thread_across_parts_and_row_groups() {
    for compression in [Compression::Lz4, Compression::Zstd, Compression::None] {
        let dir = tempfile::tempdir().unwrap();
        let manifest = folder(dir.path());
        write(
            dir.path(),
            20,
            21,
            &[full(0, 0..1000), full(1000, 1000..3000)],
        );
        write(dir.path(), 3, 3, &[full(0, 0..500)]);
        write(dir.path(), 3, 3, &[full(0, 0..40)]);
        let options = ConvertOptions {
            compression,
            part_rows: 1000,
            group_rows: 100,
            threads: 3,
            max_bytes: None,
            release: false,
        };
        let outcome = convert(dir.path(), &manifest, &options).unwrap();
        let mut seq = 0;
        let mut want = expected(3, 3, 0, 0..500, &mut seq);
        want.extend(expected(3, 3, 1, 0..40, &mut seq));
        want.extend(expected(20, 21, 2, 0..3000, &mut 0));
        assert_eq!(rows(dir.path()), want);
        assert_eq!(
            (
                outcome.counters.rows,
                outcome.counters.implied,
                outcome.counters.samples
            ),
            (want.len() as u64, 1770, 3)
        );
        assert!(outcome.parts > 1);
        assert_eq!(
            outcome.threads[&ThreadKey {
                process: 3,
                thread: 3
            }],
            ThreadRows {
                rows: 810,
                samples: 2,
                records: 540
            }
        );
        let bytes: u64 = std::fs::read_dir(dir.path().join(SAMPLES_DIR))
            .unwrap()
            .map(|e| e.unwrap().metadata().unwrap().len())
            .sum();
        assert_eq!(outcome.bytes, bytes);
    }
}

#[test]
fn torn_and_damaged_files_lose_only_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = folder(dir.path());
    let torn = write(dir.path(), 1, 1, &[full(0, 0..100), full(100, 100..200)]);
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() - 3]).unwrap();
    let damaged = write(
        dir.path(),
        2,
        2,
        &[full(0, 0..100), full(100, 100..200), full(200, 200..300)],
    );
    let mut bytes = std::fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    std::fs::write(dir.path().join("spill/9-9-0.spill"), "nonsense").unwrap();
    let outcome = convert(dir.path(), &manifest, &ConvertOptions::default()).unwrap();
    assert_eq!((outcome.torn_files, outcome.damaged_segments), (1, 2));
    assert_eq!(outcome.problems.len(), 3, "{:?}", outcome.problems);
    let mut want = expected(1, 1, 0, 0..100, &mut 0);
    let mut seq = 0;
    want.extend(expected(2, 2, 1, 0..100, &mut seq));
    want.extend(expected(2, 2, 2, 200..300, &mut seq));
    assert_eq!(rows(dir.path()), want, "behind a gap a new sample begins");
}

#[test]
fn files_of_another_version_are_no_damage_to_do_without() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = folder(dir.path());
    write(dir.path(), 1, 1, &[full(0, 0..100)]);
    let old = write(dir.path(), 2, 2, &[full(0, 0..100)]);
    let mut bytes = std::fs::read(&old).unwrap();
    bytes[8] = 1;
    std::fs::write(&old, &bytes).unwrap();
    let error = convert(dir.path(), &manifest, &ConvertOptions::default()).unwrap_err();
    assert!(
        matches!(&error, ConvertError::OtherVersion { path, .. } if *path == old),
        "{error}"
    );
    assert!(!dir.path().join(SAMPLES_DIR).exists());
}

#[test]
fn failures_leave_no_parts_and_do_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = folder(dir.path());
    let segments: Vec<_> = (0..500)
        .map(|i| full(i * 100, i * 100..i * 100 + 100))
        .collect();
    write(dir.path(), 1, 1, &segments);
    let options = ConvertOptions {
        part_rows: 1000,
        group_rows: 100,
        threads: 2,
        max_bytes: Some(20_000),
        ..ConvertOptions::default()
    };
    let error = convert(dir.path(), &manifest, &options).unwrap_err();
    assert!(
        matches!(error, ConvertError::TooLarge { limit: 20_000 }),
        "{error}"
    );
    assert!(rows(dir.path()).is_empty());
    // A part that cannot be made: a folder stands in its place.
    std::fs::create_dir_all(dir.path().join("samples/part-00002.parquet.tmp/x")).unwrap();
    let error = convert(
        dir.path(),
        &manifest,
        &ConvertOptions {
            max_bytes: None,
            ..options
        },
    )
    .unwrap_err();
    assert!(matches!(error, ConvertError::Io { .. }), "{error}");
    std::fs::remove_dir_all(dir.path().join("samples/part-00002.parquet.tmp")).unwrap();
    assert!(rows(dir.path()).is_empty());
    let done = convert(
        dir.path(),
        &manifest,
        &ConvertOptions {
            max_bytes: None,
            ..options
        },
    )
    .unwrap();
    assert_eq!(rows(dir.path()).len() as u64, done.counters.rows);
}

/// Records and columns do not both stay: parts of a spill file are released once read, up to the
/// last one.
#[test]
fn spill_files_are_given_back_while_they_are_read() {
    use std::os::unix::fs::MetadataExt;
    let run = |release: bool| {
        // This file system supports punched holes.
        let memory = std::path::Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let manifest = folder(dir.path());
        // Payloads that no predictor foresees.
        let segments: Vec<_> = (0..64u64)
            .map(|i| {
                let (header, mut slots) = full(i * 10_000, i * 10_000..(i + 1) * 10_000);
                for (at, slot) in (i * 10_000..).zip(&mut slots) {
                    slot.payload = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                }
                (header, slots)
            })
            .collect();
        let path = write(dir.path(), 1, 1, &segments);
        let before = std::fs::metadata(&path).unwrap();
        let options = ConvertOptions {
            release,
            ..ConvertOptions::default()
        };
        let outcome = convert(dir.path(), &manifest, &options).unwrap();
        assert_eq!(outcome.damaged_segments, 0, "{:?}", outcome.problems);
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.len(), before.len());
        let blocks = (before.blocks() * 512, after.blocks() * 512);
        (rows(dir.path()), blocks)
    };
    let (kept, (before, after)) = run(false);
    assert_eq!(before, after);
    assert!(before > 3 << 20, "{before}");
    let (released, (_, after)) = run(true);
    assert!(kept == released && !kept.is_empty());
    assert!(after < 1 << 19, "{after} of {before} bytes are still there");
}

#[test]
fn a_wrong_sidecar_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = folder(dir.path());
    manifest.modules[0].sidecar_id = "00".into();
    assert!(matches!(
        convert(dir.path(), &manifest, &ConvertOptions::default()),
        Err(ConvertError::OtherSidecar { .. })
    ));
    std::fs::remove_file(dir.path().join("annotations/a.mgza")).unwrap();
    assert!(matches!(
        convert(dir.path(), &manifest, &ConvertOptions::default()),
        Err(ConvertError::Sidecar { .. })
    ));
}

#[test]
fn a_trace_without_records_has_no_parts() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = folder(dir.path());
    let outcome = convert(dir.path(), &manifest, &ConvertOptions::default()).unwrap();
    assert_eq!((outcome.parts, outcome.counters.rows), (0, 0));
    assert!(rows(dir.path()).is_empty());
}
