//! The subcommands on synthetic traces: the papers' worked examples, agreement with each other,
//! formats, refusals.

use crate::analyze;
use crate::common::{SampleRow, TestRandom, manifest, sidecar, write_trace};
use serde_json::Value;
use std::path::Path;

/// The JSON of a command that must succeed; `@` stands for the trace.
pub(crate) fn json(folder: &Path, arguments: &[&str]) -> Value {
    let trace = folder.to_str().unwrap();
    let mut all: Vec<&str> = arguments
        .iter()
        .map(|a| if *a == "@" { trace } else { a })
        .collect();
    all.extend(["--format", "json"]);
    let output = analyze(&all);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Message of a command that must fail.
fn refusal(arguments: &[&str], status: i32) -> String {
    let output = analyze(arguments);
    let text = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

pub(crate) fn rows(addresses: &[u64], thread: u32, start: u64, step: u64) -> Vec<SampleRow> {
    addresses
        .iter()
        .enumerate()
        .map(|(i, &address)| SampleRow {
            process: 7,
            thread,
            seq: i as u64,
            time_ns: start + i as u64 * step,
            site: (i % 10) as u32,
            address,
            size: 8,
            class: 2,
            ..SampleRow::default()
        })
        .collect()
}

pub(crate) fn trace_of(folder: &Path, mode: &str, rows: &[SampleRow]) {
    let sidecar = sidecar(10);
    write_trace(
        folder,
        &manifest(mode, &sidecar),
        &sidecar,
        &[rows.to_vec()],
        1000,
    );
}

fn letters(text: &str) -> Vec<u64> {
    text.bytes()
        .map(|b| 0x10000 + u64::from(b - b'a') * 64)
        .collect()
}

fn summary(document: &Value, key: &str) -> f64 {
    document["summary"][key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {}", document["summary"]))
}

#[test]
fn reuse_of_barai_figure_1_and_zhong_figure_1() {
    let folder = tempfile::tempdir().unwrap();
    trace_of(
        &folder.path().join("b"),
        "full",
        &rows(&letters("abacbdda"), 8, 0, 10),
    );
    let got = json(&folder.path().join("b"), &["reuse", "@", "--cache", "192"]);
    assert_eq!(
        (
            summary(&got, "reuses"),
            summary(&got, "first_touches"),
            summary(&got, "D_max")
        ),
        (4.0, 4.0, 3.0)
    );
    // "50% of memory references will cause a compulsory cache miss. If we consider that cache size
    // is 3 then 13% … a capacity cache miss."
    let ratio = got["miss_ratios"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["blocks"] == 3)
        .unwrap();
    assert_eq!(ratio["miss_ratio"], 0.625);
    // Zhong's example trace: a b c a a c b, distances ∞ ∞ ∞ 2 0 1 2: a quarter at 0, a quarter at
    // 1, half at 2.
    trace_of(
        &folder.path().join("z"),
        "full",
        &rows(&letters("abcaacb"), 8, 0, 10),
    );
    let got = json(&folder.path().join("z"), &["reuse", "@"]);
    let shares: Vec<f64> = got["distances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["share"].as_f64().unwrap())
        .collect();
    assert_eq!(shares, [0.25, 0.25, 0.5]);
    assert_eq!(got["reference"].as_array().unwrap().len(), 1000);
}

/// Empty bins have no mean, greatest distances are exact in every table, and samples do not show
/// that unseen blocks do not exist.
#[test]
fn nothing_is_made_up_where_nothing_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    // 300 blocks, twice, each touched twice in a row: distances are 0 and 299.
    let addresses: Vec<u64> = (0..1200u64).map(|i| 0x10000 + (i / 2 % 300) * 64).collect();
    trace_of(folder.path(), "full", &rows(&addresses, 1, 0, 10));
    let got = json(folder.path(), &["reuse", "@"]);
    let bins = got["distances"].as_array().unwrap();
    assert!(bins.len() > 5);
    for bin in bins {
        assert_eq!(bin["count"] == 0.0, bin["mean"].is_null(), "{bin}");
    }
    assert_eq!(summary(&got, "D_max"), 299.0);
    let functions = got["functions"].as_array().unwrap();
    assert!(
        !functions.is_empty() && functions.iter().all(|f| f["D_max"] == 299),
        "{functions:?}"
    );
    let sampled = json(folder.path(), &["reuse", "@", "--rdx", "--period", "20"]);
    let samples = summary(&sampled, "samples");
    for bin in sampled["intervals"].as_array().unwrap() {
        assert!(
            bin["share_hi"].as_f64().unwrap() >= 1.0 - 0.025f64.powf(1.0 / samples) - 1e-12,
            "{bin}"
        );
    }
}

#[test]
fn approximate_distances_stay_within_their_bound_of_the_exact_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = TestRandom(3);
    let addresses: Vec<u64> = (0..60_000)
        .map(|_| {
            let r = random.below(3000);
            0x10000 + r * random.below(3000) / 3000 * 64
        })
        .collect();
    trace_of(folder.path(), "full", &rows(&addresses, 8, 0, 10));
    let exact = json(folder.path(), &["reuse", "@"]);
    for (arguments, least) in [
        (vec!["reuse", "@", "--relative-error", "0.01"], 0.99),
        (vec!["reuse", "@", "--relative-error", "0.2"], 0.8),
    ] {
        let got = json(folder.path(), &arguments);
        assert_eq!(got["summary"]["reuses"], exact["summary"]["reuses"]);
        let ratio = summary(&got, "D_mean") / summary(&exact, "D_mean");
        assert!((least..=1.0).contains(&ratio), "{ratio}");
        assert_eq!(got["intervals"], exact["intervals"]);
    }
    let got = json(
        folder.path(),
        &[
            "reuse",
            "@",
            "--absolute-error",
            "50",
            "--exact-below",
            "100",
        ],
    );
    assert!(
        summary(&exact, "D_mean") - summary(&got, "D_mean") <= 50.0
            && summary(&got, "tree_nodes") > 0.0
    );
    // With windows, no interval exceeds a window.
    let got = json(folder.path(), &["reuse", "@", "--windows", "500"]);
    assert_eq!(summary(&got, "windows"), 120.0);
    assert!(summary(&got, "interval_max") < 500.0);
    // The functions' reuses add up to those of the whole.
    let sum: u64 = exact["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["reuses"].as_u64().unwrap())
        .sum();
    assert_eq!(Some(sum), exact["summary"]["reuses"].as_u64());
}

#[test]
fn spectra_of_cabrera_figure_1() {
    // a b c a a, on one page and on separate pages: "if references a, b, and c all reside on the
    // same 4KiB data block … 0 for all references".
    let folder = tempfile::tempdir().unwrap();
    for (name, spread, distances) in [("one", 64u64, [1.0, 1.0]), ("three", 4096, [0.5, 0.5])] {
        let addresses: Vec<u64> = "abcaa"
            .bytes()
            .map(|b| 0x100_0000 + u64::from(b - b'a') * spread * 4)
            .collect();
        let path = folder.path().join(name);
        trace_of(&path, "full", &rows(&addresses, 8, 0, 10));
        let got = json(&path, &["spectra", "@", "--granularity", "64,4K"]);
        let first = |granularity: u64| {
            got["signatures"]
                .as_array()
                .unwrap()
                .iter()
                .find(|r| r["where"] == "program" && r["granularity"] == granularity)
                .unwrap()["share"]
                .as_f64()
                .unwrap()
        };
        // Distances 2 and 0 are both in the bin [0,4).
        assert_eq!((first(64), first(4096)), (1.0, 1.0), "{distances:?}");
        let pages = got["footprints"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["where"] == "program" && r["granularity"] == 4096)
            .unwrap();
        assert_eq!(pages["blocks"], if name == "one" { 1 } else { 3 });
    }
    // Equation 5: three blocks of 2 MiB are 6 MiB.
    let addresses: Vec<u64> = "abcaa"
        .bytes()
        .map(|b| 0x4000_0000 + u64::from(b - b'a') * (2 << 20))
        .collect();
    let path = folder.path().join("huge");
    trace_of(&path, "full", &rows(&addresses, 8, 0, 10));
    let got = json(&path, &["spectra", "@"]);
    let huge = got["footprints"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["where"] == "program" && r["granularity"] == 2 << 20)
        .unwrap();
    assert_eq!(huge["bytes"], 6 << 20);
    assert_eq!(
        got["emd"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r["where"] == "program")
            .count(),
        2
    );
}

#[test]
fn spectra_of_intervals_and_functions_add_up_to_the_programs() {
    // First half: repeated accesses to one page. Second half: a new page with each access.
    let folder = tempfile::tempdir().unwrap();
    let near = (0..512u64).map(|i| 0x100_0000 + i % 64 * 64);
    let far = (0..512u64).map(|i| 0x4000_0000 + i % 256 * 4096);
    let addresses: Vec<u64> = near.chain(far).collect();
    let path = folder.path().join("halves");
    let all = rows(&addresses, 8, 0, 10);
    let sidecar = sidecar(10);
    let mut manifest = manifest("full", &sidecar);
    write_trace(&path, &manifest, &sidecar, std::slice::from_ref(&all), 100);
    let said = refusal(&["spectra", path.to_str().unwrap(), "--intervals", "2"], 1);
    assert!(
        said.contains("does not have the number of rows of each thread"),
        "{said}"
    );
    manifest.threads = vec![mgz_annotations_schema::manifest::Thread {
        process: 7,
        thread: 8,
        rows: all.len() as u64,
        ..Default::default()
    }];
    write_trace(&path, &manifest, &sidecar, &[all], 100);
    let got = json(&path, &["spectra", "@", "--functions", "--intervals", "2"]);
    let cell = |table: &str, place: &str, granularity: u64, key: &str| -> f64 {
        let all = got[table].as_array().unwrap().iter();
        all.filter(|r| {
            r["where"].as_str().unwrap().starts_with(place) && r["granularity"] == granularity
        })
        .map(|r| r[key].as_f64().unwrap())
        .sum()
    };
    for size in [64, 4096, 2 << 20] {
        let whole = cell("signatures", "program", size, "count");
        assert_eq!(cell("signatures", "interval", size, "count"), whole);
        assert_eq!(cell("signatures", "function", size, "count"), whole);
    }
    assert_eq!(cell("footprints", "interval 0", 64, "blocks"), 64.0);
    assert_eq!(cell("footprints", "interval 0", 4096, "blocks"), 1.0);
    assert_eq!(cell("footprints", "interval 1", 64, "blocks"), 256.0);
    assert_eq!(cell("footprints", "interval 1", 4096, "blocks"), 256.0);
    // Functions are counted over both intervals.
    assert!(cell("footprints", "function", 4096, "blocks") >= 257.0);
    // The advice mentions only requested parts.
    let plain = json(&path, &["spectra", "@"]);
    assert!(!plain["advice"].to_string().contains("interval"));
}

#[test]
fn cache_model_and_simulation_agree_on_random_accesses_and_shared_levels_see_all_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = TestRandom(9);
    let addresses: Vec<u64> = (0..40_000)
        .map(|_| 0x10000 + random.below(2000) * 64)
        .collect();
    trace_of(
        &folder.path().join("one"),
        "full",
        &rows(&addresses, 8, 0, 10),
    );
    let got = json(
        &folder.path().join("one"),
        &[
            "cache", "@", "--models", "--level", "16K:8", "--level", "64K:8",
        ],
    );
    for level in got["levels"].as_array().unwrap() {
        assert!(
            level["difference_points"].as_f64().unwrap().abs() < 1.0,
            "{level}"
        );
        // With all sets followed, the estimate is that of the simulation.
        assert_eq!(
            (
                level["hit_rate_sets"].as_f64(),
                level["difference_points_sets"].as_f64()
            ),
            (level["hit_rate_alone"].as_f64(), Some(0.0)),
            "{level}"
        );
    }
    // For other numbers of ways with as many sets, the rates are those of simulated levels of that
    // shape.
    for (ways, size) in [(1, "8K:1"), (2, "16K:2"), (32, "256K:32")] {
        let row = got["ways"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["level"] == 2 && r["ways"] == ways)
            .unwrap();
        let level = &json(
            &folder.path().join("one"),
            &["cache", "@", "--models", "--level", size],
        )["levels"][0];
        assert_eq!(
            (&row["size"], &row["hit_rate_sets"]),
            (&level["size"], &level["hit_rate_alone"]),
            "{row}"
        );
    }
    // For a sample of the sets, the interval contains the exact rate, or nearly.
    let few = json(
        &folder.path().join("one"),
        &["cache", "@", "--level", "64K:8", "--sets", "32"],
    );
    let key = |k: &str| few["levels"][0][k].as_f64().unwrap();
    assert!(
        key("hit_rate_sets_lo") < key("hit_rate_sets")
            && key("hit_rate_sets") < key("hit_rate_sets_hi"),
        "{}",
        few["levels"][0]
    );
    assert!(
        (key("hit_rate_sets") - key("hit_rate_alone")).abs() < 0.01,
        "{}",
        few["levels"][0]
    );
    // A fully associative cache that holds all data: only first touches miss.
    let got = json(
        &folder.path().join("one"),
        &["cache", "@", "--models", "--level", "128K:2048"],
    );
    assert_eq!(got["levels"][0]["misses"], 2000);
    assert_eq!(
        got["levels"][0]["hit_rate_model"],
        got["levels"][0]["hit_rate_alone"]
    );
    // Pieces recombined with the weights of the same trace give the same rates.
    let one = folder.path().join("one");
    let got = json(
        &one,
        &[
            "cache",
            "@",
            "--level",
            "16K:8",
            "--weights-from",
            one.to_str().unwrap(),
        ],
    );
    let (whole, parts) = (
        got["levels"][0]["hit_rate_model"].as_f64().unwrap(),
        got["recombined"][0]["hit_rate_model"].as_f64().unwrap(),
    );
    assert!((whole - parts).abs() < 0.01, "{whole} {parts}");
    let (whole, parts) = (
        got["levels"][0]["hit_rate_alone"].as_f64().unwrap(),
        got["recombined"][0]["hit_rate_sets"].as_f64().unwrap(),
    );
    assert!((whole - parts).abs() < 1e-9, "{whole} {parts}");
    // Two threads read the same array in step. Alone, each has only first touches. The shared level
    // hits every second access.
    let array: Vec<u64> = (0..1000).map(|i| 0x10000 + i * 64).collect();
    let mut both = rows(&array, 8, 0, 10);
    both.extend(rows(&array, 9, 5, 10));
    trace_of(&folder.path().join("two"), "full", &both);
    let got = json(
        &folder.path().join("two"),
        &[
            "cache", "@", "--models", "--level", "4K:8", "--level", "32K:8",
        ],
    );
    let levels = got["levels"].as_array().unwrap();
    assert_eq!(
        (
            levels[0]["hit_rate_hierarchy"].as_f64(),
            levels[0]["shared"].as_bool()
        ),
        (Some(0.0), Some(false))
    );
    assert_eq!(
        (
            levels[1]["hit_rate_hierarchy"].as_f64(),
            levels[1]["shared"].as_bool()
        ),
        (Some(0.5), Some(true))
    );
    assert_eq!(levels[1]["hit_rate_model"], 0.5);
    let two = folder.path().join("two");
    assert_eq!(summary(&json(&two, &["reuse", "@"]), "reuses"), 0.0);
    let got = json(&two, &["reuse", "@", "--together"]);
    assert_eq!(
        (
            summary(&got, "reuses"),
            summary(&got, "D_max"),
            summary(&got, "A")
        ),
        (1000.0, 0.0, 2000.0)
    );
    // If they run one after the other, the shared level has lost the array's start: 1,000 lines do
    // not fit into 512.
    let got = json(
        &folder.path().join("two"),
        &[
            "cache",
            "@",
            "--level",
            "4K:8",
            "--level",
            "32K:512",
            "--turns",
            "sequential",
        ],
    );
    assert_eq!(got["levels"][1]["hit_rate_hierarchy"].as_f64(), Some(0.0));
}

/// Passes over n elements of 8 bytes, with a hot scalar.
fn passes(n: u64) -> Vec<SampleRow> {
    let addresses: Vec<u64> = (0..6 * n)
        .flat_map(|i| [0x10000 + i % n * 8, 0x8000])
        .collect();
    rows(&addresses, 8, 0, 10)
}

#[test]
fn prediction_extrapolates_and_refuses_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for (name, n) in [("a", 1000), ("b", 2000), ("c", 16_000)] {
        trace_of(&folder.path().join(name), "full", &passes(n));
    }
    let (a, b, c, model) = (at("a"), at("b"), at("c"), at("model"));
    for from in ["data", "sampling"] {
        let got = json(
            folder.path(),
            &[
                "predict",
                "--train",
                &a,
                "--train",
                &b,
                "--save",
                &model,
                "--test",
                &c,
                "--size-from",
                from,
            ],
        );
        assert_eq!(
            got["accuracy"].as_array().unwrap().last().unwrap()["method"],
            "combined"
        );
        for row in got["accuracy"].as_array().unwrap() {
            let (method, accuracy) = (
                row["method"].as_str().unwrap(),
                row["accuracy"].as_f64().unwrap(),
            );
            assert!(accuracy > 0.95, "{from} {method}: {row}");
            assert!(
                from == "data" || row["coverage"].as_f64().unwrap() > 0.5,
                "{row}"
            );
        }
    }
    // The beginning of a run gives the same histograms as the whole run, once it reveals the
    // sampled size.
    let whole = passes(16_000);
    let begun = at("begun");
    trace_of(Path::new(&begun), "full", &whole[..whole.len() * 3 / 4]);
    let histograms = |words: &[&str]| {
        let got = json(folder.path(), words);
        let rows = got["histograms"].as_array().unwrap().iter();
        let cut = |r: &Value| (r["method"].clone(), r["from"].clone(), r["share"].clone());
        rows.map(cut).collect::<Vec<_>>()
    };
    let from_begun = histograms(&["predict", "--model", &model, "--beginning", &begun]);
    let from_whole = histograms(&["predict", "--model", &model, "--test", &c]);
    assert!(!from_begun.is_empty());
    assert!(from_begun.iter().all(|row| from_whole.contains(row)));
    trace_of(Path::new(&begun), "full", &whole[..16_000]);
    let error = refusal(&["predict", "--model", &model, "--beginning", &begun], 1);
    assert!(error.contains("record more of the run"), "{error}");
    let got = json(
        folder.path(),
        &[
            "predict", "--model", &model, "--size", "50000", "--cache", "64K",
        ],
    );
    assert!(
        got["histograms"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["from"].as_f64() > Some(30_000.0))
    );
    // Without --cache: all sizes, down to the first touches.
    let got = json(
        folder.path(),
        &["predict", "--model", &model, "--size", "50000"],
    );
    let ratios: Vec<&Value> = got["miss_ratios"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["method"] == "combined")
        .collect();
    assert_eq!(
        (
            &ratios[0]["bytes"],
            ratios[0]["miss_ratio"].as_f64().unwrap() > 0.9
        ),
        (&Value::from(8), true)
    );
    assert!(
        ratios.len() > 15
            && ratios
                .windows(2)
                .all(|w| w[0]["miss_ratio"].as_f64() >= w[1]["miss_ratio"].as_f64()),
        "{ratios:?}"
    );
    let same = json(
        folder.path(),
        &["predict", "--train", &a, "--train", &a, "--size", "50"],
    );
    assert!(
        same["warnings"].to_string().contains("same distances"),
        "{}",
        same["warnings"]
    );
    // A different sidecar stands for a different program.
    let mut other = sidecar(10);
    other.id = [3; 16];
    write_trace(
        &folder.path().join("other"),
        &manifest("full", &other),
        &other,
        &[passes(1000)],
        1000,
    );
    assert!(
        refusal(&["predict", "--model", &model, "--test", &at("other")], 1)
            .contains("another program")
    );
    assert!(
        refusal(&["predict", "--train", &a, "--train", &at("other")], 1)
            .contains("another program")
    );
    assert!(refusal(&["predict", "--train", &a], 1).contains("at least two"));
    std::fs::write(folder.path().join("junk"), "{}").unwrap();
    assert!(
        refusal(&["predict", "--model", &at("junk"), "--size", "5"], 1).contains("not a model")
    );
    assert!(
        refusal(&["predict", "--model", &at("missing"), "--size", "5"], 1)
            .contains("cannot read the model")
    );
    // A damaged model gives an error or a result, never a panic.
    let whole = std::fs::read_to_string(folder.path().join("model")).unwrap();
    let (damaged, mut random) = (at("damaged"), TestRandom(17));
    for round in 0..60 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..1 + round % 4 {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = *b"0123456789-eE.,:[]{}\""
                .get(random.below(21) as usize)
                .unwrap();
        }
        if round % 5 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        std::fs::write(&damaged, bytes).unwrap();
        let output = analyze(&[
            "predict", "--model", &damaged, "--size", "1e30", "--cache", "1M",
        ]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1)) && !text.contains("panicked"),
            "{text}"
        );
    }
    trace_of(
        &folder.path().join("short"),
        "full",
        &rows(&letters("aba"), 8, 0, 10),
    );
    assert!(refusal(&["predict", "--train", &a, "--train", &at("short")], 1).contains("too short"));
}

