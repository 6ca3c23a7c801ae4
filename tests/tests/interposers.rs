//! Programs that define functions of the C library themselves, in the executable or in a library.
//! Each such function has exactly the callers that it has without mgz; neither the runtime nor its
//! replacements call it.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O1;
const MODES: [&[&str]; 3] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "50000", "--window", "500"],
    &["--mode", "burst", "--rate", "1000"],
];

/// Runs a program without mgz, in all modes, and by `mgz run`; checks that output and status are
/// the same.
fn same(original: &Path, dir: &Path) {
    let expected = tools::run_limited(&mut Command::new(original), LIMIT).unwrap();
    assert!(expected.status.success(), "{expected:?}");
    for options in MODES {
        // (Both kinds of file have the same name.)
        let purpose = if options[1] == "burst" {
            "burst"
        } else {
            "ring"
        };
        let app = session::instrument(original, "soft", &["--for", purpose]).unwrap();
        let trace = dir.join(options[1]);
        let mut command = record_command(options, &trace, &app.path, &[]);
        let got = tools::run_limited(&mut command, LIMIT).unwrap();
        same_result(options[1], &expected, &got).unwrap();
    }
    let mut command = tools::tool("mgz");
    command
        .current_dir(dir)
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env("MGZ_NO_MEASURE", "1")
        .args(["run", "-o", "out", "--"])
        .arg(original);
    let got = tools::run_limited(&mut command, LIMIT).unwrap();
    same_result("mgz run", &expected, &got).unwrap();
}

fn build(dir: &Path, part: &str, extra: &[&str]) -> Option<PathBuf> {
    let mut options = vec!["-w", "-fno-builtin", "-ldl", part];
    options.extend_from_slice(extra);
    programs::build("standins", PLAIN, &options, dir).unwrap()
}

#[test]
fn an_executable_that_defines_functions_of_the_c_library() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(program) = build(dir.path(), "-DPART=0", &[]) {
        same(&program, dir.path());
    }
}

#[test]
fn a_library_that_defines_functions_of_the_c_library() {
    let dir = tempfile::tempdir().unwrap();
    let Some(built) = build(dir.path(), "-DPART=1", &["-shared", "-fPIC"]) else {
        return;
    };
    let library = dir.path().join("libstandins.so");
    std::fs::rename(built, &library).unwrap();
    let place = format!("-Wl,-rpath,{}", dir.path().display());
    let library = library.to_string_lossy();
    if let Some(program) = build(
        dir.path(),
        "-DPART=2",
        &["-Wl,--no-as-needed", &library, &place],
    ) {
        same(&program, dir.path());
    }
}
