//! Programs under a seccomp filter that kills them for a forbidden system call. When they are
//! recorded with signals and watchpoints, they still run to their end.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use std::process::Command;

const PLAIN: Variant = Variant::O2;

#[test]
fn what_a_filter_kills_for_is_not_called() {
    let dir = tempfile::tempdir().unwrap();
    let plain = programs::build("confined", PLAIN, &["-pthread"], dir.path())
        .unwrap()
        .unwrap();
    let app = session::instrument(&plain, "soft", &["--for", "burst"]).unwrap();
    // close, mmap, rt_sigaction, rt_sigprocmask, rt_sigreturn, ioctl, madvise, getpid, kill, fcntl,
    // sigaltstack, gettid, futex, clock_gettime, tgkill, perf_event_open.
    let alone = [
        "strict", "3", "9", "13", "14", "15", "16", "28", "39", "62", "72", "131", "186", "202",
        "228", "234", "298",
    ];
    // (docs/reference/limits.md names the calls that are required to create threads and children.)
    let others = ["3", "28", "72", "228", "298"];
    let cases = (alone.iter().map(|refused| ("alone", refused)))
        .chain(others.iter().map(|refused| ("fork", refused)))
        .chain(others.iter().map(|refused| ("thread", refused)));
    let trace = dir.path().join("trace");
    let mut compared = 0;
    for (mode, refused) in cases {
        let arguments = [mode, "60", refused];
        let want = tools::run_limited(Command::new(&plain).args(arguments), LIMIT).unwrap();
        if tools::code(&want) != 15 {
            // The C library calls it.
            continue;
        }
        compared += 1;
        for options in [
            &["--rate", "2000"][..],
            &["--rate", "2000", "--no-reuse-pairs"],
        ] {
            let options = [&["--mode", "burst", "--force"], options].concat();
            let got = recorded_run(&options, &trace, &app.path, &arguments);
            let said = String::from_utf8_lossy(&got.stderr);
            assert_eq!(tools::code(&got), 15, "{arguments:?} {options:?}: {said}");
            assert_eq!(got.stdout, want.stdout, "{arguments:?} {options:?}: {said}");
        }
    }
    assert!(compared > 18, "{compared}");
}

/// The same for filters that no function of the C library installs, in executables without a
/// loader, and for full traces and rings, whose probes write until the program ends.
#[test]
fn filters_of_all_kinds_of_programs() {
    let dir = tempfile::tempdir().unwrap();
    let builds: [&[&str]; 5] = [
        &[],
        &["-DINLINE"],
        &["-DBY_SECCOMP"],
        &["-static"],
        &["-static", "-DBY_SECCOMP"],
    ];
    // rt_sigprocmask, rt_sigreturn, gettid, clock_gettime.
    let refused = ["strict", "14", "15", "186", "228"];
    let trace = dir.path().join("trace");
    for flags in builds {
        let name = flags.concat();
        let place = dir.path().join(&name);
        std::fs::create_dir_all(&place).unwrap();
        let flags = [&["-pthread"], flags].concat();
        let plain = programs::build("confined", PLAIN, &flags, &place)
            .unwrap()
            .unwrap();
        for (mode, purpose) in [("burst", "burst"), ("ring", "ring"), ("full", "ring")] {
            let app = session::instrument(&plain, "soft", &["--for", purpose]).unwrap();
            for refused in refused {
                let arguments = ["alone", "2", refused];
                let want = tools::run_limited(Command::new(&plain).args(arguments), LIMIT).unwrap();
                assert_eq!(tools::code(&want), 15);
                let options = ["--mode", mode, "--force"];
                let got = recorded_run(&options, &trace, &app.path, &arguments);
                let said = String::from_utf8_lossy(&got.stderr);
                let case = format!("{name} {mode} {refused}");
                assert_eq!(tools::code(&got), 15, "{case}: {said}");
                assert_eq!(got.stdout, want.stdout, "{case}: {said}");
                assert!(said.contains("forbidden"), "{case}: {said}");
            }
        }
    }
}
