//! `mgz compare`: builds of one program that differ only in one known respect.

use mgz_tests::programs;
use mgz_tests::session::{instrument, record_program};
use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `walk` reads a table in order and a word of another table in each round; `pick` reads the words
/// of the second table.
const PROGRAM: &str = r#"
#include <stdio.h>
#ifndef SIZE
#define SIZE 4096
#endif
#ifndef WALK
#define WALK walk
#endif
long table[SIZE];
long other[512];
__attribute__((noinline)) long WALK(long rounds) {
    long sum = 0;
    for (long r = 0; r < rounds; r++) {
        for (long i = 0; i < SIZE; i++)
            sum += table[i];
        sum += other[r % 512];
    }
    return sum;
}
__attribute__((noinline)) long pick(long rounds) {
    long sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += other[(r * 97) % 512];
    return sum;
}
int main(void) {
    printf("%ld\n", WALK(10) + pick(20000));
    return 0;
}
"#;

struct TestFolder {
    dir: tempfile::TempDir,
}

impl TestFolder {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A build of the program, as `NAME/app`, ready to be recorded. `before` is put in front of its
    /// source.
    fn build(&self, name: &str, flags: &[&str], before: &str) -> PathBuf {
        let folder = self.path(name);
        std::fs::create_dir(&folder).unwrap();
        let (text, app) = (format!("{before}{PROGRAM}"), folder.join("app"));
        programs::compile_text(text, &app, &[&["-O1", "-g"], flags].concat());
        instrument(&app, "soft", &[]).unwrap().path
    }

    fn record(&self, name: &str, app: &Path, options: &[&str]) -> PathBuf {
        let trace = self.path(name);
        record_program(options, &trace, app, &[]);
        trace
    }

