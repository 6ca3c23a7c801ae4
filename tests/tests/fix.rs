//! `mgz fix`: from a finished program to a faster copy.

use mgz_tests::fix_folder::{FixFolder, GATHER};
use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::process::Command;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_without_a_finding_is_left_alone() {
    // The program only computes; none of its loads miss.
    let folder = FixFolder::new(
        r#"
#include <stdio.h>
int main(void) {
    unsigned long sum = 1;
    static volatile unsigned long table[64];
    for (long i = 0; i < 400000000; i++)
        sum = sum * 31 + table[i & 63];
    printf("%lu\n", sum);
    return 0;
}
"#,
    );
    let output = folder.fix(&["--", "./app"]);
    let said = text(&output.stdout);
    assert_eq!(code(&output), 4, "{said}{}", text(&output.stderr));
    assert!(said.contains("app is left as it is: "), "{said}");
    assert_eq!(folder.written(), Vec::<String>::new());
}

#[test]
fn a_gather_becomes_faster_and_the_fix_can_be_applied_again() {
    let folder = FixFolder::new(GATHER);
    let output = folder.fix(&["--pairs", "6", "--", "./app", "2"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    // A busy machine, or one that overlaps these loads by itself, may show no gain.
    if code(&output) == 4 {
        assert!(said.contains("kept 0 of "), "{said}");
        assert_eq!(folder.written(), Vec::<String>::new());
        tools::skip("no gain was measured on this machine");
        return;
    }
    assert_eq!(code(&output), 0, "{said}");
    assert!(said.contains("times as fast ("), "{said}");
    let document: Value =
        serde_json::from_slice(&std::fs::read(folder.path("app.fix.json")).unwrap()).unwrap();
    assert_eq!(document["format"], "mgz-fix");
    assert!(document["result"]["times_as_fast_lo"].as_f64().unwrap() > 1.01);
    let candidates = document["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|c| c["outcome"] == "kept"), "{said}");
    let has_library = document["recipe"]["library"]["sites"] != serde_json::json!([]);
    let files: &[&str] = match has_library {
        true => &["app.fix.json", "app.fixed", "app.fixed.so"],
        false => &["app.fix.json", "app.fixed"],
    };
    assert_eq!(folder.written(), files);
    let kept = std::fs::read_to_string(folder.other("cache/mgz/fixes")).unwrap();
    let mut records = kept
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_kept = records.find(|r| r["outcome"] == "kept").unwrap();
    assert_eq!(of_kept["program"], "app");
    assert!(of_kept["measured"]["saved_pct"].as_f64().unwrap() > 1.0);
    // The output is that of the original.
    let run = |file: &str| {
        let mut command = Command::new(folder.path(file));
        tools::run_limited(command.arg("1"), LIMIT).unwrap().stdout
    };
    assert_eq!(run("app"), run("app.fixed"));
    // Applying the fix again gives the same bytes.
    let first = std::fs::read(folder.path("app.fixed")).unwrap();
    std::fs::remove_file(folder.path("app.fixed")).unwrap();
    let again = folder.fix(&["--apply", "app.fix.json", "--", "./app"]);
    assert_eq!(code(&again), 0, "{}", text(&again.stderr));
    assert!(std::fs::read(folder.path("app.fixed")).unwrap() == first);
    fixed_programs_are_recorded_or_refused(&folder, &document);
}

/// A fixed program with a library is recorded in its folder. For one with prefetches, `mgz run`
/// tells the user what to do.
fn fixed_programs_are_recorded_or_refused(folder: &FixFolder, document: &Value) {
    let run = [
        "run",
        "--no-open",
        "-o",
        "fixed.mgz",
        "--",
        "./app.fixed",
        "2",
    ];
    let mut command = folder.mgz(&run);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let said = text(&output.stderr);
    match document["recipe"]["loads"] == serde_json::json!([]) {
        true => assert_eq!(code(&output), 0, "{said}"),
        false => {
            assert_eq!(code(&output), 125, "{said}");
            assert!(said.contains("record the original"), "{said}");
        }
    }
}
