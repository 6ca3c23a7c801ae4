//! What `mgz-analyze` says of a program (`diagnoses`): each kind with a program that must give it and one, much alike, that must not.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_command};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;

#[test]
fn each_kind_is_found_where_it_is_and_only_there() {
    let dir = tempfile::tempdir().unwrap();
    let variant = Variant {
        clang: false,
        opt: "1",
        pie: true,
    };
    let Some(original) = programs::build("findings", variant, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    let found = |kind: &str, form: &str| -> Vec<Value> {
        let trace = dir.path().join(format!("{kind}-{form}"));
        tools::succeed(
            &mut record_command(&["--mode", "full"], &trace, &app, &[kind, form]),
            LIMIT,
        )
        .unwrap();
        let output = tools::succeed(
            tools::tool("mgz-analyze")
                .arg(&trace)
                .args(["--format", "json", "--objects"]),
            LIMIT,
        )
        .unwrap();
        std::fs::remove_dir_all(&trace).unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["diagnoses"].as_array().unwrap().clone()
    };
    // Kind, function of the bad form, object, a number that must be told.
    let expected = [
        ("stride", "columns", "matrix", "4096"),
        ("irregular", "chain", "data", "without a step that prevails"),
        ("streaming", "sweep", "data", "100 % of its addresses"),
        ("sparse_pages", "sweep", "data", "8 bytes each"),
        ("capacity", "sweep", "", "after 512 to"),
        ("interleave", "apart", "", "the same index"),
    ];
    for (kind, function, object, number) in expected {
        let bad = found(kind, "bad");
        let diagnosis = bad
            .iter()
            .find(|d| d["kind"] == kind)
            .unwrap_or_else(|| panic!("no {kind} in {bad:#?}"));
        assert_eq!(diagnosis["function"], function, "{diagnosis}");
        assert!(
            object.is_empty() || diagnosis["object"] == object,
            "{diagnosis}"
        );
        assert!(
            diagnosis["finding"].as_str().unwrap().contains(number),
            "{diagnosis}"
        );
        assert!(!diagnosis["advice"].as_str().unwrap().is_empty());
        let good = found(kind, "good");
        assert!(
            good.iter().all(|d| d["kind"] != kind),
            "{kind} in {good:#?}"
        );
    }
}
