//! However a recording ends, the trace can be read and states what is missing.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, Instrumented, record_command, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PLAIN: Variant = Variant::O2;

/// CPU time that shows that a program continues.
const ENOUGH: Duration = Duration::from_millis(300);

fn app(dir: &Path) -> Option<Instrumented> {
    let original = programs::build("ends", PLAIN, &[], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap())
}

/// Starts a recording of `ends HOW` in a separate session.
fn start(options: &[&str], trace: &Path, app: &Instrumented, how: &str) -> Child {
    let mut command = record_command(options, trace, &app.path, &[how]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: plain system calls.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    tools::interruptible(&mut command).spawn().unwrap()
}

/// The recorded program: the child of the recorder that runs `app`.
fn program_of(recorder: &Child, app: &Instrumented) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|n| n.parse::<i32>().ok())
            else {
                continue;
            };
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let child = status.lines().any(|l| {
                l.strip_prefix("PPid:")
                    .is_some_and(|p| p.trim() == recorder.id().to_string())
            });
            if child
                && std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == app.path)
            {
                return pid;
            }
        }
        assert!(Instant::now() < deadline, "the program did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: i32, number: i32) {
    // SAFETY: plain system call on processes that this test started.
    let result = unsafe { libc::kill(pid, number) };
    assert_eq!(result, 0, "kill {pid}: {}", std::io::Error::last_os_error());
}

fn wait(mut child: Child, what: &str) -> (i32, String) {
    use std::os::unix::process::ExitStatusExt;
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            signal(-(child.id() as i32), libc::SIGKILL);
            panic!("{what}: the recorder does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // A program that outlives its recorder may keep the pipe open.
    let mut text = String::new();
    if status.signal() != Some(libc::SIGKILL) {
        let _ = child.stderr.take().unwrap().read_to_string(&mut text);
    }
    (
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        text,
    )
}

fn manifest(trace: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap()
}

/// Analyses the trace; returns the JSON and the output on stderr.
fn analyze(trace: &Path) -> (serde_json::Value, String) {
    let output = tools::run_limited(
        tools::tool("mgz-analyze")
            .args(["--format", "json"])
            .arg(trace),
        LIMIT,
    )
    .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // Status 1: data is missing on disk, and the warnings name it; the analysis covers the rest.
    assert!([0, 1].contains(&tools::code(&output)), "{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

fn accesses(report: &serde_json::Value) -> f64 {
    report["summary"]["A"]
        .as_f64()
        .unwrap_or_else(|| panic!("no summary.A in {report}"))
}

/// Enough bytes of records, in both modes, that some are in complete segments.
const ENOUGH_BYTES: u64 = 8 << 20;

const MODES: [&[&str]; 2] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "10000", "--window", "1000"],
];

/// A program continues when its recorder is killed, and the registers that its probes borrow still
/// survive its handlers.
#[test]
fn a_killed_recorder_of_a_program_with_handlers() {
    const ROUNDS: &str = "60000";
    let dir = tempfile::tempdir().unwrap();
    for opt in ["0", "2"] {
        let Some(original) =
            programs::build("alarms", Variant { opt, ..PLAIN }, &[], dir.path()).unwrap()
        else {
            return;
        };
        let expected = tools::run_limited(Command::new(&original).arg(ROUNDS), LIMIT).unwrap();
        let app = session::instrument(&original, "soft", &[]).unwrap();
        for options in MODES {
            let out = dir.path().join("out");
            let mut command = record_command(
                &[options, &["--force"]].concat(),
                &dir.path().join(options[1]),
                &app.path,
                &[ROUNDS],
            );
            command
                .stdin(Stdio::null())
                .stdout(std::fs::File::create(&out).unwrap())
                .stderr(Stdio::piped());
            // SAFETY: setsid is a plain system call.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    Ok(())
                });
            }
            let recorder = command.spawn().unwrap();
            let program = program_of(&recorder, &app);
            std::thread::sleep(Duration::from_millis(150));
            signal(recorder.id() as i32, libc::SIGKILL);
            wait(recorder, "a killed recorder");
            let deadline = Instant::now() + LIMIT;
            while Path::new(&format!("/proc/{program}")).exists() {
                assert!(Instant::now() < deadline, "the program does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
            let printed = std::fs::read(&out).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&printed),
                String::from_utf8_lossy(&expected.stdout),
                "-O{opt} {options:?}"
            );
            assert!(!printed.is_empty());
        }
    }
}

#[test]
fn control_c() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    for options in MODES {
        let trace = dir.path().join(options[1]);
        let recorder = start(options, &trace, &app, "spin");
        program_of(&recorder, &app);
        tools::until_recorded(&trace, ENOUGH_BYTES);
        // Like a terminal, signals the whole foreground group.
        signal(-(recorder.id() as i32), libc::SIGINT);
        let (status, text) = wait(recorder, "control-c");
        assert_eq!(status, 130, "{text}");
        let m = manifest(&trace);
        assert_eq!(m["program_status"], "signal 2", "{text}");
        assert_ne!(m["state"], "running");
        assert!(accesses(&analyze(&trace).0) > 1000.0);
    }
}

