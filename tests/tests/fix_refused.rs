//! `mgz fix` refuses programs that it cannot judge, and recordings and fixes of something else. If it
//! refuses or is stopped, it leaves the program as it is and writes no file.

use mgz_tests::fix_folder::{FixFolder, GATHER};
use mgz_tests::tools::{self, LIMIT, code};
use object::Object;
use serde_json::{Value, json};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::ptr::{null, null_mut};

/// A program that ends at once.
const SHORT: &str = "int main(void) { return 0; }\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that nothing was written, and returns the message.
fn message(folder: &FixFolder, output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(code(output), 1, "{said}");
    assert_eq!(folder.written(), Vec::<String>::new(), "{said}");
    said
}

/// Runs a program that is refused, and returns the message.
fn refused(source: &str, arguments: &[&str]) -> String {
    let folder = FixFolder::new(source);
    message(&folder, &folder.fix(arguments))
}

#[test]
fn programs_that_cannot_be_judged_are_refused() {
    // On a busy machine even this program may take long enough; then it is tried again.
    let short = FixFolder::new(SHORT);
    tools::until("a short run", || {
        let output = short.fix(&["--", "./app"]);
        code(&output) == 1 && message(&short, &output).contains("too short")
    });
    let differs = r#"
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
    let said = refused(SHORT, &["-o", "app", "--", "./app"]);
    assert!(said.contains("is the program itself"), "{said}");
    let absent = FixFolder::new(SHORT).fix(&["--", "./app.sh"]);
    let said = text(&absent.stderr);
    assert!(code(&absent) == 127 && said.contains("not found"), "{said}");
}

