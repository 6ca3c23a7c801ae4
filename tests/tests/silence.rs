//! No silent losses: threads and programs that are created without the wrappers are recorded, and
//! everything that is not recorded is counted or reported, with a remedy.

use mgz_annotations_schema::NotRecorded;
use mgz_annotations_schema::manifest::Manifest;
use mgz_tests::programs::{self, Variant};
use mgz_tests::session::record_command;
use mgz_tests::tools::{self, LIMIT};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PLAIN: Variant = Variant::O1;
/// Modes, with options that give enough windows in short programs.
const MODES: [(&str, &[&str]); 3] = [
    ("full", &["--mode", "full"]),
    (
        "ring",
        &["--mode", "ring", "--period", "20000", "--window", "500"],
    ),
    (
        "burst",
        &["--mode", "burst", "--trigger", "cpu-time", "--rate", "4000"],
    ),
];

/// A program in its different forms.
struct Forms {
    original: PathBuf,
    /// `--for ring`.
    ring: PathBuf,
    /// `--for burst`.
    burst: PathBuf,
}

impl Forms {
    fn of(original: PathBuf) -> Forms {
        let [ring, burst] = ["ring", "burst"].map(|form| {
            let out = PathBuf::from(format!("{}.{form}", original.display()));
            tools::succeed(
                tools::tool("mgz-instrument")
                    .args(["--for", form, "-o"])
                    .arg(&out)
                    .arg(&original),
                LIMIT,
            )
            .unwrap();
            out
        });
        Forms {
            original,
            ring,
            burst,
        }
    }

    fn build(name: &str, extra: &[&str], dir: &Path) -> Option<Forms> {
        let built = programs::build(name, PLAIN, extra, dir).unwrap();
        built.map(Forms::of)
    }

