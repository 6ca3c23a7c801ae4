//! The papers' models on traces that decide between alternatives: order of threads, private data,
//! sizes of unknown inputs, accidental pairs.

use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_lives, write_trace};
use crate::models::{json, rows, trace_of};

/// A thread's rows in bursts of 500, ten nanoseconds apart. A burst begins every millisecond.
fn bursts(addresses: &[u64], thread: u32, start: u64) -> Vec<SampleRow> {
    let mut rows = rows(addresses, thread, 0, 0);
    for (i, row) in rows.iter_mut().enumerate() {
        let i = i as u64;
        row.time_ns = start + i / 500 * 1_000_000 + i % 500 * 10;
    }
    rows
}

#[test]
fn recorded_order_means_recorded_times_in_every_row() {
    let folder = tempfile::tempdir().unwrap();
    // Each thread goes over 300 lines of its own; a cache of 512 lines has room for one of them.
    let lines = |base: u64| -> Vec<u64> { (0..4000).map(|i| base + i % 300 * 64).collect() };
    let (first, second) = (
        bursts(&lines(0x10_0000), 8, 0),
        bursts(&lines(0x90_0000), 9, 500_000),
    );
    let all = [first.clone(), second.clone()].concat();
    trace_of(folder.path(), "full", &all);
    let got = json(
        folder.path(),
        &["cache", "@", "--models", "--level", "32K:512"],
    );
    let level = &got["levels"][0];
    assert_eq!(level["order"], "recorded");
    assert_eq!(level["hit_rate_alone"], level["hit_rate_hierarchy"]);
    assert_eq!(level["hit_rate_sets"], level["hit_rate_hierarchy"]);
    // Distances by definition, in the order of the times.
    let mut ordered = all;
    ordered.sort_by_key(|r| r.time_ns);
    let mut recent: Vec<u64> = Vec::new();
    let (mut sum, mut reuses) = (0, 0);
    for row in &ordered {
        if let Some(at) = recent.iter().rposition(|&line| line == row.address) {
            sum += recent.len() - 1 - at;
            reuses += 1;
            recent.remove(at);
        }
        recent.push(row.address);
    }
    let got = json(folder.path(), &["reuse", "@", "--together"]);
    let mean = got["summary"]["D_mean"].as_f64().unwrap();
    let want = sum as f64 / f64::from(reuses);
    assert!((mean - want).abs() < 1e-9, "{mean} {want}");
}

#[test]
fn thread_local_storage_is_private_to_mimicked_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut sidecar = sidecar(10);
    sidecar.strings[1] = "main._omp_fn.0".into();
    // 64 KiB of thread-local storage. Every iteration may use all of it.
    let start = 0x7f00_0000_1000;
    let mut random = TestRandom(3);
    let addresses: Vec<u64> = (0..20_000)
        .map(|_| start + random.below(1024) * 64)
        .collect();
    let mut rows = rows(&addresses, 7, 10, 10);
    rows.iter_mut().for_each(|row| row.site = 6);
    // The caller's stack is above all other addresses.
    (rows[0].site, rows[0].address) = (0, 0x7fff_ffff_e000);
    write_trace(
        folder.path(),
        &manifest("full", &sidecar),
        &sidecar,
        &[rows],
        1000,
    );
    let rate = |wanted: f64| {
        let got = json(
            folder.path(),
            &["cache", "@", "--mimic", "4", "--level", "128K:16"],
        );
        let private = got["summary"]["private_share"].as_f64().unwrap();
        assert!((private - wanted).abs() < 0.01, "{private}");
        got["levels"][0]["hit_rate_alone"].as_f64().unwrap()
    };
    let shared = rate(0.0);
    write_lives(
        folder.path(),
        &[(
            start,
            65536 + 0x900,
            0,
            u64::MAX,
            1,
            "thread-local",
            "[thread-local storage]",
        )],
    );
    // Four blocks of 64 KiB do not fit into 128 KiB; one does.
    let private = rate(1.0);
    assert!(shared > 0.9 && private < 0.7, "{shared} {private}");
}

/// A list of `n` nodes in an array in random order, then five traversals.
fn list(n: u64, seed: u64) -> Vec<SampleRow> {
    let mut random = TestRandom(seed);
    let mut addresses = Vec::new();
    for i in (1..n).rev() {
        addresses.extend([0x10_0000 + i * 4, 0x10_0000 + random.below(i + 1) * 4]);
    }
    let node = |i: u64| 0x800_0000 + i % n * 64;
    addresses.extend((0..5 * n).flat_map(|i| [node(i), node(i) + 8]));
    rows(&addresses, 8, 0, 10)
}

#[test]
fn a_sampled_size_agrees_with_the_data_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |n: u64| {
        let trace = folder.path().join(n.to_string());
        trace_of(&trace, "full", &list(n, n));
        trace.to_str().unwrap().to_string()
    };
    let names = [500, 1000, 2000, 40_000].map(at);
    let words = names[..3].iter().flat_map(|t| ["--train", t.as_str()]);
    let mut words: Vec<&str> = ["predict"].into_iter().chain(words).collect();
    words.extend(["--test", &names[3], "--size-from", "sampling"]);
    let got = json(folder.path(), &words);
    for row in got["accuracy"].as_array().unwrap() {
        // Each node has two words.
        assert_eq!(row["size"], 79_999.0, "{row}");
    }
}

#[test]
fn a_place_that_is_near_everything_goes_with_nothing() {
    // Two words far apart are used together at long intervals, and a third one all the time.
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = Vec::new();
    for i in 0..500u64 {
        addresses.extend([0x10000, 0x90000, 0x50000]);
        let fillers = (0..100).flat_map(|k| [0x200_0000 + (i * 100 + k) * 64, 0x50000]);
        addresses.extend(fillers);
    }
    trace_of(folder.path(), "full", &rows(&addresses, 8, 0, 10));
    let got = json(folder.path(), &["affinity", "@", "--hot", "3"]);
    let best = &got["pairs"][0];
    let mut pair = ["address_x", "address_y"].map(|key| best[key].as_u64().unwrap());
    pair.sort_unstable();
    assert_eq!(pair, [0x10000, 0x90000]);
    let other = &got["pairs"][1];
    let by_chance = other["saved_by_chance"].as_f64().unwrap();
    assert!(
        by_chance > 0.9 * other["saved"].as_f64().unwrap(),
        "{other}"
    );
}

#[test]
fn bins_finer_than_what_is_counted_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let addresses: Vec<u64> = (0..30_000u64)
        .map(|i| 0x10_0000 + i % 10_000 * 64)
        .collect();
    trace_of(folder.path(), "full", &rows(&addresses, 8, 0, 10));
    let warnings = |width: &str| {
        let words = ["reuse", "@", "--bins", "linear", "--width", width];
        json(folder.path(), &words)["warnings"].to_string()
    };
    let told = warnings("1");
    assert!(told.contains("20000 of 20000 values"), "{told}");
    assert_eq!(warnings("2048"), "[]");
}
