//! `--attach`: a process that is already running is sampled, without any effect on it.

use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, Trace};
use mgz_tests::session::{self, Instrumented};
use mgz_tests::tools::{self, LIMIT};
use object::{Object, ObjectSymbol};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const PLAIN: Variant = Variant::O2;
const FIXED: Variant = Variant {
    clang: true,
    opt: "1",
    pie: false,
};
/// Number of words in each array of `attached.c`.
const WORDS: u64 = 1 << 16;

fn app(name: &str, variant: Variant, dir: &Path) -> Option<Instrumented> {
    let original = programs::build(name, variant, &[], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &["--for", "burst"]).unwrap())
}

fn attach(pid: i32, trace: &Path, options: &[&str]) -> Output {
    let mut command = tools::tool("mgz-record");
    command
        .args([
            "--rate",
            "1000",
            "--force",
            "--attach",
            &pid.to_string(),
            "-o",
        ])
        .arg(trace)
        .args(options);
    tools::run_limited(&mut command, LIMIT).unwrap()
}

/// Maximum run time of `attached` in seconds; [`end`] stops it earlier.
const LONG: &str = "110";
/// CPU time after which `attached` has started its threads.
const BEGUN: Duration = Duration::from_millis(50);

fn signal(pid: i32, number: i32) {
    // SAFETY: a plain system call, on a process that this test started.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

/// Ends `attached`.
fn end(pid: i32) {
    signal(pid, libc::SIGUSR2);
}

/// Returns whether both workers have windows and the windows have loads of `chase`.
fn is_enough(app: &Instrumented, trace: &Trace) -> bool {
    let m = &trace.manifest;
    let workers = m.threads.iter().filter(|t| t.samples > 2).count();
    m.totals.samples > 10 && workers >= 2 && steps_of_chase(app, trace) > 1000
}

fn succeeded(done: &Output) {
    assert_eq!(
        tools::code(done),
        0,
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Checks that the rows of `chase` follow its list, without gaps inside windows; returns their
/// number.
fn steps_of_chase(app: &Instrumented, trace: &Trace) -> usize {
    let data = std::fs::read(&app.original).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let symbol = |name: &str| {
        file.symbols()
            .find(|s| s.name() == Ok(name))
            .unwrap_or_else(|| panic!("no {name}"))
    };
    let (chase, list) = (
        symbol("chase"),
        symbol("linked").address() + trace.manifest.modules[0].bias,
    );
    let code = chase.address()..chase.address() + chase.size();
    let mut steps = 0;
    for rows in trace.threads.values() {
        for pair in rows.windows(2).filter(|p| {
            p.iter().all(|r| code.contains(&r.ip))
                && p[0].sample == p[1].sample
                && p[0].ip == p[1].ip
        }) {
            let place = |address: u64| {
                address
                    .checked_sub(list)
                    .filter(|at| at % 8 == 0 && at / 8 < WORDS)
                    .map(|at| at / 8)
            };
            let (now, next) = (place(pair[0].address), place(pair[1].address));
            let (Some(now), Some(next)) = (now, next) else {
                panic!(
                    "{:#x} or {:#x} is not in the list",
                    pair[0].address, pair[1].address
                )
            };
            // Otherwise a new call has begun.
            assert!(
                next == (now * 40501 + 1) % WORDS || next == 0 || pair[1].seq != pair[0].seq + 1,
                "{now} is followed by {next}"
            );
            steps += 1;
        }
    }
    steps
}

/// Threads that live long, come and go, sleep and handle signals, recorded three times; the windows
/// match the execution.
#[test]
fn a_running_process_is_sampled_again_and_again() {
    for variant in [PLAIN, FIXED] {
        let dir = tempfile::tempdir().unwrap();
        let Some(app) = app("attached", variant, dir.path()) else {
            continue;
        };
        let name = |turn: u32| dir.path().join(format!("trace{turn}"));
        let mut failure = String::new();
        let done = tools::run_beside(Command::new(&app.path).arg(LONG), None, LIMIT, |pid| {
            tools::until_used(pid, BEGUN);
            for turn in 0..3 {
                // On a busy machine the threads get little CPU time.
                for seconds in ["0.4", "1.6", "6.4"] {
                    let attached = attach(pid, &name(turn), &["--duration", seconds]);
                    if tools::code(&attached) != 0 {
                        // The program's end, below, tells whether recording broke it.
                        failure =
                            format!("turn {turn}: {}", String::from_utf8_lossy(&attached.stderr));
                        // SAFETY: a plain system call, on a process that this test started.
                        unsafe { libc::kill(pid, libc::SIGUSR2) };
                        return;
                    }
                    if is_enough(&app, &rows::read_trace(&name(turn)).unwrap()) {
                        break;
                    }
                }
            }
            end(pid);
        });
        let done = done.unwrap();
        assert_eq!(
            (tools::code(&done), &*done.stdout),
            (7, &b"fine\n"[..]),
            "{failure}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert_eq!(failure, "");
        for turn in 0..3 {
            let trace = rows::read_trace(&name(turn)).unwrap();
            let m = &trace.manifest;
            assert!(
                m.problems.is_empty() && m.totals.dropped.is_empty(),
                "{turn}: {:?} {:?}",
                m.totals,
                m.problems
            );
            assert_eq!(
                (m.program_status.to_string().as_str(), m.state.as_str()),
                ("runs on", "complete")
            );
            assert!(
                is_enough(&app, &trace),
                "{turn}: both workers: {:?}",
                m.threads
            );
        }
    }
}

/// Frequent triggers may still be pending when recording ends. The next attachment must not take
/// them for the program's own signals.
#[test]
fn attachments_that_follow_one_another_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("attached", PLAIN, dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let done = tools::run_beside(Command::new(&app.path).arg(LONG), None, LIMIT, |pid| {
        tools::until_used(pid, BEGUN);
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(2500) {
            let mut command = tools::tool("mgz-record");
            command
                .args([
                    "--rate",
                    "20000",
                    "--window",
                    "16",
                    "--duration",
                    "0.03",
                    "--force",
                    "--attach",
                    &pid.to_string(),
                    "-o",
                ])
                .arg(&trace);
            succeeded(&tools::run_limited(&mut command, LIMIT).unwrap());
        }
        end(pid);
    });
    let done = done.unwrap();
    assert_eq!(
        (tools::code(&done), &*done.stdout),
        (7, &b"fine\n"[..]),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The recorder stays until the process ends. After a recorder was killed, another one can attach.
#[test]
fn ends_of_processes_and_of_recorders() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("attached", PLAIN, dir.path()) else {
        return;
    };
    let (killed, last) = (dir.path().join("killed"), dir.path().join("last"));
    let done = tools::run_beside(Command::new(&app.path).arg(LONG), None, LIMIT, |pid| {
        tools::until_used(pid, BEGUN);
        let mut victim = tools::tool("mgz-record");
        victim
            .args(["--rate", "1000", "--attach", &pid.to_string(), "-o"])
            .arg(&killed);
        let mut victim = victim.stderr(std::process::Stdio::null()).spawn().unwrap();
        tools::until_recorded(&killed, 64 << 10);
        victim.kill().unwrap();
        victim.wait().unwrap();
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                tools::until_recorded(&last, 64 << 10);
                end(pid);
            });
            attach(pid, &last, &[])
        });
        succeeded(&done);
        assert!(String::from_utf8_lossy(&done.stderr).contains("mgz-record: the program ended; "));
    });
    let done = done.unwrap();
    assert_eq!(
        (tools::code(&done), &*done.stdout),
        (7, &b"fine\n"[..]),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(rows::read_trace(&last).unwrap().manifest.totals.samples > 10);
    let recovered = tools::run_limited(
        tools::tool("mgz-record").arg("--recover").arg(&killed),
        LIMIT,
    )
    .unwrap();
    assert_eq!(
        tools::code(&recovered),
        0,
        "{}",
        String::from_utf8_lossy(&recovered.stderr)
    );
    assert!(rows::read_trace(&killed).unwrap().manifest.totals.samples > 10);
}

/// Processes that cannot be attached to are left unchanged, and the reason is reported.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let says = |pid: i32, options: &[&str], why: &str| {
        let done = attach(pid, &trace, options);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            tools::code(&done) == 125 && said.contains(why) && !trace.exists(),
            "{} {said}",
            tools::code(&done)
        );
    };
    says(1 << 29, &[], "no such process");
    let done = tools::run_beside(Command::new("/bin/sleep").arg("100"), None, LIMIT, |pid| {
        says(pid, &[], "is instrumented");
        says(pid, &["--mode", "full"], "records bursts");
        signal(pid, libc::SIGTERM);
    });
    assert_eq!(tools::code(&done.unwrap()), 128 + libc::SIGTERM);
    let Some(app) = app("attached", PLAIN, dir.path()) else {
        return;
    };
    let deny = programs::build("deny", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    if !is_root() {
        return tools::skip("filters of other processes are readable for root only");
    }
    let mut filtered = Command::new(&deny);
    filtered.args(["222", "--"]).arg(&app.path).arg(LONG);
    let done = tools::run_beside(&mut filtered, None, LIMIT, |pid| {
        until_executed(pid, &app);
        says(pid, &[], "its seccomp filter forbids timer_create");
        end(pid);
    });
    assert_eq!(tools::code(&done.unwrap()), 7);
}