    fn for_mode(&self, mode: &str) -> &Path {
        if mode == "burst" {
            &self.burst
        } else {
            &self.ring
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    tools::run_limited(command, LIMIT).unwrap()
}

fn manifest(trace: &Path) -> Manifest {
    let bytes = std::fs::read(trace.join("manifest.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Records; standard output and status must be those of `expected`. Returns the messages and the
/// manifest.
fn same(
    what: &str,
    expected: &Output,
    options: &[&str],
    trace: &Path,
    program: &Path,
    args: &[&str],
) -> (String, Manifest) {
    let all = [options, &["--force"]].concat();
    let got = run(&mut record_command(&all, trace, program, args));
    let said = text(&got.stderr);
    assert_eq!(
        (tools::code(&got), text(&got.stdout)),
        (tools::code(expected), text(&expected.stdout)),
        "{what}: {said}"
    );
    assert!(!said.contains("ld.so"), "{what}: {said}");
    (said, manifest(trace))
}

/// Runs a command that must fail with these words on standard error and must leave no trace.
fn refused(what: &str, command: &mut Command, trace: &Path, words: &[&str]) -> String {
    let got = run(command);
    let said = text(&got.stderr);
    assert_eq!(tools::code(&got), 125, "{what}: {said}");
    for word in words {
        assert!(said.contains(word), "{what}: {word:?} is not in {said}");
    }
    assert!(!trace.exists(), "{what}: a folder was left behind");
    said
}

fn is_root() -> bool {
    // SAFETY: the call has no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Threads that no wrapper intercepts do the same work as the others, so their trace must contain
/// the same amount.
#[test]
fn threads_behind_the_wrappers_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let expected = run(Command::new(&app.original).arg("plain"));
    for (mode, options) in MODES {
        let program = app.for_mode(mode);
        let (_, plain) = same("plain", &expected, options, &trace, program, &["plain"]);
        assert_eq!(plain.threads.len(), if mode == "burst" { 3 } else { 4 });
        for how in ["handle", "version", "standard", "clone", "clone3", "timer"] {
            let what = format!("{how} {mode}");
            let (said, m) = same(&what, &expected, options, &trace, program, &[how]);
            for lost in ["foreign_threads", "threads_unseen", "threads_without_ring"] {
                assert!(!m.totals.dropped.contains_key(lost), "{what}: {said}");
            }
            let workers = m.threads.iter().filter(|t| match mode {
                "burst" => t.samples > 0,
                _ => t.records_executed > 1_000_000,
            });
            assert_eq!(workers.count(), 3, "{what}: {:?}", m.threads);
            if mode == "full" {
                // (The creation of the threads also takes some loads.)
                let loads = |m: &Manifest| m.totals.loads_executed.unwrap();
                let more = loads(&m).abs_diff(loads(&plain));
                assert!(more < 2000, "{what}: {more} loads more or less");
            }
        }
    }
}

/// Forked children are sampled regardless of the code that forks them.
#[test]
fn children_behind_the_wrappers_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    for how in ["fork", "fork-by-number", "clone-by-number"] {
        let expected = run(Command::new(&app.original).arg(how));
        for (mode, options) in MODES {
            let what = format!("{how} {mode}");
            let (said, m) = same(
                &what,
                &expected,
                options,
                &trace,
                app.for_mode(mode),
                &[how],
            );
            let child = m.threads.iter().max_by_key(|t| t.records_kept).unwrap();
            let first = m.modules[0].loads[0].process;
            assert!(
                child.process != first && child.samples > 0,
                "{what}: {said}"
            );
            if mode == "burst" {
                let came = m.totals.triggers["came"] as f64;
                // One trigger, not two.
                let asked = 4000.0 * m.cpu_seconds;
                assert!(
                    came < 1.5 * asked + 20.0,
                    "{what}: {came} triggers, {asked} asked for"
                );
            }
        }
    }
}

/// A plug-in that finds the C library's functions before the runtime's.
#[test]
fn libraries_that_look_elsewhere_first() {
    let dir = tempfile::tempdir().unwrap();
    let Some(host) = Forms::build("deepbind", &["-ldl", "-DHOST"], dir.path()) else {
        return;
    };
    let plugin = dir.path().join("plugin.so");
    let shared = ["-O1", "-w", "-shared", "-fPIC", "-pthread"];
    programs::compile(&programs::source("deepbind"), &plugin, &shared);
    let plugins = Forms::of(plugin);
    let trace = dir.path().join("trace");
    let path = |p: &Path| p.to_str().unwrap().to_owned();
    let expected = run(Command::new(&host.original).arg(&plugins.original));
    for (mode, options) in MODES {
        // The program, the plug-in, or both are instrumented.
        let instrumented = path(plugins.for_mode(mode));
        for (what, program, plugin, threads) in [
            ("both", host.for_mode(mode), &instrumented, 5),
            ("host", host.for_mode(mode), &path(&plugins.original), 2),
            ("plugin", host.original.as_path(), &instrumented, 3),
        ] {
            let what = format!("{what} {mode}");
            let (said, m) = same(&what, &expected, options, &trace, program, &[plugin]);
            let workers = m.threads.iter().filter(|t| match mode {
                "burst" => t.samples > 0,
                _ => t.records_executed > 500_000,
            });
            // A window may also sample another thread that is briefly in the plug-in.
            let most = if mode == "burst" { 5 } else { threads };
            let workers = workers.count();
            assert!(
                (threads..=most).contains(&workers),
                "{what}: {workers} of {threads}: {said}"
            );
            assert!(
                !m.totals.dropped.contains_key("foreign_threads"),
                "{what}: {said}"
            );
        }
    }
}

/// A thread of generated code cannot be recorded. It is counted, and a message reports the code.
#[test]
fn what_generated_code_does_is_counted_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("generated", &[], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let expected = run(Command::new(&app.original).arg("thread"));
    for (mode, options) in MODES {
        let what = format!("thread {mode}");
        let (said, m) = same(
            &what,
            &expected,
            options,
            &trace,
            app.for_mode(mode),
            &["thread"],
        );
        assert_eq!(
            m.totals.dropped.get("threads_unseen"),
            Some(&1),
            "{what}: {said}"
        );
        assert!(
            said.contains(
                "1 threads were not recorded: the program creates them where the recorder does not find them"
            ),
            "{said}"
        );
        assert!(said.contains("mgz-instrument --libs"), "{said}");
    }
    let expected = run(Command::new(&app.original).arg("time"));
    for (mode, options) in MODES {
        let what = format!("time {mode}");
        let (said, m) = same(
            &what,
            &expected,
            options,
            &trace,
            app.for_mode(mode),
            &["time"],
        );
        assert!(
            m.coverage.generated_bytes >= 1 << 20,
            "{what}: {:?}",
            m.coverage
        );
        assert!(said.contains("of no file"), "{what}: {said}");
        assert!(said.contains("--mode watch"), "{what}: {said}");
        if let Some(share) = m
            .coverage
            .generated_share()
            .filter(|_| m.coverage.time_samples > 50)
        {
            assert!(share > 0.5, "{what}: {share}");
        }
        let report = run(tools::tool("mgz-analyze").arg("--all").arg(&trace));
        assert!(
            text(&report.stdout).contains("of no file"),
            "{what}: {}",
            text(&report.stdout)
        );
    }
}

/// Programs that other programs start are recorded, for every method of starting and for
/// instrumented and other starters.
#[test]
fn programs_that_others_start_in_all_ways() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(starter), Some(app)) = (
        Forms::build("starter", &["-ldl"], dir.path()),
        Forms::build("unseen", &["-ldl", "-lrt"], dir.path()),
    ) else {
        return;
    };
    let trace = dir.path().join("trace");
    let ways = [
        "execve",
        "execl",
        "execvp",
        "fexecve",
        "fexecve-path",
        "fexecve-copy",
        "execveat",
        "execveat-copy",
        "execve-by-number",
        "execve-raw",
        "execveat-raw",
        "handle",
        "no-environment",
        "large-environment",
        "own-preload",
        "system",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "vfork",
        "twice",
    ];
    for (number, how) in ways.into_iter().enumerate() {
        let expected = run(Command::new(&starter.original)
            .arg(how)
            .arg(&app.original)
            .arg("plain"));
        for (mode, options) in MODES {
            // All methods in full, and each one in one other mode.
            if mode != "full" && (number % 2 == 0) == (mode == "burst") && !tools::full_matrix() {
                continue;
            }
            let program = app.for_mode(mode).to_str().unwrap();
            for starter in [&starter.original, starter.for_mode(mode)] {
                let what = format!("{} {how} {mode}", starter.display());
                let (said, m) = same(
                    &what,
                    &expected,
                    options,
                    &trace,
                    starter,
                    &[how, program, "plain"],
                );
                let times = if how == "twice" { 2 } else { 1 };
                if mode == "full" {
                    let heavy = m.threads.iter().filter(|t| t.records_executed > 1_000_000);
                    assert_eq!(heavy.count(), 3 * times, "{what}: {said}");
                }
                let started = m
                    .modules
                    .iter()
                    .any(|m| m.path.ends_with(program) || m.path.contains("memfd"));
                assert!(started && m.totals.samples > 0, "{what}: {said}");
                assert!(
                    m.problems.iter().all(|p| p.contains("variables")),
                    "{what}: {said}"
                );
            }
        }
    }
}

/// Scripts and the usual starters, with and without the program's name in their arguments.
#[test]
fn scripts_and_the_usual_starters() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let expected = run(Command::new(&app.original).arg("plain"));
    for (mode, options) in MODES {
        let program = app.for_mode(mode).to_str().unwrap().to_owned();
        let folder = dir.path().display();
        let name = app.for_mode(mode).file_name().unwrap().to_str().unwrap();
        let plain = write("plain.sh", &format!("#!/bin/sh\nexec {program} plain\n"));
        // Its text does not contain the program's name.
        let hidden = write(
            "hidden.sh",
            &format!(
                "#!/bin/sh\ncd {folder}\nset -- unseen .{}\nexec ./$1${{2}} plain\n",
                name.rsplit('.').next().unwrap()
            ),
        );
        let outer = write("outer.sh", &format!("#!/bin/sh\n{plain}\n"));
        let python = write(
            "python.py",
            &format!(
                "import subprocess, sys\nsys.exit(subprocess.run(['{program}', 'plain']).returncode)\n"
            ),
        );
        let makefile = write("Makefile", &format!("all:\n\t@{program} plain\n"));
        let line = format!("ulimit -c 0; {program} plain; exit $?");
        let mut cases: Vec<Vec<&str>> = vec![
            vec![&plain],
            vec![&hidden],
            vec![&outer],
            vec!["sh", &outer],
            vec!["sh", "-c", &line],
            vec!["env", "A=1", "env", "-u", "B", &program, "plain"],
            vec!["env", "-i", &program, "plain"],
            vec!["nice", "nohup", &program, "plain"],
            vec!["timeout", "100", &hidden],
        ];
        for (tool, words) in [
            ("taskset", vec!["taskset", "1", &program, "plain"]),
            ("make", vec!["make", "-s", "-f", &makefile]),
            ("python3", vec!["python3", &python]),
            // If the program were among its arguments, it would start a recorder for each rank.
            (
                "mpirun",
                vec![
                    // Open MPI refuses to start programs as root without these.
                    "env",
                    "OMPI_ALLOW_RUN_AS_ROOT=1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                    "mpirun",
                    "-n",
                    "1",
                    "sh",
                    "-c",
                    &line,
                ],
            ),
            ("setsid", vec!["setsid", "-w", &program, "plain"]),
        ] {
            if tools::have(tool) {
                cases.push(words);
            } else {
                tools::skip(&format!("{tool} is not installed"));
            }
        }
        for words in cases {
            let what = format!("{words:?} {mode}");
            let (said, m) = same(
                &what,
                &expected,
                options,
                &trace,
                Path::new(words[0]),
                &words[1..],
            );
            assert!(
                m.modules.iter().any(|m| m.path.ends_with(name)),
                "{what}: {said}"
            );
            assert!(m.totals.samples > 0, "{what}: {said}");
            // A message names the programs that are not recorded.
            assert!(
                said.contains("not recorded, without instrumentation"),
                "{what}: {said}"
            );
            assert!(!m.coverage.programs.is_empty(), "{what}: {said}");
        }
    }
}

/// A program without instrumentation is an error: before the run if it cannot start other programs,
/// otherwise after the run.
#[test]
fn where_nothing_instrumented_runs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    for (mode, options) in MODES {
        let record = |program: &Path, args: &[&str]| record_command(options, &trace, program, args);
        refused(
            &format!("a program that starts nothing, {mode}"),
            &mut record("/bin/true".as_ref(), &[]),
            &trace,
            &["/true", "mgz-instrument -o true.inst"],
        );
        let said = refused(
            &format!("a program that could start something, {mode}"),
            &mut record(&app.original, &["plain"]),
            &trace,
            &[
                "nothing was recorded",
                "mgz-instrument -o unseen.inst",
                "exit 0",
            ],
        );
        assert!(
            said.contains("programs that it starts are recorded"),
            "it is told before the run: {said}"
        );
        refused(
            &format!("a shell, {mode}"),
            &mut record("/bin/sh".as_ref(), &["-c", "env true; exit 3"]),
            &trace,
            &[
                "no instrumented program has run",
                "env",
                "mgz-instrument -o",
                "exit 3",
            ],
        );
    }
    // The loader fails before the runtime can start.
    let library = dir.path().join("libgone.so");
    let needs = dir.path().join("needs");
    let source = dir.path().join("needs.c");
    std::fs::write(
        &source,
        "int gone(void); int main(void) { return gone(); }\n",
    )
    .unwrap();
    let gone = "int gone(void) { return 0; }\n";
    programs::compile_text(gone, &library, &["-shared", "-fPIC"]);
    programs::compile(&source, &needs, &[library.to_str().unwrap()]);
    let needs = Forms::of(needs);
    std::fs::remove_file(&library).unwrap();
    for (mode, options) in MODES {
        refused(
            &format!("a library is missing, {mode}"),
            &mut record_command(options, &trace, needs.for_mode(mode), &[]),
            &trace,
            &[
                "the loader has not loaded the recorder's library",
                "exit 127",
            ],
        );
    }
    // For a killed program the status is that of the signal.
    let got = run(&mut record_command(
        &["--mode", "full"],
        &trace,
        "/bin/sh".as_ref(),
        &["-c", "kill -9 $$"],
    ));
    assert_eq!(tools::code(&got), 137);
}

