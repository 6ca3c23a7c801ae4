//! The case studies of the MemGaze report (section 8), reproduced with our own programs: the
//! analysis has the same results.
//!
//! Sizes are small and windows short, so that each case takes a second; the tests assert only the
//! order and rough size of the figures. The programs and the ring mode are deterministic, so a run
//! gives the same figures each time on one machine and compiler.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_program};
use serde_json::Value;
use std::path::{Path, PathBuf};

const O3: Variant = Variant {
    clang: false,
    opt: "3",
    pie: true,
};

/// An instrumented case, or `None` if its compiler is missing.
fn case(dir: &Path, name: &str) -> Option<PathBuf> {
    std::fs::create_dir_all(dir.join("cases")).unwrap();
    let original = programs::build(&format!("cases/{name}"), O3, &["-g"], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap().path)
}

/// The analysis of a sampled run.
fn sampled(dir: &Path, app: &Path, period: &str, args: &[&str]) -> Value {
    let trace = dir.join("trace");
    let _ = std::fs::remove_dir_all(&trace);
    let output = record_program(
        &["--mode", "ring", "--period", period, "--window", "1000"],
        &trace,
        app,
        args,
    );
    assert!(!output.stdout.is_empty());
    analysis_json(&trace, &["--zoom"])
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["functions"].as_array().expect("functions");
    // The hottest entry comes first; an inlined copy of the same name may follow.
    all.iter()
        .find(|f| f["function"].as_str().is_some_and(|n| n.starts_with(name)))
        .unwrap_or_else(|| panic!("no function {name} in {all:?}"))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {key} in {row}"))
}

/// Tables 4 and 5: chains are irregular and have long reuse times; a closed table is walked in
/// strides; a table that grows makes more accesses than one of the right size.
#[test]
fn hash_tables_of_communities() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = case(dir.path(), "communities") else {
        return;
    };
    let [chained, growing, sized] =
        ["v1", "v2", "v3"].map(|v| sampled(dir.path(), &app, "20000", &[v]));
    let insert = |report| {
        function(
            report,
            if std::ptr::eq(report, &chained) {
                "Chained::insert"
            } else {
                "Closed::insert"
            },
        )
    };
    for report in [&chained, &growing, &sized] {
        // The vector of neighbours is walked in strides, the data that it points to is not.
        let share = number(function(report, "buildMap"), "dF_str_pct");
        assert!((55.0..85.0).contains(&share), "{share}");
    }
    // D depends slightly on the alignment of the stack to blocks.
    assert!(number(insert(&chained), "dF_str_pct") < 5.0);
    assert!(
        number(insert(&growing), "dF_str_pct") > 30.0,
        "{}",
        insert(&growing)
    );
    assert!(number(insert(&chained), "D_mean") > 1.1 * number(insert(&growing), "D_mean"));
    assert!(number(insert(&chained), "D_mean") > 1.1 * number(insert(&sized), "D_mean"));
    assert!(
        number(insert(&growing), "A") > 1.1 * number(insert(&sized), "A"),
        "growing costs accesses"
    );
    // With far fewer accesses, growth increases again.
    assert!(number(insert(&sized), "dF") > number(insert(&growing), "dF"));
    // Walking the table made for all neighbours takes more accesses than walking the small one.
    assert!(number(function(&sized, "getMax"), "A") > number(function(&growing, "getMax"), "A"));
    assert!(
        number(function(&growing, "getMax"), "dF_str_pct") > 10.0
            && number(function(&chained, "getMax"), "dF_str_pct") < 5.0
    );
}

/// Table 9: immediate updates converge sooner than updates in rounds, with fewer accesses and less
/// growth.
#[test]
fn page_rank_at_once_and_by_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = case(dir.path(), "pagerank") else {
        return;
    };
    let [gs, jacobi] = ["gs", "jacobi"].map(|v| sampled(dir.path(), &app, "20000", &[v]));
    // Growth inside windows: over all samples together it increases as the number of samples
    // decreases.
    let growth = |report: &Value| {
        number(
            report["windows"]
                .as_array()
                .unwrap()
                .iter()
                .find(|w| w["W"] == 512)
                .expect("windows of 512 loads"),
            "dF",
        )
    };
    assert!(
        growth(&gs) < growth(&jacobi),
        "{} {}",
        growth(&gs),
        growth(&jacobi)
    );
    let (gs, jacobi) = (function(&gs, "gauss_seidel"), function(&jacobi, "jacobi"));
    assert!(number(gs, "A") < 0.9 * number(jacobi, "A"));
}

/// Table 9: by its footprint growth and its share of irregular data, Afforest looks worse than
/// Shiloach–Vishkin, but it makes far fewer accesses here.
#[test]
fn components_by_two_algorithms() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = case(dir.path(), "components") else {
        return;
    };
    let [afforest, sv] = ["afforest", "sv"].map(|v| sampled(dir.path(), &app, "20000", &[v]));
    let (afforest, sv) = (
        function(&afforest, "afforest"),
        function(&sv, "shiloach_vishkin"),
    );
    assert!(number(afforest, "dF") > number(sv, "dF"));
    assert!(number(afforest, "dF_irr_pct") > number(sv, "dF_irr_pct"));
    assert!(number(afforest, "A") < number(sv, "A"));
}

/// Tables 6 and 8: matrix products dominate and are strided throughout. With N, locality changes
/// from layer to layer, and more so in AlexNet.
#[test]
fn layers_of_two_networks() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = case(dir.path(), "layers") else {
        return;
    };
    for network in ["alexnet", "resnet"] {
        let report = sampled(dir.path(), &app, "20000", &[network]);
        let (gemm, im2col) = (function(&report, "gemm"), function(&report, "im2col"));
        for f in [gemm, im2col] {
            assert!(number(f, "dF_str_pct") > 98.0, "{f}");
        }
        assert!(
            number(gemm, "A") > 4.0 * number(im2col, "A"),
            "{gemm} {im2col}"
        );
        assert!(
            number(gemm, "F") > 3.0 * number(im2col, "F"),
            "{gemm} {im2col}"
        );
    }
}

/// Micro-benchmarks: the classes identify each pattern.
#[test]
fn patterns_of_the_micro_benchmarks() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = case(dir.path(), "micro") else {
        return;
    };
    let strided = |kind: &str, name: &str| {
        let report = sampled(dir.path(), &app, "10000", &[kind]);
        number(function(&report, name), "dF_str_pct")
    };
    for kind in ["str1", "str2", "str8"] {
        assert!(strided(kind, kind) > 99.0, "{kind}");
    }
    // Half of what an irregular loop touches is the array of indices, which is walked in strides.
    for kind in ["irr", "str1+irr", "str8+irr"] {
        let share = strided(kind, "irr");
        assert!((45.0..55.0).contains(&share), "{kind}: {share}");
    }
    let series = sampled(dir.path(), &app, "10000", &["str1+irr"]);
    assert!(number(function(&series, "str1"), "dF_str_pct") > 99.0);
    // With a condition, both kinds are in one function.
    let either = strided("str1/irr", "either");
    assert!((60.0..95.0).contains(&either), "{either}");
}
