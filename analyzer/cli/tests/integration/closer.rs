//! Partial results, objects, parts of the run and estimates, on synthetic traces.

use crate::analyze;
use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_columns, write_trace};
use arrow_array::{ArrayRef, StringArray, UInt32Array, UInt64Array};
use mgz_annotations_schema::manifest::OBJECTS;
use mgz_annotations_schema::sidecar::{Loop, NONE};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

fn json(arguments: &[&str]) -> Value {
    let output = analyze(&[arguments, &["--format", "json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn row(process: u32, seq: u64, sample: u32, site: u32, address: u64) -> SampleRow {
    SampleRow {
        process,
        thread: process,
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

/// A ring trace of one process; samples of 300 rows.
fn of_process(folder: &Path, process: u32, random: &mut TestRandom) -> Vec<SampleRow> {
    let sidecar = sidecar(32);
    let rows: Vec<SampleRow> = (0..3000u64)
        .map(|i| {
            let site = (random.below(8) * u64::from(process)) as u32 % 32;
            let mut row = row(
                process,
                i,
                (i / 300) as u32,
                site,
                0x5000 + random.below(3000) * 8,
            );
            row.implied_const = random.below(3) as u16;
            row
        })
        .collect();
    let mut manifest = manifest("ring", &sidecar);
    (
        manifest.totals.records_executed,
        manifest.totals.records_kept,
    ) = (60_000, 3000);
    write_trace(
        folder,
        &manifest,
        &sidecar,
        std::slice::from_ref(&rows),
        1000,
    );
    rows
}

#[test]
fn partial_results_merge_in_any_grouping_to_the_result_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut random = TestRandom(8);
    let mut all = Vec::new();
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        let rows = of_process(&at(name), number as u32 + 1, &mut random);
        all.extend(rows.iter().map(|r| SampleRow {
            sample: r.sample + number as u32 * 10,
            ..*r
        }));
        assert!(
            analyze(&[
                text(&at(name)),
                "--partial",
                text(&at(&format!("{name}.part")))
            ])
            .status
            .success()
        );
    }
    let (a, b, c) = (at("a.part"), at("b.part"), at("c.part"));
    let merged = json(&["--merge", text(&a), text(&b), text(&c)]);
    for (first, second) in [
        (["a.part", "b.part"], "c.part"),
        (["b.part", "c.part"], "a.part"),
    ] {
        let both = at("both.part");
        assert!(
            analyze(&[
                "--merge",
                text(&at(first[0])),
                text(&at(first[1])),
                "--partial",
                text(&both)
            ])
            .status
            .success()
        );
        let (x, y) = if second == "c.part" {
            (both, at(second))
        } else {
            (at(second), both)
        };
        assert_eq!(
            json(&["--merge", text(&x), text(&y)]),
            merged,
            "{first:?} first"
        );
    }
    // The same rows in one trace.
    let sidecar = sidecar(32);
    let mut manifest = manifest("ring", &sidecar);
    (
        manifest.totals.records_executed,
        manifest.totals.records_kept,
    ) = (180_000, 9000);
    write_trace(&at("whole"), &manifest, &sidecar, &[all], 1000);
    let whole = json(&[text(&at("whole"))]);
    let keys = [
        "A",
        "A_const",
        "F",
        "F_64",
        "F_4k",
        "F_bytes",
        "F_str",
        "F_irr",
        "C",
        "S",
        "D_mean",
        "D_max",
        "D_p90",
        "interval_mean",
        "reuses",
        "first_touches",
        "F_hat",
        "samples_seen",
    ];
    let exact = |row: &Value| {
        keys.iter()
            .map(|k| row[k].clone())
            .chain([row["function"].clone(), row["line"].clone()])
            .collect::<Vec<Value>>()
    };
    assert_eq!(exact(&merged["summary"]), exact(&whole["summary"]));
    for table in ["functions", "lines"] {
        let rows = |of: &Value| {
            of[table]
                .as_array()
                .unwrap()
                .iter()
                .map(exact)
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(&merged), rows(&whole), "{table}");
    }
    assert_eq!(merged["windows"], whole["windows"]);
    assert_eq!(merged["summary"]["rho"], whole["summary"]["rho"]);
    assert_eq!(merged["summary"]["processes"], 3);
}

/// Only the contents of a screen are computed for it. Other requested output makes the analysis
/// compute everything.
#[test]
fn a_screen_is_the_same_whatever_else_is_made() {
    let folder = tempfile::tempdir().unwrap();
    of_process(folder.path(), 7, &mut TestRandom(5));
    let of = |more: &[&str]| {
        let output = analyze(&[&[text(folder.path())], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    for rows in ["1", "3", "20"] {
        let screen = of(&["--rows", rows]);
        assert!(screen.contains("Hottest functions"), "{screen}");
        let all = of(&["--rows", rows, "--misses"]);
        assert!(all.starts_with(&screen), "{screen}\n{all}");
        assert!(all.len() > screen.len());
    }
}

/// A changed partial result is refused or yields tables. It never causes a panic.
#[test]
fn changed_partial_results_make_nothing_panic() {
    use mgz_analyzer::estimate::row_estimates::Estimator;
    use mgz_analyzer::report::build::{merge_all, tables_of};
    let folder = tempfile::tempdir().unwrap();
    let (trace, part, changed) = (
        folder.path().join("a"),
        folder.path().join("a.part"),
        folder.path().join("b.part"),
    );
    let mut random = TestRandom(3);
    of_process(&trace, 1, &mut random);
    assert!(
        analyze(&[text(&trace), "--partial", text(&part)])
            .status
            .success()
    );
    let whole = std::fs::read(&part).unwrap();
    let plain = zstd::decode_all(&whole[8..]).unwrap();
    // The manifest and names come first.
    let header = plain.len() / 4;
    let (mut refused, mut shown) = (0, 0);
    for round in 0..600 {
        let mut bytes = plain.clone();
        for _ in 0..=random.below(4) {
            // Changes lengths and numbers rather than names.
            let at = if round % 8 == 0 {
                random.below(bytes.len() as u64)
            } else {
                header as u64 + random.below((bytes.len() - header) as u64)
            } as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = 0xff,
                2 => {
                    let end = (at + 8).min(bytes.len());
                    let start = end - 8;
                    bytes[start..end].copy_from_slice(&u64::MAX.to_le_bytes());
                }
                _ => bytes.truncate(at.max(16)),
            }
            if bytes.len() <= header {
                break;
            }
        }
        let mut file = whole[..8].to_vec();
        file.extend(zstd::encode_all(&bytes[..], 1).unwrap());
        std::fs::write(&changed, file).unwrap();
        match merge_all(&[changed.clone(), part.clone()]) {
            Ok(merged) => {
                tables_of(merged, Estimator::Recapture);
                shown += 1;
            }
            Err(error) => {
                assert!(!error.cause.is_empty());
                refused += 1;
            }
        }
    }
    assert!(
        refused > 20 && shown > 10,
        "{refused} refused, {shown} shown: the changes test too little"
    );
}

#[test]
fn damaged_partial_results_and_different_ones_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    of_process(&at("a"), 1, &mut TestRandom(3));
    let part = at("a.part");
    assert!(
        analyze(&[text(&at("a")), "--partial", text(&part)])
            .status
            .success()
    );
    let good = std::fs::read(&part).unwrap();
    for cut in [0, 5, 8, 20, good.len() / 2, good.len() - 1] {
        std::fs::write(&part, &good[..cut]).unwrap();
        let output = analyze(&["--merge", text(&part)]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1)
                && error.contains("a.part")
                && !error.contains("panicked"),
            "{cut}: {error}"
        );
    }
    for at in (8..good.len()).step_by((good.len() / 40).max(1)) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&part, &bytes).unwrap();
        let output = analyze(&["--merge", text(&part)]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1)) && !error.contains("panicked"),
            "byte {at}: {error}"
        );
    }
    std::fs::write(&part, &good).unwrap();
    assert!(
        analyze(&[
            text(&at("a")),
            "--block",
            "4096",
            "--partial",
            text(&at("b.part"))
        ])
        .status
        .success()
    );
    let output = analyze(&["--merge", text(&part), text(&at("b.part"))]);
    assert!(
        output.status.code() == Some(1)
            && String::from_utf8_lossy(&output.stderr).contains("--block")
    );
}

