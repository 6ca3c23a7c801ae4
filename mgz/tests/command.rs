//! Tests of the command line of `mgz` that run no program. (Cargo builds the binary for this test.)

use std::process::{Command, Output};

fn mgz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mgz"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_begins_with_examples() {
    let help = mgz(&["--help"]);
    assert!(help.status.success());
    let help = text(&help.stdout);
    let (examples, usage) = (help.find("mgz run --"), help.find("Usage:"));
    assert!(examples.is_some() && examples < usage, "{help}");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = mgz(&["completions", shell]);
        assert!(script.status.success(), "{}", text(&script.stderr));
        assert!(text(&script.stdout).contains("doctor"), "{shell}");
    }
    let page = mgz(&["man"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    assert!(text(&page.stdout).contains(".TH"));
}

#[test]
fn what_is_not_understood_is_said_and_runs_nothing() {
    for arguments in [&["run"][..], &["nonsense"], &["report", "/nowhere/trace"]] {
        let done = mgz(arguments);
        assert!(!done.status.success(), "{arguments:?}");
        assert!(!done.stderr.is_empty(), "{arguments:?}");
        assert!(!text(&done.stderr).contains("panicked"), "{arguments:?}");
    }
}
