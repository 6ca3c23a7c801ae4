//! Runs the command on synthetic traces: results by hand, formats, bad input.

use crate::analyze;
use crate::common::{
    self, SampleRow, manifest, sidecar, write_part, write_plain_part, write_recorded_part,
    write_trace,
};
use serde_json::Value;
use std::path::Path;

fn json(folder: &Path, more: &[&str]) -> Value {
    let mut arguments = vec![folder.to_str().unwrap(), "--format", "json"];
    arguments.extend(more);
    let output = analyze(&arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// First difference between two results.
fn difference(path: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) if x.len() == y.len() => {
            x.iter().find_map(|(k, v)| {
                difference(&format!("{path}.{k}"), v, y.get(k).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => x
            .iter()
            .zip(y)
            .enumerate()
            .find_map(|(i, (v, w))| difference(&format!("{path}[{i}]"), v, w)),
        _ => (a != b).then(|| format!("{path}: {:.200} and {:.200}", a.to_string(), b.to_string())),
    }
}

/// The final regions below a region.
fn leaves(region: &Value) -> Vec<Value> {
    match region["children"].as_array().filter(|c| !c.is_empty()) {
        Some(children) => children.iter().flat_map(leaves).collect(),
        None => vec![region.clone()],
    }
}

fn row(seq: u64, sample: u32, site: u32, address: u64) -> SampleRow {
    SampleRow {
        process: 7,
        thread: 8,
        seq,
        sample,
        time_ns: seq * 10,
        site,
        address,
        size: 8,
        class: 1 + (site % 2) as u8,
        ip: 0x1000,
        ..SampleRow::default()
    }
}

/// Two samples: a b a c in the first, a a in the second; blocks of 64 bytes. Sites 0 and 1 are
/// Strided and Irregular in main, site 9 is Irregular in helper.
fn small() -> Vec<SampleRow> {
    let (a, b, c) = (0x10000, 0x10040, 0x10081);
    let mut rows = vec![
        row(0, 0, 0, a),
        row(1, 0, 1, b),
        row(2, 0, 0, a),
        row(3, 0, 9, c),
        row(4, 1, 0, a),
        row(5, 1, 1, a),
    ];
    rows[0].implied_const = 2;
    rows[3].implied_const = 1;
    rows
}

fn small_trace(folder: &Path) {
    let sidecar = sidecar(16);
    let mut manifest = manifest("ring", &sidecar);
    manifest.totals.records_executed = 600;
    manifest.totals.records_kept = 6;
    write_trace(folder, &manifest, &sidecar, &[small()], 1000);
}

/// Plain columns have their own decoder; dictionaries use the general one.
#[test]
fn plain_columns_of_every_codec_say_the_same_as_dictionaries() {
    use parquet::basic::{Compression, ZstdLevel};
    let mut random = common::TestRandom(5);
    let rows: Vec<SampleRow> = (0..40_000u64)
        .map(|i| {
            let site = random.below(17) as u32;
            let address = 0x7f00_0000_0000 + random.below(1 << 22) * 3;
            let more = SampleRow {
                store: i % 7 == 0,
                implied_const: random.below(900) as u16,
                size: 1 << random.below(7),
                ..row(i, (i / 900) as u32, site, address)
            };
            if i % 1000 == 0 {
                SampleRow {
                    address: u64::MAX - i,
                    site: u32::MAX - 1,
                    class: 200,
                    module: 40_000,
                    ..more
                }
            } else {
                more
            }
        })
        .collect();
    let sidecar = sidecar(16);
    let mut manifest = manifest("ring", &sidecar);
    (
        manifest.totals.records_executed,
        manifest.totals.records_kept,
    ) = (4_000_000, 40_000);
    let folder = tempfile::tempdir().unwrap();
    write_trace(
        folder.path(),
        &manifest,
        &sidecar,
        std::slice::from_ref(&rows),
        7000,
    );
    let expected = json(folder.path(), &[]);
    assert!(
        expected["summary"]["doubtful"]["unknown_module"]
            .as_u64()
            .unwrap()
            > 30
    );
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::try_new(1).unwrap()),
    ] {
        for write in [write_plain_part, write_recorded_part] {
            write(
                &folder.path().join("samples/part-00000.parquet"),
                &rows,
                7000,
                compression,
            );
            let found = json(folder.path(), &[]);
            assert_eq!(difference("", &expected, &found), None, "{compression:?}");
        }
    }
}

#[test]
fn a_small_trace_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    small_trace(folder.path());
    let result = json(folder.path(), &[]);
    assert_eq!(result["format"], "mgz-analysis");
    assert_eq!(result["version"], 1);
    let s = &result["summary"];
    let number = |v: &Value, key: &str| v[key].as_f64().unwrap_or(f64::NAN);
    for (key, expected) in [
        ("A", 6.0),
        ("A_const", 3.0),
        ("A_const_pct", 100.0 / 3.0),
        ("kappa", 1.5),
        ("F", 3.0),
        ("F_64", 3.0),
        ("F_bytes", 24.0),
        ("F_str", 1.0),
        ("F_irr", 3.0),
        ("dF", 3.0 / 9.0),
        ("dF_str_pct", 100.0 / 3.0),
        ("dF_irr_pct", 100.0),
        ("C", 1.0),
        ("S", 2.0),
        // Reuses: a after b (D 1, interval 2) and a after a (D 0, interval 1).
        ("reuses", 2.0),
        ("first_touches", 4.0),
        ("D_mean", 0.5),
        ("D_max", 1.0),
        ("interval_mean", 1.5),
        ("rho", 100.0),
        ("F_memgaze_hat", 300.0),
        ("samples", 2.0),
    ] {
        assert!(
            (number(s, key) - expected).abs() < 1e-9,
            "{key}: {} instead of {expected}",
            s[key]
        );
    }
    let functions = result["functions"].as_array().unwrap();
    assert_eq!(functions.len(), 2);
    assert_eq!(functions[0]["function"], "main");
    assert_eq!(functions[0]["module"], "app");
    assert_eq!(functions[0]["A"], 5);
    assert_eq!(functions[0]["F"], 2);
    assert_eq!(functions[0]["C"], 1);
    assert_eq!(functions[1]["function"], "helper");
    assert_eq!(
        (
            &functions[1]["A"],
            &functions[1]["A_const"],
            &functions[1]["F"]
        ),
        (&Value::from(1), &Value::from(1), &Value::from(1))
    );
    assert_eq!(functions[1]["D_mean"], Value::Null);
    // Sites 1 and 9 are inlined from the same line of app.h.
    let lines = result["lines"].as_array().unwrap();
    let inner = lines.iter().find(|l| l["line"] == 100).unwrap();
    assert_eq!(inner["function"], "inner");
    assert_eq!(inner["A"], 3);
    assert_eq!(inner["F"], 3);
    assert_eq!(
        inner["inlined_into"],
        serde_json::json!(["main at app.c:10", "helper at app.c:14"])
    );
}

#[test]
fn parts_row_groups_and_threads_do_not_change_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(64);
    let mut random = common::TestRandom(5);
    let mut rows = Vec::new();
    for thread in 1..4u32 {
        for i in 0..5000u64 {
            let mut r = row(
                i,
                thread * 100 + (i / 300) as u32,
                random.below(64) as u32,
                0x5000 + random.below(2000) * 4,
            );
            r.thread = thread;
            r.implied_const = random.below(3) as u16;
            r.store = random.below(10) == 0;
            rows.push(r);
        }
    }
    let mut expected: Option<Value> = None;
    for (parts, group) in [(1, 1 << 20), (1, 17), (9, 333), (1, 5000)] {
        let trace = folder.path().join(format!("{parts}-{group}"));
        let parts: Vec<Vec<SampleRow>> = rows
            .chunks(rows.len().div_ceil(parts))
            .map(<[SampleRow]>::to_vec)
            .collect();
        write_trace(&trace, &manifest("ring", &sidecar), &sidecar, &parts, group);
        for threads in ["1", "3"] {
            let result = json(&trace, &["--zoom", "--threads", threads]);
            assert_eq!(result["summary"]["samples"], 51);
            assert_eq!(result["summary"]["threads"], 3);
            assert_eq!(result["warnings"], serde_json::json!([]));
            match &expected {
                None => expected = Some(result),
                Some(first) => {
                    if let Some(difference) = difference("", first, &result) {
                        panic!(
                            "{} parts, row groups of {group}, {threads} threads: {difference}",
                            parts.len()
                        );
                    }
                }
            }
        }
    }
    let stores = rows.iter().filter(|r| r.store).count() as u64;
    let summary = &expected.unwrap()["summary"];
    assert_eq!(summary["stores"], stores);
    assert_eq!(summary["A"], rows.len() as u64 - stores);
}

