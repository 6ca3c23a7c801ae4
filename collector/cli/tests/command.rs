//! Exit statuses of the command itself. Those of recordings are tested in `tests/`.
//!
//! Cargo builds the command for the sake of this test, so that a build of all tests has it.

use std::process::{Command, Output};

fn record(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mgz-record"));
    command.args(arguments).output().unwrap()
}

fn assert_fails(arguments: &[&str], status: i32, message: &str) {
    let output = record(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(message), "{text}");
}

#[test]
fn usage_errors_have_a_status_of_their_own() {
    assert_fails(&[], 125, "no program is given");
    assert_fails(&["--nope"], 125, "unexpected argument");
}

#[test]
fn a_missing_program_has_the_status_of_a_shell() {
    assert_fails(&["--", "/nonexistent/program"], 127, "not found");
}

#[test]
fn help_is_no_error() {
    let output = record(&["--help"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: mgz-record"));
}
