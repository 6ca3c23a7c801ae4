//! Memory samples of perf.data files, from the import to the tables.

use mgz_tests::tools;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The recorder writes columns that the analyzer can read.
#[test]
fn imported_memory_samples_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let trace = dir.path().join("trace");
    let mut import = tools::tool("mgz-record");
    import
        .arg("--import")
        .arg(root.join("fuzz/seeds/perfdata/memory"))
        .arg("-o")
        .arg(&trace);
    tools::succeed(&mut import, LIMIT).unwrap();
    let mut analyze = tools::tool("mgz-analyze");
    analyze.arg(&trace).args(["--format", "json"]);
    let output = tools::succeed(&mut analyze, LIMIT).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["measured"]["samples"], 6, "{report:#}");
    assert!(
        !report["measured"]["levels"].as_array().unwrap().is_empty(),
        "{report:#}"
    );
}