#[test]
fn affinity_finds_what_is_used_together() {
    // a and b are far apart in memory but always used in turn, at long intervals. c is used alone.
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = Vec::new();
    for i in 0..500u64 {
        addresses.extend([0x10000, 0x90000]);
        addresses.extend((0..100).map(|k| 0x200_0000 + (i * 100 + k) * 64));
        addresses.push(0x50000);
        addresses.extend((0..100).map(|k| 0x400_0000 + (i * 100 + k) * 64));
    }
    trace_of(folder.path(), "full", &rows(&addresses, 8, 0, 10));
    let got = json(folder.path(), &["affinity", "@", "--hot", "3"]);
    let best = &got["pairs"][0];
    let mut pair = [
        best["address_x"].as_u64().unwrap(),
        best["address_y"].as_u64().unwrap(),
    ];
    pair.sort_unstable();
    assert_eq!(
        (pair, best["saved"].as_u64()),
        ([0x10000, 0x90000], Some(500))
    );
    assert_eq!(got["pairs"].as_array().unwrap().len(), 1);
    let (xy, yx) = (
        best["SA_xy"].as_f64().unwrap(),
        best["SA_yx"].as_f64().unwrap(),
    );
    assert!(xy == 1.0 && yx > 0.99 || yx == 1.0 && xy > 0.99);
    assert_eq!(got["matrix"].as_array().unwrap().len(), 9);
    let groups = got["groups"].as_array().unwrap();
    let of = |method: &str| -> Vec<&str> {
        let of = groups.iter().filter(|g| g["method"] == method);
        of.map(|g| g["places"].as_str().unwrap()).collect()
    };
    let number = |address: u64| {
        let places = got["places"].as_array().unwrap();
        places.iter().position(|p| p["address"] == address).unwrap()
    };
    let (a, b) = (number(0x10000), number(0x90000));
    assert_eq!(
        of("reference affinity"),
        [format!("{} {}", a.min(b), a.max(b))]
    );
    // All three have the same distances, so that k-distance alone does not distinguish c from the
    // others.
    assert_eq!(of("k-distance"), ["0 1 2"]);
    let got = json(folder.path(), &["affinity", "@", "--regions"]);
    assert!(got["places"].as_array().unwrap().len() >= 4);
}