/// Rows of `objects.parquet`: start, bytes, begin, end, number, kind, name.
type Life = (u64, u64, u64, u64, u32, &'static str, &'static str);

fn write_objects(folder: &Path, lives: &[Life]) {
    let u64s = |of: fn(&Life) -> u64| {
        Arc::new(UInt64Array::from_iter_values(lives.iter().map(of))) as ArrayRef
    };
    let texts = |of: fn(&Life) -> &str| {
        Arc::new(StringArray::from_iter_values(lives.iter().map(of))) as ArrayRef
    };
    // The columns of docs/reference/trace.md.
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("process", Arc::new(UInt32Array::from(vec![7; lives.len()]))),
        ("object", u64s(|l| u64::from(l.4))),
        ("kind", texts(|l| l.5)),
        ("name", texts(|l| l.6)),
        ("type", texts(|_| "double[]")),
        ("module", texts(|_| "")),
        ("stack", texts(|_| "main at app.c:3")),
        ("start", u64s(|l| l.0)),
        ("bytes", u64s(|l| l.1)),
        ("begin_ns", u64s(|l| l.2)),
        ("end_ns", u64s(|l| l.3)),
    ];
    write_columns(&folder.join(OBJECTS), columns);
}

#[test]
fn objects_are_told_apart_by_address_and_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    // 100 loads of a global. Then the same heap address belongs to one block and later to another.
    // The last loads have no known object.
    let mut rows = Vec::new();
    for i in 0..100u64 {
        rows.push(row(7, i, 0, 0, 0x10_0000 + i % 10 * 64));
    }
    for i in 100..400u64 {
        rows.push(row(7, i, 0, 1, 0x7000_0010 + i % 3 * 64));
    }
    rows.push(row(7, 400, 0, 9, 0x9999_0000));
    write_trace(
        folder.path(),
        &manifest("full", &sidecar),
        &sidecar,
        &[rows],
        1000,
    );
    write_objects(
        folder.path(),
        &[
            (0x10_0000, 0x4000, 0, u64::MAX, 1, "global", "table"),
            (0x7000_0010, 512, 0, 2500, 2, "heap", "first"),
            (0x7000_0010, 256, 2500, u64::MAX, 3, "heap", "second"),
        ],
    );
    let result = json(&[text(folder.path()), "--objects"]);
    let found: Vec<(&str, &str, u64, u64)> = result["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| {
            (
                o["object"].as_str().unwrap(),
                o["kind"].as_str().unwrap(),
                o["A"].as_u64().unwrap(),
                o["blocks"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("first", "heap", 150, 3),
            ("second", "heap", 150, 3),
            ("table", "global", 100, 10),
            ("[no known object]", "unknown", 1, 1)
        ]
    );
    // Three blocks in turn: two others between reuses.
    assert_eq!(result["objects"][0]["D_mean"], 2.0);
    let zoomed = json(&[text(folder.path()), "--zoom"]);
    assert_eq!(zoomed["objects"], result["objects"]);
    assert!(
        zoomed["location_zoom"]["root"]["objects"][0]["object"]
            .as_str()
            .is_some()
    );
    assert_eq!(
        zoomed["heat_map"]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|r| r["A"].as_array().unwrap())
            .map(|a| a.as_u64().unwrap())
            .sum::<u64>(),
        400
    );
    // Damage is reported, and the rest is analysed.
    std::fs::write(folder.path().join(OBJECTS), b"PAR1 nonsense").unwrap();
    let output = analyze(&[text(folder.path()), "--objects", "--all"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1)
            && error.contains("objects.parquet")
            && !error.contains("panicked"),
        "{error}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("401 recorded"));
}