/// Sets `security.capability` as `setcap` does.
fn give_capabilities(path: &Path, effective: bool, permitted: u32, inheritable: u32) -> bool {
    let words = [
        0x0200_0000 | u32::from(effective),
        permitted,
        inheritable,
        0,
        0,
    ];
    let value: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: names and value outlive the call.
    unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        ) == 0
    }
}

/// Programs that gain privileges are refused, because the loader does not load the runtime into
/// them. If a script starts such a program, a message reports that.
#[test]
fn programs_that_gain_rights() {
    const NET_BIND_SERVICE: u32 = 1 << 10;
    if !is_root() || !tools::have("setpriv") {
        return tools::skip("capabilities can only be given by root");
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    // Another user must be able to read and execute all of it.
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(dir.path());
    let copy = |from: &Path, name: &str| {
        let to = dir.path().join(name);
        tools::succeed(Command::new("cp").arg(from).arg(&to), LIMIT).unwrap();
        open(&to);
        to
    };
    let record = copy(&tools::binary("mgz-record"), "mgz-record");
    let capable = copy(&app.burst, "capable");
    let sidecar = PathBuf::from(format!("{}.mgza", app.burst.display()));
    copy(&sidecar, "capable.mgza");
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    let trace = home.join("trace");
    let command = |mode: &[&str], words: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&record)
            .args(mode)
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .args(words)
            .current_dir(&home);
        command
    };
    let name = capable.to_str().unwrap();
    if !give_capabilities(&capable, true, NET_BIND_SERVICE, 0) {
        return tools::skip("this file system has no capabilities");
    }
    let probe = run(Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&record)
        .arg("--version"));
    if !probe.status.success() {
        return tools::skip("another user cannot run mgz-record here");
    }
    for (mode, options) in MODES {
        refused(
            &format!("capabilities, {mode}"),
            &mut command(options, &[name, "plain"]),
            &trace,
            &["capable", "file capabilities", "cp"],
        );
    }
    // Named in the arguments of its starter.
    refused(
        "capabilities of a named program",
        &mut command(&["--mode", "full"], &["env", name, "plain"]),
        &trace,
        &["file capabilities"],
    );
    // As the interpreter of a script.
    let shell = copy("/bin/sh".as_ref(), "shell");
    assert!(give_capabilities(&shell, false, NET_BIND_SERVICE, 0));
    let script = dir.path().join("script");
    std::fs::write(
        &script,
        format!("#!{}\n{} plain\n", shell.display(), app.burst.display()),
    )
    .unwrap();
    open(&script);
    refused(
        "capabilities of an interpreter",
        &mut command(&["--mode", "full"], &[script.to_str().unwrap()]),
        &trace,
        &["shell", "the interpreter of", "file capabilities"],
    );
    // A group that is not the user's.
    let grouped = copy(&app.burst, "grouped");
    copy(&sidecar, "grouped.mgza");
    std::os::unix::fs::chown(&grouped, None, Some(4)).unwrap();
    std::fs::set_permissions(&grouped, std::fs::Permissions::from_mode(0o2755)).unwrap();
    refused(
        "set-group-ID",
        &mut command(&["--mode", "full"], &[grouped.to_str().unwrap(), "plain"]),
        &trace,
        &["grouped", "set-group-ID"],
    );
    // Not refused without the group's execute bit, because the kernel then does not treat the bit
    // as set-group-ID.
    std::fs::set_permissions(&grouped, std::fs::Permissions::from_mode(0o2705)).unwrap();
    let got = run(&mut command(
        &["--mode", "full", "--force"],
        &[grouped.to_str().unwrap(), "plain"],
    ));
    assert_eq!(tools::code(&got), 0, "{}", text(&got.stderr));
    assert!(manifest(&trace).totals.rows > 1_000_000);
    // Capabilities that can only be inherited grant nothing.
    assert!(give_capabilities(&capable, false, 0, NET_BIND_SERVICE));
    let got = run(&mut command(
        &["--mode", "full", "--force"],
        &[name, "plain"],
    ));
    assert_eq!(tools::code(&got), 0, "{}", text(&got.stderr));
    assert!(manifest(&trace).totals.rows > 1_000_000);
    // A program that could not be known in advance, because a script starts it.
    assert!(give_capabilities(&capable, true, NET_BIND_SERVICE, 0));
    let hidden = dir.path().join("hidden");
    std::fs::write(
        &hidden,
        format!(
            "#!/bin/sh\ncd {}\na=cap\n./${{a}}able plain\n./unseen.burst plain\n",
            dir.path().display()
        ),
    )
    .unwrap();
    open(&hidden);
    let got = run(&mut command(
        &["--mode", "full", "--force"],
        &[hidden.to_str().unwrap()],
    ));
    let said = text(&got.stderr);
    assert_eq!(tools::code(&got), 0, "{said}");
    assert!(
        said.contains("since they gain rights") && said.contains("/capable"),
        "{said}"
    );
    let m = manifest(&trace);
    assert!(
        m.coverage
            .programs
            .iter()
            .any(|p| p.why == NotRecorded::Privileged),
        "{:?}",
        m.coverage
    );
}

