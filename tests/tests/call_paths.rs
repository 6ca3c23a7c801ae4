//! Call paths: each window has the callers of the code where it began.
//!
//! The program calls one kernel by known paths, for known shares of its time.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_command, record_program};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::{Path, PathBuf};

const VARIANT: Variant = Variant::O2;

fn callers(dir: &Path, form: &str) -> Option<PathBuf> {
    let original = programs::build("callers", VARIANT, &["-g"], dir).unwrap()?;
    Some(session::instrument_as(&original, form, &[]))
}

fn analysis(trace: &Path) -> Value {
    analysis_json(trace, &["--call-paths"])
}

/// The paths of a recorded run: functions from the outside in, and the row.
fn paths(options: &[&str], app: &Path, args: &[&str]) -> (Vec<(Vec<String>, Value)>, Value) {
    let trace = app.with_extension("trace");
    let options = [&["--force"], options].concat();
    record_program(&options, &trace, app, args);
    let report = analysis(&trace);
    let rows = report["call_paths"]["calls"].as_array().unwrap();
    let row = |id: &Value| rows.iter().find(|r| r["id"] == *id);
    let of = |at: &Value| {
        let mut path = Vec::new();
        let mut next = Some(at);
        while let Some(call) = next {
            path.insert(0, call["function"].as_str().unwrap().to_string());
            next = row(&call["parent"]);
        }
        (path, at.clone())
    };
    (rows.iter().map(of).collect(), report)
}

/// The rows whose path ends like this; it does not matter whether a path is cut or begins before
/// `main`.
fn ending<'a>(paths: &'a [(Vec<String>, Value)], end: &[&str]) -> Vec<&'a Value> {
    let fits = |path: &[String]| {
        path.len() >= end.len() && path[path.len() - end.len()..].iter().eq(end.iter())
    };
    let rows = paths.iter().filter(|p| fits(&p.0));
    rows.map(|p| &p.1).collect()
}

fn windows(rows: &[&Value]) -> u64 {
    rows.iter().map(|r| r["windows"].as_u64().unwrap()).sum()
}

/// Checks that the known parts add up and that the manifest agrees.
fn adds_up(report: &Value, app: &Path) -> [u64; 3] {
    let table = &report["call_paths"];
    let told = ["whole", "partial", "unknown"].map(|key| table[key].as_u64().unwrap());
    let manifest = std::fs::read(app.with_extension("trace").join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(
        told.iter().sum::<u64>(),
        manifest["totals"]["samples"].as_u64().unwrap()
    );
    for (key, n) in ["whole", "partial", "unknown"].iter().zip(told) {
        assert_eq!(manifest["call_paths"][key], n, "{key}: {table}");
    }
    assert_eq!(manifest["call_paths"]["state"], "recorded");
    told
}

#[test]
fn two_callers_of_one_kernel_have_the_parts_of_time_that_they_take() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = callers(dir.path(), "burst") else {
        return;
    };
    let (found, report) = paths(&[], &app, &["split", "1500000"]);
    let [whole, partial, unknown] = adds_up(&report, &app);
    let all = whole + partial + unknown;
    assert!(
        all >= 100 && whole * 100 >= all * 95,
        "{whole} {partial} {unknown}"
    );
    let often = ending(&found, &["main", "often", "kernel"]);
    let seldom = ending(&found, &["main", "seldom", "kernel"]);
    assert_eq!((often.len(), seldom.len()), (1, 1), "{found:#?}");
    for (row, share) in [(often[0], 75.0), (seldom[0], 25.0)] {
        let [lo, hi] = ["time_pct_lo", "time_pct_hi"].map(|key| row[key].as_f64().unwrap());
        // An interval of 95% misses the truth one time in twenty; one of twice that width hardly
        // ever does.
        let (lo, hi) = (lo - (hi - lo) / 2.0, hi + (hi - lo) / 2.0);
        assert!(
            lo <= share && share <= hi && hi - lo < 40.0,
            "{share}: {row}"
        );
        assert_eq!(row["own"], true);
        assert!(
            row["F"].as_u64().unwrap() > 1000 && row["F"].as_u64().unwrap() <= 4200,
            "{row}"
        );
        assert!(row["call_file"].as_str().unwrap().ends_with("callers.c"));
    }
    // The line of the call, not that of the function.
    let source = std::fs::read_to_string(programs::source("callers")).unwrap();
    let line = source
        .lines()
        .position(|l| l.contains("kernel(3 * rounds)"))
        .unwrap() as u64
        + 1;
    assert_eq!(often[0]["call_line"], line);
    // The same in the text output.
    let output = tools::succeed(
        tools::tool("mgz-analyze")
            .arg(app.with_extension("trace"))
            .arg("--call-paths"),
        LIMIT,
    )
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Call paths (") && text.contains(&format!("callers.c:{line}")),
        "{text}"
    );
}