#[test]
fn a_part_of_the_run_and_a_node_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    let rows: Vec<SampleRow> = (0..64u64 * 100)
        .map(|i| SampleRow {
            time_ns: 5_000 + i * 1_000_000,
            ..row(
                7,
                i,
                (i / 100) as u32,
                (i / 3200) as u32 * 9,
                0x1000 + i * 8,
            )
        })
        .collect();
    write_trace(
        folder.path(),
        &manifest("ring", &sidecar),
        &sidecar,
        &[rows],
        500,
    );
    let whole = json(&[text(folder.path()), "--zoom", "--node", "2.1"]);
    let path: Vec<&str> = whole["time_zoom"]["path"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_str().unwrap())
        .collect();
    assert_eq!(path[..2], ["2", "2.1"]);
    // Samples 32 to 63, the second half, begin at 3.2 s.
    let half = json(&[text(folder.path()), "--zoom", "--from", "3.2"]);
    let root = &half["time_zoom"]["root"];
    assert_eq!(
        (&root["samples"], &root["A"]),
        (&Value::from(32), &Value::from(3200))
    );
    assert_eq!(root["functions"].as_array().unwrap().len(), 1);
    let part = json(&[
        text(folder.path()),
        "--zoom",
        "--from",
        "3.2",
        "--to",
        "3.25",
    ]);
    assert_eq!(part["time_zoom"]["root"]["samples"], 1);
    for bad in [&["--node", "9"][..], &["--from", "-1"], &["--to", "x"]] {
        let output = analyze(&[&[text(folder.path()), "--zoom"], bad].concat());
        assert!(matches!(output.status.code(), Some(1 | 2)), "{bad:?}");
    }
}

