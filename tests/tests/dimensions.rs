//! Tables by thread and process, filters, and the load to which a window's time is attributed: two
//! threads with different work of known size.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_program};
use mgz_tests::tools;
use serde_json::Value;
use std::path::Path;

const PLAIN: Variant = Variant::O1;

fn analyze(trace: &Path, words: &[&str]) -> Result<Value, String> {
    let output = tools::tool("mgz-analyze")
        .arg(trace)
        .args(["--format", "json"])
        .args(words)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))
}

fn rows<'a>(found: &'a Value, table: &str) -> &'a Vec<Value> {
    found[table].as_array().unwrap()
}

fn row<'a>(found: &'a Value, table: &str, key: &str, value: &str) -> Option<&'a Value> {
    rows(found, table).iter().find(|r| r[key] == value)
}

/// A full trace has all loads, so each filter must keep exactly the number that the program is
/// known to execute.
#[test]
fn filters_leave_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("shares", PLAIN, &[], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("trace");
    let (walks, steps) = (40 * 1024, 4000);
    record_program(&["--mode", "full"], &trace, &app.path, &["40", "4000"]);
    let whole = analyze(&trace, &["--objects"]).unwrap();
    assert!(whole.get("filter").is_none());
    let summary = &whole["summary"];
    // The threads add up to the process, and the process to the run.
    let threads = rows(&whole, "threads");
    assert_eq!(threads.len(), 3);
    for key in ["A", "A_const", "reuses", "first_touches"] {
        let sum: u64 = threads.iter().map(|t| number(t, key)).sum();
        assert_eq!(sum, number(summary, key), "{key}");
        assert_eq!(number(&whole["processes"][0], key), sum, "{key}");
    }
    assert_eq!(rows(&whole, "processes").len(), 1);
    assert_eq!(whole["processes"][0]["F"], summary["F"]);
    assert_eq!(whole["processes"][0]["threads"], 3);

    // The thread is identified by its function, which no other thread runs.
    let of_walk = analyze(&trace, &["--function", "^walk$"]).unwrap();
    // A function may also load its number of rounds.
    let walked = number(&of_walk["summary"], "A");
    assert!((walks..=walks + 1).contains(&walked), "{walked}");
    assert!((1024..=1025).contains(&number(&of_walk["summary"], "F")));
    assert_eq!(rows(&of_walk, "functions").len(), 1);
    assert_eq!(of_walk["filter"]["conditions"][0]["matched"][0], "walk");
    assert_eq!(number(&of_walk["filter"], "A"), walked);
    let share = of_walk["filter"]["A_pct"].as_f64().unwrap();
    let all = number(summary, "A") + number(summary, "A_const");
    let left = number(&of_walk["summary"], "A_const") + walked;
    assert!((share - 100.0 * left as f64 / all as f64).abs() < 1e-9);
    let number_of_walk = number(&rows(&of_walk, "threads")[0], "thread");
    let id = number_of_walk.to_string();
    let thread = analyze(&trace, &["--thread", &id, "--zoom"]).unwrap();
    assert!(row(&thread, "functions", "function", "chase").is_none());
    let walk = row(&thread, "functions", "function", "walk").unwrap();
    assert_eq!(number(walk, "A"), walked);
    let in_table = threads
        .iter()
        .find(|t| number(t, "thread") == number_of_walk)
        .unwrap();
    for key in ["A", "A_const", "F", "F_irr", "F_str", "D_mean", "first_pct"] {
        assert_eq!(thread["summary"][key], in_table[key], "{key}");
        assert_eq!(thread["time_zoom"]["root"][key], in_table[key], "{key}");
    }
    assert_eq!(thread["summary"]["threads"], 1);
    // The names are those that the recorder saw while the thread ran; it may not have seen the name
    // of a short thread.
    let name = in_table["name"].as_str().unwrap();
    assert!(
        ["", "walker", "shares"].iter().any(|n| name.starts_with(n)),
        "{name}"
    );

    // An object, and a function's part of it.
    let far = analyze(&trace, &["--object", "^far_off$", "--objects"]).unwrap();
    assert_eq!(rows(&far, "objects").len(), 1);
    assert_eq!(number(&far["summary"], "A"), steps);
    let both = ["--function", "chase", "--object", "near_by"];
    let near = analyze(&trace, &both).unwrap();
    assert_eq!(number(&near["summary"], "A"), steps);
    // Several values of one option: it is enough to match one.
    let two = ["--function", "^chase$", "--function", "^walk$"];
    let two = analyze(&trace, &two).unwrap();
    let more = number(&two["summary"], "A") - walked;
    assert!((2 * steps..=2 * steps + 1).contains(&more), "{more}");
    // The parts before and after a time add up to the whole.
    let last = rows(&whole, "threads").len();
    assert!(last > 0);
    let early = analyze(&trace, &["--to", "0"]).unwrap();
    assert!(number(&early["summary"], "A") < all);
    let every = analyze(&trace, &["--from", "0", "--to", "1000"]).unwrap();
    assert_eq!(every["summary"]["A"], summary["A"]);

    for (words, part) in [
        (&["--thread", "nobody"][..], id.as_str()),
        (&["--process", "1"], "there are: "),
        (&["--function", "nothing"], "functions with loads: walk"),
        (&["--object", "nothing"], "near_by"),
        (&["--from", "1000"], "the samples go from 0 to"),
        (
            &["--thread", &id, "--function", "chase"],
            "no load meets all",
        ),
    ] {
        let error = analyze(&trace, words).unwrap_err();
        assert!(error.contains(part) && error.contains(words[0]), "{error}");
    }
}