#[test]
fn windows_of_ring_know_who_called_at_their_end() {
    let dir = tempfile::tempdir().unwrap();
    for form in ["ring", "burst"] {
        let Some(app) = callers(dir.path(), form) else {
            return;
        };
        let (found, report) = paths(
            &["--mode", "ring", "--period", "100000"],
            &app,
            &["split", "200000"],
        );
        let [whole, partial, unknown] = adds_up(&report, &app);
        assert!(
            whole >= 300 && unknown <= 2 && partial == 0,
            "{whole} {partial} {unknown}"
        );
        let often = windows(&ending(&found, &["main", "often", "kernel"])) as f64;
        let seldom = windows(&ending(&found, &["main", "seldom", "kernel"])) as f64;
        assert!(
            (often / (often + seldom) - 0.75).abs() < 0.05,
            "{often} {seldom}"
        );
    }
}

#[test]
fn recursions_are_one_call_and_what_is_cut_off_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = callers(dir.path(), "burst") else {
        return;
    };
    let (found, report) = paths(&[], &app, &["recursion", "2000000"]);
    let [whole, partial, _] = adds_up(&report, &app);
    assert!(whole >= 30 && partial >= 15, "{whole} {partial}");
    let descend = ending(&found, &["main", "descend", "kernel"]);
    let cut = ending(&found, &["[callers unknown]", "descend", "kernel"]);
    let cycle = ending(&found, &["main", "ping", "pong", "kernel"]);
    for rows in [&descend, &cut, &cycle] {
        assert!(windows(rows) >= 15, "{found:#?}");
    }
    assert!(found.iter().all(|p| p.0.len() < 12), "{found:#?}");
}

#[test]
fn threads_other_stacks_and_handlers_have_paths_as_far_as_they_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = callers(dir.path(), "burst") else {
        return;
    };
    for (what, function, reaches) in [
        ("thread", "threaded", true),
        ("small", "threaded", true),
        // The C library's unwind information marks the end of a context's stack as having no return
        // address.
        ("context", "on_context", false),
        ("handler", "handler", false),
    ] {
        let (found, report) = paths(&[], &app, &[what, "1000000"]);
        let [whole, partial, unknown] = adds_up(&report, &app);
        let of = windows(&ending(&found, &[function, "kernel"]));
        assert!(of >= 15, "{what}: {found:#?}");
        let none = ending(&found, &["main", "kernel"]);
        assert_eq!(windows(&none), 0, "{what}: {found:#?}");
        if reaches {
            assert!(whole >= of, "{what}: {whole} {partial} {unknown}");
        } else {
            assert!(partial >= of, "{what}: {whole} {partial} {unknown}");
        }
    }
}

