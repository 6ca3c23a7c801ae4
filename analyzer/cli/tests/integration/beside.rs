//! `mgz-analyze cache --online` and `reuse --online`: rows on standard input, and a trace with the
//! rows that follow, compared with the trace that has all of them. `predict --online`: the beginning
//! of the rows decides.

use crate::common::{self, SampleRow, TestRandom};
use mgz_annotations_schema::manifest::SPILL_DIR;
use mgz_annotations_schema::row_stream::{Batch, RowCode, RowWriter};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const OPTIONS: [&[&str]; 9] = [
    &["cache", "--level", "1K:4", "--level", "8K:8", "--stores"],
    &[
        "cache",
        "--level",
        "1K:4:plru",
        "--level",
        "4K:4:random:inclusive",
        "--level",
        "16K:8:rrip",
    ],
    &[
        "cache",
        "--level",
        "512:2",
        "--level",
        "4K:8:exclusive",
        "--stores",
        "--shared-from",
        "1",
        "--tlb",
        "8:2",
    ],
    &[
        "cache",
        "--level",
        "1K:4:fifo:next-line",
        "--skip",
        "500",
        "--warm-up",
        "700",
        "--stores",
    ],
    &["reuse", "--no-objects"],
    &["reuse", "--no-objects", "--stores", "--bins", "linear"],
    &["reuse", "--no-objects", "--windows", "333", "--block", "8"],
    &[
        "reuse",
        "--no-objects",
        "--stores",
        "--relative-error",
        "0.1",
    ],
    &["reuse", "--no-objects", "--no-annotations"],
];

/// Rows of a thread, whose times rise from `begin`, unevenly.
fn thread(
    random: &mut TestRandom,
    process: u32,
    thread: u32,
    begin: u64,
    count: u64,
) -> Vec<SampleRow> {
    let mut time = begin;
    let row = |seq| {
        time += [0, 1, 2, 40][random.below(4) as usize] + 500 * u64::from(random.below(100) == 0);
        let site = random.below(8) as u32;
        SampleRow {
            process,
            thread,
            seq,
            // Numbers of samples have gaps.
            sample: thread + (seq / 1100) as u32,
            time_ns: time,
            ip: u64::from(site) * 4,
            site,
            address: 0x10_0000 + random.below(3000) * 8 + random.below(2) * 3,
            size: [1, 4, 8, 32][random.below(4) as usize],
            class: (site % 3) as u8,
            store: random.below(3) == 0,
            implied_const: random.below(3) as u16,
            ..SampleRow::default()
        }
    };
    (0..count).map(row).collect()
}

/// Rows of one sample; `codes` are those of the earlier rows.
fn batch(rows: &[SampleRow], codes: &mut Vec<RowCode>) -> Batch {
    let known = codes.len();
    let code = |row: &SampleRow| {
        let code = RowCode {
            module: row.module,
            site: row.site,
            class: row.class,
            store: row.store,
        };
        let found = codes.iter().position(|c| *c == code);
        found.unwrap_or_else(|| {
            codes.push(code);
            codes.len() - 1
        }) as u32
    };
    let code = rows.iter().map(code).collect();
    Batch {
        process: rows.first().map_or(0, |r| r.process),
        thread: rows.first().map_or(0, |r| r.thread),
        sample: rows.first().map_or(0, |r| r.sample),
        codes: codes[known..].to_vec(),
        code,
        address: rows.iter().map(|r| r.address).collect(),
        size: rows.iter().map(|r| r.size).collect(),
        implied: rows.iter().map(|r| r.implied_const).collect(),
        store: rows.iter().map(|r| r.store).collect(),
    }
}

fn analyse(trace: &Path, options: &[&str], input: Option<&[u8]>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"));
    command.args(options).args(["--format", "json"]);
    if input.is_some() {
        command.arg("--online");
    }
    command.arg(trace).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that refuses its input does not read it.
            let _ = pipe.write_all(input.unwrap_or_default());
        });
        child.wait_with_output().unwrap()
    })
}

