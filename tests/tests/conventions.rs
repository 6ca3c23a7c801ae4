//! Functions that preserve more registers than the ABI requires, or return more: produced by
//! compilers and linkers, and written by hand (`conventions.c`). Callers use the preserved
//! registers, so output must equal the original's in every mode and flavour.

use mgz_tests::programs;
use mgz_tests::session::{instrument_as, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libconventions.so";

/// The program, linked with its library. `None`, with a message, if the compiler is missing.
fn build(compiler: &str, options: &[&str], dir: &Path) -> Option<PathBuf> {
    if !tools::have(compiler) {
        tools::skip(&format!(
            "{compiler} is not installed, so calling conventions were not tested with it"
        ));
        return None;
    }
    let source = programs::source("conventions");
    let compile = |more: &[&str], out: &str| {
        // (Binding at the first call changes registers that these functions preserve.)
        let mut command = Command::new(compiler);
        command
            .current_dir(dir)
            .args(["-w", "-Wl,-z,now"])
            .args(options)
            .args(["-o", out])
            .arg(&source)
            .args(more);
        tools::succeed(&mut command, LIMIT).unwrap();
    };
    let mut library = vec![
        "-DLIBRARY",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libconventions.so",
    ];
    if compiler == "gcc" {
        library.push("-mtls-dialect=gnu2");
    }
    compile(&library, LIBRARY);
    compile(
        &[&format!("./{LIBRARY}"), "-Wl,-rpath,$ORIGIN"],
        "conventions",
    );
    Some(dir.join("conventions"))
}

fn check(compiler: &str, options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(compiler, options, dir.path()) else {
        return;
    };
    let expected = tools::succeed(&mut Command::new(&program), LIMIT).unwrap();
    let text = String::from_utf8_lossy(&expected.stdout);
    assert!(
        text.starts_with("changed: 0 0 0 0 0\n"),
        "the original is as it should be: {text}"
    );
    for form in ["ring", "burst", "pt"] {
        for libraries in [&[][..], &["--libs"]] {
            let app = instrument_as(&program, form, libraries);
            let what = |mode: &str| format!("{compiler} {options:?} {form} {libraries:?} {mode}");
            if form == "pt" {
                let got = tools::run_limited(&mut Command::new(&app), LIMIT).unwrap();
                same_result(&what("alone"), &expected, &got).unwrap();
                continue;
            }
            for mode in [
                &["full"][..],
                &["ring", "--period", "5000", "--window", "500"],
                &["burst", "--rate", "2000"],
            ] {
                if mode[0] == "burst" && form != "burst" {
                    continue;
                }
                let options: Vec<&str> =
                    ["--force", "--mode"].iter().chain(mode).copied().collect();
                let mut command = record_command(&options, &dir.path().join("trace"), &app, &[]);
                let got = tools::run_limited(&mut command, LIMIT).unwrap();
                same_result(&what(mode[0]), &expected, &got).unwrap();
            }
        }
    }
}

#[test]
fn gcc_optimised() {
    check("gcc", &["-O2"]);
}

#[test]
fn gcc_unoptimised() {
    check("gcc", &["-O0"]);
}

#[test]
fn clang_optimised() {
    check("clang", &["-O2"]);
}

#[test]
fn clang_unoptimised() {
    check("clang", &["-O0", "-no-pie"]);
}