/// Ten windows of 1,000 loads: the first function in seven, which walks over 100 words, and the
/// second one in three, which walks over 500.
fn two_phases() -> Vec<SampleRow> {
    let of = |i: u64| {
        let second = (3000..6000).contains(&i);
        SampleRow {
            process: 7,
            thread: 8,
            seq: i,
            time_ns: i * 10,
            site: if second { 7 + i % 2 } else { 1 + i % 2 } as u32,
            address: 0x10000 + i % if second { 500 } else { 100 } * 64,
            size: 8,
            class: if second { 2 } else { 1 },
            ..SampleRow::default()
        }
    };
    (0..10_000).map(of).collect()
}

#[test]
fn simpoints_are_the_phases_with_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    trace_of(&full, "full", &two_phases());
    let prefix = folder.path().join("app");
    let words = ["simpoints", "@", "--write", prefix.to_str().unwrap()];
    let got = json(&full, &words);
    assert_eq!(summary(&got, "windows"), 10.0);
    assert_eq!(summary(&got, "window_loads"), 1000.0);
    let points = got["simpoints"].as_array().unwrap();
    let of = |function: &str| {
        let point = points.iter().find(|p| p["function"] == function);
        point.unwrap_or_else(|| panic!("{function} in {points:?}"))
    };
    assert_eq!(points.len(), 2);
    for (function, weight, footprint, strided) in
        [("main", 0.7, 100, 1.0), ("helper", 0.3, 500, 0.0)]
    {
        let point = of(function);
        assert!((point["weight"].as_f64().unwrap() - weight).abs() < 1e-12);
        assert_eq!(point["windows"].as_f64().unwrap(), weight * 10.0);
        assert_eq!(point["F"], footprint);
        assert_eq!(point["F_64"], footprint);
        assert_eq!(point["strided_share"], strided);
        let window = point["window"].as_f64().unwrap();
        assert!((3.0..6.0).contains(&window) == (function == "helper"));
        assert!((point["from_s"].as_f64().unwrap() - window * 1e-5).abs() < 1e-12);
    }
    for row in got["reproduced"].as_array().unwrap() {
        assert_eq!(row["error"], 0.0, "{row}");
    }
    // The pair of files has the same numbers.
    let file = |end: &str| std::fs::read_to_string(prefix.with_extension(end)).unwrap();
    let lines = |key: &str| -> Vec<String> {
        let of = |p: &Value| match key {
            "weight" => format!("{:.6} {}", p[key].as_f64().unwrap(), p["simpoint"]),
            _ => format!("{} {}", p[key], p["simpoint"]),
        };
        points.iter().map(of).collect()
    };
    assert_eq!(file("simpts").lines().collect::<Vec<_>>(), lines("window"));
    assert_eq!(file("weights").lines().collect::<Vec<_>>(), lines("weight"));
    assert_eq!(json(&full, &words), got, "equal seeds give equal results");
    assert_eq!(
        summary(&json(&full, &["simpoints", "@", "--max", "1"]), "simpoints"),
        1.0
    );

    // Windows of a sampled trace are its samples.
    let ring = folder.path().join("ring");
    let sampled: Vec<SampleRow> = two_phases()
        .into_iter()
        .filter(|r| r.seq % 1000 < 100)
        .map(|r| SampleRow {
            sample: 20 + (r.seq / 1000) as u32,
            ..r
        })
        .collect();
    trace_of(&ring, "ring", &sampled);
    let got = json(&ring, &["simpoints", "@"]);
    let numbers: Vec<u64> = (got["windows"].as_array().unwrap().iter())
        .map(|w| w["window"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (20..30).collect::<Vec<_>>());
    assert_eq!(summary(&got, "simpoints"), 2.0);
    let text = refusal(&["simpoints", ring.to_str().unwrap(), "--window", "10"], 1);
    assert!(text.contains("windows of its own"), "{text}");
}