    fn compare(&self, arguments: &[&str]) -> Output {
        let mut command = tools::tool("mgz");
        command
            .arg("compare")
            .args(arguments)
            .current_dir(self.dir.path());
        tools::run_limited(&mut command, LIMIT).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> (Value, i32) {
        let output = self.compare(&[&["--format", "json"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        (
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}")),
            code(&output),
        )
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The comparison of one metric of an entity.
fn change<'a>(result: &'a Value, kind: &str, name: &str, metric: &str) -> &'a Value {
    let all = result["changes"].as_array().unwrap();
    all.iter()
        .find(|c| c["kind"] == kind && c["name"] == name && c["metric"] == metric)
        .unwrap_or_else(|| panic!("no {metric} of {kind} {name}: {result:#}"))
}

#[test]
fn planted_changes_are_told_and_nothing_else() {
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let full = ["--mode", "full"];
    let base = place.build("base", &[], "");
    place.record("base1", &base, &full);
    place.record("base2", &base, &full);
    let larger = place.build("larger", &["-DSIZE=5324"], "");
    place.record("larger1", &larger, &full);
    let moved = place.build("moved", &["-DWALK=traverse"], "/*\n * Lines.\n */\n");
    place.record("moved1", &moved, &full);

    // The same program twice.
    let same = place.compare(&[
        "base1",
        "--fail-if",
        "F>0%,loads>0%,misses.L1.*>0%",
        "--",
        "base2",
    ]);
    assert_eq!(code(&same), 0, "{}", text(&same));
    assert!(
        text(&same).starts_with("Nothing changed."),
        "{}",
        text(&same)
    );

    // A table that is 30% larger.
    let (result, _) = place.json(&["base1", "--", "larger1"]);
    for (kind, name, metric, verdict) in [
        ("run", "", "F", "worse"),
        ("function", "walk", "loads", "worse"),
        ("function", "walk", "F", "worse"),
        ("object", "table", "F", "worse"),
        ("object", "table", "size", "worse"),
        ("object", "other", "size", "same"),
        ("function", "pick", "loads", "same"),
        ("function", "pick", "F", "same"),
        ("object", "other", "F", "same"),
    ] {
        assert_eq!(
            change(&result, kind, name, metric)["verdict"],
            verdict,
            "{kind} {name} {metric}: {result:#}"
        );
    }
    let pct = change(&result, "function", "walk", "F")["change_pct"]
        .as_f64()
        .unwrap();
    assert!((pct - 29.9).abs() < 0.2, "{pct}");
    for (condition, status) in [
        ("F>10%", 3),
        ("F>50%", 0),
        ("loads.walk>5%", 3),
        ("loads.pick>0%", 0),
        ("F.table>29%,loads.pick>5%", 3),
        ("size.table>29%", 3),
        ("size.other>0%", 0),
    ] {
        let output = place.compare(&["--fail-if", condition, "base1", "--", "larger1"]);
        assert_eq!(code(&output), status, "{condition}: {}", text(&output));
        let better = place.compare(&["--fail-if", condition, "larger1", "--", "base1"]);
        assert_eq!(code(&better), 0, "{condition}: {}", text(&better));
    }

    // A renamed function, and lines that have moved.
    let (result, _) = place.json(&["base1", "--", "moved1"]);
    assert_eq!(result["verdict"][0], "nothing changed", "{result:#}");
    let walk = change(&result, "function", "walk", "loads");
    assert_eq!(
        (&walk["new_name"], &walk["verdict"]),
        (&"traverse".into(), &"same".into())
    );
    // The line and the loop around it have the same loads, so one of them represents both.
    let at = 1 + PROGRAM
        .lines()
        .position(|l| l.contains("sum += table[i]"))
        .unwrap();
    let places = [at - 1, at].map(|line| (format!("app.c:{line}"), format!("app.c:{}", line + 3)));
    let changes = result["changes"].as_array().unwrap();
    let line = changes
        .iter()
        .find(|c| places.iter().any(|p| c["place"] == p.0) && c["metric"] == "loads")
        .unwrap_or_else(|| panic!("no line {at}: {result:#}"));
    assert!(
        places
            .iter()
            .any(|p| line["place"] == p.0 && line["new_place"] == p.1),
        "{line:#}"
    );
    assert_eq!(line["verdict"], "same");

    // Folders of traces.
    std::fs::create_dir(place.path("old")).unwrap();
    for name in ["base1", "base2"] {
        std::fs::rename(place.path(name), place.path("old").join(name)).unwrap();
    }
    let (result, _) = place.json(&["old", "--", "larger1", "larger1"]);
    assert_eq!(result["base"].as_array().unwrap().len(), 2);
    assert_eq!(change(&result, "run", "", "F")["verdict"], "worse");
    formats(&place);
    refusals(&place);
    action(&place);
}

fn formats(place: &TestFolder) {
    let sides = ["old/base1", "--", "larger1"];
    let with = |options: &[&str]| text(&place.compare(&[options, &sides].concat()));
    let markdown = with(&["--format", "markdown"]);
    assert!(
        markdown.starts_with("### Memory\n") && markdown.contains("\n|---|"),
        "{markdown}"
    );
    let gate = ["--fail-if", "F>10%,loads.pick>1%"];
    let junit = with(&[&gate[..], &["--format", "junit"]].concat());
    assert!(
        junit.contains(r#"tests="2" failures="1""#) && junit.contains("name=\"F&gt;10%\"><failure"),
        "{junit}"
    );
    let numbers: Value =
        serde_json::from_str(&with(&["--format", "customSmallerIsBetter"])).unwrap();
    let rows = numbers.as_array().unwrap();
    assert!(
        rows.iter()
            .all(|r| r["name"].is_string() && r["unit"].is_string() && r["value"].is_number())
    );
    let loads = rows.iter().find(|r| r["name"] == "loads of walk").unwrap();
    assert_eq!(loads["value"].as_f64(), Some(10.0 * 5325.0));
    let also = with(&["--also", "json=all.json", "--also", "junit=all.xml"]);
    assert!(also.contains("touches"), "{also}");
    let all: Value =
        serde_json::from_slice(&std::fs::read(place.path("all.json")).unwrap()).unwrap();
    assert_eq!(all["format"], "mgz-comparison");
    assert!(
        std::fs::read_to_string(place.path("all.xml"))
            .unwrap()
            .contains("<testsuite ")
    );
}

fn refusals(place: &TestFolder) {
    let bad = place.compare(&["--fail-if", "F>10%,memory>5%", "old/base1", "--", "larger1"]);
    let message = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(code(&bad), 2, "{message}");
    assert!(message.contains("at character 7"), "{message}");
    let nobody = place.compare(&["--fail-if", "loads.nobody>5%", "old/base1", "--", "larger1"]);
    let message = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert_eq!(code(&nobody), 1, "{message}");
    assert!(message.contains("neither side has that name"), "{message}");
    std::fs::create_dir(place.path("empty")).unwrap();
    let empty = place.compare(&["empty", "--", "larger1"]);
    assert_eq!(code(&empty), 1);
    // Two paths need no `--`, but more do.
    assert_eq!(code(&place.compare(&["old/base1", "larger1"])), 0);
    let many = place.compare(&["old/base1", "old/base2", "larger1"]);
    let message = String::from_utf8_lossy(&many.stderr).into_owned();
    assert_eq!(code(&many), 2, "{message}");
    assert!(
        message.contains("mgz compare old/base1 … -- … larger1"),
        "{message}"
    );
}

/// Runs the script of the composite action as its step does.
fn action(place: &TestFolder) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/action/compare.sh");
    let mgz = tools::binary("mgz");
    for (condition, status) in [("F>10%", 3), ("F>50%", 0)] {
        let summary = place.path(&format!("summary{status}"));
        let outputs = place.path(&format!("outputs{status}"));
        let mut step = Command::new("bash");
        step.arg(&script)
            .current_dir(place.dir.path())
            .env("MGZ", &mgz)
            .env("MGZ_BASE", "old")
            .env("MGZ_NEW", "larger1")
            .env("MGZ_FAIL_IF", condition)
            .env("MGZ_OUTPUT", "out")
            .env("GITHUB_STEP_SUMMARY", &summary)
            .env("GITHUB_OUTPUT", &outputs);
        let output = tools::run_limited(&mut step, LIMIT).unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), status, "{message}");
        assert!(
            std::fs::read_to_string(&summary)
                .unwrap()
                .starts_with("### Memory")
        );
        let outputs = std::fs::read_to_string(&outputs).unwrap();
        let worse = format!("worse={}", status == 3);
        assert!(outputs.lines().any(|l| l == worse), "{outputs}");
        for file in ["comparison.json", "junit.xml", "benchmark.json"] {
            assert!(place.path("out").join(file).exists(), "{file}");
        }
    }
}

#[test]
fn samples_of_one_program_do_not_differ() {
    let place = TestFolder {
        dir: tempfile::tempdir().unwrap(),
    };
    let app = place.build("base", &[], "");
    let other = place.build("larger", &["-DSIZE=12288"], "");
    let ring = |period| ["--mode", "ring", "--period", period, "--window", "1000"];
    place.record("a", &app, &ring("4001"));
    place.record("b", &app, &ring("4099"));
    place.record("c", &other, &ring("4001"));
    let same = place.compare(&["--fail-if", "F>0%,loads>0%", "a", "--", "b"]);
    assert_eq!(code(&same), 0, "{}", text(&same));
    // The size of a variable is in the file, so samples also have it.
    for condition in ["loads>50%", "size.table>199%"] {
        let three = place.compare(&["--fail-if", condition, "a", "--", "c"]);
        assert_eq!(code(&three), 3, "{condition}: {}", text(&three));
    }
    let same = place.compare(&["--fail-if", "size.*>0%", "a", "--", "b"]);
    assert_eq!(code(&same), 0, "{}", text(&same));
}
