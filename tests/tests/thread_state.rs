//! States of the thread and process on which the code of the runtime, probes and clones must not
//! depend (table in docs/design/thread-state.md). A program sets each state and continues its work.
//! Either it is recorded and behaves as it does without mgz, or the file is refused before it runs.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O2;
const MODES: [&[&str]; 3] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "5000", "--window", "500"],
    &["--mode", "burst", "--rate", "2000"],
];

fn build(flags: &[&str], dir: &Path) -> Option<PathBuf> {
    programs::build("states", PLAIN, flags, dir).unwrap()
}

/// Runs states without mgz and recorded in some modes.
fn same(flags: &[&str], modes: &[&[&str]], states: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(flags, dir.path()) else {
        return;
    };
    for state in states {
        let expected = tools::run_limited(Command::new(&original).arg(state), LIMIT).unwrap();
        // (An error of the loader about a missing library in such a state contains the program's
        // name.)
        for options in modes {
            let burst = options[1] == "burst";
            let app = session::instrument_as(&original, if burst { "burst" } else { "ring" }, &[]);
            let trace = dir.path().join(format!("{state}-{}", options[1]));
            let got =
                tools::run_limited(&mut record_command(options, &trace, &app, &[state]), LIMIT);
            same_result(&format!("{state} {}", options[1]), &expected, &got.unwrap()).unwrap();
        }
    }
}

/// The message of `mgz-instrument` for a file that it declines.
fn declined(original: &Path, options: &[&str]) -> String {
    let mut command = tools::tool("mgz-instrument");
    command
        .args(options)
        .arg("-o")
        .arg("declined")
        .arg(original);
    let output =
        tools::run_limited(command.current_dir(original.parent().unwrap()), LIMIT).unwrap();
    assert_eq!(tools::code(&output), 3, "{options:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that the file can be recorded only in `burst`. Other forms are declined, and `mgz-record`
/// refuses the other modes, with the remedy.
fn burst_alone(flags: &[&str], why: &str, backends: &[&[&str]]) {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(flags, dir.path()) else {
        return;
    };
    for options in backends {
        let said = declined(&original, options);
        assert!(
            said.contains(why) && said.contains("--for burst") && said.contains("--mode burst"),
            "{said}"
        );
    }
    let app = session::instrument_as(&original, "burst", &[]);
    for mode in ["full", "ring"] {
        let trace = dir.path().join(mode);
        let mut command = record_command(&["--mode", mode], &trace, &app, &["plain"]);
        let output = tools::run_limited(&mut command, LIMIT).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(tools::code(&output), 125, "{mode}: {said}");
        assert!(said.contains("record with --mode burst"), "{said}");
        assert!(output.stdout.is_empty() && !trace.exists());
    }
}

const SOFT_RING: &[&str] = &["--backend", "soft", "--for", "ring"];
const PT: &[&str] = &["--backend", "pt"];

/// The direction flag, floating-point modes, full use of the x87 and MMX registers, protection
/// keys.
#[test]
fn flags_and_modes_of_the_processor() {
    same(&[], &MODES, &["direction", "modes", "full-stack", "keys"]);
}

/// A trap is reported at the instruction after it, even if that is a no-operation, and with the
/// original's bytes.
#[test]
fn instructions_behind_traps() {
    same(&[], &MODES, &["traps"]);
}

/// After the program has disabled reading the time stamp counter, through the C library or its own
/// system call, no code reads it. The same holds for threads, children and programs that it starts.
#[test]
fn the_time_stamp_counter_is_forbidden() {
    same(&[], &MODES, &["no-counter", "no-counter-raw"]);
}

#[test]
fn no_new_privileges_and_no_new_code() {
    same(&[], &MODES, &["no-new-privileges", "no-new-code"]);
}

/// All signals are blocked or ignored, and the program receives the runtime's signals while it
/// blocks them.
#[test]
fn signals_are_blocked_and_ignored() {
    same(
        &[],
        &MODES,
        &["blocked", "ignored", "raised", "raised-handled"],
    );
}

#[test]
fn limits() {
    same(
        &[],
        &MODES,
        &[
            "address-space",
            "locked-memory",
            "small-stack",
            "few-files",
            "no-files",
            "no-pending",
        ],
    );
}

#[test]
fn alignment_checks() {
    let flags = ["-DALIGNS"];
    same(&flags, &MODES[2..], &["aligned", "aligned-signals"]);
    burst_alone(&flags, "flag", &[SOFT_RING]);
}

#[test]
fn system_calls_that_are_handed_back() {
    let flags = ["-DDISPATCHES"];
    same(
        &flags,
        &MODES[2..],
        &["dispatched", "dispatched-range", "dispatched-raw"],
    );
    burst_alone(&flags, "system calls", &[SOFT_RING]);
}

/// The program receives each of its steps once, whether it sets the trap flag itself or in the
/// context of a handler.
#[test]
fn steps_by_the_trap_flag() {
    let flags = ["-DSTEPS"];
    same(&flags, &MODES[2..], &["stepped", "stepped-by-handler"]);
    burst_alone(&flags, "trap flag", &[SOFT_RING, PT]);
    burst_alone(&["-DSTEPS", "-DBY_RETURN"], "trap flag", &[SOFT_RING]);
    burst_alone(&["-DSTEPS_BY_HANDLER"], "trap flag", &[SOFT_RING, PT]);
}