/// Copies by the C library are reported in every mode and in the report, until the library is
/// instrumented.
#[test]
fn what_the_c_library_reads_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("copies");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nchar name[] = \"a name\"; int main(int c, char **v) { static char a[1 << 16], b[1 << 16]; long s = 0; for (int i = 0; i < 4000; i++) { memcpy(b, a, sizeof b - c); a[i] = i; s += b[i] + strlen(name + c); } printf(\"%ld\\n\", s); return 0; }\n";
    programs::compile_text(source, &program, &["-O1", "-fno-builtin"]);
    let app = Forms::of(program);
    let trace = dir.path().join("trace");
    let expected = run(&mut Command::new(&app.original));
    let sentence = |said: &str| {
        said.contains("lets libc.so.6 read and copy (memcpy, strlen)")
            && said.contains("`--libs=libc.so.6`")
    };
    for (mode, options) in MODES {
        let (said, m) = same(mode, &expected, options, &trace, app.for_mode(mode), &[]);
        assert!(sentence(&said), "{mode}: {said}");
        let libc = m
            .coverage
            .files
            .iter()
            .find(|f| f.path.contains("libc.so"))
            .unwrap();
        assert!(!libc.instrumented && libc.needed, "{libc:?}");
        // The code that took the time is reported instead.
        if m.coverage.time_samples > 40 {
            assert!(said.contains("libc.so.6"), "{said}");
            assert!(
                m.coverage.share_of(libc).unwrap() > 0.3,
                "{mode}: {:?}",
                m.coverage
            );
        }
        let report = run(tools::tool("mgz-analyze").arg("--all").arg(&trace));
        assert!(
            sentence(&text(&report.stdout)),
            "{mode}: {}",
            text(&report.stdout)
        );
        let json = run(tools::tool("mgz-analyze")
            .args(["--format", "json"])
            .arg(&trace));
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let told = json["summary"]["trace"]["not_recorded"].to_string();
        assert!(sentence(&told), "{mode}: {told}");
    }
    let whole = dir.path().join("whole");
    tools::succeed(
        tools::tool("mgz-instrument")
            .args(["--libs=libc.so.6", "-o"])
            .arg(&whole)
            .arg(&app.original),
        LIMIT,
    )
    .unwrap();
    let (said, m) = same(
        "with the library",
        &expected,
        &["--mode", "full"],
        &trace,
        &whole,
        &[],
    );
    assert!(!said.contains("read and copy"), "{said}");
    assert!(m.coverage.files.iter().all(|f| f.reads_for.is_empty()));
}