fn write(folder: &Path, rows: &[SampleRow], group: usize) {
    let sidecar = common::sidecar(8);
    let manifest = common::manifest("full", &sidecar);
    common::write_trace(folder, &manifest, &sidecar, &[rows.to_vec()], group);
    assert!(!folder.join(SPILL_DIR).exists());
}

/// Threads of a run, and the number of rows of the first thread that ran before all other threads.
fn runs(random: &mut TestRandom) -> Vec<(Vec<Vec<SampleRow>>, usize)> {
    let first = |random: &mut TestRandom| thread(random, 50, 50, 1000, 3000);
    let mut out = Vec::new();
    // One thread: all rows are sent, or all but some.
    for sent in [3000, 2999, 1, 0] {
        out.push((vec![first(random)], sent));
    }
    // The ids of the other threads are above or below the first thread's. Process 7 stands for
    // reused ids.
    for ids in [
        &[(50, 51), (50, 60)][..],
        &[(60, 60), (7, 7)],
        &[(50, 3), (7, 9), (51, 51)],
    ] {
        let main = first(random);
        for sent in [1500, 1] {
            let begin = main[sent - 1].time_ns + 1;
            let mut threads = vec![main.clone()];
            for &(process, tid) in ids {
                let begin = begin + random.below(300);
                threads.push(thread(random, process, tid, begin, 900));
            }
            out.push((threads, sent));
        }
        // All rows of the first thread were sent.
        let begin = main[2999].time_ns + 1;
        let &(process, tid) = &ids[0];
        out.push((vec![main, thread(random, process, tid, begin, 700)], 3000));
    }
    out
}

#[test]
fn rows_before_a_trace_are_as_if_it_had_them() {
    let mut random = TestRandom(1);
    for (number, (threads, sent)) in runs(&mut random).into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = Vec::new();
        let mut writer = RowWriter::new(&mut stream).unwrap();
        let mut codes = Vec::new();
        for sample in threads[0][..sent].chunk_by(|a, b| a.sample == b.sample) {
            for rows in sample.chunks(700) {
                writer.batch(&batch(rows, &mut codes)).unwrap();
            }
        }
        writer.finish().unwrap();
        let (whole, rest) = (dir.path().join("whole"), dir.path().join("rest"));
        let sorted = |mut rows: Vec<SampleRow>| {
            rows.sort_by_key(|r| (r.process, r.thread, r.seq));
            rows
        };
        write(&whole, &sorted(threads.concat()), 512);
        let behind = [&threads[0][sent..], &threads[1..].concat()].concat();
        write(&rest, &sorted(behind), 300);
        for options in OPTIONS {
            let want = analyse(&whole, options, None);
            let got = analyse(&rest, options, Some(&stream));
            let context = || {
                format!(
                    "run {number}, {sent} sent, {options:?}: {}",
                    String::from_utf8_lossy(&got.stderr)
                )
            };
            assert!(want.status.success(), "{}", context());
            assert_eq!(got.status, want.status, "{}", context());
            assert!(got.stdout == want.stdout, "{}", context());
        }
    }
}

/// Threads take turns by the times of their rows, wherever row groups end.
#[test]
fn the_order_of_threads_does_not_depend_on_row_groups() {
    let mut random = TestRandom(2);
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<SampleRow> = (0..3)
        .flat_map(|n| thread(&mut random, 5, 5 + n, 1000 + u64::from(n) * 777, 2000))
        .collect();
    let analysed = [64, 999, 100_000].map(|group| {
        let folder = dir.path().join(group.to_string());
        write(&folder, &rows, group);
        let output = analyse(&folder, OPTIONS[0], None);
        assert!(output.status.success());
        output.stdout
    });
    assert!(analysed[0] == analysed[1] && analysed[1] == analysed[2]);
}