/// Batches are larger with more threads, and samples cross the ends of batches.
#[test]
fn threads_do_not_change_predicted_misses() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(64);
    let mut random = common::TestRandom(9);
    let rows: Vec<SampleRow> = (0..900_000u64)
        .map(|i| {
            let address = 0x5000 + random.below(200_000) * 16;
            row(i, (i / 3000) as u32, random.below(64) as u32, address)
        })
        .collect();
    let trace = folder.path().join("trace");
    write_trace(
        &trace,
        &manifest("ring", &sidecar),
        &sidecar,
        &[rows],
        10_007,
    );
    let result = |threads: &str| json(&trace, &["--threads", threads]);
    let (one, three) = (result("1"), result("3"));
    assert!(!one["summary"]["misses"].is_null());
    if let Some(difference) = difference("", &one, &three) {
        panic!("{difference}");
    }
}

#[test]
fn zoom_finds_the_phase_and_the_object_with_poor_locality() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    let mut rows = Vec::new();
    let mut random = common::TestRandom(1);
    for sample in 0..64u32 {
        for i in 0..200u64 {
            // Samples 40 to 47 are random in 256 KiB, by helper. All others use the same 4 KiB, by
            // main.
            let bad = (40..48).contains(&sample);
            let address = if bad {
                0x7000_0000 + random.below(1 << 15) * 8
            } else {
                0x1000_0000 + (i * 8) % 4096
            };
            rows.push(row(
                u64::from(sample) * 200 + i,
                sample,
                if bad { 9 } else { 0 },
                address,
            ));
        }
    }
    write_trace(
        folder.path(),
        &manifest("ring", &sidecar),
        &sidecar,
        &[rows],
        777,
    );
    let result = json(folder.path(), &["--zoom", "--tau", "5"]);
    let time = &result["time_zoom"];
    assert_eq!(time["path"][0], "5");
    let bad = &time["root"]["children"][5];
    assert_eq!(
        (&bad["samples"], &bad["A"], &bad["on_path"]),
        (&Value::from(8), &Value::from(1600), &Value::from(true))
    );
    assert_eq!(bad["functions"][0]["function"], "helper");
    assert!(bad["dF"].as_f64().unwrap() > 0.9);
    assert_eq!(time["root"]["children"].as_array().unwrap().len(), 8);
    let location = &result["location_zoom"];
    let leaves = leaves(&location["root"]);
    let hot = &leaves[0];
    assert_eq!(
        (&hot["start"], &hot["end"], &hot["A"]),
        (
            &Value::from("0x10000000"),
            &Value::from("0x10000fff"),
            &Value::from(56 * 200)
        )
    );
    assert_eq!(hot["functions"][0]["function"], "main");
    assert_eq!(leaves.len(), 2, "{leaves:?}");
    assert_eq!(
        (&leaves[1]["start"], &leaves[1]["end"]),
        (&Value::from("0x70000000"), &Value::from("0x7003ffff"))
    );
    assert_eq!(leaves[1]["id"], location["worst"]);
    let text = String::from_utf8(
        analyze(&[folder.path().to_str().unwrap(), "--zoom", "--tau", "5"]).stdout,
    )
    .unwrap();
    assert!(
        text.contains("Time zoom") && text.contains("Location zoom") && text.contains("0x10000000"),
        "{text}"
    );
}

