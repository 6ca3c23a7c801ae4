//! `mgz-analyze cache` on synthetic traces: the streamed trace gives the same result as the
//! simulator on the same accesses in order.

use crate::analyze;
use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_lives, write_trace};
use mgz_models::cache::policy::Policy;
use mgz_models::cache::prefetch::Prefetch;
use mgz_models::cache::{Inclusion, LevelSpec, Shape, System};
use serde_json::Value;
use std::path::Path;

/// The JSON of `cache` with these words.
fn cache(folder: &Path, words: &str) -> Value {
    let mut all = vec!["cache", folder.to_str().unwrap(), "--format", "json"];
    all.extend(words.split_whitespace());
    let output = analyze(&all);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(folder: &Path, rows: &[SampleRow]) {
    let sidecar = sidecar(10);
    let manifest = manifest("full", &sidecar);
    // Many row groups, which do not end where threads do.
    write_trace(folder, &manifest, &sidecar, &[rows.to_vec()], 700);
}

/// Rows of a thread at even intervals.
fn rows(thread: u32, start: u64, step: u64, accesses: &[(u64, u32, bool)]) -> Vec<SampleRow> {
    let row = |(i, &(address, size, store)): (usize, &(u64, u32, bool))| SampleRow {
        process: 7,
        thread,
        seq: i as u64,
        time_ns: start + i as u64 * step,
        site: (i % 10) as u32,
        address,
        size,
        class: 2,
        store,
        ..SampleRow::default()
    };
    accesses.iter().enumerate().map(row).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {row}"))
}

#[test]
fn threads_are_streamed_in_the_order_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = TestRandom(11);
    let mut all = Vec::new();
    // The third has no loads, the fourth begins after the others have ended. No two rows have the
    // same time.
    for (thread, start, step, length) in [
        (8, 0, 8, 3000),
        (9, 1, 12, 2500),
        (10, 2, 32, 400),
        (11, 90_003, 4, 600),
    ] {
        let accesses: Vec<(u64, u32, bool)> = (0..length)
            .map(|_| {
                let size = [4, 8, 100][random.below(3) as usize];
                (
                    0x10000 + random.below(6000) * 4,
                    size,
                    thread == 10 || random.below(3) == 0,
                )
            })
            .collect();
        all.extend(rows(thread, start, step, &accesses));
    }
    write(folder.path(), &all);
    let words = "--level 1K:2:plru:next-line --level 4K:4:exclusive:rrip:stride --level 16K:8:inclusive:fifo --shared-from 3";
    let shape = |size, ways| Shape::new(size, ways, 64).unwrap();
    let level = |shape, policy, inclusion, next_line, stride| LevelSpec {
        shape,
        policy,
        inclusion,
        prefetch: Prefetch { next_line, stride },
    };
    let levels = [
        level(
            shape(1 << 10, 2),
            Policy::Plru,
            Inclusion::NonInclusive,
            true,
            false,
        ),
        level(
            shape(4 << 10, 4),
            Policy::Rrip,
            Inclusion::Exclusive,
            false,
            true,
        ),
        level(
            shape(16 << 10, 8),
            Policy::Fifo,
            Inclusion::Inclusive,
            false,
            false,
        ),
    ];
    let mut order: Vec<&SampleRow> = all.iter().collect();
    order.sort_by_key(|r| (r.time_ns, r.thread));
    for (skip, warm) in [(0, 0), (1000, 777)] {
        let mut system = System::new(&levels, 2, 4).unwrap();
        let mut counted = 0;
        for (i, row) in order.iter().enumerate() {
            system.count(i >= skip + warm);
            counted += u64::from(i >= skip + warm);
            if i >= skip {
                let core = row.thread as usize - 8;
                system.access(core, row.address, row.size, row.store, row.site);
            }
        }
        let got = cache(
            folder.path(),
            &format!("{words} --stores --skip {skip} --warm-up {warm}"),
        );
        let summed = number(&got["summary"], "loads") + number(&got["summary"], "stores");
        assert_eq!(summed as u64, counted);
        for (row, seen) in got["levels"].as_array().unwrap().iter().zip(system.seen()) {
            for (key, count) in [
                ("load_misses", seen.load_misses),
                ("store_misses", seen.store_misses),
                ("write_backs", seen.write_backs),
            ] {
                assert_eq!(number(row, key) as u64, count, "{key} {row}");
            }
        }
        let (first, second) = (system.seen()[0], system.seen()[1]);
        assert_eq!(
            number(&got["levels"][0], "prefetches") as u64,
            first.prefetches
        );
        assert_eq!(
            number(&got["levels"][1], "useful_prefetches") as u64,
            second.useful_prefetches
        );
        assert!(first.prefetches > 100 && first.back_invalidations > 100);
        let lines = system.shared_lines();
        let sum: u64 = lines.iter().map(|l| l.1.false_misses).sum();
        assert_eq!(number(&got["summary"], "false_sharing_misses") as u64, sum);
        assert_eq!(got["sharing"].as_array().unwrap().len(), lines.len());
        assert!(sum > 10);
    }
    // Loads alone cause no write-backs and no coherence misses.
    let got = cache(folder.path(), words);
    assert_eq!(number(&got["summary"], "stores"), 0.0);
    assert!(got["levels"][0]["write_backs"].is_null() && got["sharing"].is_null());
}