#[test]
fn scripts_and_programs_with_the_rights_of_their_owner_are_refused() {
    let folder = FixFolder::new(SHORT);
    let mode = |name: &str, mode| {
        std::fs::set_permissions(folder.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("app", 0o4755);
    let said = message(&folder, &folder.fix(&["--", "./app"]));
    assert!(said.contains("the rights of its owner"), "{said}");
    tools::write_program(&folder.path("run"), b"#!/bin/sh\n./app\n").unwrap();
    mode("run", 0o755);
    let output = folder.fix(&["--", "./run"]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("is a script"));
}

#[test]
fn a_failure_is_shown_with_the_last_line_of_the_program() {
    let fails = r#"
int main(void) {
    fputs("reading the tables\nno table with this name\n\n", stderr);
    return 7;
}
"#;
    let said = refused(fails, &["--", "./app"]);
    assert!(said.contains("ends with status 7"), "{said}");
    assert!(said.contains("--stdin FILE"), "{said}");
    assert!(
        said.contains("its last line: no table with this name\n"),
        "{said}"
    );
    assert!(!said.contains("reading the tables"), "{said}");
    // Another text for a program that has input.
    let said = refused(fails, &["--stdin", "app.c", "--", "./app"]);
    assert!(
        said.contains("without a terminal; its last line: "),
        "{said}"
    );
}

#[test]
fn a_failure_of_the_recorded_run_is_shown_with_the_last_line_of_the_program() {
    let fails_later = r#"
#include <unistd.h>
int main(int argc, char **argv) {
    usleep(150000);
    if (count_run(argv[1]) < 3)
        return 0;
    fputs(argc > 2 ? "reading the tables\nno more runs today\n" : "", stderr);
    return 7;
}
"#;
    let folder = FixFolder::new(fails_later);
    let said = |runs: &str, more: &[&str]| {
        let runs = folder.other(runs);
        let fix = ["--", "./app", runs.to_str().unwrap()];
        let said = message(&folder, &folder.fix(&[&fix, more].concat()));
        let (_, last) = said
            .split_once("ends with status 7 while it is recorded: ")
            .expect(&said);
        last.to_owned()
    };
    assert_eq!(said("runs", &["talk"]), "no more runs today\n");
    // Only the recorder says something.
    assert!(said("silent", &[]).starts_with("mgz-record: "));
}

#[test]
fn a_program_whose_output_differs_in_a_later_run_is_refused() {
    let folder = FixFolder::new(GATHER);
    let runs = folder.other("runs");
    let output = folder.fix(&["--", "./app", "1", runs.to_str().unwrap()]);
    let said = message(&folder, &output);
    assert!(said.contains("mgz: trying "), "{said}");
    assert!(
        said.contains("the stdout of two runs is different without any fix"),
        "{said}"
    );
}

#[test]
fn a_recording_of_another_build_is_refused() {
    let prints = |word: &str| {
        let program = r#"
#include <unistd.h>
int main(void) { usleep(150000); puts("WORD"); return 0; }
"#;
        program.replace("WORD", word)
    };
    let folder = FixFolder::new(&prints("one"));
    let trace = folder.other("app.mgz");
    let trace = trace.to_str().unwrap();
    let mut record = folder.mgz(&["run", "--no-open", "-o", trace, "--", "./app"]);
    tools::succeed(&mut record, LIMIT).unwrap();
    let fix = ["--trace", trace, "--", "./app"];
    let same = folder.fix(&fix);
    assert_eq!(code(&same), 4, "{}", text(&same.stderr));
    folder.build(&prints("another"));
    let said = message(&folder, &folder.fix(&fix));
    assert!(said.contains("is no recording of this build of "), "{said}");
}

/// A fix that moves large blocks to large pages.
fn document(program: &Path) -> Value {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().expect("a build id");
    let build_id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let all = json!({"frames": [{"module": "*", "offset": 0}], "action": "HugePages"});
    json!({
        "format": "mgz-fix",
        "version": 1,
        "program": {"build_id": build_id},
        "cpu": mgz_collector::machine::identity::cpu(),
        "command": ["./app"],
        "output": "app.fixed",
        "result": {
            "times_as_fast": 2.0, "times_as_fast_lo": 2.0, "times_as_fast_hi": 2.0,
            "saved_pct": 50.0, "saved_pct_lo": 50.0, "saved_pct_hi": 50.0,
            "pairs": 4, "seconds_before": 2.0, "seconds_after": 1.0,
        },
        "candidates": [],
        "recipe": {"loads": [], "library": {"sites": [all], "static_huge": false}},
    })
}

#[test]
fn a_fix_for_something_else_is_refused() {
    let folder = FixFolder::new(SHORT);
    std::fs::set_permissions(folder.path("app"), PermissionsExt::from_mode(0o755)).unwrap();
    let fix = document(&folder.path("app"));
    let given = folder.other("given.json");
    let apply = |bytes: &[u8]| {
        std::fs::write(&given, bytes).unwrap();
        folder.fix(&["--apply", given.to_str().unwrap(), "--", "./app"])
    };
    let refused = |bytes: &[u8]| message(&folder, &apply(bytes));
    let changed = |at: &str, value: Value| {
        let mut other = fix.clone();
        *other.pointer_mut(at).unwrap() = value;
        refused(other.to_string().as_bytes())
    };
    assert!(changed("/program/build_id", "00".into()).contains("another build"));
    assert!(changed("/cpu", "none".into()).contains("another processor"));
    assert!(changed("/version", 99.into()).contains("another version"));
    assert!(changed("/format", "x".into()).contains("is no document of mgz fix"));
    let whole = fix.to_string();
    let none = json!({"sites": [], "static_huge": false});
    assert!(changed("/recipe/library", none).contains("has no changes"));
    let half = &whole.as_bytes()[..whole.len() / 2];
    assert!(refused(half).contains("is no document of mgz fix"));
    // The unchanged document is accepted.
    let accepted = apply(whole.as_bytes());
    assert_eq!(code(&accepted), 0, "{}", text(&accepted.stderr));
    assert_eq!(folder.written(), ["app.fixed", "app.fixed.so"]);
    // Other users can run it, too.
    let mode = std::fs::metadata(folder.path("app.fixed.so"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o444, 0o444, "{mode:o}");
}

/// A terminal: its own end, and the end of programs.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut own, mut theirs) = (0, 0);
    let (no_name, default, no_size) = (null_mut(), null(), null());
    // SAFETY: both numbers are written by the call, and belong to nothing else.
    unsafe {
        let made = libc::openpty(&mut own, &mut theirs, no_name, default, no_size);
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        (OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(theirs))
    }
}

/// Runs a command whose standard input is its controlling terminal. `meanwhile` gets the other end.
fn run_in_terminal(command: &mut Command, meanwhile: impl FnOnce(&OwnedFd) + Send) -> Output {
    let (own, theirs) = terminal();
    let input = theirs.as_raw_fd();
    // SAFETY: only calls that are safe after a fork.
    unsafe {
        command.pre_exec(move || {
            let is_set = libc::setsid() >= 0
                && libc::dup2(input, 0) == 0
                && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0;
            match is_set {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
    // A shell that runs the tests in the background ignores interrupts.
    let command = tools::interruptible(command);
    tools::run_beside(command, None, LIMIT, |_| meanwhile(&own)).unwrap()
}

#[test]
fn a_program_that_needs_a_terminal_is_refused() {
    let asks = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    if (isatty(0) || open("/dev/tty", O_RDWR) >= 0)
        return 0;
    fputs("nobody can answer\n", stderr);
    return 3;
}
"#;
    let folder = FixFolder::new(asks);
    let mut fix = folder.mgz(&["fix", "--", "./app"]);
    let output = run_in_terminal(&mut fix, |_| {});
    let said = message(&folder, &output);
    assert!(
        said.contains("it runs without a terminal and without input"),
        "{said}"
    );
    assert!(said.contains("its last line: nobody can answer"), "{said}");
}

/// Presses Ctrl-C while a run of the program waits.
fn stopped_in(run: u64) {
    let folder = FixFolder::new(GATHER);
    let runs = folder.other("runs");
    let before = std::fs::read(folder.path("app")).unwrap();
    let waits = run.to_string();
    let mut fix = folder.mgz(&["fix", "--", "./app", "1", runs.to_str().unwrap(), &waits]);
    let mut was_there = Vec::new();
    let output = run_in_terminal(&mut fix, |terminal| {
        let begun = || std::fs::metadata(&runs).is_ok_and(|m| m.len() >= run);
        tools::until("the run", begun);
        was_there = folder.written();
        // SAFETY: one byte is read.
        let pressed = unsafe { libc::write(terminal.as_raw_fd(), c"\x03".as_ptr().cast(), 1) };
        assert_eq!(pressed, 1);
    });
    let said = message(&folder, &output);
    assert!(said.contains("stopped: the program is as it was"), "{said}");
    assert_eq!(said.contains("mgz: trying "), run > 3, "{said}");
    assert_eq!(!was_there.is_empty(), run > 3, "{was_there:?}");
    assert!(std::fs::read(folder.path("app")).unwrap() == before);
}

#[test]
fn a_stop_in_the_first_run_leaves_no_file() {
    stopped_in(1);
}

#[test]
fn a_stop_in_the_recorded_run_leaves_no_file() {
    stopped_in(3);
}

#[test]
fn a_stop_while_a_candidate_is_tried_leaves_no_file() {
    // The original runs before the candidate, whose file exists then.
    stopped_in(4);
}
