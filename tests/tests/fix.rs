//! `mgz fix`: from a finished program to a faster copy, and programs that it refuses.

use mgz_tests::tools::{self, LIMIT, code};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// Gathers from 128 MiB in a random order. The loads do not wait for each other, but because of the
/// work between them the processor can issue only few of them at a time.
const GATHER: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { ELEMENTS = 1 << 24, INDICES = 1 << 21 };
int main(int argc, char **argv) {
    uint32_t *index = malloc(INDICES * sizeof *index);
    uint64_t *table = malloc(ELEMENTS * sizeof *table);
    uint64_t seed = 88172645463325252u, sum = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
        table[i] = i;
    for (size_t i = 0; i < INDICES; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        index[i] = seed % ELEMENTS;
    }
    for (int round = 0; round < atoi(argv[1]); round++)
        for (size_t i = 0; i < INDICES; i++) {
            uint64_t value = table[index[i]];
            for (int n = 0; n < 24; n++)
                value ^= value >> 31, value *= 0x7fb5d329728ea185u;
            sum += value;
        }
    printf("%lu\n", sum);
    return 0;
}
"#;

/// A folder with a program in it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(source: &str) -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::write(place.path("app.c"), source).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-g", "-o"])
            .arg(place.path("app"))
            .arg(place.path("app.c"));
        tools::succeed(&mut cc, LIMIT).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tools::tool("mgz");
        command
            .arg("fix")
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("MGZ_NO_MEASURE", "1");
        command
    }

    fn fix(&self, arguments: &[&str]) -> Output {
        tools::run_limited(&mut self.command(arguments), 5 * LIMIT).unwrap()
    }

    /// Names in the folder, except those of the test itself.
    fn written(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| !["app", "app.c", "cache"].contains(&n.as_str()))
            .collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program that is refused, and returns the message.
fn refused(source: &str, arguments: &[&str]) -> String {
    let place = Place::new(source);
    let output = place.fix(arguments);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 1, "{said}");
    assert_eq!(place.written(), Vec::<String>::new(), "{said}");
    said
}

#[test]
fn programs_that_cannot_be_judged_are_refused() {
    let fails = "int main(void){return 7;}\n";
    let said = refused(fails, &["--", "./app"]);
    assert!(
        said.contains("ends with status 7") && said.contains("--stdin FILE"),
        "{said}"
    );
    let short = "int main(void){return 0;}\n";
    assert!(refused(short, &["--", "./app"]).contains("too short"));
    // The address of a variable on the stack differs in each run.
    let differs = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) { usleep(150000); printf("%d\n", (int)getpid()); return 0; }
"#;
    let said = refused(differs, &["--", "./app"]);
    assert!(
        said.contains("stdout of two runs is different") && said.contains("--check"),
        "{said}"
    );
    let said = refused(differs, &["--check", "false", "--", "./app"]);
    assert!(said.contains("--check ends with status 1"), "{said}");
    let said = refused(short, &["-o", "app", "--", "./app"]);
    assert!(said.contains("is the program itself"), "{said}");
    let absent = Place::new(short).fix(&["--", "./app.sh"]);
    let said = text(&absent.stderr);
    assert!(code(&absent) == 127 && said.contains("not found"), "{said}");
}

#[test]
fn scripts_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("int main(void){return 0;}\n");
    let script = place.path("run");
    tools::write_program(&script, b"#!/bin/sh\n./app\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let output = place.fix(&["--", "./run"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("is a script"));
}

#[test]
fn a_program_without_a_finding_is_left_alone() {
    // The program only computes; none of its loads miss.
    let place = Place::new(
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
    let output = place.fix(&["--", "./app"]);
    let said = text(&output.stdout);
    assert_eq!(code(&output), 4, "{said}{}", text(&output.stderr));
    assert!(said.contains("app is left as it is: "), "{said}");
    assert_eq!(place.written(), Vec::<String>::new());
}

#[test]
fn a_stopped_fix_leaves_no_file() {
    let place = Place::new(GATHER);
    let mut command = place.command(&["--", "./app", "2000"]);
    let child = tools::interruptible(&mut command)
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains("stopped: the program is as it was"), "{said}");
    assert_eq!(place.written(), Vec::<String>::new());
}