/// A program without instrumentation opens an instrumented library: threads that exist at that
/// time, later ones, and the signals that the library handles.
#[test]
fn libraries_that_wake_the_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let Some(host) = Forms::build("late", &["-ldl", "-DHOST"], dir.path()) else {
        return;
    };
    let plugin = dir.path().join("plugin.so");
    let shared = ["-O1", "-w", "-shared", "-fPIC", "-pthread"];
    programs::compile(&programs::source("late"), &plugin, &shared);
    let plugins = Forms::of(plugin);
    let trace = dir.path().join("trace");
    for how in ["early", "stack", "handler"] {
        let expected = run(Command::new(&host.original).arg(how).arg(&plugins.original));
        assert_eq!(tools::code(&expected), 0, "{how}");
        for (mode, options) in MODES {
            let what = format!("{how} {mode}");
            let library = plugins.for_mode(mode).to_str().unwrap();
            let (said, m) = same(
                &what,
                &expected,
                options,
                &trace,
                &host.original,
                &[how, library],
            );
            let workers = m.threads.iter().filter(|t| match mode {
                "burst" => t.samples > 0,
                _ => t.records_executed > 1_000_000,
            });
            // The earlier thread, the main thread, and a later one.
            assert_eq!(workers.count(), 3, "{what}: {:?} {said}", m.threads);
            assert!(
                !m.totals.dropped.contains_key("threads_unseen"),
                "{what}: {said}"
            );
        }
    }
    // A thread with SIGSEGV blocked could not get its ring. This is reported with a remedy, except
    // in `burst`.
    let expected = run(Command::new(&host.original)
        .arg("blocked")
        .arg(&plugins.original));
    for (mode, options) in MODES {
        let library = plugins.for_mode(mode).to_str().unwrap();
        let (said, m) = same(
            mode,
            &expected,
            options,
            &trace,
            &host.original,
            &["blocked", library],
        );
        if mode == "burst" {
            assert!(m.totals.samples > 0, "{said}");
        } else {
            assert!(
                said.contains("had SIGSEGV blocked")
                    && said.contains("instrument the program as well"),
                "{said}"
            );
            assert_eq!(m.totals.rows, 0);
        }
    }
}

