//! Rows of objects, of memory regions and of intervals against their definitions, on small
//! synthetic traces.

use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_columns, write_trace};
use arrow_array::{ArrayRef, Float64Array, StringArray, UInt32Array, UInt64Array};
use mgz_annotations_schema::manifest::{OBJECTS, WINDOWS};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn analyze(folder: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .arg(folder)
        .args(arguments)
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A lifetime of an object: process, first address, bytes, begin, end, name.
type Life = (u32, u64, u64, u64, u64, &'static str);

/// A global of whole pages; one that ends within a page, right before another; blocks of a heap on
/// shared pages, two of which use the same address in turn.
const OBJECT_LIVES: [Life; 7] = [
    (7, 0x10_0000, 0x4000, 0, u64::MAX, "whole"),
    (7, 0x20_0000, 0x1800, 0, u64::MAX, "part"),
    (7, 0x20_1800, 0x0900, 0, u64::MAX, "rest"),
    (7, 0x30_0010, 0x0230, 0, 15_005, "first"),
    (7, 0x30_0010, 0x0230, 15_005, u64::MAX, "second"),
    (7, 0x30_0240, 0x3000, 0, u64::MAX, "long"),
    (8, 0x30_0010, 0x0230, 0, u64::MAX, "first"),
];

fn write_objects(folder: &Path) {
    let u64s = |of: fn(&Life) -> u64| {
        Arc::new(UInt64Array::from_iter_values(OBJECT_LIVES.iter().map(of))) as ArrayRef
    };
    let texts = |of: fn(&Life) -> &'static str| {
        Arc::new(StringArray::from_iter_values(OBJECT_LIVES.iter().map(of))) as ArrayRef
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "process",
            Arc::new(UInt32Array::from_iter_values(
                OBJECT_LIVES.iter().map(|l| l.0),
            )),
        ),
        (
            "object",
            u64s(|l| OBJECT_LIVES.iter().position(|o| o.5 == l.5).unwrap() as u64 + 1),
        ),
        ("kind", texts(|_| "heap")),
        ("name", texts(|l| l.5)),
        ("type", texts(|_| "")),
        ("module", texts(|_| "")),
        ("stack", texts(|_| "")),
        ("start", u64s(|l| l.1)),
        ("bytes", u64s(|l| l.2)),
        ("begin_ns", u64s(|l| l.3)),
        ("end_ns", u64s(|l| l.4)),
    ];
    write_columns(&folder.join(OBJECTS), columns);
}

fn object_at(process: u32, address: u64, time: u64) -> &'static str {
    let here = |l: &&Life| {
        l.0 == process && (l.1..l.1 + l.2).contains(&address) && (l.3..l.4).contains(&time)
    };
    OBJECT_LIVES
        .iter()
        .find(here)
        .map_or("[no known object]", |l| l.5)
}

/// Rows of two processes, in samples of 300.
fn rows(random: &mut TestRandom) -> Vec<SampleRow> {
    let mut rows = Vec::new();
    for process in [7u32, 8] {
        for seq in 0..3000u64 {
            let base = [
                0x10_0000,
                0x20_1000,
                0x30_0000,
                0x30_0000,
                0x30_2f00,
                0x20_0f00,
                0x7000_0000,
            ][random.below(7) as usize];
            // Clustered, so that there are hot regions and reused addresses.
            let spread = [64, 700, 4000][random.below(3) as usize];
            let site = random.below(16) as u32;
            rows.push(SampleRow {
                process,
                thread: process,
                seq,
                sample: (seq / 300) as u32 + if process == 8 { 10 } else { 0 },
                time_ns: seq * 10,
                site,
                address: base + random.below(spread) * if site.is_multiple_of(2) { 8 } else { 1 },
                size: if random.below(50) == 0 {
                    1 + random.below(9000) as u32
                } else {
                    [1, 4, 8, 16, 64][random.below(5) as usize]
                },
                class: 1 + (site % 2) as u8,
                ip: 0x1000,
                implied_const: random.below(4) as u16,
                ..SampleRow::default()
            });
        }
    }
    rows
}