/// In `chase` one load hits and the next waits for memory. A window begins after the waiting load,
/// at the load that hits, but its time belongs to the waiting load.
#[test]
fn time_is_of_the_load_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("shares", PLAIN, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
    let trace = dir.path().join("trace");
    record_program(
        &["--mode", "burst", "--trigger", "cpu-time", "--rate", "1000"],
        &trace,
        &app.path,
        &["100", "6000000"],
    );
    let found = analyze(&trace, &["--function", "^chase$", "--zoom"]).unwrap();
    let share = |row: Option<&Value>| row.and_then(|r| r["time_pct"].as_f64()).unwrap_or(0.0);
    let (far, near) = (
        share(row(&found, "objects", "object", "far_off")),
        share(row(&found, "objects", "object", "near_by")),
    );
    assert!(far > 60.0 && far + near > 99.0, "{far}% and {near}%");
    // Lines attribute time in the same manner: the waiting line has as much time as the data that
    // it loads.
    let waits = rows(&found, "lines")
        .iter()
        .map(|l| share(Some(l)))
        .fold(0.0, f64::max);
    assert!((waits - far).abs() < 1e-6, "{waits}% and {far}%");
    let left = found["filter"]["time_pct"].as_f64().unwrap();
    assert!(left > 60.0, "{left}% of the time is left");
}

/// Both loads of a step go to one cache line and lie in one region. The region's first load is
/// complete when a window begins, so it has no row; the recorder stores its location.
#[test]
fn of_two_fields_in_a_line_the_one_that_is_read_first_has_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("two_fields", PLAIN, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
    let trace = dir.path().join("trace");
    record_program(
        &["--mode", "burst", "--trigger", "cpu-time", "--rate", "1000"],
        &trace,
        &app.path,
        &["4000000"],
    );
    let source = std::fs::read_to_string(programs::source("two_fields")).unwrap();
    let line = |mark: &str| 1 + source.lines().position(|l| l.contains(mark)).unwrap() as u64;
    let found = analyze(&trace, &["--function", "^follow$"]).unwrap();
    let share = |line: u64| {
        let row = rows(&found, "lines").iter().find(|l| l["line"] == line);
        row.and_then(|r| r["time_pct"].as_f64()).unwrap_or(0.0)
    };
    let (first, second) = (share(line("/* waits */")), share(line("/* hits */")));
    assert!(
        first > 3.0 * second && first > 50.0,
        "{first}% and {second}%"
    );
}