#[test]
fn samples_in_step_with_a_loop_are_told() {
    for (period, in_step) in [(20_000u64, true), (123_607, false)] {
        let folder = tempfile::tempdir().unwrap();
        let sidecar = sidecar(16);
        // A loop over 200,000 addresses.
        let rows: Vec<SampleRow> = (0..100u64)
            .flat_map(|s| {
                (0..200).map(move |i| {
                    row(
                        7,
                        s * 200 + i,
                        s as u32,
                        0,
                        0x10_0000 + (s * period + i) % 200_000 * 8,
                    )
                })
            })
            .collect();
        let mut manifest = manifest("ring", &sidecar);
        (manifest.period, manifest.window) = (period, 200);
        (
            manifest.totals.records_executed,
            manifest.totals.records_kept,
        ) = (100 * period, 20_000);
        write_trace(folder.path(), &manifest, &sidecar, &[rows], 1 << 20);
        let result = json(&[text(folder.path())]);
        assert_eq!(
            result["warnings"].to_string().contains("in step"),
            in_step,
            "period {period}: {}",
            result["warnings"]
        );
        let f = &result["functions"][0];
        assert!(f["F_hi"].as_f64().unwrap() >= 200_000.0, "{f}");
        assert_eq!(
            f["F_undersampled"], true,
            "100 windows of 200 do not tell much of 200,000 addresses: {f}"
        );
        assert_eq!(f["strides"][0]["from"], 8);
        assert!(result["growth"].as_array().unwrap().len() > 10);
    }
}

/// D of each access of a sample by definition: the distinct blocks between it and the last access
/// to its block; `None` for a first touch.
fn distances(blocks: &[u64]) -> Vec<Option<u64>> {
    let before = |i: usize| blocks[..i].iter().rposition(|b| *b == blocks[i]);
    let between = |from: usize, to: usize| {
        blocks[from + 1..to]
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len() as u64
    };
    (0..blocks.len())
        .map(|i| before(i).map(|from| between(from, i)))
        .collect()
}

/// Mean in millionths: numbers that are read from JSON may be off in the last digit.
fn mean(of: impl Iterator<Item = u64>) -> Option<u64> {
    let all: Vec<u64> = of.collect();
    millionths((!all.is_empty()).then(|| all.iter().sum::<u64>() as f64 / all.len() as f64))
}

fn millionths(value: Option<f64>) -> Option<u64> {
    value.map(|v| (v * 1e6).round() as u64)
}

/// The map of one object has equal parts of it as rows: a walk through its pages is a diagonal.
#[test]
fn the_heat_map_of_one_object_shows_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    let start = 0x10_0000u64;
    let rows: Vec<SampleRow> = (0..3200u64)
        .map(|i| match i % 2 {
            0 => row(7, i, 0, 0, start + i / 200 * 0x1000 + i % 64 * 64),
            _ => row(7, i, 0, 1, 0x7000_0000 + i % 512 * 64),
        })
        .collect();
    write_trace(
        folder.path(),
        &manifest("full", &sidecar),
        &sidecar,
        &[rows],
        1000,
    );
    write_objects(
        folder.path(),
        &[
            (start, 0x10000, 0, u64::MAX, 1, "global", "table"),
            (0x7000_0000, 0x8000, 0, u64::MAX, 2, "heap", "other"),
        ],
    );
    let map = |more: &[&str]| {
        let found = json(&[&[text(folder.path()), "--zoom"], more].concat());
        found["heat_map"]["rows"].as_array().unwrap().clone()
    };
    // Without a choice of objects, regions are not divided.
    assert_eq!(map(&[]).len(), 2);
    let rows = map(&["--object", "^table$"]);
    assert_eq!(rows.len(), 16);
    let mut last = None;
    for (k, row) in rows.iter().enumerate() {
        let first = start + k as u64 * 0x1000;
        assert_eq!(row["start"], format!("{first:#x}"));
        assert_eq!(row["end"], format!("{:#x}", first + 0xfff));
        assert_eq!(row["label"], "table");
        let loads: Vec<u64> = row["A"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a.as_u64().unwrap())
            .collect();
        assert_eq!(loads.iter().sum::<u64>(), 100);
        let column = loads.iter().position(|&a| a > 0);
        assert!(column > last, "{rows:?}");
        last = column;
    }
}

