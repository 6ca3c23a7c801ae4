//! Owners of stack memory, in `mgz-analyze --objects`.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_program};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Loads by object and function: (object, kind, function).
fn loads(report: &Value) -> BTreeMap<(String, String, String), u64> {
    let mut out = BTreeMap::new();
    for object in report["objects"].as_array().unwrap() {
        for part in object["functions"].as_array().unwrap() {
            let text = |v: &Value| v.as_str().unwrap().to_string();
            let key = (
                text(&object["object"]),
                text(&object["kind"]),
                text(&part["function"]),
            );
            *out.entry(key).or_default() += part["A"].as_u64().unwrap();
        }
    }
    out
}

/// Number of words that each function of the program reads on a stack.
const WORDS: u64 = 4096 * 20;

fn check(report: &Value, threads: &[(String, u64)], mode: &str) {
    let loads = loads(report);
    let all = || loads.iter().filter(|l| l.0.2.starts_with("read_"));
    assert!(all().count() >= 8, "{mode}: {loads:#?}");
    // No thread's stack is read by a function for another kind of memory.
    let names: BTreeMap<String, BTreeSet<&str>> =
        threads
            .iter()
            .fold(BTreeMap::new(), |mut names, (function, thread)| {
                let stack = format!("[stack of thread {thread}]");
                names.entry(function.clone()).or_insert_with(BTreeSet::new);
                names
                    .entry(stack)
                    .or_insert_with(BTreeSet::new)
                    .insert(function);
                names
            });
    for ((object, kind, function), _) in all() {
        let stack = kind == "stack";
        match function.as_str() {
            "read_main" => assert!(object == "[stack]", "{mode}: {function} reads {object}"),
            "read_mapping" | "read_coroutine" | "read_handler" => {
                assert!(!stack, "{mode}: {function} reads {object}")
            }
            _ => assert!(
                stack
                    && names
                        .get(object)
                        .is_some_and(|n| n.contains(function.as_str())),
                "{mode}: {function} reads {object} ({kind}), threads {threads:?}"
            ),
        }
    }
    if mode == "full" {
        for (function, thread) in threads.iter().filter(|t| t.0 != "read_nothing") {
            let key = (
                format!("[stack of thread {thread}]"),
                "stack".into(),
                function.clone(),
            );
            assert!(
                loads.get(&key).is_some_and(|&n| n >= WORDS),
                "{function} on {key:?}: {loads:#?}"
            );
        }
    }
}

#[test]
fn threads_have_their_own_stacks_also_beside_each_other_and_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant::O1;
    let Some(original) = programs::build("beside", variant, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    for mode in [
        &["--mode", "full"][..],
        &["--mode", "ring", "--period", "5000", "--window", "1000"],
    ] {
        let trace = dir.path().join(mode[1]);
        let output = record_program(mode, &trace, &app, &[]);
        let threads: Vec<(String, u64)> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| {
                let (name, thread) = line.split_once(' ')?;
                Some((name.to_string(), thread.parse().ok()?))
            })
            .collect();
        assert_eq!(threads.len(), 10);
        let report = analysis_json(&trace, &["--objects"]);
        check(&report, &threads, mode[1]);
    }
}