#[test]
fn rdx_estimates_what_exact_measurement_gives() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = TestRandom(11);
    let addresses: Vec<u64> = (0..200_000u64)
        .map(|i| {
            if i % 2 == 0 {
                0x10000 + i / 2 % 5000 * 64
            } else {
                0x100_0000 + random.below(300) * 64
            }
        })
        .collect();
    trace_of(folder.path(), "full", &rows(&addresses, 8, 0, 10));
    for watchpoints in ["1", "4"] {
        let got = json(
            folder.path(),
            &[
                "reuse",
                "@",
                "--rdx",
                "--compare",
                "--period",
                "50",
                "--watchpoints",
                watchpoints,
            ],
        );
        assert!(summary(&got, "S_time") > 0.9, "{}", got["summary"]);
        assert!(summary(&got, "S_hat_stack") > 0.85, "{}", got["summary"]);
        for row in got["intervals"].as_array().unwrap() {
            assert!(
                row["share_lo"].as_f64() <= row["share_hat"].as_f64()
                    && row["share_hat"].as_f64() <= row["share_hi"].as_f64()
            );
        }
    }
    // The same seed gives the same result.
    let once = |seed: &str| {
        json(
            folder.path(),
            &["reuse", "@", "--rdx", "--period", "500", "--seed", seed],
        )
    };
    assert_eq!(once("5"), once("5"));
    assert_ne!(once("5"), once("6"));
    let text = refusal(
        &[
            "reuse",
            folder.path().to_str().unwrap(),
            "--rdx",
            "--period",
            "100000000",
        ],
        1,
    );
    assert!(text.contains("smaller"), "{text}");
}