#[test]
fn a_killed_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    for options in MODES {
        let trace = dir.path().join(options[1]);
        let recorder = start(options, &trace, &app, "spin");
        let program = program_of(&recorder, &app);
        tools::until_recorded(&trace, ENOUGH_BYTES);
        signal(program, libc::SIGKILL);
        let (status, text) = wait(recorder, "a killed program");
        assert_eq!(status, 137, "{text}");
        assert_eq!(manifest(&trace)["program_status"], "signal 9");
        assert!(accesses(&analyze(&trace).0) > 1000.0);
    }
}

/// The number of passes that a program prints.
fn passes(printed: &[u8]) -> f64 {
    let text = String::from_utf8_lossy(printed);
    let number = text.lines().find_map(|l| l.strip_prefix("passes "));
    let number = number.unwrap_or_else(|| panic!("{text}"));
    number.parse().unwrap()
}

fn loads_of_counted(trace: &Path) -> f64 {
    let report = analyze(trace).0;
    let rows = report["functions"].as_array().unwrap();
    let counted = rows.iter().find(|r| r["function"] == "counted");
    let counted = counted.unwrap_or_else(|| panic!("{rows:?}"));
    counted["A"].as_f64().unwrap()
}

/// A loop advances the cursor in a register and writes it to memory only when control leaves. The
/// records beyond the cursor in memory must be found.
#[test]
fn a_loop_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let trace = dir.path().join("trace");
    let out = recorded_run(MODES[0], &trace, &app.path, &["loop"]);
    let passes = passes(&out.stdout);
    let kept = loads_of_counted(&trace);
    // IDs are checked once per cache line, which holds four of them.
    assert!(
        passes > 1000.0 && kept > passes - 4.0 && kept < passes + 3.0,
        "{kept} of {passes} passes"
    );
}

/// A thread that is cancelled in the middle of a loop is unwound by the C library's handler. The
/// handler must find the registers as in the original, and the loop's records must be in the trace.
#[test]
fn a_loop_that_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("undone", PLAIN, &[], dir.path()).unwrap() else {
        return;
    };
    let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
    assert!(
        String::from_utf8_lossy(&expected.stdout).ends_with("\n20 0\n"),
        "{expected:?}"
    );
    let burst: &[&str] = &["--mode", "burst", "--rate", "10000", "--window", "100000"];
    for options in [MODES[0], MODES[1], burst] {
        let kind = if options[1] == "burst" {
            "burst"
        } else {
            "ring"
        };
        let app = session::instrument(&original, "soft", &["--for", kind]).unwrap();
        let trace = dir.path().join(options[1]);
        let out = recorded_run(options, &trace, &app.path, &[]);
        session::same_result(options[1], &expected, &out).unwrap();
        if options[1] != "full" {
            continue;
        }
        let passes = passes(&out.stderr);
        let loads = loads_of_counted(&trace);
        // Two loads in each pass; the last pass of each thread may be incomplete.
        assert!(
            passes > 1000.0 && loads >= 2.0 * passes && loads <= 2.0 * passes + 2.0 * 20.0,
            "{loads} loads in {passes} passes"
        );
    }
}

#[test]
fn a_killed_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    for options in MODES {
        let trace = dir.path().join(options[1]);
        let recorder = start(options, &trace, &app, "spin");
        let session = recorder.id() as i32;
        let program = program_of(&recorder, &app);
        tools::until_recorded(&trace, ENOUGH_BYTES);
        signal(session, libc::SIGKILL);
        let (status, _) = wait(recorder, "a killed recorder");
        assert_eq!(status, 137);
        // The program continues without its recorder.
        let before = tools::cpu_time(program).expect("the program runs");
        tools::until_used(program, before + ENOUGH);
        signal(program, libc::SIGKILL);
        let (report, said) = analyze(&trace);
        assert!(accesses(&report) > 1000.0, "{}", options[1]);
        let words = format!("{said} {report}");
        assert!(
            ["interrupted", "incomplete", "missing", "killed", "died"]
                .iter()
                .any(|w| words.contains(w)),
            "the analysis does not say that the recorder died: {said}"
        );
    }
}

/// A small file system for this test, unmounted at the end.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, size: &str) -> Option<Small> {
        std::fs::create_dir(at).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(at)
            .output();
        match done {
            Ok(output) if output.status.success() => Some(Small(at.into())),
            _ => {
                tools::skip(
                    "a small file system cannot be mounted here (not root), so a full disk was not tested",
                );
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    // Six million loads in random order: many megabytes even in the most compact format.
    let original = programs::build("scatter", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    let work = session::instrument(&original, "soft", &[]).unwrap();
    drop(app);
    let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
    for (options, size) in [
        (MODES[0], "3m"),
        (
            &["--mode", "ring", "--period", "1000", "--window", "500"][..],
            "2m",
        ),
    ] {
        let Some(disk) = Small::mount(&dir.path().join(format!("disk.{}", options[1])), size)
        else {
            return;
        };
        let trace = disk.0.join("trace");
        let output = recorded_run(options, &trace, &work.path, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.stdout, expected.stdout,
            "the program is not disturbed: {text}"
        );
        let (report, said) = analyze(&trace);
        assert!(accesses(&report) > 0.0, "{}: {text}", options[1]);
        let m = manifest(&trace);
        let words = format!("{text} {said} {}", m["problems"]);
        assert!(
            words.contains("space") || words.contains("disk"),
            "nothing says that the disk was full: {words}"
        );
        assert_ne!(m["state"], "complete", "{m}");
    }
}