/// Options without effect, and options after the program's name.
#[test]
fn options_that_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    for (options, words) in [
        (
            &["--mode", "full", "--window", "10"][..],
            "--window has no effect in --mode full",
        ),
        (
            &["--mode", "full", "--period", "10"],
            "--period has no effect in --mode full",
        ),
        (
            &["--mode", "ring", "--rate", "10"],
            "--rate has no effect in --mode ring",
        ),
        (
            &["--mode", "ring", "--near", "10"],
            "--near has no effect in --mode ring",
        ),
        (
            &["--mode", "ring", "--trigger", "ticks"],
            "--trigger has no effect in --mode ring",
        ),
        (
            &["--mode", "burst", "--rate", "10", "--watchpoints", "2"],
            "--watchpoints has no effect in bursts by CPU time",
        ),
        (
            &["--mode", "watch", "--window", "10"],
            "--window has no effect in --mode watch",
        ),
        (
            &["--mode", "watch", "--max-size", "1G"],
            "--max-size has no effect in --mode watch",
        ),
    ] {
        refused(
            words,
            &mut record_command(options, &trace, &app.burst, &["plain"]),
            &trace,
            &[words],
        );
    }
    // Conditions that only print a line.
    let got = run(&mut record_command(
        &["--mode", "full", "--signal", "61"],
        &trace,
        &app.burst,
        &["plain"],
    ));
    assert_eq!(tools::code(&got), 0);
    assert!(text(&got.stderr).contains("--signal has no effect in --mode full"));
    let behind = |before: &[&str]| {
        let mut command = tools::tool("mgz-record");
        command
            .args(["--mode", "full", "--force", "-o"])
            .arg(&trace)
            .args(before)
            .arg(&app.burst)
            .args(["plain", "-o", "x", "--window=5"]);
        text(&run(&mut command).stderr)
    };
    let said = behind(&[]);
    assert!(
        said.contains("-o, --window=5 behind")
            && said.contains("options of mgz-record stand before the program"),
        "{said}"
    );
    assert!(!behind(&["--"]).contains("behind"));
}

