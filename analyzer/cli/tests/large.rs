//! Accesses of many kilobytes and megabytes, as string instructions make them. Their counts agree
//! with the definitions, and take linear time.

#[path = "integration/common/mod.rs"]
mod common;

use common::{
    SampleRow, TestRandom, manifest, sidecar, write_lives, write_plain_part, write_recorded_part,
    write_trace,
};
use parquet::basic::Compression;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn analyze(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(arguments)
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row(seq: u64, thread: u32, address: u64, size: u32) -> SampleRow {
    SampleRow {
        process: 7,
        thread,
        seq,
        sample: thread - 8,
        time_ns: 1000 + seq * 10 + u64::from(thread % 2) * 5,
        site: (seq % 16) as u32,
        address,
        size,
        class: 1 + (seq % 2) as u8,
        ip: 0x1000,
        ..SampleRow::default()
    }
}

/// Large accesses of two threads at unaligned addresses that overlap each other in part, in whole
/// and not at all, divided by small ones.
fn rows(random: &mut TestRandom) -> Vec<SampleRow> {
    let base = 0x7f00_0000_0123;
    let mut rows = Vec::new();
    for thread in [8u32, 9] {
        let mut last = (base, 1u32);
        for seq in 0..120u64 {
            let (address, size) = match random.below(10) {
                // Up to 600 KB; the same access again; one that begins at the end of the last one;
                // one that overlaps it from below.
                0 => (
                    base + random.below(1 << 20),
                    1 + random.below(600_000) as u32,
                ),
                1 => last,
                2 => (last.0 + u64::from(last.1), 1 + random.below(100_000) as u32),
                3 => (
                    last.0.saturating_sub(random.below(50_000)),
                    1 + random.below(90_000) as u32,
                ),
                4 => (base + random.below(1 << 20), 1 + random.below(5000) as u32),
                5 => (base + random.below(40) * 65_536, 65_536),
                _ => (base + random.below(2 << 20), 1 << random.below(7)),
            };
            last = (address, size);
            rows.push(row(seq, thread, address, size));
        }
    }
    rows
}

/// Touches of a thread's accesses: the block, and its distance and interval, `None` for first
/// touches.
fn touches(accesses: &[&SampleRow], shift: u32) -> Vec<(u64, Option<(u64, u64)>)> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut blocks_of = vec![0u64; accesses.len()];
    let mut out = Vec::new();
    for (i, access) in accesses.iter().enumerate() {
        let blocks =
            access.address >> shift..=(access.address + u64::from(access.size) - 1) >> shift;
        let mut behind = vec![0; i + 1];
        for p in (0..i).rev() {
            behind[p] = behind[p + 1] + blocks_of[p];
        }
        for block in blocks.clone() {
            out.push((
                block,
                last.get(&block).map(|&p| (behind[p + 1], (i - p) as u64)),
            ));
        }
        for block in blocks {
            if let Some(p) = last.insert(block, i) {
                blocks_of[p] -= 1;
            }
            blocks_of[i] += 1;
        }
    }
    out
}

fn of_thread(rows: &[SampleRow], thread: u32) -> Vec<&SampleRow> {
    rows.iter().filter(|r| r.thread == thread).collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn near(found: &Value, expected: f64, what: &str) {
    let found = number(found);
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs(),
        "{what}: {found}, not {expected}"
    );
}

