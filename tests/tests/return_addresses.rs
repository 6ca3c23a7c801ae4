//! Code that inspects return addresses finds the original ones in every mode of the soft flavour:
//! the output of `returns.c` is the same, and so are the counts of calls in `gmon.out`. The PT
//! backend declines such a program.

use mgz_tests::programs;
use mgz_tests::session::{instrument_as, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of a build of the program, and the function that inspects return addresses.
struct Shape {
    compiler: &'static str,
    flags: &'static [&'static str],
    by: &'static str,
}

const SHAPES: [Shape; 8] = [
    shape("gcc", &["-O2", "-pg"], "mcount"),
    shape("gcc", &["-O2", "-pg", "-mfentry"], "__fentry__"),
    shape("gcc", &["-O0", "-pg", "-fno-pie", "-no-pie"], "mcount"),
    shape(
        "gcc",
        &["-O2", "-finstrument-functions", "-DENDS"],
        "__cyg_profile_func_enter",
    ),
    // Only the code itself identifies the function that inspects them.
    shape("gcc", &["-O2", "-DASKED", "-s"], "the function at"),
    shape("gcc", &["-O0", "-DASKED"], "note"),
    shape("clang", &["-O2", "-DASKED"], "note"),
    shape("gcc", &["-O2", "-DWALKED"], "backtrace"),
];

const fn shape(compiler: &'static str, flags: &'static [&'static str], by: &'static str) -> Shape {
    Shape {
        compiler,
        flags,
        by,
    }
}

/// The counts of calls in a profile, by caller and function relative to where the profile's range begins.
fn counts_of_calls(profile: &Path) -> BTreeMap<(u64, u64), u64> {
    let Ok(data) = std::fs::read(profile) else {
        return BTreeMap::new();
    };
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    let half = |at: usize| u64::from(u32::from_le_bytes(data[at..at + 4].try_into().unwrap()));
    let (mut at, mut start, mut counts) = (20, 0, BTreeMap::new());
    while at < data.len() {
        match data[at] {
            0 => {
                start = word(at + 1);
                at += 41 + 2 * half(at + 17) as usize;
            }
            1 => {
                let call = (word(at + 1) - start, word(at + 9) - start);
                *counts.entry(call).or_default() += half(at + 17);
                at += 21;
            }
            kind => panic!("a record of kind {kind}"),
        }
    }
    counts
}

/// Runs a program of one shape as original and in every mode; returns the differences.
fn differences(dir: &Path, program: &Path, what: &str) -> Vec<String> {
    let profile = dir.join("gmon.out");
    let rounds = "1000";
    let expected =
        tools::run_limited(Command::new(program).current_dir(dir).arg(rounds), LIMIT).unwrap();
    let calls = counts_of_calls(&profile);
    let mut wrong = Vec::new();
    for form in ["ring", "burst", "count"] {
        let out = instrument_as(program, form, &[]);
        let modes: &[&[&str]] = match form {
            "ring" => &[&["--mode", "full"], &["--mode", "ring"]],
            "burst" => &[&["--mode", "ring"], &["--mode", "burst", "--rate", "2000"]],
            _ => &[&["--mode", "count"]],
        };
        for mode in modes {
            let what = format!("{what} {form} {mode:?}");
            let _ = std::fs::remove_file(&profile);
            let options = [mode, &["--force"][..]].concat();
            let mut command = record_command(&options, &dir.join("trace"), &out, &[rounds]);
            let got = tools::run_limited(command.current_dir(dir), LIMIT).unwrap();
            wrong.extend(
                same_result(&what, &expected, &got)
                    .err()
                    .map(|e| e.to_string()),
            );
            let now = counts_of_calls(&profile);
            if now != calls {
                wrong.push(format!(
                    "{what}: counts of calls {now:?} instead of {calls:?}"
                ));
            }
        }
    }
    wrong
}

fn built(shape: &Shape, dir: &Path) -> Option<PathBuf> {
    if !tools::have(shape.compiler) {
        tools::skip(&format!("{} is not installed", shape.compiler));
        return None;
    }
    let out = dir.join("returns");
    let mut command = Command::new(shape.compiler);
    command.args(shape.flags).arg("-o").arg(&out);
    tools::succeed(command.arg(programs::source("returns")), LIMIT).unwrap();
    Some(out)
}

#[test]
fn return_addresses_are_the_original_s() {
    let mut wrong = Vec::new();
    for shape in &SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = built(shape, dir.path()) else {
            continue;
        };
        let what = format!("{} {:?}", shape.compiler, shape.flags);
        wrong.extend(differences(dir.path(), &program, &what));
        let mut pt = tools::tool("mgz-instrument");
        pt.args(["--backend", "pt", "-o"])
            .arg(dir.path().join("pt"));
        let pt = tools::run_limited(pt.arg(&program), LIMIT).unwrap();
        let said = String::from_utf8_lossy(&pt.stderr);
        // (The output of backtrace with the PT backend is documented.)
        let is_walked = shape.by == "backtrace";
        let is_declined = tools::code(&pt) == 3 && said.contains(shape.by);
        if is_declined == is_walked {
            wrong.push(format!("{what}: pt: {}: {said}", tools::code(&pt)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Code that seems to load its return address but does not: an unwinder inside the file, and
/// contexts.
#[test]
fn programs_in_which_nobody_looks_are_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    for (source, compiler, flags) in [
        (
            "throws",
            "g++",
            &["-O2", "-static-libgcc", "-static-libstdc++", "-s"][..],
        ),
        ("escapes", "g++", &["-O2"]),
        ("calls", "gcc", &["-O0"]),
    ] {
        let program = dir.path().join(source);
        let mut command = Command::new(compiler);
        command
            .args(flags)
            .args(["-w", "-pthread", "-o"])
            .arg(&program);
        tools::succeed(command.arg(programs::source(source)), LIMIT).unwrap();
        let mut instrument = tools::tool("mgz-instrument");
        instrument.args([
            "--backend",
            "soft",
            "--for",
            "ring",
            "--format",
            "json",
            "-o",
        ]);
        instrument.arg(dir.path().join("out")).arg(&program);
        let report = tools::succeed(&mut instrument, LIMIT).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        assert!(
            report["shows_returns"].is_null(),
            "{source}: {}",
            report["shows_returns"]
        );
    }
}