/// Counts of a memory region by definition.
#[derive(Default)]
struct RegionTruth {
    accesses: u64,
    implied: u64,
    times: HashMap<(u32, u64), u64>,
    by_class: [BTreeSet<(u32, u64)>; 3],
    bytes: BTreeSet<(u32, u64)>,
    samples: BTreeSet<u32>,
    by_sample: BTreeSet<(u32, u32, u64)>,
    /// Previous address by site, for strides.
    last: HashMap<(u32, u32), u64>,
    strides: BTreeMap<i64, u64>,
}

impl RegionTruth {
    fn start(&mut self, r: &SampleRow) {
        self.accesses += 1;
        self.implied += u64::from(r.implied_const);
        *self.times.entry((r.process, r.address)).or_default() += 1;
        self.by_class[r.class as usize].insert((r.process, r.address));
        self.samples.insert(r.sample);
        self.by_sample.insert((r.sample, r.process, r.address));
        if let Some(last) = self.last.insert((r.sample, r.site), r.address) {
            *self
                .strides
                .entry(r.address as i64 - last as i64)
                .or_default() += 1;
        }
    }

    /// The expected columns of its row.
    fn columns(&self) -> Vec<(&'static str, Value)> {
        let f = self.times.len() as u64;
        let captures = self.times.values().filter(|&&n| n > 1).count() as u64;
        let distinct = |shift: u32| {
            self.bytes
                .iter()
                .map(|b| (b.0, b.1 >> shift))
                .collect::<BTreeSet<_>>()
                .len() as u64
        };
        let all = self.accesses + self.implied;
        let ratio = |a: u64, b: u64| {
            if b == 0 {
                Value::Null
            } else {
                json!(a as f64 / b as f64)
            }
        };
        let pct = |a: u64, b: u64| {
            if b == 0 {
                Value::Null
            } else {
                json!(a as f64 / b as f64 * 100.0)
            }
        };
        let (strided, irregular) = (self.by_class[1].len() as u64, self.by_class[2].len() as u64);
        vec![
            ("A", json!(self.accesses)),
            ("A_const", json!(self.implied)),
            ("A_const_pct", pct(self.implied, all)),
            (
                "kappa",
                if self.accesses == 0 {
                    Value::Null
                } else {
                    json!(1.0 + self.implied as f64 / self.accesses as f64)
                },
            ),
            ("F", json!(f)),
            ("F_str", json!(strided)),
            ("F_irr", json!(irregular)),
            ("F_64", json!(distinct(6))),
            ("F_4k", json!(distinct(12))),
            ("F_bytes", json!(self.bytes.len())),
            (
                "line_bytes_set",
                ratio(self.bytes.len() as u64, distinct(6)),
            ),
            ("dF", ratio(f, all)),
            ("dF_str_pct", pct(strided, f)),
            ("dF_irr_pct", pct(irregular, f)),
            ("C", json!(captures)),
            ("S", json!(f - captures)),
        ]
    }
}

fn check(row: &Value, place: &RegionTruth, name: &str) {
    for (key, expected) in place.columns() {
        // Numbers that are read from JSON may be off in the last place.
        let near = |a: Option<f64>, b: Option<f64>| {
            a.zip(b)
                .is_some_and(|(a, b)| (a - b).abs() <= 1e-12 * b.abs())
        };
        assert!(
            row[key] == expected || expected.is_f64() && near(row[key].as_f64(), expected.as_f64()),
            "{name}: {key} is {}, not {expected}",
            row[key]
        );
    }
}