#[test]
fn a_gather_becomes_faster_and_the_fix_can_be_applied_again() {
    let place = Place::new(GATHER);
    let output = place.fix(&["--pairs", "6", "--", "./app", "2"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    // A busy machine, or one that overlaps these loads by itself, may show no gain.
    if code(&output) == 4 {
        assert!(said.contains("kept 0 of "), "{said}");
        assert_eq!(place.written(), Vec::<String>::new());
        tools::skip("no gain was measured on this machine");
        return;
    }
    assert_eq!(code(&output), 0, "{said}");
    assert!(said.contains("times as fast ("), "{said}");
    let document: Value =
        serde_json::from_slice(&std::fs::read(place.path("app.fix.json")).unwrap()).unwrap();
    assert_eq!(document["format"], "mgz-fix");
    assert!(document["result"]["times_as_fast_lo"].as_f64().unwrap() > 1.01);
    let candidates = document["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|c| c["outcome"] == "kept"), "{said}");
    let has_library = document["recipe"]["library"]["sites"] != serde_json::json!([]);
    let files: &[&str] = match has_library {
        true => &["app.fix.json", "app.fixed", "app.fixed.so"],
        false => &["app.fix.json", "app.fixed"],
    };
    assert_eq!(place.written(), files);
    let kept = std::fs::read_to_string(place.path("cache/mgz/fixes")).unwrap();
    let mut records = kept
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_kept = records.find(|r| r["outcome"] == "kept").unwrap();
    assert_eq!(of_kept["program"], "app");
    assert!(of_kept["measured"]["saved_pct"].as_f64().unwrap() > 1.0);
    // The output is that of the original.
    let run = |file: &str| {
        let mut command = Command::new(place.path(file));
        tools::run_limited(command.arg("1"), LIMIT).unwrap().stdout
    };
    assert_eq!(run("app"), run("app.fixed"));
    // Applying the fix again gives the same bytes.
    let again = place.fix(&["--apply", "app.fix.json", "-o", "again", "--", "./app"]);
    assert_eq!(code(&again), 0, "{}", text(&again.stderr));
    assert_eq!(
        std::fs::read(place.path("again")).unwrap(),
        std::fs::read(place.path("app.fixed")).unwrap()
    );
    fixed_programs_are_recorded_or_refused(&place, &document);
    mismatches_are_refused(&place, document);
}

/// A fixed program with a library is recorded in its folder. For one with prefetches, `mgz run`
/// tells the user what to do.
fn fixed_programs_are_recorded_or_refused(place: &Place, document: &Value) {
    let mut command = tools::tool("mgz");
    command
        .args([
            "run",
            "--no-open",
            "-o",
            "fixed.mgz",
            "--",
            "./app.fixed",
            "2",
        ])
        .current_dir(place.dir.path())
        .env("XDG_CACHE_HOME", place.path("cache"))
        .env("MGZ_NO_MEASURE", "1");
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

/// A fix of another build, processor or version is refused, and so is a file that is not a fix.
fn mismatches_are_refused(place: &Place, document: Value) {
    let changed = |key: &str, field: Option<&str>, value: Value| {
        let mut other = document.clone();
        match field {
            Some(field) => other[key][field] = value,
            None => other[key] = value,
        }
        std::fs::write(place.path("other.json"), other.to_string()).unwrap();
        let output = place.fix(&["--apply", "other.json", "-o", "other", "--", "./app"]);
        assert_eq!(code(&output), 1);
        assert!(!place.path("other").exists());
        text(&output.stderr)
    };
    assert!(changed("program", Some("build_id"), "00".into()).contains("another build"));
    assert!(changed("cpu", None, "none".into()).contains("another processor"));
    assert!(changed("version", None, 99.into()).contains("another version"));
    assert!(changed("format", None, "x".into()).contains("is no document of mgz fix"));
}