#[test]
fn sampled_traces_are_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    trace_of(
        folder.path(),
        "ring",
        &rows(&letters("abcabcabc"), 8, 0, 10),
    );
    let commands: [&[&str]; 6] = [
        &["reuse", path],
        &["reuse", path, "--rdx"],
        &["spectra", path],
        &["cache", path, "--level", "32K:8"],
        &["affinity", path],
        &["predict", "--train", path, "--train", path],
    ];
    for command in commands {
        let text = refusal(command, 1);
        assert!(
            text.contains("sampled (mode ring)") && text.contains("--mode full"),
            "{text}"
        );
    }
    // Distances inside windows are known.
    let got = json(folder.path(), &["reuse", "@", "--windows"]);
    assert_eq!(summary(&got, "reuses"), 6.0);
}

#[test]
fn bad_input_gets_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    trace_of(&full, "full", &rows(&letters("abcabc"), 8, 0, 10));
    let full = full.to_str().unwrap();
    let empty = folder.path().join("empty");
    trace_of(&empty, "full", &[]);
    let empty = empty.to_str().unwrap();
    let once = folder.path().join("once");
    trace_of(&once, "full", &rows(&letters("a"), 8, 0, 10));
    let once = once.to_str().unwrap();
    for (command, status, word) in [
        (vec!["cache", full, "--level", "1000:8"], 2, "multiple"),
        (vec!["cache", full, "--level", "32K:0"], 2, "0"),
        (
            vec!["cache", full, "--level", "1M:8", "--level", "32K:8"],
            1,
            "first level first",
        ),
        (
            vec!["cache", full, "--level", "32K:8", "--shared-from", "3"],
            1,
            "beyond",
        ),
        (
            vec!["cache", full, "--level", "32K:8", "--mimic", "4"],
            1,
            "OpenMP",
        ),
        (
            vec!["cache", full, "--level", "32K:8", "--mimic", "0"],
            2,
            "--mimic",
        ),
        (
            vec!["cache", full, "--level", "32K:8", "--sets", "2"],
            2,
            "--sets",
        ),
        (vec!["reuse", full, "--block", "48"], 2, "power of two"),
        (vec!["reuse", full, "--relative-error", "1.5"], 2, "below 1"),
        (
            vec!["reuse", full, "--bins", "log-linear", "--width", "100"],
            1,
            "power of two",
        ),
        (vec!["reuse", full, "--format", "csv"], 2, "-o DIR"),
        (vec!["reuse", empty], 1, "no accesses"),
        (vec!["spectra", empty], 1, "no accesses"),
        (vec!["cache", empty, "--level", "32K:8"], 1, "no accesses"),
        (vec!["affinity", empty], 1, "no accesses"),
        (vec!["simpoints", empty], 1, "no accesses"),
        (
            vec!["simpoints", full, "--window", "0"],
            2,
            "at least one load",
        ),
        (vec!["reuse", "/no/such/trace"], 1, "not a trace folder"),
        // Inputs that are too short to train a model, or to sample.
        (vec!["predict", "--train", full], 1, "two"),
        (
            vec![
                "predict", "--train", empty, "--train", empty, "--size", "100",
            ],
            1,
            "too short to learn from",
        ),
        (vec!["reuse", once, "--rdx"], 1, "smaller"),
    ] {
        let text = refusal(&command, status);
        assert!(text.contains(word), "{command:?}: {text}");
    }
}