/// The first level of the time tree and the heat map are counted in the pass over the whole run.
/// They agree with their definitions, even if parts begin inside samples. They also agree with a
/// separate pass, which is made if rows cannot be read.
#[test]
fn parts_of_samples_and_cells_of_the_heat_map_agree_with_their_definitions() {
    for lengths in [&[3001u64][..], &[1500, 700, 900]] {
        let folder = tempfile::tempdir().unwrap();
        let mut sidecar = sidecar(16);
        // Sites 0 to 3 are in a loop, which is in another one with sites 0 to 7.
        sidecar.loops = vec![
            Loop {
                function: 0,
                parent: 1,
                location: NONE,
                header: 0x1004,
                latch: 0x1008,
            },
            Loop {
                function: 0,
                parent: NONE,
                location: NONE,
                header: 0x1000,
                latch: 0x1020,
            },
        ];
        sidecar
            .sites
            .iter_mut()
            .take(8)
            .zip(0..)
            .for_each(|(site, i)| site.in_loop = if i < 4 { 1 } else { 2 });
        let mut random = TestRandom(lengths.len() as u64);
        let mut rows = Vec::new();
        for (thread, &length) in lengths.iter().enumerate() {
            for i in 0..length * 5 / 4 {
                // Two arrays, far apart; every fifth row is a store.
                let address = if random.below(3) == 0 {
                    0x10_0000
                } else {
                    0x9000_0000
                } + random.below(50) * 64
                    + random.below(8) * 8;
                let store = i % 5 == 4;
                rows.push(SampleRow {
                    thread: 10 + thread as u32,
                    store,
                    ..row(7, i, thread as u32, random.below(16) as u32, address)
                });
            }
        }
        write_trace(
            folder.path(),
            &manifest("full", &sidecar),
            &sidecar,
            std::slice::from_ref(&rows),
            400,
        );
        let result = json(&[text(folder.path()), "--zoom", "--tau", "1"]);
        let samples: Vec<Vec<&SampleRow>> = (0..lengths.len())
            .map(|s| {
                rows.iter()
                    .filter(|r| r.sample == s as u32 && !r.store)
                    .collect()
            })
            .collect();
        let children = result["time_zoom"]["root"]["children"].as_array().unwrap();
        let loads: Vec<&[&SampleRow]> = match &samples[..] {
            [one] => (0..8)
                .map(|k| &one[k * one.len() / 8..(k + 1) * one.len() / 8])
                .collect(),
            several => several.iter().map(Vec::as_slice).collect(),
        };
        assert_eq!(children.len(), loads.len());
        for (child, loads) in children.iter().zip(loads) {
            let blocks: Vec<u64> = loads.iter().map(|r| r.address / 64).collect();
            let all = distances(&blocks);
            let of = |key: &str| child[key].as_u64().unwrap();
            let distinct = |class: Option<u8>| {
                loads
                    .iter()
                    .filter(|r| class.is_none_or(|c| c == r.class))
                    .map(|r| r.address)
                    .collect::<std::collections::HashSet<_>>()
                    .len() as u64
            };
            assert_eq!(
                [of("A"), of("F"), of("F_str"), of("F_irr")],
                [
                    loads.len() as u64,
                    distinct(None),
                    distinct(Some(1)),
                    distinct(Some(2))
                ]
            );
            assert_eq!(
                [of("reuses"), of("first_touches")],
                [
                    all.iter().flatten().count() as u64,
                    all.iter().filter(|d| d.is_none()).count() as u64
                ]
            );
            assert_eq!(
                millionths(child["D_mean"].as_f64()),
                mean(all.iter().flatten().copied())
            );
            assert_eq!(child["D_max"].as_u64(), all.iter().flatten().copied().max());
            if child["on_path"] == true {
                let listed = child["loops"].as_array().unwrap().iter();
                let mut loops: Vec<(&str, [u64; 3])> = listed
                    .map(|l| {
                        (
                            l["address"].as_str().unwrap(),
                            ["depth", "A", "F"].map(|k| l[k].as_u64().unwrap()),
                        )
                    })
                    .collect();
                loops.sort();
                let inside = |depth: u64, sites: u32| {
                    let those = || loads.iter().filter(move |r| r.site < sites);
                    [
                        depth,
                        those().count() as u64,
                        those()
                            .map(|r| r.address)
                            .collect::<std::collections::HashSet<_>>()
                            .len() as u64,
                    ]
                };
                assert_eq!(loops, [("0x1000", inside(1, 8)), ("0x1004", inside(2, 4))]);
            }
        }
        let map = result["heat_map"]["rows"].as_array().unwrap();
        assert_eq!(map.len(), 2);
        for (heat, start) in map.iter().zip([0x10_0000u64, 0x9000_0000]) {
            let mut cells = vec![(0u64, Vec::new()); 48];
            for loads in &samples {
                let all = distances(&loads.iter().map(|r| r.address / 64).collect::<Vec<_>>());
                for (i, (load, distance)) in loads.iter().zip(all).enumerate() {
                    let column = (0..48).rfind(|c| c * loads.len() / 48 <= i).unwrap();
                    if load.address >> 16 == start >> 16 {
                        cells[column].0 += 1;
                        cells[column].1.extend(distance);
                    }
                }
            }
            let found: Vec<(u64, Option<u64>)> = (0..48)
                .map(|c| {
                    (
                        heat["A"][c].as_u64().unwrap(),
                        millionths(heat["D_mean"][c].as_f64()),
                    )
                })
                .collect();
            assert_eq!(
                found,
                cells
                    .into_iter()
                    .map(|(n, d)| (n, mean(d.into_iter())))
                    .collect::<Vec<_>>()
            );
        }
        // A filter that selects the whole run gives the result of the whole run.
        let mut looked = json(&[text(folder.path()), "--zoom", "--tau", "1", "--from", "0"]);
        let filter = looked.as_object_mut().unwrap().remove("filter").unwrap();
        assert_eq!(filter["A_pct"], 100.0);
        assert_eq!(looked, result);
    }
}