/// Checks the values from which a sampled trace's estimates are computed.
fn check_estimates(row: &Value, place: &RegionTruth, (rho, samples): (f64, f64), name: &str) {
    let near = |key: &str, expected: f64| {
        let found = row[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: no {key}"));
        assert!(
            (found / expected - 1.0).abs() < 1e-9,
            "{name}: {key} is {found}, not {expected}"
        );
    };
    assert_eq!(row["samples_seen"], json!(place.samples.len()), "{name}");
    near("F_sample", place.by_sample.len() as f64 / samples);
    near("A_hat", rho * (place.accesses + place.implied) as f64);
    let of = |key: &str| row[key].as_f64().unwrap();
    for kind in ["F", "F_str", "F_irr", "F_64"] {
        let [hat, lo, hi] = ["_hat", "_lo", "_hi"].map(|end| of(&format!("{kind}{end}")));
        assert!(
            lo <= hat && hat <= hi && lo >= of(kind) && hat <= rho * of(kind) * 1.0001,
            "{name}: {kind} {} {lo} {hat} {hi}",
            of(kind)
        );
    }
    assert_eq!(
        row["undersampled"],
        json!(of("F_hi") > 2.0 * of("F_lo")),
        "{name}"
    );
}

fn write(folder: &Path, mode: &str, rows: &[SampleRow]) {
    let sidecar = sidecar(16);
    let mut manifest = manifest(mode, &sidecar);
    if mode == "ring" {
        (
            manifest.totals.records_executed,
            manifest.totals.records_kept,
        ) = (rows.len() as u64 * 20, rows.len() as u64);
    }
    write_trace(folder, &manifest, &sidecar, &[rows.to_vec()], 1000);
    write_objects(folder);
}

#[test]
fn rows_of_objects_agree_with_their_definition() {
    let rows = rows(&mut TestRandom(11));
    let mut places: BTreeMap<&str, RegionTruth> = BTreeMap::new();
    for r in &rows {
        places
            .entry(object_at(r.process, r.address, r.time_ns))
            .or_default()
            .start(r);
        // The touched part of each page belongs to the object at its first byte.
        let end = r.address + u64::from(r.size);
        let mut from = r.address;
        while from < end {
            let to = (((from >> 12) + 1) << 12).min(end);
            places
                .entry(object_at(r.process, from, r.time_ns))
                .or_default()
                .bytes
                .extend((from..to).map(|b| (r.process, b)));
            from = to;
        }
    }
    for (mode, block) in [
        ("full", "64"),
        ("ring", "64"),
        ("full", "16384"),
        ("ring", "8"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), mode, &rows);
        for option in ["--objects", "--zoom"] {
            let result = analyze(folder.path(), &[option, "--block", block]);
            let found = result["objects"].as_array().unwrap();
            assert_eq!(found.len(), places.len(), "{mode}");
            for row in found {
                let name = row["object"].as_str().unwrap();
                check(
                    row,
                    &places[name],
                    &format!("{mode} {option} --block {block}, object {name:?}"),
                );
                if mode == "ring" {
                    check_estimates(
                        row,
                        &places[name],
                        (20.0, 20.0),
                        &format!("object {name:?}"),
                    );
                } else {
                    assert!(
                        row["F_hat"] == row["F"].as_f64().unwrap()
                            && row["undersampled"] == false
                            && row["samples_seen"].is_null()
                            && row["F_sample"].is_null(),
                        "{row}"
                    );
                }
                assert!(row.get("stores").is_none());
            }
        }
    }
}

fn regions<'a>(region: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(region);
    region["children"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(|child| regions(child, all));
}