#[test]
fn all_formats_have_the_same_tables() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    trace_of(&trace, "full", &passes(500));
    let trace = trace.to_str().unwrap();
    for command in ["reuse", "spectra", "affinity", "cache", "simpoints"] {
        let more: &[&str] = if command == "cache" {
            &["--level", "4K:4"]
        } else {
            &[]
        };
        let text = analyze(&[&[command, trace], more].concat());
        assert!(
            text.status.success() && text.stdout.len() > 200,
            "{command}"
        );
        let document = json(Path::new(trace), &[&[command, "@"], more].concat());
        assert_eq!(
            (&document["schema"], &document["command"]),
            (&Value::from("mgz-models-1"), &Value::from(command))
        );
        for (format, extension) in [("csv", "csv"), ("parquet", "parquet")] {
            let out = folder.path().join(format!("{command}-{format}"));
            let output = analyze(
                &[
                    &[
                        command,
                        trace,
                        "--format",
                        format,
                        "-o",
                        out.to_str().unwrap(),
                    ],
                    more,
                ]
                .concat(),
            );
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            for (key, rows) in document
                .as_object()
                .unwrap()
                .iter()
                .filter(|(k, v)| v.is_array() && *k != "warnings")
            {
                let file = out.join(format!("{key}.{extension}"));
                assert!(file.is_file(), "{}", file.display());
                if format == "csv" {
                    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
                    assert_eq!(lines, rows.as_array().unwrap().len() + 1, "{key}");
                }
            }
        }
    }
}