#[test]
fn csv_and_parquet_have_one_file_per_table() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    small_trace(&trace);
    let out = folder.path().join("out");
    for format in ["csv", "parquet"] {
        let output = analyze(&[
            trace.to_str().unwrap(),
            "--zoom",
            "--format",
            format,
            "-o",
            out.to_str().unwrap(),
        ]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for name in [
            "summary",
            "functions",
            "lines",
            "windows",
            "distances",
            "intervals",
            "time_zoom",
            "location_zoom",
        ] {
            assert!(
                out.join(format!("{name}.{format}")).exists(),
                "{name}.{format}"
            );
        }
    }
    let functions = std::fs::read_to_string(out.join("functions.csv")).unwrap();
    let mut lines = functions.lines();
    assert!(
        lines.next().unwrap().starts_with("A,A_const,"),
        "{functions}"
    );
    assert_eq!(lines.count(), 2);
    assert!(functions.contains("main"));
    let output = analyze(&[trace.to_str().unwrap(), "--format", "csv"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_completions_and_manual_page() {
    let help = String::from_utf8(analyze(&["--help"]).stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("--zoom"));
    assert!(!analyze(&["--completions", "bash"]).stdout.is_empty());
    assert!(
        String::from_utf8(analyze(&["--man"]).stdout)
            .unwrap()
            .contains(".TH")
    );
    assert_eq!(analyze(&[]).status.code(), Some(2));
    assert_eq!(analyze(&["x", "--block", "48"]).status.code(), Some(2));
}

/// Runs on a trace that is damaged; returns status and stderr.
fn damaged(damage: impl Fn(&Path)) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    small_trace(&trace);
    damage(&trace);
    let output = analyze(&[trace.to_str().unwrap(), "--all"]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stderr),
        text(&output.stdout),
    )
}

#[test]
fn bad_input_gives_one_error_with_file_cause_and_remedy() {
    type Damage = fn(&Path);
    let cases: [(Damage, &[&str]); 8] = [
        (
            |t| std::fs::remove_dir_all(t).unwrap(),
            &["not a trace folder", "mgz-record"],
        ),
        (
            |t| std::fs::remove_file(t.join("manifest.json")).unwrap(),
            &["manifest.json", "cannot read", "mgz-record"],
        ),
        (
            |t| std::fs::write(t.join("manifest.json"), "{ garbage").unwrap(),
            &["manifest.json", "not valid JSON", "record again"],
        ),
        (
            |t| std::fs::write(t.join("manifest.json"), "[]").unwrap(),
            &["manifest.json", "format is not"],
        ),
        (
            |t| {
                std::fs::write(
                    t.join("manifest.json"),
                    r#"{"format":"mgz-trace","version":99,"modules":7}"#,
                )
                .unwrap()
            },
            &[
                "manifest.json",
                "version 99 is not supported",
                "record again",
            ],
        ),
        (
            |t| {
                std::fs::write(
                    t.join("manifest.json"),
                    r#"{"format":"mgz-trace","version":1,"modules":7}"#,
                )
                .unwrap()
            },
            &["damaged manifest"],
        ),
        (
            |t| std::fs::remove_file(t.join("annotations/app.mgza")).unwrap(),
            &["app.mgza", "--no-annotations"],
        ),
        (
            |t| {
                let mut other = sidecar(16);
                other.id = [1; 16];
                other.write(&t.join("annotations/app.mgza")).unwrap();
            },
            &["app.mgza", "sidecar of another build"],
        ),
    ];
    for (damage, words) in cases {
        let (status, error, _) = damaged(damage);
        assert_eq!(status, Some(1), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        for word in words {
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    }
}

#[test]
fn a_truncated_part_is_skipped_and_the_rest_analysed() {
    let (status, error, out) = damaged(|t| {
        write_part(&t.join("samples/part-00001.parquet"), &small(), 1000);
        let bytes = std::fs::read(t.join("samples/part-00001.parquet")).unwrap();
        std::fs::write(
            t.join("samples/part-00001.parquet"),
            &bytes[..bytes.len() / 2],
        )
        .unwrap();
    });
    assert_eq!(status, Some(1));
    assert!(
        error.contains("part-00001.parquet") && error.contains("skipped"),
        "{error}"
    );
    assert!(out.contains("6 recorded"), "{out}");
}

#[test]
fn damage_anywhere_in_a_part_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    small_trace(folder.path());
    let part = folder.path().join("samples/part-00000.parquet");
    let good = std::fs::read(&part).unwrap();
    let step = (good.len() / 60).max(1);
    for at in (0..good.len()).step_by(step) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&part, &bytes).unwrap();
        let output = analyze(&[folder.path().to_str().unwrap(), "--format", "json"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1)) && !error.contains("panicked"),
            "byte {at}: {:?} {error}",
            output.status
        );
    }
}