fn is_root() -> bool {
    // SAFETY: an integer call.
    unsafe { libc::geteuid() == 0 }
}

/// Waits until a process executes the program, and has started its threads.
fn until_executed(pid: i32, app: &Instrumented) {
    let exe = format!("/proc/{pid}/exe");
    tools::until("the program", || {
        std::fs::read_link(&exe).is_ok_and(|exe| exe.file_name() == app.path.file_name())
    });
    tools::until_used(pid, BEGUN);
}

/// The child of a process.
fn child_of(parent: i32) -> Option<i32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.find(|id: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{parent}\n"))
    })
}

/// Processes as containers have them: in namespaces of their own, from a file that others do not
/// see, on a read-only root, as another user, behind a seccomp filter that lets perf_event_open
/// fail.
#[test]
fn processes_in_containers() {
    if !is_root() || !tools::have("unshare") || !tools::have("setpriv") {
        return tools::skip("containers are made by root, with unshare and setpriv");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let Some(app) = app("attached", PLAIN, dir.path()) else {
        return;
    };
    let deny = programs::build("deny", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let name = app.path.file_name().unwrap().to_str().unwrap();
    let script = |before: &str| {
        let (inside, app, deny) = (inside.display(), app.path.display(), deny.display());
        format!(
            "mount -t tmpfs none {inside} && cp {app} {app}.mgza {inside} && mount -o remount,ro,bind {inside} && cd {inside} && exec {before} {deny} 298 -- ./{name} {LONG}"
        )
    };
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    for (users, before) in [(&[][..], nobody), (&["--user", "--map-root-user"], "")] {
        let (trace, last) = (dir.path().join("trace"), dir.path().join("last"));
        let mut container = Command::new("unshare");
        container.args(namespaces).args(users);
        container.args(["sh", "-c", &script(before)]);
        let done = tools::run_beside(&mut container, None, LIMIT, |parent| {
            let mut pid = 0;
            tools::until("the container", || {
                pid = child_of(parent).unwrap_or(0);
                pid != 0
            });
            until_executed(pid, &app);
            for seconds in ["0.4", "1.6", "6.4"] {
                succeeded(&attach(pid, &trace, &["--duration", seconds]));
                if is_enough(&app, &rows::read_trace(&trace).unwrap()) {
                    break;
                }
            }
            // The kernel kills the recorder in the container when its first process ends.
            let done = std::thread::scope(|scope| {
                scope.spawn(|| {
                    tools::until_recorded(&last, 64 << 10);
                    end(pid);
                });
                attach(pid, &last, &[])
            });
            succeeded(&done);
        });
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(
            (tools::code(&done), &*done.stdout),
            (7, &b"fine\n"[..]),
            "{said}"
        );
        let last = rows::read_trace(&last).unwrap().manifest;
        assert!(last.totals.samples > 10 && last.state.as_str() == "interrupted");
        let trace = rows::read_trace(&trace).unwrap();
        assert!(is_enough(&app, &trace), "{:?}", trace.manifest);
        let m = &trace.manifest;
        assert!(m.problems.is_empty(), "{:?}", m.problems);
        assert!(m.threads.iter().all(|t| t.process == 1), "{:?}", m.threads);
    }
}

/// Without the right to trace, the refusal gives the remedy; users attach to their own processes.
#[test]
fn rights() {
    if !is_root() || !tools::have("setpriv") {
        return tools::skip("only root starts processes of other users");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let Some(app) = app("attached", PLAIN, dir.path()) else {
        return;
    };
    let deny = programs::build("deny", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    let by_nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(program);
        command
    };
    let attach = |pid: i32| {
        let mut command = by_nobody(&tools::binary("mgz-record"));
        let (pid, trace) = (pid.to_string(), dir.path().join("trace"));
        command.args(["--rate", "1000", "--force", "--duration", "0.4"]);
        command.args(["--attach", &pid, "-o"]).arg(trace);
        tools::run_limited(&mut command, LIMIT).unwrap()
    };
    let refused = |pid: i32, why: &str| {
        let done = attach(pid);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(tools::code(&done) == 125 && said.contains(why), "{said}");
    };
    let mut own = by_nobody(&app.path);
    let mut filtered = by_nobody(&deny);
    filtered.args(["298", "--"]).arg(&app.path);
    let mut of_root = Command::new(&app.path);
    let cases: [(&mut Command, &(dyn Fn(i32) + Sync)); 3] = [
        (&mut own, &|pid| succeeded(&attach(pid))),
        (&mut filtered, &|pid| {
            refused(pid, "run mgz-record as root outside")
        }),
        (&mut of_root, &|pid| refused(pid, "it may not be traced")),
    ];
    for (command, check) in cases {
        let done = tools::run_beside(command.arg(LONG), None, LIMIT, |pid| {
            until_executed(pid, &app);
            check(pid);
            end(pid);
        });
        assert_eq!(tools::code(&done.unwrap()), 7);
    }
}
