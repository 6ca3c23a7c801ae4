//! Instrument, record, analyze: the resulting numbers equal those calculated manually.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_program};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::Path;

fn analyze(trace: &Path, extra: &[&str]) -> Value {
    let output = tools::succeed(
        tools::tool("mgz-analyze")
            .arg(trace)
            .args(["--format", "json"])
            .args(extra),
        LIMIT,
    )
    .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {key} in {row}"))
}

fn close(row: &Value, key: &str, expected: f64, relative: f64) {
    let got = number(row, key);
    assert!(
        (got - expected).abs() <= expected.abs() * relative + 1e-9,
        "{key} is {got}, not {expected}: {row}"
    );
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["functions"].as_array().expect("functions");
    all.iter()
        .find(|f| f["function"] == name)
        .unwrap_or_else(|| panic!("no function {name} in {all:?}"))
}

#[test]
fn footprint_and_reuse_of_a_known_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O2;
    // Without vector code each word takes one load.
    let Some(original) =
        programs::build("sweep", variant, &["-g", "-fno-tree-vectorize"], dir.path()).unwrap()
    else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("trace");
    record_program(&["--mode", "full"], &trace, &app.path, &[]);
    let report = analyze(&trace, &["--zoom"]);
    for key in [
        "summary",
        "functions",
        "lines",
        "windows",
        "time_zoom",
        "location_zoom",
    ] {
        assert!(!report[key].is_null(), "no {key}");
    }

    let sweep = function(&report, "sweep");
    close(sweep, "A", 1_000_000.0, 0.0);
    close(sweep, "F", 100_000.0, 0.0);
    close(sweep, "F_str", 100_000.0, 0.0);
    close(sweep, "F_irr", 0.0, 0.0);
    close(sweep, "dF_str_pct", 100.0, 0.0);
    close(sweep, "kappa", 1.0, 0.001);
    close(sweep, "dF", 0.1, 0.001);
    let walk = function(&report, "walk");
    close(walk, "A", 20_000.0, 0.0);
    close(walk, "F", 5000.0, 0.0);
    close(walk, "F_irr", 5000.0, 0.0);
    close(walk, "dF_irr_pct", 100.0, 0.0);
    // Every node has its own cache line; each later walk visits the other 4,999 in between.
    close(walk, "D_mean", 4999.0, 0.01);
    close(walk, "D_max", 4999.0, 0.01);
    // Eight words per line: seven reuses at distance 0, and one per later sweep over the other
    // 12,499 lines.
    let reuses = 1_000_000.0 - 12_500.0;
    close(sweep, "D_mean", 9.0 * 12_500.0 * 12_499.0 / reuses, 0.01);
    close(sweep, "D_max", 12_499.0, 0.01);

    let line = |marker: &str| {
        let source = std::fs::read_to_string(programs::source("sweep")).unwrap();
        source.lines().position(|l| l.contains(marker)).unwrap() as u64 + 1
    };
    let lines = report["lines"].as_array().unwrap();
    let hot = lines
        .iter()
        .find(|l| l["line"] == line("s += p[i]"))
        .unwrap_or_else(|| panic!("no row for the hot line in {lines:?}"));
    assert!(hot["file"].as_str().unwrap().ends_with("sweep.c"));
    close(hot, "A", 1_000_000.0, 0.0);
    assert!(number(&report["summary"], "A") >= 1_020_000.0);
    close(&report["summary"], "F", 105_000.0, 0.01);
}

/// `sweep` with one load per word.
fn plain_sweep(dir: &Path) -> Option<session::Instrumented> {
    let variant = Variant {
        clang: true,
        opt: "2",
        pie: false,
    };
    let flags = ["-fno-vectorize", "-fno-unroll-loops"];
    let original = programs::build("sweep", variant, &flags, dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap())
}

#[test]
fn ring_agrees_with_full_about_shares() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = plain_sweep(dir.path()) else {
        return;
    };
    let trace = dir.path().join("ring");
    record_program(
        &["--mode", "ring", "--period", "10000", "--window", "500"],
        &trace,
        &app.path,
        &[],
    );
    let report = analyze(&trace, &[]);
    let summary = &report["summary"];
    let kept = number(summary, "A");
    assert!(
        (40_000.0..70_000.0).contains(&kept),
        "{kept} rows kept of about 1,020,000 (one in twenty)"
    );
    let share = number(function(&report, "sweep"), "A") / kept;
    assert!(
        (0.95..=1.0).contains(&share),
        "sweep has {share} of the accesses"
    );
}

/// Each period has one window, but not always at its end. Otherwise all samples of a loop with as
/// many records as the period would come from the same position.
#[test]
fn windows_of_ring_lie_anywhere_in_their_periods() {
    const PERIOD: u64 = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = plain_sweep(dir.path()) else {
        return;
    };
    let places = |name: &str| {
        let trace = dir.path().join(name);
        record_program(
            &["--mode", "ring", "--period", "10000", "--window", "100"],
            &trace,
            &app.path,
            &[],
        );
        let trace = mgz_tests::rows::read_trace(&trace).unwrap();
        let rows = trace.first_thread();
        let mut firsts: Vec<u64> = rows
            .chunk_by(|a, b| a.sample == b.sample)
            .map(|s| s[0].seq >> 16)
            .collect();
        // The upper bits contain the number of the first slot. The last window contains the
        // remaining records at the program's end.
        firsts.pop();
        firsts
    };
    let firsts = places("a");
    assert!(firsts.len() >= 100, "{}", firsts.len());
    for (number, first) in firsts.iter().enumerate() {
        assert_eq!(
            first / PERIOD,
            number as u64,
            "window {number} begins at record {first}"
        );
    }
    let mean = firsts.iter().map(|f| f % PERIOD).sum::<u64>() as f64 / firsts.len() as f64;
    assert!(
        (mean - 4950.0).abs() < 1000.0,
        "windows begin at {mean} of {PERIOD} on average"
    );
    assert_eq!(places("b"), firsts, "the same run has the same windows");
}