/// A sample of a watched run: number, value of the column `counts`, outcome, stepped loads and
/// stores, ns, counted loads and stores.
type Sample = (
    u64,
    &'static str,
    &'static str,
    [u64; 2],
    u64,
    Option<[u64; 2]>,
);

/// A trace of `mgz-record --mode watch`.
fn watch_trace(folder: &Path, samples: &[Sample], counted: bool) {
    use arrow_array::{
        ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
    };
    use std::sync::Arc;
    let sidecar = sidecar(10);
    let mut manifest = manifest("watch", &sidecar);
    (manifest.data, manifest.cpu_seconds, manifest.modules) = ("watch".into(), 1.0, Vec::new());
    manifest.backend_why = "nothing counts accesses on this machine".into();
    (
        manifest.totals.loads_executed,
        manifest.totals.accesses_executed,
    ) = (counted.then_some(1000), counted.then_some(1500));
    write_trace(folder, &manifest, &sidecar, &[], 10);
    let numbers = |of: &dyn Fn(&Sample) -> Option<u64>| {
        Arc::new(samples.iter().map(of).collect::<UInt64Array>()) as ArrayRef
    };
    let ids = || Arc::new(UInt32Array::from(vec![7; samples.len()])) as ArrayRef;
    let texts = |of: &dyn Fn(&Sample) -> &'static str| {
        Arc::new(samples.iter().map(|s| Some(of(s))).collect::<StringArray>()) as ArrayRef
    };
    let lines = || Arc::new(Int32Array::from(vec![3; samples.len()])) as ArrayRef;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("process", ids()),
        ("thread", ids()),
        ("sample", numbers(&|s| Some(s.0))),
        ("until", numbers(&|s| Some(s.0))),
        ("outcome", texts(&|s| s.2)),
        ("address", numbers(&|_| Some(0x1000))),
        (
            "write",
            Arc::new(BooleanArray::from(vec![false; samples.len()])),
        ),
        ("counts", texts(&|s| s.1)),
        ("stepped_loads", numbers(&|s| Some(s.3[0]))),
        ("stepped_stores", numbers(&|s| Some(s.3[1]))),
        ("cpu_ns", numbers(&|s| Some(s.4))),
        ("loads", numbers(&|s| s.5.map(|c| c[0]))),
        ("stores", numbers(&|s| s.5.map(|c| c[1]))),
        ("use_module", texts(&|_| "/bin/app")),
        ("use_function", texts(&|_| "take")),
        ("use_file", texts(&|_| "/src/app.c")),
        ("use_line", lines()),
        ("reuse_module", texts(&|_| "/bin/app")),
        (
            "reuse_function",
            texts(&|s| if s.1 == "loads" { "take" } else { "put" }),
        ),
        ("reuse_file", texts(&|_| "/src/app.c")),
        ("reuse_line", lines()),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(folder.join(mgz_annotations_schema::manifest::WATCH)).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Loads whose next access is a store after 5 loads and 2 stores, and whose next load comes after
/// 40 and 20; one store; one load that was given up.
fn watched_samples(counted: bool) -> Vec<Sample> {
    let count = |loads, stores| counted.then_some([loads, stores]);
    let mut out = Vec::new();
    for i in 0..40 {
        out.push((2 * i + 1, "accesses", "watched", [3, 2], 100, count(5, 2)));
        out.push((2 * i + 1, "loads", "watched", [3, 2], 900, count(40, 20)));
        out.push((2 * i + 2, "accesses", "near", [9, 1], 0, count(9, 1)));
    }
    out.push((1000, "loads", "crowded", [0, 0], 10, count(1, 1)));
    out.push((1001, "both", "near", [2, 0], 0, count(2, 0)));
    out
}