#[test]
fn streams_that_are_cut_off_or_of_no_use_are_told() {
    let mut random = TestRandom(3);
    let dir = tempfile::tempdir().unwrap();
    let rows = thread(&mut random, 5, 5, 1000, 200);
    let trace = dir.path().join("trace");
    write(&trace, &rows, 1000);
    let mut stream = Vec::new();
    let mut writer = RowWriter::new(&mut stream).unwrap();
    writer.batch(&batch(&rows, &mut Vec::new())).unwrap();
    writer.finish().unwrap();
    for input in [&[][..], &stream[..stream.len() - 4], b"not rows at all"] {
        let output = analyse(&trace, OPTIONS[0], Some(input));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("before it had sent all rows"), "{said}");
    }
    for options in [
        &["cache", "--level", "1K:4", "--misses"][..],
        &["cache", "--level", "1K:4", "--models"],
        &["cache", "--level", "32K:8:stride"],
        &["reuse"],
        &["reuse", "--no-objects", "--together"],
        &["reuse", "--no-objects", "--rdx"],
    ] {
        let output = analyse(&trace, options, Some(&stream));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--online cannot be used with"), "{said}");
    }
}

/// Passes over an array of `n` words.
fn passes(n: u64) -> Vec<SampleRow> {
    let row = |seq| SampleRow {
        process: 5,
        thread: 5,
        seq,
        time_ns: seq,
        address: 0x10_0000 + seq % n * 8,
        size: 8,
        class: 1,
        ..SampleRow::default()
    };
    (0..5 * n).map(row).collect()
}

#[test]
fn a_run_is_predicted_while_its_rows_come() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for n in [1000, 2000, 9000] {
        write(&at(&n.to_string()), &passes(n), 4096);
    }
    let model = at("model").to_str().unwrap().to_owned();
    let train = |from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mgz-analyze"));
        command.args(["predict", "--size-from", from, "--save", &model]);
        let output = command
            .arg("--train")
            .arg(at("1000"))
            .arg("--train")
            .arg(at("2000"))
            .output()
            .unwrap();
        assert!(output.status.success());
    };
    let stream = |rows: &[SampleRow]| {
        let mut stream = Vec::new();
        let mut writer = RowWriter::new(&mut stream).unwrap();
        let mut codes = Vec::new();
        for rows in rows.chunks(1000) {
            writer.batch(&batch(rows, &mut codes)).unwrap();
        }
        writer.finish().unwrap();
        stream
    };
    let options = ["predict", "--model", &model];
    train("sampling");
    let all = passes(9000);
    let got = analyse(&at("9000"), &options, Some(&stream(&all)));
    let text = String::from_utf8_lossy(&got.stderr).into_owned();
    assert!(got.status.success(), "{text}");
    let got: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    let begun = &got["beginnings"][0];
    assert_eq!(begun["size"], 8999.0);
    // The second pass shows the size, at the first word that is used a third time.
    assert!(begun["shown_after"].as_u64().unwrap() <= 18_001, "{begun}");
    assert_eq!(begun["A"], 19_000);
    // The same as from the trace.
    let want = analyse(&at("9000"), &options, None);
    let want: serde_json::Value = serde_json::from_slice(&want.stdout).unwrap();
    let shares = |document: &serde_json::Value| {
        let rows = document["histograms"].as_array().unwrap().iter();
        rows.map(|r| [&r["method"], &r["from"], &r["share"]].map(Clone::clone))
            .collect::<Vec<_>>()
    };
    let (got, want) = (shares(&got), shares(&want));
    assert!(!got.is_empty());
    assert!(
        got.iter()
            .all(|row| row[0] == "combined" && want.contains(row))
    );
    // Too few rows, and a model whose size no beginning shows.
    let refused = |rows: &[SampleRow], sentence: &str| {
        let output = analyse(&at("9000"), &options, Some(&stream(rows)));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(sentence), "{said}");
    };
    refused(&all[..9500], "does not show in this run");
    train("data");
    refused(&all, "train with --size-from sampling");
}