#[test]
fn loops_have_lines_and_count_the_loops_inside_them() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(original) = programs::build("sweep", variant, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("trace");
    record_program(&["--mode", "full"], &trace, &app.path, &[]);
    let report = analyze(&trace, &[]);
    let source = std::fs::read_to_string(programs::source("sweep")).unwrap();
    let loops = report["loops"].as_array().unwrap();
    let of = |marker: &str| {
        let line = source.lines().position(|l| l.contains(marker)).unwrap() as u64 + 1;
        loops
            .iter()
            .find(|l| l["line"] == line)
            .unwrap_or_else(|| panic!("no loop in line {line}: {loops:#?}"))
    };
    let sweep = of("for (long i = 0; i < n; i++)");
    close(sweep, "A", 1_000_000.0, 0.0);
    close(sweep, "F", 100_000.0, 0.0);
    close(sweep, "dF_str_pct", 100.0, 0.0);
    assert_eq!(
        (&sweep["function"], &sweep["depth"], &sweep["outer"]),
        (&Value::from("sweep"), &Value::from(1), &Value::Null)
    );
    let walk = of("while (n != nodes)");
    close(walk, "A", 20_000.0, 0.0);
    close(walk, "F", 5_000.0, 0.0);
    // A completely inlined program: the loop of `main` encloses the other two.
    let Some(original) = programs::build(
        "sweep",
        Variant {
            opt: "2",
            ..variant
        },
        &["-g", "-Dnoinline=always_inline"],
        dir.path(),
    )
    .unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("inlined");
    record_program(&["--mode", "full"], &trace, &app.path, &[]);
    let report = analyze(&trace, &[]);
    let loops = report["loops"].as_array().unwrap();
    let inner = loops
        .iter()
        .find(|l| {
            l["depth"] == 2
                && l["inlined_into"]
                    .as_str()
                    .is_some_and(|t| t.contains("main"))
        })
        .unwrap_or_else(|| panic!("{loops:#?}"));
    let outer = loops
        .iter()
        .find(|l| l["address"] == inner["outer"])
        .unwrap();
    assert!(
        number(outer, "A") >= number(inner, "A") && outer["depth"] == 1,
        "{outer} {inner}"
    );
}

#[test]
fn every_format_has_the_same_functions() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(original) = programs::build("hash", variant, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("trace");
    record_program(&["--mode", "full"], &trace, &app.path, &[]);
    let json = analyze(&trace, &[]);
    let names: Vec<String> = json["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["function"].as_str().unwrap_or("").to_owned())
        .collect();
    assert!(
        names.iter().any(|n| n == "find") && names.iter().any(|n| n == "add"),
        "{names:?}"
    );
    let table = tools::succeed(tools::tool("mgz-analyze").arg(&trace), LIMIT).unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("find"));
    for format in ["csv", "parquet"] {
        let out = dir.path().join(format);
        tools::succeed(
            tools::tool("mgz-analyze")
                .arg(&trace)
                .args(["--format", format, "-o"])
                .arg(&out),
            LIMIT,
        )
        .unwrap();
        assert!(out.join(format!("functions.{format}")).exists(), "{format}");
    }
    let csv = std::fs::read_to_string(dir.path().join("csv/functions.csv")).unwrap();
    assert_eq!(csv.lines().count(), names.len() + 1);
}

#[test]
fn stores_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O2;
    let Some(original) = programs::build("loops", variant, &[], dir.path()).unwrap() else {
        return;
    };
    let count = |extra: &[&str]| {
        let app = session::instrument(&original, "soft", extra).unwrap();
        let trace = dir.path().join("trace");
        record_program(&["--mode", "full", "--force"], &trace, &app.path, &[]);
        let trace = mgz_tests::rows::read_trace(&trace).unwrap();
        let totals = &trace.manifest.totals;
        let stores = trace.threads.values().flatten().filter(|r| r.store).count();
        // A store may represent Constant loads.
        let loads: u64 = trace
            .threads
            .values()
            .flatten()
            .map(|r| u64::from(!r.store) + u64::from(r.implied_const))
            .sum();
        assert_eq!(totals.stores, Some(stores as u64));
        assert_eq!(totals.loads_executed, Some(loads), "stores are no loads");
        (loads, stores)
    };
    let (plain, none) = count(&[]);
    let (with, stores) = count(&["--stores"]);
    assert_eq!(none, 0);
    assert!(stores > 1000, "{stores}");
    assert_eq!(plain, with, "loads do not depend on --stores");
}

#[test]
fn hot_functions_can_be_given_to_functions() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(original) = programs::build("scatter", variant, &[], dir.path()).unwrap() else {
        return;
    };
    let mut command = tools::tool("mgz-record");
    command
        .args(["--hot", "--"])
        .arg(&original)
        .arg("100000000");
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if text.contains("perf_event") && !text.contains("--functions") {
        tools::skip(&format!(
            "--hot needs perf_event_open, which is refused here: {}",
            text.lines().next().unwrap_or("")
        ));
        return;
    }
    assert!(text.contains("--functions"), "{text}");
    assert!(text.contains("scatter"), "{text}");
}