#[test]
fn an_empty_trace_says_so() {
    for parts in [vec![], vec![Vec::new()]] {
        let folder = tempfile::tempdir().unwrap();
        let sidecar = sidecar(4);
        write_trace(
            folder.path(),
            &manifest("ring", &sidecar),
            &sidecar,
            &parts,
            10,
        );
        let output = analyze(&[folder.path().to_str().unwrap(), "--zoom"]);
        assert!(output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("no samples"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let result = json(folder.path(), &["--zoom"]);
        assert_eq!(result["summary"]["A"], 0);
        assert_eq!(result["summary"]["dF"], Value::Null);
        assert!(
            result["warnings"][0]
                .as_str()
                .unwrap()
                .contains("no samples")
        );
    }
}

#[test]
fn unfinished_traces_unknown_sites_and_disorder_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(4);
    let mut manifest = manifest("ring", &sidecar);
    manifest.state = "running".into();
    manifest.problems = vec!["the disk is full".into()];
    let mut rows = small();
    rows[1].site = 4_000_000_000;
    rows[2].module = 9;
    rows[3].class = 77;
    rows.swap(4, 5);
    write_trace(folder.path(), &manifest, &sidecar, &[rows], 100);
    let result = json(folder.path(), &[]);
    let warnings = result["warnings"].to_string();
    for word in [
        "still running",
        "disk is full",
        "out of order",
        "[unknown module]",
        "no sidecar describes",
        "unknown class",
    ] {
        assert!(warnings.contains(word), "{word:?} is missing in {warnings}");
    }
    let doubtful = &result["summary"]["doubtful"];
    assert_eq!(
        (
            &doubtful["unknown_module"],
            &doubtful["unknown_class"],
            &doubtful["out_of_order"]
        ),
        (&Value::from(1), &Value::from(1), &Value::from(1))
    );
    // Site 9 is beyond the four that this sidecar has.
    assert_eq!(doubtful["unknown_site"], 2);
}

/// A sidecar with one region of one record per site (a plain load at `payload + 8`), ids from 1000.
fn recording_sidecar(sites: u32) -> mgz_annotations_schema::sidecar::Sidecar {
    use mgz_annotations_schema::sidecar::{Record, Region};
    let mut out = sidecar(sites);
    (out.header.id_first, out.header.id_count) = (1000, sites);
    for (i, site) in (0..sites).zip(&mut out.sites) {
        (site.region, site.a, site.disp) = (i, 0, 8);
        let implied_const = i % 2;
        out.regions.push(Region {
            function: site.function,
            first_record: i,
            record_count: 1,
            first_site: i,
            site_count: 1,
            implied_const,
        });
        out.records.push(Record {
            region: i,
            slots: 1,
            ip: site.ip,
            ..Record::default()
        });
    }
    out
}

#[test]
fn spill_files_give_what_the_rows_made_from_them_give() {
    use mgz_abi::slot::Slot;
    use mgz_annotations_schema::expand::{Expander, Placement, RowBatch, Tables};
    use mgz_annotations_schema::spill::{SegmentHeader, SegmentKind, SpillWriter, ThreadKey};
    let sidecar = recording_sidecar(40);
    let tables = Tables::new([&sidecar]).unwrap();
    for (kind, segments, slots) in [
        (SegmentKind::Full, 14, 50_000u64),
        (SegmentKind::Window, 300, 2000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (spilled, plain) = (folder.path().join("spilled"), folder.path().join("plain"));
        let mut manifest = manifest("full", &sidecar);
        manifest.totals.loads_executed = Some(5_000_000);
        write_trace(&plain, &manifest, &sidecar, &[], 1);
        manifest.data = "spill".into();
        write_trace(&spilled, &manifest, &sidecar, &[], 1);
        std::fs::create_dir(spilled.join("spill")).unwrap();
        let mut random = common::TestRandom(11);
        let mut next_sample = 0;
        let mut number = 0;
        for thread in [8, 9] {
            let mut writer =
                SpillWriter::create(&spilled.join("spill"), ThreadKey { process: 7, thread })
                    .unwrap();
            let mut expander = Expander::new(
                &tables,
                &[Placement {
                    sidecar: 0,
                    module: 0,
                    bias: 0,
                }],
            );
            let mut rows = RowBatch::default();
            for segment in 0..segments {
                let records: Vec<Slot> = (0..slots)
                    .map(|_| Slot {
                        payload: 0x10_0000 + random.below(1 << 14) * 8,
                        id: 1000 + random.below(40) as u32,
                        aux: 0,
                    })
                    .collect();
                let gap = if kind == SegmentKind::Window {
                    5000
                } else {
                    slots
                };
                let header = SegmentHeader {
                    kind,
                    first_slot: segment * gap,
                    begin_ns: segment * 100,
                    end_ns: segment * 100 + 99,
                    cause: 0,
                    slots: slots as u32,
                    ..SegmentHeader::default()
                };
                writer.write(&header, &records).unwrap();
                expander.segment(&header, &records, &mut next_sample, &mut rows);
            }
            expander.finish(&mut rows);
            let all: Vec<SampleRow> = (0..rows.len())
                .map(|i| SampleRow {
                    process: 7,
                    thread,
                    seq: rows.seq[i],
                    sample: rows.sample[i],
                    time_ns: rows.time_ns[i],
                    module: rows.module[i],
                    ip: rows.ip[i],
                    site: rows.site[i],
                    address: rows.address[i],
                    size: rows.size[i],
                    class: rows.class[i],
                    store: rows.store[i],
                    implied_const: rows.implied_const[i],
                })
                .collect();
            assert!(all.len() as u64 + 2 >= segments * slots);
            for part in all.chunks(700_000) {
                write_part(
                    &plain.join(format!("samples/part-{number:05}.parquet")),
                    part,
                    100_000,
                );
                number += 1;
            }
        }
        let expected = json(&plain, &["--zoom"]);
        assert!(expected["summary"]["A"].as_u64().unwrap() > 1_000_000);
        let found = json(&spilled, &["--zoom"]);
        if let Some(difference) = difference("", &expected, &found) {
            panic!("{kind:?}: {difference}");
        }
        // Without sidecars the records cannot be expanded.
        let output = analyze(&[spilled.to_str().unwrap(), "--no-annotations"]);
        assert_eq!(output.status.code(), Some(1));
        // A truncated file: the rows before the damage are analysed.
        let file = std::fs::read_dir(spilled.join("spill"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let output = analyze(&[spilled.to_str().unwrap(), "--format", "json"]);
        assert_eq!(output.status.code(), Some(1));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (all, part) = (
            expected["summary"]["A"].as_u64().unwrap(),
            result["summary"]["A"].as_u64().unwrap(),
        );
        assert!(part < all && part > all / 2, "{part} of {all}");
        assert!(
            result["warnings"]
                .to_string()
                .contains("ends inside a segment")
        );
    }
}

/// The screen comes before the tables of a report, from the same counts.
#[test]
fn a_report_changes_neither_screen_nor_tables() {
    let mut random = common::TestRandom(11);
    let rows: Vec<SampleRow> = (0..20_000u64)
        .map(|i| {
            let address = 0x7f00_0000_0000 + random.below(1 << 20) * 8;
            row(i, (i / 500) as u32, random.below(5) as u32, address)
        })
        .collect();
    let sidecar = sidecar(16);
    let mut manifest = manifest("ring", &sidecar);
    (
        manifest.totals.records_executed,
        manifest.totals.records_kept,
    ) = (2_000_000, 20_000);
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), &manifest, &sidecar, &[rows], 7000);
    let trace = folder.path().to_str().unwrap();
    let data = folder.path().join("data.json");
    let shown = |more: &[&str]| {
        let output = analyze(&[&[trace], more].concat());
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|l| !l.starts_with("Every table:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let with_report = shown(&["--report-data", data.to_str().unwrap()]);
    assert!(with_report.len() > 5, "{with_report:?}");
    assert_eq!(with_report, shown(&[]));
    let written: Value = serde_json::from_slice(&std::fs::read(&data).unwrap()).unwrap();
    let asked = json(folder.path(), &["--zoom", "--objects"]);
    assert_eq!(difference("", &written, &asked), None);
}
