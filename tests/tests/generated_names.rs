//! Code that is generated at run time has the names that its compiler reports, in every mode.

use mgz_annotations_schema::coverage::Coverage;
use mgz_annotations_schema::manifest::Manifest;
use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{instrument_as, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O1;
/// Fewer samples are not enough to estimate shares.
const ENOUGH_LOOKS: u64 = 50;
/// Mode, form of the file, and options.
const MODES: [(&str, &str, &[&str]); 2] = [
    ("full", "ring", &["--mode", "full"]),
    (
        "burst",
        "burst",
        &["--mode", "burst", "--trigger", "cpu-time", "--rate", "1000"],
    ),
];

fn build(dir: &Path) -> Option<PathBuf> {
    programs::build("jitted", PLAIN, &[], dir).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records the program in a mode; returns its coverage.
fn coverage(program: &Path, (options, arguments): (&[&str], &[&str]), trace: &Path) -> Coverage {
    let options = [options, &["--force"]].concat();
    let output = recorded_run(&options, trace, program, arguments);
    assert_eq!(tools::code(&output), 0, "{}", text(&output.stderr));
    let manifest = std::fs::read(trace.join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_slice(&manifest).unwrap();
    manifest.coverage
}

fn share(coverage: &Coverage, name: &str) -> f64 {
    let functions = coverage.generated_functions.iter();
    let samples: u64 = functions
        .filter(|f| f.function == name)
        .map(|f| f.samples)
        .sum();
    samples as f64 / coverage.generated_samples.unwrap_or(0).max(1) as f64
}

/// Argument of the program, source of the names, and names: first the function that runs for five
/// eighths of the time, then the one that runs for the other three eighths.
const WAYS: [(&str, &str, [&str; 2]); 3] = [
    ("map", "perf map", ["spin_long", "spin_short"]),
    ("dump", "jitdump", ["early", "late"]),
    ("gdb", "GDB interface", ["spin_long", "spin_short"]),
];

#[test]
fn each_way_of_naming_is_read_in_each_mode() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(dir.path()) else {
        return;
    };
    let folder = dir.path().to_str().unwrap();
    let trace = dir.path().join("trace");
    for (mode, form, options) in MODES {
        let program = instrument_as(&original, form, &[]);
        for (way, source, [first, second]) in WAYS {
            let what = format!("{way} {mode}");
            let found = coverage(&program, (options, &[way, folder]), &trace);
            if found.time_samples < ENOUGH_LOOKS {
                tools::skip(&format!("{what}: the time of the program was not sampled"));
                continue;
            }
            let shares = [first, second].map(|name| share(&found, name));
            assert!(
                (shares[0] - 0.625).abs() < 0.15 && (shares[1] - 0.375).abs() < 0.15,
                "{what}: {shares:?} {:?}",
                found.generated_functions
            );
            assert_eq!(share(&found, "stale"), 0.0, "{what}");
            assert!(
                found.generated_functions.iter().all(|f| f.source == source),
                "{what}: {:?}",
                found.generated_functions
            );
        }
    }
}

#[test]
fn names_are_in_the_json_and_on_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(dir.path()) else {
        return;
    };
    let program = instrument_as(&original, "burst", &[]);
    let trace = dir.path().join("trace");
    let analyze = |options: &[&str]| {
        let mut command = tools::tool("mgz-analyze");
        let output = tools::run_limited(command.args(options).arg(&trace), LIMIT).unwrap();
        assert_eq!(tools::code(&output), 0, "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let options = MODES[1].2;
    let found = coverage(&program, (options, &["map"]), &trace);
    if found.time_samples < ENOUGH_LOOKS {
        tools::skip("the time of the program was not sampled");
        return;
    }
    let screen = analyze(&[]);
    assert!(
        screen.contains("spin_long") && screen.contains("generated"),
        "{screen}"
    );
    assert!(!screen.contains("without names"), "{screen}");
    let tables = analyze(&["--all"]);
    assert!(tables.contains("Code generated at run time"), "{tables}");
    let json: Value = serde_json::from_str(&analyze(&["--format", "json"])).unwrap();
    let functions = &json["summary"]["trace"]["coverage"]["generated_functions"];
    assert_eq!(functions[0]["function"], "spin_long", "{functions}");
    // Code without a name is listed once as such.
    coverage(&program, (options, &["none"]), &trace);
    let screen = analyze(&[]);
    assert_eq!(screen.matches("without names").count(), 1, "{screen}");
    assert!(analyze(&["--all"]).contains("[without a name]"));
}

#[test]
fn call_paths_name_callers_in_generated_code() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(dir.path()) else {
        return;
    };
    let program = instrument_as(&original, "burst", &[]);
    let trace = dir.path().join("trace");
    coverage(&program, (MODES[1].2, &["calls"]), &trace);
    let mut command = tools::tool("mgz-analyze");
    command
        .args(["--call-paths", "--format", "json"])
        .arg(&trace);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = json["call_paths"]["calls"].as_array().unwrap();
    let of = |name: &str| calls.iter().find(|c| c["function"] == name);
    let made = of("made_caller").unwrap_or_else(|| panic!("{calls:?}"));
    assert_eq!(made["module"], "[generated code]");
    let parents = calls.iter().filter(|c| c["function"] == "work");
    assert!(
        parents.clone().any(|c| c["parent"] == made["id"]),
        "{calls:?}"
    );
}

#[test]
fn hot_names_generated_code() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(dir.path()) else {
        return;
    };
    let hot = |way: &str| {
        let mut command = Command::new(tools::binary("mgz-record"));
        command.args(["--hot", "--"]).arg(&original).arg(way);
        text(&tools::run_limited(&mut command, LIMIT).unwrap().stderr)
    };
    let said = hot("map");
    if said.contains("perf_event") && !said.contains("share") {
        tools::skip("--hot needs perf_event_open, which is refused here");
        return;
    }
    assert!(
        said.contains("[generated code]") && said.contains("spin_long"),
        "{said}"
    );
    assert!(!said.contains("without names"), "{said}");
    let said = hot("none");
    assert!(said.contains("generated code without names"), "{said}");
}