/// A run without samples reports the reason and a command that gives samples.
#[test]
fn runs_without_samples_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let got = run(&mut record_command(
        &["--mode", "burst", "--rate", "0.1"],
        &trace,
        &app.burst,
        &["plain"],
    ));
    let said = text(&got.stderr);
    assert!(
        said.contains("no samples: the program ended before the first window began"),
        "{said}"
    );
    let line = said
        .split('`')
        .find(|part| part.starts_with("mgz-record "))
        .unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let got = run(tools::tool("mgz-record").args(&words[1..]));
    assert!(
        manifest(&trace).totals.samples > 0,
        "{line}: {}",
        text(&got.stderr)
    );
    // No instrumented code runs.
    let some = dir.path().join("some");
    tools::succeed(
        tools::tool("mgz-instrument")
            .args(["--functions", "^raw_body$", "-o"])
            .arg(&some)
            .arg(&app.original),
        LIMIT,
    )
    .unwrap();
    for (mode, options) in MODES {
        let got = run(&mut record_command(
            &[options, &["--force"]].concat(),
            &trace,
            &some,
            &["plain"],
        ));
        let said = text(&got.stderr);
        assert_eq!(tools::code(&got), 0, "{mode}: {said}");
        assert!(
            said.contains("no samples: ") && said.contains("mgz-record --hot -- "),
            "{mode}: {said}"
        );
        assert!(!manifest(&trace).no_samples.is_empty());
    }
}