#[test]
fn rows_of_regions_agree_with_their_definition() {
    let rows = rows(&mut TestRandom(12));
    // Regions end at pages, at parts of pages, or at parts of lines.
    for (mode, arguments) in [
        ("full", &["--tau", "4"][..]),
        ("ring", &["--tau", "4"]),
        ("ring", &["--tau", "2", "--stop", "256"]),
        ("full", &["--tau", "1", "--stop", "16", "--block", "16"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), mode, &rows);
        let result = analyze(folder.path(), &[&["--zoom"], arguments].concat());
        let mut all = Vec::new();
        regions(&result["location_zoom"]["root"], &mut all);
        assert!(all.len() > 6, "{} regions", all.len());
        for region in all {
            let address = |key: &str| {
                u64::from_str_radix(region[key].as_str().unwrap().trim_start_matches("0x"), 16)
                    .unwrap()
            };
            let (start, end) = (address("start"), address("end"));
            let mut place = RegionTruth::default();
            for r in rows.iter().filter(|r| {
                region["process"]
                    .as_u64()
                    .is_none_or(|p| p == u64::from(r.process))
            }) {
                if (start..=end).contains(&r.address) {
                    place.start(r);
                }
                let last = r.address + u64::from(r.size) - 1;
                place
                    .bytes
                    .extend((r.address.max(start)..=last.min(end)).map(|b| (r.process, b)));
            }
            let name = format!("{mode} {arguments:?}, region {}", region["id"]);
            check(region, &place, &name);
            if mode == "ring" && region["id"] != "" {
                check_estimates(region, &place, (20.0, 20.0), &name);
            }
        }
    }
}

/// Executed loads that one load of a sample represents.
fn weight(sample: u32) -> f64 {
    [3.0, 250.0, 40.5, 7.25][sample as usize % 4] + f64::from(sample)
}

/// Writes a trace of `burst` whose samples have these weights.
fn write_burst(folder: &Path, rows: &[SampleRow]) {
    let sidecar = sidecar(16);
    let mut manifest = manifest("burst", &sidecar);
    // Windows by time weigh the same.
    manifest.trigger = "loads".into();
    let executed = rows
        .iter()
        .map(|r| weight(r.sample) * f64::from(1 + r.implied_const))
        .sum();
    (
        manifest.totals.loads_executed_estimate,
        manifest.totals.loads_executed_error,
    ) = (Some(executed), Some(0.5));
    write_trace(folder, &manifest, &sidecar, &[rows.to_vec()], 1000);
    write_objects(folder);
    let samples: BTreeSet<u32> = rows.iter().map(|r| r.sample).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "sample",
            Arc::new(UInt32Array::from_iter_values(samples.iter().copied())),
        ),
        (
            "stands_for",
            Arc::new(Float64Array::from_iter_values(
                samples.iter().map(|&s| weight(s)),
            )),
        ),
    ];
    write_columns(&folder.join(WINDOWS), columns);
}

