//! `mgz-record --heap`: loads are counted to the allocation site that their block came from.
//!
//! The program says how often each site's block is loaded; sites are told apart by function, line and life, although two of them got the
//! same address.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_command};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;

/// Loads of one walk, as in the program.
const WALK: f64 = 4096.0 * 300.0;

fn site<'a>(report: &'a Value, function: &str) -> &'a Value {
    let all = report["objects"].as_array().expect("objects");
    let of = |o: &&Value| o["kind"] == "heap" && o["object"].as_str().is_some_and(|n| n.starts_with(function));
    all.iter().filter(of).max_by(|a, b| a["A"].as_f64().unwrap_or(0.0).total_cmp(&b["A"].as_f64().unwrap_or(0.0))).unwrap_or_else(|| panic!("no heap object of {function} in {all:#?}"))
}

#[test]
fn blocks_are_counted_by_allocation_site_though_addresses_are_used_again() {
    for opt in ["0", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let variant = Variant { clang: false, opt, pie: true };
        let Some(original) = programs::build("blocks", variant, &["-g", "-fno-inline", "-fno-optimize-sibling-calls"], dir.path()).unwrap() else { return };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join("trace");
        let output = tools::succeed(&mut record_command(&["--mode", "full", "--heap"], &trace, &app, &[]), LIMIT).unwrap();
        let same = String::from_utf8_lossy(&output.stdout) == "same address\n";
        let output = tools::succeed(tools::tool("mgz-analyze").arg(&trace).args(["--format", "json", "--objects"]), LIMIT).unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(same, "the allocator did not use the address again: the test says nothing");
        for (function, walks) in [("first_site", 2.0), ("second_site", 2.0), ("thread_site", 2.0), ("grown_site", 1.0)] {
            let object = site(&report, function);
            let loads = object["A"].as_f64().unwrap();
            // Rows know their time to a chunk of the record stream, which is a part of a walk.
            assert!((loads / (walks * WALK) - 1.0).abs() < 0.1, "-O{opt} {function}: {loads} loads, expected {}", walks * WALK);
            assert!(object["object"].as_str().unwrap().contains("blocks.c:"), "{object}");
            let stack: Vec<&str> = object["stack"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(stack.iter().any(|s| s.starts_with(function)), "{stack:?}");
            let outer = if function == "thread_site" { "thread_site" } else { "main" };
            assert!(stack.iter().any(|s| s.starts_with(outer)), "-O{opt} {function}: {stack:?}");
        }
        assert_eq!(site(&report, "thread_site")["instances"], 2);
    }
}

/// Without the option nothing is replaced, and with it the program does the same.
#[test]
fn the_program_does_the_same_with_and_without_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant { clang: false, opt: "2", pie: true };
    for name in ["forks", "objects", "threads"] {
        let Ok(Some(original)) = programs::build(name, variant, &[], dir.path()) else { continue };
        let app = session::instrument(&original, "soft", &[]).unwrap().path;
        let trace = dir.path().join(format!("{name}.trace"));
        let expected = tools::run(&mut std::process::Command::new(&original), LIMIT).unwrap();
        let got = tools::run(&mut record_command(&["--mode", "ring", "--heap"], &trace, &app, &[]), LIMIT).unwrap();
        session::same_result(name, &expected, &got).unwrap();
    }
}