#[test]
fn denominators_are_named_apart() {
    let folder = tempfile::tempdir().unwrap();
    // 100 lines, each loaded twice in a row; every other row implies three Constant loads.
    let accesses: Vec<(u64, u32, bool)> =
        (0..200).map(|i| (0x10000 + i / 2 * 64, 8, false)).collect();
    let mut all = rows(8, 0, 10, &accesses);
    all.iter_mut().step_by(2).for_each(|r| r.implied_const = 3);
    write(folder.path(), &all);
    let got = cache(folder.path(), "--level 64K:8 --stack-reads 500");
    let level = &got["levels"][0];
    assert_eq!(number(level, "hit_rate_loads"), 0.5);
    assert_eq!(number(level, "hit_rate_explicit_loads"), 0.8);
    assert_eq!(number(level, "hit_rate_all_reads"), 0.9);
    let unknown = cache(folder.path(), "--level 64K:8");
    assert_eq!(unknown["levels"][0]["hit_rate_all_reads"], Value::Null);
    assert_eq!(unknown["summary"]["stack_reads"], Value::Null);
    // Models are computed only on request.
    assert_eq!(unknown["levels"][0]["hit_rate_model"], Value::Null);
    assert!(unknown["pieces"].is_null() && unknown["ways"].is_null());
    assert!(
        number(
            &cache(folder.path(), "--level 64K:8 --models")["levels"][0],
            "hit_rate_model"
        ) > 0.0
    );
    // Skipped accesses imply no Constant loads.
    let got = cache(folder.path(), "--level 64K:8 --skip 100 --warm-up 50");
    assert_eq!(number(&got["summary"], "A_const"), 75.0);
    assert_eq!(number(&got["summary"], "A"), 200.0);
}

#[test]
fn misses_have_a_place_and_some_are_foreseeable() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = TestRandom(3);
    let mut all = rows(8, 0, 10, &[(0, 8, false); 4000]);
    for (i, row) in all.iter_mut().enumerate() {
        // Site 0 walks through an array, site 5 loads from random addresses.
        (row.site, row.address) = match i % 2 {
            0 => (0, 0x10_0000 + i as u64 / 2 * 128),
            _ => (5, 0x1000_0000 + random.below(1 << 20) * 64),
        };
    }
    write(folder.path(), &all);
    write_lives(
        folder.path(),
        &[
            (0x10_0000, 1 << 20, 0, u64::MAX, 1, "heap", "array"),
            (0x1000_0000, 64 << 20, 0, u64::MAX, 2, "heap", "table"),
        ],
    );
    let got = cache(
        folder.path(),
        "--level 8K:8 --level 16K:8 --misses --tlb 4:4:4K --tlb 64:4",
    );
    let lines = got["misses_lines"].as_array().unwrap();
    let total: f64 = lines.iter().map(|r| number(r, "misses_2")).sum();
    assert_eq!(total, number(&got["levels"][1], "misses"));
    assert_eq!(total, number(&got["summary"], "misses_last"));
    let of = |name: &str| {
        let objects = got["misses_objects"].as_array().unwrap();
        objects
            .iter()
            .find(|r| r["object"] == name)
            .unwrap()
            .clone()
    };
    let (array, table) = (of("array"), of("table"));
    assert_eq!(number(&array, "misses_1"), 2000.0);
    assert!(number(&array, "prefetchable_stride") > 0.95, "{array}");
    assert!(number(&table, "prefetchable") < 0.05, "{table}");
    // The walk touches 62.5 pages of 4 KiB; one of 2 MiB has it.
    let tlb = got["tlb"].as_array().unwrap();
    let of = |page: u64, level: u64| {
        let row = tlb
            .iter()
            .find(|r| r["page"] == page && r["level"] == level);
        row.map(|r| number(r, "misses"))
    };
    assert_eq!(tlb.len(), 3);
    assert!(of(4096, 1).unwrap() > 2000.0 && of(4096, 2).unwrap() > 1900.0);
    assert!(of(2 << 20, 1).unwrap() <= 33.0, "{tlb:?}");
}

#[test]
fn false_sharing_is_found_in_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let counter =
        |address| -> Vec<(u64, u32, bool)> { (0..20).map(|i| (address, 8, i % 2 == 1)).collect() };
    // Two threads use two counters in one line: each loads and stores in turn.
    let mut all = Vec::new();
    for (thread, address) in [(8, 0x1000), (9, 0x1008)] {
        let mut own = rows(thread, 0, 1, &counter(address));
        for row in &mut own {
            row.time_ns = row.seq / 2 * 100 + u64::from(thread - 8) * 50 + row.seq % 2;
            row.sample = row.seq as u32 / 2;
        }
        all.extend(own);
    }
    write(folder.path(), &all);
    let got = cache(folder.path(), "--level 32K:8 --level 1M:16 --stores");
    let line = &got["sharing"][0];
    assert_eq!(
        (
            number(line, "address"),
            number(line, "invalidations"),
            number(line, "false_sharing_misses"),
            number(line, "true_sharing_misses")
        ),
        (4096.0, 19.0, 18.0, 0.0)
    );
    // Loads alone invalidate no other cache.
    assert!(cache(folder.path(), "--level 32K:8 --level 1M:16")["sharing"].is_null());
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &rows(8, 0, 1, &[(0x1000, 8, false); 10]));
    let trace = folder.path().to_str().unwrap();
    for (words, status, part) in [
        ("--level 32K:8:mru", 2, "rrip"),
        ("--level 48K:12:plru", 2, "power of two"),
        ("--level 32K:8:inclusive", 1, "in front"),
        ("--level 32K:8:128 --level 1M:8", 1, "cannot lie behind"),
        (
            "--level 32K:8:stride --turns round-robin",
            1,
            "recorded order",
        ),
        ("--level 32K:8 --tlb 64:4:8K", 2, "4K or 2M"),
        ("--level 32K:8 --skip 9 --warm-up 1", 1, "leave none"),
        (
            "--level 32K:8 --skip 9 --turns round-robin",
            2,
            "cannot be used",
        ),
    ] {
        let mut all = vec!["cache", trace];
        all.extend(words.split_whitespace());
        let output = analyze(&all);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
    }
}