/// Windows by CPU time: 30 of 40 begin in one function and continue in the other for most of their
/// loads. Speed was measured in the first function only.
#[test]
fn windows_by_time_tell_shares_of_time_and_loads_only_where_speed_was_measured() {
    let rows: Vec<SampleRow> = (0..40u64)
        .flat_map(|window| {
            (0..100u64).map(move |i| {
                let site = if window % 4 == 3 || i >= 20 { 8 } else { 0 };
                let seq = window * 100 + i;
                SampleRow {
                    process: 7,
                    thread: 7,
                    seq,
                    time_ns: 1000 + seq,
                    sample: window as u32,
                    site,
                    address: 0x10_0000 + (seq * 7919) % 512 * 8,
                    size: 8,
                    class: 1,
                    ..SampleRow::default()
                }
            })
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    let mut manifest = manifest("burst", &sidecar);
    manifest.trigger = "cpu time (software clock)".into();
    manifest.totals.loads_executed_estimate = Some(4e6);
    manifest.totals.loads_executed_error = Some(1.0);
    write_trace(folder.path(), &manifest, &sidecar, &[rows], 1000);
    let helper = |window: u32| window % 4 == 3;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("sample", Arc::new(UInt32Array::from_iter_values(0..40))),
        (
            "loads",
            Arc::new(UInt32Array::from_iter_values((0..40).map(|_| 100))),
        ),
        (
            "stands_for",
            Arc::new(Float64Array::from_iter_values((0..40).map(|_| 1000.0))),
        ),
        (
            "ns_per_load_error",
            Arc::new(Float64Array::from_iter_values((0..40).map(|_| 0.5))),
        ),
        (
            "ns_per_load_source",
            Arc::new(StringArray::from_iter_values(
                (0..40).map(|w| if helper(w) { "others" } else { "watched" }),
            )),
        ),
    ];
    write_columns(&folder.path().join(WINDOWS), columns);
    let result = analyze(folder.path(), &[]);
    let [first, second] = [0, 1].map(|at: usize| &result["functions"][at]);
    assert_eq!(
        [&first["function"], &second["function"]],
        ["main", "helper"]
    );
    for (row, share) in [(first, 75.0), (second, 25.0)] {
        let of = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(of("time_pct"), share, "{row}");
        let (lo, hi) = (of("time_pct_lo"), of("time_pct_hi"));
        assert!(share - 25.0 < lo && lo < share && share < hi && hi < share + 25.0);
        assert!(row["A_pct"].is_null(), "{row}");
    }
    assert_eq!(first["A_hat"], 3e6);
    assert!(first["A_lo"].as_f64().unwrap() < 2e6 && first["A_hi"].as_f64().unwrap() > 4.5e6);
    // The speed of the other function is known only from other code: it has no loads and no upper
    // end.
    for key in ["A_hat", "A_lo", "A_hi", "F_hi"] {
        assert!(second[key].is_null(), "{key}: {second}");
    }
    assert_eq!(second["F_undersampled"], true);
    let trace = &result["summary"]["trace"];
    assert!(trace["by_time"] == true && trace["loads_executed_hat"].is_null());
    assert!(result["summary"]["rho"].is_null() && result["summary"]["A_hat"].is_null());
}

/// Means per window of the run, for code, objects, regions, intervals and window sizes. Samples
/// represent different numbers of loads and differ in length.
#[test]
fn means_per_window_count_samples_for_what_they_stand_for() {
    let rows: Vec<SampleRow> = rows(&mut TestRandom(16))
        .into_iter()
        .filter(|r| r.process == 7 && r.seq % 300 < [300, 120, 200][r.sample as usize % 3])
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write_burst(folder.path(), &rows);
    let result = analyze(folder.path(), &["--zoom", "--tau", "4"]);
    // F, F_str, F_irr of the rows that `of` selects, per window of the mean size of the samples
    // that `of_run` selects.
    let means = |of: &dyn Fn(&SampleRow) -> bool, of_run: &dyn Fn(u32) -> bool| -> [f64; 3] {
        let mut sums = [0.0; 3];
        let (mut windows, mut loads) = (0.0, 0.0);
        for sample in rows
            .chunk_by(|a, b| a.sample == b.sample)
            .filter(|s| of_run(s[0].sample))
        {
            let weight = weight(sample[0].sample);
            for (kind, sum) in sums.iter_mut().enumerate() {
                let seen: BTreeSet<u64> = sample
                    .iter()
                    .filter(|r| of(r) && (kind == 0 || usize::from(r.class) == kind))
                    .map(|r| r.address)
                    .collect();
                *sum += weight * seen.len() as f64;
            }
            windows += 1.0;
            loads += sample.len() as f64;
        }
        let executed: f64 = rows
            .iter()
            .filter(|r| of_run(r.sample))
            .map(|r| weight(r.sample))
            .sum();
        sums.map(|sum| sum / executed * loads / windows)
    };
    let check = |row: &Value, expected: [f64; 3], name: &str| {
        for (key, expected) in ["F_sample", "F_str_sample", "F_irr_sample"]
            .into_iter()
            .zip(expected)
        {
            let found = row[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: no {key}"));
            assert!(
                (found - expected).abs() <= 1e-9 * expected,
                "{name}: {key} is {found}, not {expected}"
            );
        }
    };
    let always = |_| true;
    check(&result["summary"], means(&|_| true, &always), "summary");
    for (name, sites) in [("main", 0..8), ("helper", 8..16)] {
        let row = result["functions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["function"] == name)
            .unwrap();
        check(row, means(&|r| sites.contains(&r.site), &always), name);
    }
    for row in result["objects"].as_array().unwrap() {
        let name = row["object"].as_str().unwrap();
        // A page that several objects use in turn belongs to the one in the middle of the sample.
        if !["first", "second"].contains(&name) {
            check(
                row,
                means(
                    &|r| object_at(r.process, r.address, r.time_ns) == name,
                    &always,
                ),
                name,
            );
        }
    }
    let mut all = Vec::new();
    regions(&result["location_zoom"]["root"], &mut all);
    for region in all.iter().filter(|r| r["id"] != "") {
        let address = |key: &str| {
            u64::from_str_radix(region[key].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
        };
        check(
            region,
            means(
                &|r| (address("start")..=address("end")).contains(&r.address),
                &always,
            ),
            &format!("region {}", region["id"]),
        );
    }
    let mut intervals = 0;
    for node in result["time_zoom"]["root"]["children"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|n| n["samples"].as_u64() > Some(1))
    {
        let (from, to) = (
            node["from_ns"].as_u64().unwrap(),
            node["to_ns"].as_u64().unwrap(),
        );
        let inside: BTreeSet<u32> = rows
            .iter()
            .filter(|r| (from..=to).contains(&r.time_ns))
            .map(|r| r.sample)
            .collect();
        check(
            node,
            means(&|_| true, &|sample| inside.contains(&sample)),
            &format!("node {}", node["id"]),
        );
        intervals += 1;
    }
    assert!(all.len() > 4 && intervals > 0);
    for row in result["windows"].as_array().unwrap() {
        let size = row["W"].as_u64().unwrap() as usize;
        let (mut footprint, mut loads, mut windows) = (0.0, 0.0, 0.0);
        for window in rows
            .chunk_by(|a, b| a.sample == b.sample)
            .flat_map(|s| s.chunks_exact(size))
        {
            let weight = weight(window[0].sample);
            windows += weight;
            footprint += weight
                * window
                    .iter()
                    .map(|r| r.address)
                    .collect::<BTreeSet<_>>()
                    .len() as f64;
            loads += weight
                * window
                    .iter()
                    .map(|r| 1.0 + f64::from(r.implied_const))
                    .sum::<f64>();
        }
        for (key, expected) in [("F", footprint / windows), ("dF", footprint / loads)] {
            let found = row[key].as_f64().unwrap();
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "W {size}: {key} is {found}, not {expected}"
            );
        }
        let growth = result["growth"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["W"] == row["W"])
            .unwrap();
        assert!(
            growth["measured"] == false || growth["F_hat"] == row["F"],
            "{growth}"
        );
    }
    // Partial results keep the loads that samples represent. A run merged with itself counts twice.
    let part = folder.path().join("part");
    let part = part.to_str().unwrap();
    assert!(
        Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
            .arg(folder.path())
            .args(["--partial", part])
            .status()
            .unwrap()
            .success()
    );
    for parts in [&[part][..], &[part, part]] {
        let merged = analyze(Path::new("--merge"), parts);
        for key in ["F_sample", "F_str_sample", "F_irr_sample"] {
            let (found, expected) = (
                merged["summary"][key].as_f64().unwrap(),
                result["summary"][key].as_f64().unwrap(),
            );
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{key} of {} parts is {found}, not {expected}",
                parts.len()
            );
        }
        let footprints = |of: &Value| {
            of["windows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|w| {
                    [
                        w["W"].clone(),
                        w["F"].clone(),
                        w["dF"].clone(),
                        w["S"].clone(),
                    ]
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(footprints(&merged), footprints(&result));
    }
}

/// Windows that only a few long samples have do not represent the code of the other samples.
#[test]
fn sizes_of_a_few_long_samples_are_not_measured() {
    let mut random = TestRandom(17);
    let sample = |sample: u32, loads: u64| (0..loads).map(move |i| (sample, i));
    let rows: Vec<SampleRow> = (0..40u32)
        .flat_map(|s| sample(s, if s % 8 == 0 { 600 } else { 300 }))
        .map(|(sample, i)| {
            // Long samples walk through memory; the others reuse a few words.
            let address = if sample % 8 == 0 {
                0x40_0000 + (u64::from(sample) * 600 + i) * 8
            } else {
                0x10_0000 + random.below(64) * 8
            };
            SampleRow {
                process: 7,
                thread: 7,
                seq: u64::from(sample) * 10_000 + i,
                sample,
                time_ns: u64::from(sample) * 10_000 + i,
                site: 0,
                address,
                size: 8,
                class: 1,
                ip: 0x1000,
                ..SampleRow::default()
            }
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ring", &rows);
    let result = analyze(folder.path(), &[]);
    let at = |size: u64| {
        result["growth"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["W"] == size)
            .unwrap()
            .clone()
    };
    let (known, found) = (at(256), at(512));
    assert!(
        known["measured"] == true && found["measured"] == false,
        "{known} {found}"
    );
    // All windows of long samples have 512 addresses; an eighth of the samples are long.
    assert!(
        found["F_hat"].as_f64().unwrap() < 2.0 * known["F_hat"].as_f64().unwrap()
            && known["F_hat"].as_f64().unwrap() < 128.0,
        "{known} {found}"
    );
}

/// A loop over 512 words, in samples of 1,000 loads: windows of 1,024 loads have as many, though
/// 512 is the largest size for which samples have whole windows. The start of the run, which no
/// sample covers, may touch other words. Only the interval of the whole run includes those.
#[test]
fn samples_tell_the_footprint_of_their_size_and_not_that_of_the_start() {
    let rows: Vec<SampleRow> = (0..40_000u64)
        .map(|i| {
            let sample = (i / 1000) as u32;
            let seq = u64::from(sample) * 10_000 + i % 1000;
            SampleRow {
                process: 7,
                thread: 7,
                seq,
                sample,
                time_ns: seq,
                site: 0,
                address: 0x10_0000 + (seq * 7 % 512) * 8,
                size: 8,
                class: 1,
                ip: 0x1000,
                ..SampleRow::default()
            }
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ring", &rows);
    // Object sizes would bound the estimated footprint.
    std::fs::remove_file(folder.path().join("objects.parquet")).unwrap();
    let result = analyze(folder.path(), &[]);
    for row in result["growth"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|g| g["W"].as_u64().unwrap() >= 512)
    {
        let found = row["F_hat"].as_f64().unwrap();
        assert!((510.0..515.0).contains(&found), "{row}");
    }
    let (summary, function) = (&result["summary"], &result["functions"][0]);
    let hidden = 0.512 * (summary["rho"].as_f64().unwrap() - 1.0) * 1000.0;
    let upper = |row: &serde_json::Value| row["F_hi"].as_f64().unwrap();
    // All n samples may miss code that executes less than 3/n of the loads.
    let number = |key: &str| function[key].as_f64().unwrap();
    let unseen = 3.0 / number("samples_seen") * number("A_hi");
    assert!(
        (summary["F_hat"].as_f64().unwrap() - 512.0).abs() < 1.0
            && (0.0..28.0).contains(&(upper(function) - 512.0 - unseen)),
        "{unseen} {summary} {function}"
    );
    assert!(
        hidden > 100.0 && (upper(summary) - upper(function) - hidden).abs() < 1.0,
        "{summary} {hidden}"
    );
}

/// If a load instruction stays in one object and region, its strides can be counted there.
#[test]
fn strides_of_places_are_those_of_their_code() {
    let mut random = TestRandom(13);
    let rows: Vec<SampleRow> = (0..3000u64)
        .map(|seq| {
            let site = random.below(4) as u32;
            let address = if site < 2 { 0x10_0000 } else { 0x20_0000 }
                + random.below(3) * [8, 24, 64, 120][site as usize];
            SampleRow {
                process: 7,
                thread: 7,
                seq,
                sample: (seq / 300) as u32,
                time_ns: seq * 10,
                site,
                address,
                size: 8,
                class: 1 + (site % 2) as u8,
                ip: 0x1000,
                ..SampleRow::default()
            }
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "full", &rows);
    let result = analyze(folder.path(), &["--zoom"]);
    for (name, sites) in [("whole", 0..2), ("part", 2..4)] {
        let mut place = RegionTruth::default();
        rows.iter()
            .filter(|r| sites.contains(&r.site))
            .for_each(|r| place.start(r));
        let mut expected: Vec<(i64, u64)> = place.strides.into_iter().collect();
        expected.sort_by_key(|&(stride, count)| (std::cmp::Reverse(count), stride));
        let all: u64 = expected.iter().map(|e| e.1).sum();
        expected.truncate(4);
        let row = result["objects"]
            .as_array()
            .unwrap()
            .iter()
            .find(|o| o["object"] == name)
            .unwrap();
        let mut zoomed = Vec::new();
        regions(&result["location_zoom"]["root"], &mut zoomed);
        let region = zoomed
            .iter()
            .find(|r| {
                r["id"] != "" && r["A"] == row["A"] && r["children"].as_array().unwrap().is_empty()
            })
            .unwrap();
        for row in [row, region] {
            let found: Vec<(i64, f64)> = row["strides_hat"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| (s["from"].as_i64().unwrap(), s["pct"].as_f64().unwrap()))
                .collect();
            let right = found.len() == 4
                && found.iter().zip(&expected).all(|(f, e)| {
                    f.0 == e.0 && (f.1 - e.1 as f64 * 100.0 / all as f64).abs() < 1e-9
                });
            assert!(right, "{name}: {found:?}, expected {expected:?} of {all}");
        }
    }
}

/// D of touches of 64-byte blocks inside one sample, by definition.
fn distances(rows: &[&SampleRow]) -> Vec<u64> {
    let mut found = Vec::new();
    let blocks = |r: &SampleRow| (r.address >> 6)..=((r.address + u64::from(r.size) - 1) >> 6);
    for (i, r) in rows.iter().enumerate() {
        for block in blocks(r) {
            if let Some(last) = rows[..i].iter().rposition(|e| blocks(e).contains(&block)) {
                found.push(
                    rows[last + 1..i]
                        .iter()
                        .flat_map(|e| blocks(e))
                        .collect::<BTreeSet<u64>>()
                        .len() as u64,
                );
            }
        }
    }
    found
}

#[test]
fn intervals_have_histograms_of_their_distances() {
    let mut random = TestRandom(14);
    let rows: Vec<SampleRow> = rows(&mut random)
        .into_iter()
        .filter(|r| r.process == 7 && r.seq < 2400 && r.size <= 64)
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ring", &rows);
    let result = analyze(folder.path(), &["--zoom"]);
    let mut node = &result["time_zoom"]["root"];
    let histogram = |list: Vec<u64>| {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        list.into_iter().for_each(|d| {
            *bins
                .entry(if d == 0 { 0 } else { 1 << d.ilog2() })
                .or_default() += 1
        });
        bins
    };
    let found = |node: &Value| -> BTreeMap<u64, u64> {
        node["D_hist"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| (b["from"].as_u64().unwrap(), b["count"].as_u64().unwrap()))
            .filter(|b| b.1 > 0)
            .collect()
    };
    let of_sample = |sample: u32| {
        rows.iter()
            .filter(|r| r.sample == sample)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(node),
        histogram((0..8).flat_map(|s| distances(&of_sample(s))).collect())
    );
    let mut levels = 0;
    while let Some(children) = node["children"].as_array().filter(|c| !c.is_empty()) {
        for child in children {
            let sample = of_sample(child["sample"].as_u64().unwrap() as u32);
            let part = match child["first_load"].as_u64() {
                Some(first) => {
                    &sample[first as usize..(first + child["A"].as_u64().unwrap()) as usize]
                }
                None => &sample[..],
            };
            let expected = distances(part);
            assert_eq!(
                found(child),
                histogram(expected.clone()),
                "node {}",
                child["id"]
            );
            assert!(
                !child["D_p50"].is_null() && child["A_hat"].is_null() && child["F_hat"].is_null()
            );
        }
        levels += 1;
        node = children.iter().find(|c| c["on_path"] == true).unwrap();
    }
    assert!(levels >= 2);
}