/// If rows in the list of samples are missing, the tree consists of the existing ones.
#[test]
fn zooms_of_a_damaged_trace_count_what_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    let mut random = TestRandom(5);
    let rows: Vec<SampleRow> = (0..6400u64)
        .map(|i| {
            row(
                7,
                i,
                (i / 100) as u32,
                random.below(16) as u32,
                0x10_0000 + random.below(4000) * 8,
            )
        })
        .collect();
    write_trace(
        folder.path(),
        &manifest("ring", &sidecar),
        &sidecar,
        &[rows],
        500,
    );
    let part = std::fs::read_dir(folder.path().join("samples"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let good = std::fs::read(&part).unwrap();
    let mut told = 0;
    for at in 1..30 {
        let mut bytes = good.clone();
        let from = good.len() * at / 32;
        bytes[from..from + 40].fill(0x5a);
        std::fs::write(&part, bytes).unwrap();
        let output = analyze(&[text(folder.path()), "--zoom", "--format", "json"]);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("panicked"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let Ok(result) = serde_json::from_slice::<Value>(&output.stdout) else {
            continue;
        };
        let sum = |of: &Value, key: &str| {
            of.as_array()
                .unwrap()
                .iter()
                .map(|c| c[key].as_u64().unwrap())
                .sum::<u64>()
        };
        let all = result["summary"]["A"].as_u64().unwrap();
        told += u64::from(all < 6400);
        if all == 0 {
            // Without data there are no trees.
            assert!(result["time_zoom"].is_null() && result["location_zoom"].is_null());
            continue;
        }
        assert_eq!(
            sum(&result["time_zoom"]["root"]["children"], "A"),
            all,
            "at {at}"
        );
        assert_eq!(result["location_zoom"]["root"]["A"], all);
    }
    assert!(told > 5, "the damage is never met");
}
