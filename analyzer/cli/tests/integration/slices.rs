//! `mgz-analyze cache` reads rows in slices and merges threads by their times. With `--misses` it
//! reads whole row groups: both have to see the same accesses in the same order.

use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_recorded_part, write_trace};
use parquet::basic::{Compression, ZstdLevel};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const LEVELS: [&str; 6] = [
    "--level",
    "1K:2",
    "--level",
    "8K:4:random",
    "--shared-from",
    "2",
];

fn cache(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mgz-analyze"))
        .args(["cache", "--format", "json"])
        .args(LEVELS)
        .args(more)
        .arg(folder)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Rows of a thread, some at the same time as those of others.
fn thread(random: &mut TestRandom, number: u32, count: u64) -> Vec<SampleRow> {
    let mut time = 5_000 + random.below(3 * count + 1);
    let row = |seq| {
        time += [0, 1, 3, 3][random.below(4) as usize] + 900 * u64::from(random.below(50) == 0);
        SampleRow {
            process: 40 + number % 2,
            thread: 50 + number,
            seq,
            time_ns: time,
            site: random.below(8) as u32,
            address: 0x10_0000 + random.below(5000) * 8,
            size: [1, 8, 32][random.below(3) as usize],
            class: 2,
            // One thread has only stores.
            store: number == 3 || random.below(4) == 0,
            implied_const: random.below(3) as u16,
            ..SampleRow::default()
        }
    };
    (0..count).map(row).collect()
}

/// A trace as the recorder writes it.
fn write(folder: &Path, rows: &[SampleRow], group: usize, compression: Compression) {
    let sidecar = sidecar(8);
    write_trace(folder, &manifest("full", &sidecar), &sidecar, &[], group);
    let part = folder.join("samples/part-00000.parquet");
    write_recorded_part(&part, rows, group, compression);
}

/// The rows of some threads, in the order of a trace.
fn threads(random: &mut TestRandom, counts: &[u64]) -> Vec<SampleRow> {
    let mut rows: Vec<SampleRow> = (0..)
        .zip(counts)
        .flat_map(|(number, &count)| thread(random, number, count))
        .collect();
    rows.sort_by_key(|r| (r.process, r.thread, r.seq));
    rows
}

#[test]
fn slices_are_the_rows_in_the_order_of_their_times() {
    let mut random = TestRandom(5);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    // One thread; threads whose rows are many pages, or few; more threads than can each have a full
    // slice.
    for counts in [vec![90_000], vec![70_000, 3, 40_000, 900], vec![400; 150]] {
        let rows = threads(&mut random, &counts);
        for (group, compression) in [
            (777, Compression::LZ4_RAW),
            (40_000, zstd),
            (200_000, Compression::UNCOMPRESSED),
        ] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &rows, group, compression);
            for more in [
                &["--stores"][..],
                &[],
                &["--skip", "9000", "--stores", "--threads", "1"],
            ] {
                let sliced = json(&cache(folder.path(), more));
                let whole = json(&cache(folder.path(), &[more, &["--misses"]].concat()));
                let context = format!("{} threads, groups of {group}, {more:?}", counts.len());
                for key in ["levels", "sharing"] {
                    assert!(sliced[key] == whole[key], "{key}: {context}");
                }
                // (The run with whole row groups also counts objects.)
                for (key, value) in sliced["summary"].as_object().unwrap() {
                    assert!(*value == whole["summary"][key], "{key}: {context}");
                }
                let threads = counts.len() as u64;
                let with_rows = threads - u64::from(threads > 3 && !more.contains(&"--stores"));
                assert!(
                    sliced["summary"]["threads"].as_u64() >= Some(with_rows),
                    "{context}"
                );
            }
        }
    }
}

/// For any damage, the rows read and the rows reported as skipped add up to all rows.
#[test]
fn damage_is_told_and_the_rest_is_read() {
    let mut random = TestRandom(6);
    let rows = threads(&mut random, &[50_000, 30_000, 200]);
    let folder = tempfile::tempdir().unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    write(folder.path(), &rows, 45_000, zstd);
    let part = folder.path().join("samples/part-00000.parquet");
    let sound = std::fs::read(&part).unwrap();
    let mut told = 0;
    for _ in 0..60 {
        let mut bytes = sound.clone();
        // The footer comes after the columns: without it nothing can be read.
        let at = random.below(sound.len() as u64 * 19 / 20) as usize;
        for byte in &mut bytes[at..][..50] {
            *byte = random.below(256) as u8;
        }
        std::fs::write(&part, bytes).unwrap();
        let output = cache(folder.path(), &["--stores"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        let Ok(found) = serde_json::from_slice::<Value>(&output.stdout) else {
            assert!(
                said.contains("no accesses") || said.contains("part is skipped"),
                "{said}"
            );
            continue;
        };
        let skipped: u64 = said
            .split(" rows are skipped")
            .filter_map(|text| text.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        told += u64::from(skipped > 0);
        assert_eq!(skipped > 0, output.status.code() == Some(1), "{said}");
        let read = found["summary"]["A"].as_u64().unwrap();
        assert_eq!(read + skipped, rows.len() as u64, "byte {at}: {said}");
    }
    assert!(told > 10, "damage was met {told} times");
}