#[test]
fn counts_of_large_accesses_agree_with_their_definitions() {
    for seed in [3, 14] {
        let rows = rows(&mut TestRandom(seed));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let trace = path.to_str().unwrap();
        write_trace(
            path,
            &manifest("full", &sidecar(16)),
            &sidecar(16),
            std::slice::from_ref(&rows),
            50,
        );
        // Half of the memory is one object, a page in it another one.
        write_lives(
            path,
            &[
                (0x7f00_0000_0000, 1 << 20, 0, u64::MAX, 1, "heap", "a a.c:1"),
                (0x7f00_0004_0000, 4096, 0, u64::MAX, 2, "global", "b"),
            ],
        );
        let bytes: BTreeSet<u64> = rows
            .iter()
            .flat_map(|r| r.address..r.address + u64::from(r.size))
            .collect();
        let distinct = |shift: u32| {
            bytes
                .iter()
                .map(|b| b >> shift)
                .collect::<BTreeSet<_>>()
                .len() as f64
        };
        for block in [8u64, 64, 4096] {
            let shift = block.trailing_zeros();
            let all: Vec<_> = [8, 9]
                .iter()
                .flat_map(|&t| touches(&of_thread(&rows, t), shift))
                .collect();
            let reuses: Vec<(u64, u64)> = all.iter().filter_map(|t| t.1).collect();
            let sum = |of: fn(&(u64, u64)) -> u64| reuses.iter().map(of).sum::<u64>() as f64;
            let what = format!("seed {seed}, blocks of {block}");
            let found = analyze(&[trace, "--zoom", "--block", &block.to_string()]);
            let s = &found["summary"];
            near(&s["F_bytes"], bytes.len() as f64, &what);
            near(&s["F_64"], distinct(6), &what);
            near(&s["F_4k"], distinct(12), &what);
            let check = |row: &Value, reuses_key: &str| {
                near(&row[reuses_key], reuses.len() as f64, &what);
                near(
                    &row["first_touches"],
                    (all.len() - reuses.len()) as f64,
                    &what,
                );
                near(&row["D_mean"], sum(|r| r.0) / reuses.len() as f64, &what);
                near(
                    &row["D_max"],
                    reuses.iter().map(|r| r.0).max().unwrap() as f64,
                    &what,
                );
                near(
                    &row["interval_mean"],
                    sum(|r| r.1) / reuses.len() as f64,
                    &what,
                );
            };
            check(s, "reuses");
            for bin in s["D_hist"].as_array().unwrap() {
                let (from, to) = (bin["from"].as_u64().unwrap(), bin["to"].as_u64().unwrap());
                let inside = reuses.iter().filter(|r| (from..=to).contains(&r.0)).count();
                near(
                    &bin["count"],
                    inside as f64,
                    &format!("{what}, D from {from} to {to}"),
                );
            }
            // Regions, their union, and objects.
            let root = &found["location_zoom"]["root"];
            check(root, "reuses");
            near(&root["blocks"], distinct(shift), &what);
            near(&root["F_bytes"], bytes.len() as f64, &what);
            let inside = |object: &Value| {
                let name = object["object"].as_str().unwrap();
                let owner = |b: u64| match b {
                    0x7f00_0004_0000..0x7f00_0004_1000 => "b",
                    0x7f00_0000_0000..0x7f00_0010_0000 => "a a.c:1",
                    _ => "[no known object]",
                };
                bytes.iter().filter(|&&b| owner(b) == name).count() as f64
            };
            for object in found["objects"].as_array().unwrap() {
                near(
                    &object["F_bytes"],
                    inside(object),
                    &format!("{what}, {}", object["object"]),
                );
            }
            // The heat map counts loads by the region of their first byte.
            let address = |v: &Value| {
                u64::from_str_radix(v.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
            };
            let heat = found["heat_map"]["rows"].as_array().unwrap();
            assert!(!heat.is_empty());
            for cells in heat {
                let range = address(&cells["start"])..=address(&cells["end"]);
                let starts = rows.iter().filter(|r| range.contains(&r.address)).count();
                let counted: f64 = cells["A"].as_array().unwrap().iter().map(number).sum();
                near(
                    &Value::from(counted),
                    starts as f64,
                    &format!("{what}, heat of {range:x?}"),
                );
            }
            // Nodes of the time tree: the two threads.
            let children = found["time_zoom"]["root"]["children"].as_array().unwrap();
            let touched: f64 = children
                .iter()
                .map(|c| number(&c["reuses"]) + number(&c["first_touches"]))
                .sum();
            near(&s["reuses"], touched - number(&s["first_touches"]), &what);
            // The subcommands.
            let found = analyze(&["reuse", trace, "--block", &block.to_string()]);
            check(&found["summary"], "reuses");
            let bound = analyze(&[
                "reuse",
                trace,
                "--block",
                &block.to_string(),
                "--relative-error",
                "0.02",
            ]);
            near(
                &bound["summary"]["interval_mean"],
                sum(|r| r.1) / reuses.len() as f64,
                &what,
            );
            let mean = number(&bound["summary"]["D_mean"]) / (sum(|r| r.0) / reuses.len() as f64);
            assert!((0.98..=1.0 + 1e-12).contains(&mean), "{what}: {mean}");
            let found = analyze(&["spectra", trace, "--granularity", &block.to_string()]);
            let of = |table: &str, key: &str| -> f64 {
                let rows = found[table].as_array().unwrap();
                rows.iter()
                    .filter(|r| r["where"] == "program")
                    .map(|r| number(&r[key]))
                    .sum()
            };
            near(
                &Value::from(of("signatures", "count")),
                reuses.len() as f64,
                &what,
            );
            near(
                &Value::from(of("footprints", "blocks")),
                distinct(shift),
                &what,
            );
        }
        // Windows of a few accesses, each analysed separately.
        let of_windows: Vec<_> = [8, 9]
            .iter()
            .flat_map(|&t| {
                of_thread(&rows, t)
                    .chunks(7)
                    .flat_map(|w| touches(w, 6))
                    .collect::<Vec<_>>()
            })
            .collect();
        let found = analyze(&["reuse", trace, "--windows", "7"]);
        near(
            &found["summary"]["first_touches"],
            of_windows.iter().filter(|t| t.1.is_none()).count() as f64,
            "windows",
        );
        near(
            &found["summary"]["D_mean"],
            of_windows
                .iter()
                .filter_map(|t| t.1)
                .map(|r| r.0)
                .sum::<u64>() as f64
                / of_windows.iter().filter(|t| t.1.is_some()).count() as f64,
            "windows",
        );
        // Both threads on one LRU stack, in the order of their times.
        let mut order: Vec<&SampleRow> = rows.iter().collect();
        order.sort_by_key(|r| (r.time_ns, r.thread));
        let together = touches(&order, 6);
        let found = analyze(&["reuse", trace, "--together"]);
        near(
            &found["summary"]["D_max"],
            together
                .iter()
                .filter_map(|t| t.1)
                .map(|r| r.0)
                .max()
                .unwrap() as f64,
            "together",
        );
        near(
            &found["summary"]["reuses"],
            together.iter().filter(|t| t.1.is_some()).count() as f64,
            "together",
        );
        // A cache of one set, shared by both threads: an access hits if all its lines are among the
        // most recent.
        let ways = 2048u64;
        let found = analyze(&[
            "cache",
            trace,
            "--models",
            "--level",
            &format!("{}:{ways}", ways * 64),
        ]);
        let mut recent: Vec<u64> = Vec::new();
        let mut hits = 0;
        for r in &order {
            let mut hit = true;
            for line in r.address >> 6..=(r.address + u64::from(r.size) - 1) >> 6 {
                match recent.iter().rposition(|&l| l == line) {
                    Some(at) => {
                        recent.remove(at);
                    }
                    None => {
                        hit = false;
                        if recent.len() as u64 == ways {
                            recent.remove(0);
                        }
                    }
                }
                recent.push(line);
            }
            hits += u64::from(hit);
        }
        near(
            &found["levels"][0]["hit_rate_alone"],
            hits as f64 / rows.len() as f64,
            "cache",
        );
    }
}

/// Runs a command on a trace; gives up after `most`.
fn in_time(arguments: &[&str], most: Duration) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{arguments:?}: {status}");
            return;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} takes more than {most:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program copies 64 MiB by one instruction, a few times. Each block takes tens of nanoseconds.
/// Quadratic time in the number of blocks would take hours.
#[test]
fn every_command_takes_linear_time_for_accesses_of_64_mib() {
    const BYTES: u32 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let trace_of = |name: &str, bytes: u32| {
        let path = folder.path().join(name);
        let rows: Vec<SampleRow> = (0..12u64)
            .map(|i| match i % 3 {
                0 => row(i, 8, 0x7f00_0000_0011, bytes),
                1 => row(i, 8, 0x7f00_0000_0011 + u64::from(bytes) / 2, bytes),
                _ => row(i, 8, 0x7f00_0000_0011 + i * 4096, 8),
            })
            .collect();
        write_trace(
            &path,
            &manifest("full", &sidecar(16)),
            &sidecar(16),
            &[rows],
            50,
        );
        path.display().to_string()
    };
    let trace = trace_of("trace", BYTES);
    let (less, least) = (trace_of("less", BYTES / 8), trace_of("least", BYTES / 16));
    let commands: [&[&str]; 12] = [
        &[&trace],
        &[&trace, "--zoom"],
        &[&trace, "--objects", "--block", "4096"],
        &["reuse", &trace],
        &["reuse", &trace, "--relative-error", "0.01"],
        &["reuse", &trace, "--together"],
        &["reuse", &trace, "--rdx", "--period", "1", "--compare"],
        &["spectra", &trace],
        &["cache", &trace, "--level", "32K:8", "--level", "1M:16"],
        &["cache", &trace, "--models", "--misses", "--tlb", "64:4"],
        &["affinity", &trace],
        // In blocks of 8 bytes.
        &[
            "predict", "--train", &least, "--train", &less, "--test", &less,
        ],
    ];
    for arguments in commands {
        in_time(arguments, Duration::from_secs(200));
    }
}

/// Peak resident memory of a command, in bytes.
fn peak(command: &mut Command) -> u64 {
    #[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut status = 0;
    // SAFETY: zeros are a value of this plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the process is our own child, and the pointers are valid during the call.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (child.id() as i32, 0));
    usage.ru_maxrss as u64 * 1024
}

/// Pages of a row group that were read are released before the analysis ends.
#[test]
fn what_has_been_read_of_a_trace_is_let_go() {
    const PARTS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    write_trace(dir.path(), &manifest("full", &sidecar), &sidecar, &[], 1);
    let mut random = TestRandom(5);
    // Few lines, so that the state kept for them is small.
    let rows: Vec<SampleRow> = (0..1 << 20)
        .map(|seq| row(seq, 8, 0x7f00_0000_0000 + random.below(1 << 18), 8))
        .collect();
    let part = |number: u64| dir.path().join(format!("samples/part-{number:05}.parquet"));
    write_plain_part(&part(0), &rows, 1 << 17, Compression::UNCOMPRESSED);
    drop(rows);
    // Hard links to the same file: every mapping counts towards resident memory.
    (1..PARTS).for_each(|number| std::fs::hard_link(part(0), part(number)).unwrap());
    let trace = std::fs::metadata(part(0)).unwrap().len() * PARTS;
    for command in [
        &["reuse"][..],
        &["cache", "--level", "32K:8"],
        &["reuse", "--windows", "1000"],
    ] {
        let mut analyzer = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"));
        let peak = peak(
            analyzer
                .args(command)
                .arg(dir.path())
                .args(["--threads", "2"]),
        );
        assert!(
            peak < trace / 2,
            "{command:?}: {peak} bytes for a trace of {trace}"
        );
    }
}

/// A simulation of caches reads rows in slices: it never holds a row group as whole columns.
#[test]
fn a_simulation_of_caches_takes_little_memory() {
    const MAX_BYTES: u64 = 40 << 20;
    let dir = tempfile::tempdir().unwrap();
    let sidecar = sidecar(16);
    write_trace(dir.path(), &manifest("full", &sidecar), &sidecar, &[], 1);
    let mut random = TestRandom(5);
    let rows: Vec<SampleRow> = (0..1 << 20)
        .map(|seq| row(seq, 8, 0x7f00_0000_0000 + random.below(1 << 24), 8))
        .collect();
    let part = |number: u64| dir.path().join(format!("samples/part-{number:05}.parquet"));
    write_recorded_part(&part(0), &rows, 1 << 18, Compression::LZ4_RAW);
    drop(rows);
    (1..4).for_each(|number| std::fs::hard_link(part(0), part(number)).unwrap());
    for threads in ["1", "2"] {
        let mut analyzer = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"));
        analyzer
            .args(["cache", "--level", "32K:8", "--level", "1M:16"])
            .arg(dir.path())
            .args(["--threads", threads]);
        let peak = own_peak(&mut analyzer);
        assert!(
            peak > 0 && peak < MAX_BYTES,
            "{threads} threads: {peak} bytes"
        );
    }
}

/// The same as [`peak`], but sampled while the command runs: it excludes the memory that the child
/// shares with the test before `exec`.
fn own_peak(command: &mut Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut greatest = 0;
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success());
            return greatest << 10;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        // Before `exec`, the child has the name and memory of the test.
        let is_it = text.starts_with("Name:\tmgz-analyze");
        let peak = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|p| p.split_whitespace().next()?.parse().ok());
        greatest = greatest.max(peak.filter(|_| is_it).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
}
