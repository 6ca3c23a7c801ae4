//! The driver with real processes. None of them is instrumented: what is tested is that they are
//! left as they are, and that their ends are understood.

use mgz_annotations_schema::ProgramStatus;
use mgz_collector::soft::outcome::{DriverError, RunEvent, RunOutcome};
use mgz_collector::soft::run::run_recorded;
use mgz_collector::soft::run_options::{Mode, RunOptions};
use mgz_collector::soft::window_log::OfWindows;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signal settings belong to the process, so one run at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(dir: &Path, program: &str, args: &[&str]) -> RunOptions {
    RunOptions {
        mode: Mode::Full,
        period: 0,
        window: 0,
        trigger: Some(mgz_collector::machine::trigger::WindowTrigger::time(100.0)),
        signal: 60,
        duration: None,
        spill_dir: dir.to_owned(),
        program: PathBuf::from(program),
        argv: std::iter::once(&program)
            .chain(args)
            .map(OsString::from)
            .collect(),
        no_aslr: false,
        phases: Default::default(),
        max_bytes: None,
        of_windows: OfWindows {
            stacks: true,
            reuses: true,
        },
        heap: None,
        before_runtime: Vec::new(),
        heap_place: None,
        online: None,
        counters: true,
    }
}

fn shell(script: &str) -> RunOutcome {
    let dir = tempfile::tempdir().unwrap();
    run_recorded(
        &options(dir.path(), "/bin/sh", &["-c", script]),
        &mut |_| {},
    )
    .unwrap()
}

#[test]
fn the_programs_status_is_understood() {
    let _alone = alone();
    assert_eq!(shell("exit 0").status, ProgramStatus::Exited(0));
    assert_eq!(shell("exit 7").status, ProgramStatus::Exited(7));
    let killed = shell("kill -9 $$");
    assert_eq!(killed.status, ProgramStatus::Signaled(9));
    // The shell is told of as a program that is not recorded.
    assert!(
        killed.threads.is_empty()
            && killed.modules.len() == 1
            && killed.modules[0].result == mgz_abi::shared_memory::MODULE_PLAIN
            && killed.problems.is_empty()
            && !killed.interrupted,
        "{killed:?}"
    );
    assert_eq!((killed.spill_bytes, killed.spill_done), (0, Duration::ZERO));
}

#[test]
fn programs_that_cannot_run_have_the_statuses_of_env() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let fail =
        |program: &str| run_recorded(&options(dir.path(), program, &[]), &mut |_| {}).unwrap_err();
    let missing = fail("/nonexistent/program");
    assert!(matches!(missing, DriverError::NotFound { .. }), "{missing}");
    assert_eq!(missing.exit_status(), 127);
    for program in ["/", "/etc/passwd"] {
        let error = fail(program);
        assert_eq!(error.exit_status(), 126, "{error}");
    }
    let bad = RunOptions {
        mode: Mode::Ring,
        period: 10,
        window: 11,
        ..options(dir.path(), "/bin/true", &[])
    };
    assert_eq!(
        run_recorded(&bad, &mut |_| {}).unwrap_err().exit_status(),
        125
    );
}

#[test]
fn environment_descriptors_and_signals_are_those_of_an_unrecorded_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    // The files that /proc shows of descriptors differ from run to run; their numbers must not.
    let script = "env; ls /proc/self/fd; grep -E '^(Sig(Blk|Ign|Cgt)|ShdPnd)' /proc/self/status; ulimit -n; ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat";
    let file = |name: &str| dir.path().join(name).display().to_string();
    let to = |name: &str| format!("exec >{} 2>&1; {script}", file(name));
    let mut plain = std::process::Command::new("/bin/sh");
    // SAFETY: does nothing. With it the standard library forks, as the driver makes it do; its
    // other way of starting a program ignores two signals of the C library.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut plain, || Ok(())) };
    assert!(plain.arg("-c").arg(to("plain")).status().unwrap().success());
    assert_eq!(shell(&to("traced")).status, ProgramStatus::Exited(0));
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let (plain, traced) = (read("plain"), read("traced"));
    let tidy = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with("_="))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (plain, mut traced) = (tidy(&plain), tidy(&traced));
    // A program without instrumentation keeps what the recorder put into its environment, or loses
    // it to the runtime; either way nothing else may differ.
    let ours = ["MGZ_RUNTIME=", "MGZ_PRELOAD=", "LD_PRELOAD=/proc/"];
    traced.retain(|l| !ours.iter().any(|name| l.starts_with(name)));
    assert_eq!(plain, traced);
}

#[test]
fn a_limit_on_file_sizes_concerns_the_program_and_the_spill_only() {
    let _alone = alone();
    let old = {
        let mut old = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the struct lives across the call.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut old) };
        assert_eq!(result, 0);
        old
    };
    let set = |limit: libc::rlimit| {
        // SAFETY: as above.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
        assert_eq!(result, 0);
    };
    // Smaller than the shared memory, larger than what the test runner's own output may be written
    // to.
    set(libc::rlimit {
        rlim_cur: 1 << 30,
        ..old
    });
    let outcome = shell("test $(ulimit -f) = 2097152");
    set(old);
    assert_eq!(outcome.status, ProgramStatus::Exited(0));
}

#[test]
fn a_signal_for_the_recorder_reaches_the_program() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    let script = format!(
        "trap 'exit 42' TERM; : >{}; while :; do sleep 0.05; done",
        ready.display()
    );
    let me = std::process::id() as i32;
    let sender = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(20);
        while !ready.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: a signal to ourselves, which the driver handles.
        unsafe { libc::kill(me, libc::SIGTERM) };
    });
    let outcome = shell(&script);
    sender.join().unwrap();
    assert_eq!(outcome.status, ProgramStatus::Exited(42));
    assert!(outcome.interrupted);
    assert!(!shell("exit 0").interrupted, "the next run starts afresh");
}

#[test]
fn progress_is_reported_and_children_that_outlive_the_program_do_not_hold_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut reports = 0;
    let began = Instant::now();
    let outcome = run_recorded(
        &options(
            dir.path(),
            "/bin/sh",
            &[
                "-c",
                "sleep 30 >/dev/null 2>&1 & sleep 0.5; kill -9 $!; exit 3",
            ],
        ),
        &mut |event| {
            reports += u32::from(matches!(event, RunEvent::Progress { .. }));
        },
    )
    .unwrap();
    assert_eq!(outcome.status, ProgramStatus::Exited(3));
    assert!(reports >= 3, "{reports}");
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(
        outcome.wall >= Duration::from_millis(500) && outcome.wall < Duration::from_secs(20),
        "{:?}",
        outcome.wall
    );
}