/// Without stacks the trace has the same format as before stacks were added.
#[test]
fn without_stacks_nothing_is_copied_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = callers(dir.path(), "burst") else {
        return;
    };
    let trace = app.with_extension("trace");
    let mut command = record_command(&["--no-stacks"], &trace, &app, &["split", "500000"]);
    let output = tools::succeed(&mut command, LIMIT).unwrap();
    let plain = tools::succeed(
        std::process::Command::new(&app).args(["split", "500000"]),
        LIMIT,
    )
    .unwrap();
    assert_eq!(output.stdout, plain.stdout);
    let report = analysis(&trace);
    assert_eq!(report["call_paths"]["state"], "off");
    assert!(report["call_paths"]["calls"].as_array().unwrap().is_empty());
    assert_eq!(
        report["call_paths"]["unknown"],
        report["summary"]["samples"]
    );
    for name in ["call_paths.parquet", "window_paths.parquet"] {
        assert!(!trace.join(name).exists());
    }
    let output = tools::succeed(
        tools::tool("mgz-analyze").arg(&trace).arg("--call-paths"),
        LIMIT,
    )
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Call paths: unknown (recorded with --no-stacks"),
        "{text}"
    );
}

/// A damaged table is reported, and the rest of the analysis is complete.
#[test]
fn damaged_paths_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = callers(dir.path(), "burst") else {
        return;
    };
    let trace = app.with_extension("trace");
    let mut command = record_command(&[], &trace, &app, &["split", "300000"]);
    tools::succeed(&mut command, LIMIT).unwrap();
    let path = trace.join("window_paths.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, &bytes).unwrap();
    let output = tools::run_limited(
        tools::tool("mgz-analyze")
            .arg(&trace)
            .args(["--format", "json"]),
        LIMIT,
    )
    .unwrap();
    assert_eq!(tools::code(&output), 1);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("window_paths.parquet") && told.contains("unknown"),
        "{told}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["call_paths"]["calls"].as_array().unwrap().is_empty());
    assert!(!report["functions"].as_array().unwrap().is_empty());
}

/// Code of the standard library is attributed to the user's line that called it, inlined or not.
#[test]
fn findings_in_code_of_the_standard_library_name_the_users_line() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::fs::read_to_string(programs::source("sorts")).unwrap();
    let marked = |name: &str| {
        let at = source
            .lines()
            .position(|l| l.ends_with(&format!("// {name}")));
        at.unwrap() as u64 + 1
    };
    for opt in ["0", "2"] {
        let variant = Variant { opt, ..VARIANT };
        let Some(original) = programs::build("sorts", variant, &["-g"], dir.path()).unwrap() else {
            return;
        };
        let app = session::instrument_as(&original, "burst", &[]);
        let (found, report) = paths(&[], &app, &[]);
        let sorting: Vec<_> = found
            .iter()
            .filter(|p| p.0.iter().any(|f| f.contains("introsort")))
            .collect();
        assert!(!sorting.is_empty(), "{found:#?}");
        let users = |p: &&&(Vec<String>, Value)| p.0.iter().any(|f| f.starts_with("order"));
        let known: Vec<_> = sorting
            .iter()
            .filter(|p| p.0[0] != "[callers unknown]")
            .collect();
        assert!(
            !known.is_empty() && known.iter().all(users),
            "-O{opt}: {sorting:#?}"
        );
        let findings = report["findings"].as_array().unwrap();
        let of_sort: Vec<&Value> = findings
            .iter()
            // (Without optimisation the comparison is a separate function on that line.)
            .filter(|f| f["line"] == marked("order"))
            .collect();
        // Without optimization the misses take too small a share of the time.
        let is_slow = opt == "2";
        assert!(!is_slow || !of_sort.is_empty(), "-O{opt}: {findings:#?}");
        for finding in findings {
            let file = finding["file"].as_str().unwrap();
            assert!(file.ends_with("sorts.cpp"), "-O{opt}: {finding:#}");
        }
        for finding in of_sort {
            let path = finding["path"].as_array().unwrap();
            assert!(
                path.iter()
                    .any(|c| c.as_str().unwrap().starts_with("order")),
                "-O{opt}: {finding:#}"
            );
        }
    }
}
