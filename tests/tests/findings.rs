//! Findings of `mgz-analyze` in a default run. For programs with one planted problem each, it names
//! mechanism, function, line and object; for programs without a problem it reports nothing.
//! `benches/run findings` has many more.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_command};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::Path;

/// Lines of a source that have a case's marker.
fn marked(source: &str, case: &str) -> Vec<u64> {
    let is_marked = |line: &str| {
        line.split("planted: ")
            .nth(1)
            .is_some_and(|names| names.split_whitespace().any(|name| name == case))
    };
    let lines = source.lines().zip(1..);
    lines.filter(|l| is_marked(l.0)).map(|l| l.1).collect()
}

fn findings(app: &Path, case: &str, trace: &Path) -> (Vec<Value>, Value) {
    // Latencies measured on this machine would influence the choice between causes, so they are
    // omitted.
    let mut record = record_command(&[], trace, app, &[case, "0.6"]);
    record.env("XDG_CACHE_HOME", trace.with_extension("cache"));
    tools::succeed(&mut record, LIMIT).unwrap();
    let report = analysis_json(trace, &[]);
    (
        report["findings"].as_array().unwrap().clone(),
        report["no_finding"].clone(),
    )
}

#[test]
fn mechanisms_are_told_apart_and_placed() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    // A chain's nodes and its buckets have the same number of loads.
    let cases = [
        ("pointers", "list", "list", "walk_list", "nodes"),
        (
            "pointers",
            "chain",
            "hash_chain",
            "find_chain",
            "entries|buckets",
        ),
        ("pointers", "search", "binary_search", "search", "words"),
        ("pointers", "gather", "gather", "gather", "left"),
        ("pointers", "small_open", "", "", ""),
        ("arrays", "field", "strided", "sum_mass", "particles"),
        ("arrays", "columns", "column", "by_columns", "matrix"),
        ("arrays", "transposed", "column", "transpose", "matrix"),
        ("arrays", "convolution", "column", "convolve", "matrix"),
        ("arrays", "transposed_blocked", "", "", ""),
        ("arrays", "small_stream", "", "", ""),
        ("orders", "treecode", "tree", "force", "cells"),
        ("orders", "siblings", "list", "visit_element", "elements"),
        ("orders", "bits", "tree", "follow_bits", "branches"),
        ("orders", "product", "gather", "product", "vector"),
        ("orders", "small_words", "", "", ""),
    ];
    for program in ["pointers", "arrays", "orders"] {
        let name = format!("findings/{program}");
        std::fs::create_dir_all(dir.path().join("findings")).unwrap();
        let Some(original) = programs::build(&name, variant, &["-g"], dir.path()).unwrap() else {
            return;
        };
        let source = std::fs::read_to_string(programs::source(&name)).unwrap();
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        for (_, case, kind, function, object) in cases.iter().filter(|c| c.0 == program) {
            let trace = dir.path().join(case);
            let (found, none) = findings(&app, case, &trace);
            std::fs::remove_dir_all(&trace).unwrap();
            if kind.is_empty() {
                let small = |f: &Value| f["score"].as_f64().unwrap() <= 5.0;
                assert!(found.iter().all(small), "{case}: {found:#?}");
                assert!(!found.is_empty() || !none.as_str().unwrap().is_empty());
                continue;
            }
            let first = found
                .first()
                .unwrap_or_else(|| panic!("{case}: no finding, {none}"));
            assert_eq!(first["kind"], *kind, "{case}: {first:#}");
            assert_eq!(first["function"], *function, "{first:#}");
            let line = first["line"].as_u64().unwrap();
            assert!(marked(&source, case).contains(&line), "{first:#}");
            let named = first["object"].as_str().unwrap();
            let is_named = object.split('|').any(|object| named.contains(object));
            assert!(is_named, "{first:#}");
            assert!(!first["advice"].as_str().unwrap().is_empty());
        }
    }
}