/// A process in other namespaces: the recorder enters them, or a message gives the remedy.
#[test]
fn attaching_to_a_container() {
    if !is_root() || !tools::have("unshare") || !tools::have("pgrep") {
        return tools::skip("namespaces can only be made by root");
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    for (namespaces, why) in [
        (
            &["--pid", "--fork", "--kill-child"][..],
            "its container has no /proc of its own",
        ),
        (
            &["--pid", "--mount-proc", "--fork", "--kill-child"],
            "neither its executable nor a library",
        ),
    ] {
        let mut child = Command::new("unshare")
            .args(namespaces)
            .arg("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut pid = String::new();
        tools::until("a process in other namespaces", || {
            let inner = run(Command::new("pgrep").args(["-P", &child.id().to_string()]));
            pid = text(&inner.stdout).trim().to_owned();
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let is_there = !pid.is_empty() && name.is_ok_and(|name| name.trim() == "sleep");
            is_there || child.try_wait().unwrap().is_some()
        });
        let mut command = tools::tool("mgz-record");
        command.args(["--attach", &pid, "-o"]).arg(&trace);
        let got = run(&mut command);
        let said = text(&got.stderr);
        child.kill().unwrap();
        child.wait().unwrap();
        if pid.is_empty() {
            return tools::skip("no namespace could be made");
        }
        assert_eq!(tools::code(&got), 125, "{said}");
        assert!(said.contains(why), "{said}");
    }
    // A program that is started there is not recorded, and a message reports that.
    let Some(app) = Forms::build("unseen", &["-ldl", "-lrt"], dir.path()) else {
        return;
    };
    let program = app.ring.to_str().unwrap();
    let got = run(&mut record_command(
        &["--mode", "full"],
        &trace,
        "unshare".as_ref(),
        &["--pid", "--fork", program, "plain"],
    ));
    let said = text(&got.stderr);
    assert_eq!(tools::code(&got), 125, "{said}");
    assert!(
        said.contains("nothing was recorded")
            && said.contains("where the recorder cannot be reached"),
        "{said}"
    );
}