/// Every command directs the user of such a trace to its results.
#[test]
fn a_watched_run_is_shown_whatever_command_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watched");
    watch_trace(&path, &watched_samples(true), true);
    let trace = path.to_str().unwrap();
    let files = folder.path().join("files");
    let files = files.to_str().unwrap();
    for format in [
        &["--format", "table"][..],
        &["--format", "json"],
        &["--format", "parquet", "-o", files],
        &["--rows", "3"],
    ] {
        let with = |words: &[&str]| analyze(&[words, format].concat());
        let report = with(&["reuse", trace, "--rdx"]);
        assert!(report.status.success() && !report.stdout.is_empty());
        for words in [&[trace][..], &["reuse", trace]] {
            let shown = with(words);
            let said = String::from_utf8_lossy(&shown.stderr);
            assert_eq!(shown.status.code(), Some(0), "{said}");
            assert!(shown.stdout == report.stdout, "{words:?} {format:?}");
            let note = said.lines().next().unwrap();
            assert!(
                note.starts_with("mgz-analyze: note: ")
                    && note.contains(&format!("mgz-analyze reuse {trace} --rdx")),
                "{said}"
            );
            // The other messages are the same.
            assert_eq!(
                said.lines().count(),
                1 + String::from_utf8_lossy(&report.stderr).lines().count()
            );
        }
    }
    let part = folder.path().join("part");
    for words in [
        &[trace, "--zoom"][..],
        &[trace, "--objects"],
        &[trace, "--partial", part.to_str().unwrap()],
        &["reuse", trace, "--windows", "100"],
        &["reuse", trace, "--together"],
        &["reuse", trace, "--relative-error", "0.1"],
        &["spectra", trace],
        &["affinity", trace],
        &["cache", trace, "--level", "32K:8"],
        &["predict", "--train", trace, "--train", trace],
    ] {
        let said = refusal(words, 1);
        assert!(
            said.lines().count() == 1 && said.contains(&format!("mgz-analyze reuse {trace} --rdx")),
            "{words:?}: {said}"
        );
    }
    // A trace without reuses is refused with a message instead of empty tables.
    let empty = folder.path().join("empty");
    watch_trace(&empty, &[], true);
    let said = refusal(&[empty.to_str().unwrap()], 1);
    assert!(
        said.contains("no sampled load was reused (0 samples)"),
        "{said}"
    );
}

#[test]
fn a_watched_run_tells_of_loads_or_of_all_accesses() {
    let folder = tempfile::tempdir().unwrap();
    let counted = folder.path().join("counted");
    watch_trace(&counted, &watched_samples(true), true);
    let interval = |got: &Value| {
        let rows = got["intervals"].as_array().unwrap().clone();
        rows.iter()
            .filter(|b| b["share_hat"].as_f64().unwrap() > 0.1)
            .map(|b| {
                (
                    b["from"].as_f64().unwrap(),
                    (100.0 * b["share_hat"].as_f64().unwrap()).round(),
                )
            })
            .collect::<Vec<_>>()
    };
    let loads = json(&counted, &["reuse", "@", "--rdx"]);
    assert_eq!(
        (summary(&loads, "samples"), summary(&loads, "A_hat")),
        (42.0, 1000.0)
    );
    assert!(
        loads["warnings"].as_array().unwrap().iter().any(|w| w
            .as_str()
            .unwrap()
            .contains("1 of 42 samples were given up")),
        "{}",
        loads["warnings"]
    );
    // 40 loads apart.
    assert_eq!(interval(&loads), [(32.0, 98.0)]);
    let all = json(&counted, &["reuse", "@", "--rdx", "--stores"]);
    assert_eq!(
        (summary(&all, "samples"), summary(&all, "A_hat")),
        (81.0, 1500.0)
    );
    // 7 accesses to the store, 10 from the stepped store.
    assert_eq!(interval(&all), [(4.0, 49.0), (8.0, 49.0)]);
    assert_eq!(all["pairs"][0]["reuse_function"], "put");

    // Without counters, with the rate of a trace: its loads, or all if it has stores.
    let timed = folder.path().join("timed");
    watch_trace(&timed, &watched_samples(false), false);
    let full = |name: &str, stores: bool| {
        let path = folder.path().join(name);
        let mut list = rows(
            &(0..100).map(|i| 0x1000 + i * 8).collect::<Vec<_>>(),
            8,
            0,
            10,
        );
        list.iter_mut()
            .enumerate()
            .for_each(|(i, row)| row.store = stores && i % 4 == 3);
        let sidecar = sidecar(10);
        let mut manifest = manifest("full", &sidecar);
        manifest.totals.loads_executed = Some(4_000_000_000);
        write_trace(&path, &manifest, &sidecar, &[list], 1000);
        path.to_str().unwrap().to_owned()
    };
    let (without, with) = (full("without", false), full("with", true));
    let rate = |from: &str, more: &[&str]| {
        summary(
            &json(
                &timed,
                &[&["reuse", "@", "--rdx", "--accesses-from", from], more].concat(),
            ),
            "accesses_per_second_hat",
        ) / 1e9
    };
    assert_eq!(
        (
            rate(&without, &[]),
            rate(&with, &[]),
            rate(&with, &["--stores"])
        ),
        (4.0, 3.0, 4.0)
    );
    let text = refusal(
        &[
            "reuse",
            timed.to_str().unwrap(),
            "--rdx",
            "--stores",
            "--accesses-from",
            &without,
        ],
        1,
    );
    assert!(
        text.contains("has no stores") && text.contains("mgz-instrument --stores"),
        "{text}"
    );
}

#[test]
fn damage_anywhere_in_watched_samples_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    watch_trace(folder.path(), &watched_samples(true), true);
    let path = folder.path().join(mgz_annotations_schema::manifest::WATCH);
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..good.len()).step_by((good.len() / 60).max(1)) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        if at % 3 == 0 {
            bytes.truncate(at);
        }
        std::fs::write(&path, &bytes).unwrap();
        let output = analyze(&[
            "reuse",
            folder.path().to_str().unwrap(),
            "--rdx",
            "--format",
            "json",
        ]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1)) && !error.contains("panicked"),
            "byte {at}: {:?} {error}",
            output.status
        );
        if output.status.code() == Some(1) {
            assert!(error.contains("watch.parquet"), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
    std::fs::remove_file(&path).unwrap();
    assert!(
        refusal(&["reuse", folder.path().to_str().unwrap(), "--rdx"], 1).contains("record again")
    );
}
