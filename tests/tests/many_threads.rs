//! More threads than rings, reservations or low memory: each runs to its end as it does without
//! mgz, recorded or not.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, Instrumented, record_command, recorded_run, same_result};
use mgz_tests::tools::{self, LIMIT};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PLAIN: Variant = Variant::O1;
const MODES: [&[&str]; 2] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "2000", "--window", "100"],
];

fn app(dir: &Path) -> Option<Instrumented> {
    let original = programs::build("many", PLAIN, &[], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap())
}

/// The original's result; `None` if this machine does not allow that many threads.
fn alone(app: &Instrumented, args: &[&str]) -> Option<Output> {
    let output = tools::run_limited(Command::new(&app.original).args(args), LIMIT).unwrap();
    if tools::code(&output) == 3 {
        tools::skip(&format!("{} threads cannot be made here", args[0]));
        return None;
    }
    Some(output)
}

fn threads_without_ring(trace: &Path) -> u64 {
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
    let dropped = &manifest["totals"]["dropped"];
    dropped.as_object().map_or(0, |d| {
        d.iter()
            .filter(|e| e.0.replace('_', " ").contains("without ring"))
            .filter_map(|e| e.1.as_u64())
            .sum()
    })
}

#[test]
fn as_many_as_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    // The second argument: children of the first and the last threads. With 2,500 threads the last
    // ones have no ring; with 9,000 they have no low memory either.
    for args in [&["300"][..], &["300", "9"], &["2500", "9"], &["9000"]] {
        let Some(expected) = alone(&app, args) else {
            continue;
        };
        for options in MODES {
            // Starting this many threads takes minutes if chunks are mapped for thousands of them.
            if args[0] == "9000" && options[1] == "full" {
                continue;
            }
            let trace = dir
                .path()
                .join(format!("{}-{}-{}", options[1], args[0], args.len()));
            let got = recorded_run(options, &trace, &app.path, args);
            same_result(&format!("{args:?} {options:?}"), &expected, &got).unwrap();
            let lost = threads_without_ring(&trace);
            assert_eq!(
                lost > 0,
                args[0].len() > 3,
                "{args:?} {options:?}: {lost} threads without ring"
            );
        }
    }
}

#[test]
fn the_recorder_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app(dir.path()) else { return };
    let args = ["1500", "60"];
    let Some(expected) = alone(&app, &args) else {
        return;
    };
    for (i, delay) in [20, 100, 300, 600].into_iter().enumerate() {
        let out = dir.path().join(format!("out{i}"));
        let mut command = record_command(
            MODES[i % 2],
            &dir.path().join(format!("trace{i}")),
            &app.path,
            &args,
        );
        command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(Stdio::null());
        // SAFETY: setsid is a plain system call.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut recorder = command.spawn().unwrap();
        // Its child runs the program from the moment at which the trace exists.
        let deadline = Instant::now() + LIMIT;
        let children = format!("/proc/{0}/task/{0}/children", recorder.id());
        while std::fs::read_to_string(&children)
            .unwrap_or_default()
            .trim()
            .is_empty()
            && recorder.try_wait().unwrap().is_none()
        {
            assert!(Instant::now() < deadline, "the program did not start");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay));
        let _ = recorder.kill();
        recorder.wait().unwrap();
        let text = || std::fs::read(&out).unwrap();
        while text() != expected.stdout {
            assert!(
                Instant::now() < deadline,
                "after {delay} ms: {:?} instead of {:?}",
                String::from_utf8_lossy(&text()),
                String::from_utf8_lossy(&expected.stdout)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
