//! Programs under sanitizers: they behave as without mgz, report the same errors identically, and
//! end with the same status. Similar cases are also tested: libraries that must come first, and
//! fault handlers installed without the C library.

use mgz_tests::nop;
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows;
use mgz_tests::session::{self, record_command, same_result};
use mgz_tests::tools::{self, LIMIT};
use regex::Regex;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const PLAIN: Variant = Variant::O2;

/// A compiler and a sanitizer.
#[derive(Clone, Copy)]
struct Kind {
    compiler: &'static str,
    flags: &'static [&'static str],
    /// Arguments of `sanitized` whose errors it reports.
    mistakes: &'static [&'static str],
    /// Its runtime is part of the program; reports may then name clones, without line numbers.
    inside: bool,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.compiler, self.flags.join(" "))
    }
}

const fn kind(
    compiler: &'static str,
    flags: &'static [&'static str],
    mistakes: &'static [&'static str],
    inside: bool,
) -> Kind {
    Kind {
        compiler,
        flags,
        mistakes,
        inside,
    }
}

const ADDRESS: &[&str] = &["overflow", "free", "leak", "null"];
const THREAD: &[&str] = &["race", "null"];
const LEAK: &[&str] = &["leak", "null"];
const MEMORY: &[&str] = &["uninitialised", "null"];
const UNDEFINED: &[&str] = &["undefined"];

/// gcc's runtimes are shared libraries and clang's are parts of the program, unless the flags
/// change that.
const KINDS: [Kind; 18] = [
    kind("gcc", &["-fsanitize=address"], ADDRESS, false),
    kind("gcc", &["-fsanitize=thread"], THREAD, false),
    kind("gcc", &["-fsanitize=leak"], LEAK, false),
    kind("gcc", &["-fsanitize=undefined"], UNDEFINED, false),
    kind("gcc", &["-fsanitize=address,undefined"], ADDRESS, false),
    kind(
        "gcc",
        &["-fsanitize=address", "-fno-pie", "-no-pie"],
        ADDRESS,
        false,
    ),
    kind(
        "gcc",
        &["-fsanitize=address", "-static-libasan"],
        ADDRESS,
        true,
    ),
    kind(
        "gcc",
        &["-fsanitize=thread", "-static-libtsan"],
        THREAD,
        true,
    ),
    kind("gcc", &["-fsanitize=leak", "-static-liblsan"], LEAK, true),
    kind(
        "gcc",
        &["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"],
        UNDEFINED,
        false,
    ),
    kind("clang", &["-fsanitize=address"], ADDRESS, true),
    kind("clang", &["-fsanitize=thread"], THREAD, true),
    kind("clang", &["-fsanitize=memory"], MEMORY, true),
    kind("clang", &["-fsanitize=leak"], LEAK, true),
    kind("clang", &["-fsanitize=undefined"], UNDEFINED, true),
    kind(
        "clang",
        &["-fsanitize=undefined", "-fsanitize-minimal-runtime"],
        UNDEFINED,
        true,
    ),
    kind(
        "clang",
        &["-fsanitize=undefined", "-fsanitize-trap=undefined"],
        UNDEFINED,
        false,
    ),
    kind(
        "clang",
        &["-fsanitize=address", "-fno-pie", "-no-pie"],
        ADDRESS,
        true,
    ),
];

/// Options of the recorder.
const MODES: [&[&str]; 3] = [
    &["--mode", "full"],
    &["--mode", "ring", "--period", "20000", "--window", "500"],
    &["--mode", "burst", "--rate", "2000"],
];

/// `sanitized` of each kind, compiled once for all tests.
static COMPILED: [OnceLock<Option<Vec<u8>>>; KINDS.len()] =
    [const { OnceLock::new() }; KINDS.len()];

/// `sanitized` for a sanitizer, as a file of this folder. `None` if [`compile`] returns `None`.
fn build(kind: Kind, dir: &Path) -> Option<PathBuf> {
    let same = |k: &Kind| k.compiler == kind.compiler && k.flags == kind.flags;
    let number = KINDS.iter().position(same).expect("a kind of the list");
    let compiled = COMPILED[number].get_or_init(|| {
        let own = tempfile::tempdir().unwrap();
        compile("sanitized", kind, own.path()).map(|program| std::fs::read(program).unwrap())
    });
    let out = dir.join("sanitized");
    tools::write_program(&out, compiled.as_deref()?).unwrap();
    std::fs::set_permissions(&out, Permissions::from_mode(0o755)).unwrap();
    Some(out)
}

/// Compiles a program for a sanitizer. Returns `None`, and prints a note, if the machine lacks the
/// compiler, the runtime or something that the runtime needs.
fn compile(name: &str, kind: Kind, dir: &Path) -> Option<PathBuf> {
    if !tools::have(kind.compiler) {
        tools::skip(&format!("{} is not installed", kind.compiler));
        return None;
    }
    let out = dir.join(name);
    let mut command = Command::new(kind.compiler);
    command
        .args(["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-w"])
        .args(kind.flags)
        .arg("-o")
        .arg(&out)
        .arg(programs::source(name));
    let built = command.output().unwrap();
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr);
        assert!(
            [
                "cannot find",
                "no such file",
                "unsupported option",
                "cannot open"
            ]
            .iter()
            .any(|text| why.to_lowercase().contains(text)),
            "{kind}: {why}"
        );
        tools::skip(&format!("{kind}: its runtime is not installed"));
        return None;
    }
    let works = tools::run_limited(Command::new(&out).arg("brief"), LIMIT).unwrap();
    if tools::code(&works) != 0 {
        tools::skip(&format!(
            "{kind}: its programs do not run here: {}",
            String::from_utf8_lossy(&works.stderr)
        ));
        return None;
    }
    Some(out)
}

/// A sanitizer's report without the parts that differ between runs and files: process ids,
/// addresses, and code locations in the file.
fn report(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let own = |line: &&str| !line.starts_with("mgz-record:");
    let mut text = text.lines().filter(own).collect::<Vec<_>>().join("\n");
    for (pattern, with) in [
        // Frames in the file itself have no line if the original has none.
        (r"\([^() ]*sanitized[^() ]*\+0x[0-9a-f]+\)", "(PROGRAM)"),
        (r"\(BuildId: [0-9a-f]+\)", ""),
        (r"0x[0-9a-f]+", "ADDRESS"),
        (r"==\d+==", "=="),
        (r"[pt]id=\d+", "ID"),
        (r" T\d+\)", ")"),
        (r"thread T\d+", "thread"),
        (r"Thread T\d+", "thread"),
        // Dumps of memory with arbitrary content.
        (r"(?m)^(=>| *)ADDRESS: ?.*$", "MEMORY"),
        (r"(?m)^ *([0-9a-f]{2} ){4}.*$", "MEMORY"),
        // Several names of one address; any of them may be reported.
        (r"__interceptor_", ""),
        (r" +\n", "\n"),
    ] {
        text = Regex::new(pattern)
            .unwrap()
            .replace_all(&text, with)
            .into_owned();
    }
    text
}

/// One-line summaries of a report: the error and the function that caused it.
fn summary(stderr: &[u8]) -> Vec<String> {
    let text = report(stderr);
    let mut lines = text.lines();
    let mut out: Vec<String> = Vec::new();
    for line in &mut lines {
        let is_told = line.contains("ERROR: ")
            || line.contains("WARNING: ")
            || line.contains("runtime error")
            || line.starts_with("ubsan: ");
        if is_told {
            out.push(
                line.split(" on ADDRESS")
                    .next()
                    .unwrap_or(line)
                    .split(" on address")
                    .next()
                    .unwrap_or(line)
                    .to_owned(),
            );
        }
        if let Some(summary) = line.strip_prefix("SUMMARY: ") {
            let function = summary.rsplit(" in ").next().unwrap_or("");
            let kind = summary.split_whitespace().take(2).collect::<Vec<_>>();
            let function = function.strip_suffix(".mgz").unwrap_or(function);
            out.push(format!("{} {function}", kind.join(" ")));
        }
    }
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Removes sums over memory with races or without initialisation, because their values are
/// arbitrary.
fn stable(what: &str, output: Output) -> Output {
    if !["race", "uninitialised"].contains(&what) {
        return output;
    }
    let told = text(&output.stdout);
    let lines: Vec<&str> = told.lines().filter(|l| !l.starts_with("total")).collect();
    Output {
        stdout: lines.join("\n").into_bytes(),
        ..output
    }
}

fn run(program: &Path, what: &str) -> Output {
    stable(
        what,
        tools::run_limited(Command::new(program).arg(what), LIMIT).unwrap(),
    )
}

fn record(options: &[&str], trace: &Path, program: &Path, what: &str) -> Output {
    let options = [options, &["--force"]].concat();
    let mut command = record_command(&options, trace, program, &[what]);
    stable(what, tools::run_limited(&mut command, LIMIT).unwrap())
}

#[test]
fn programs_without_mistakes_are_as_they_are() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = build(kind, dir.path()) else {
            continue;
        };
        let trace = dir.path().join("trace");
        let expected: Vec<(&str, Output)> = ["clean", "handled"]
            .into_iter()
            .map(|what| (what, run(&original, what)))
            .collect();
        for flavour in ["ring", "burst"] {
            let app = session::instrument(&original, "soft", &["--for", flavour]).unwrap();
            for (what, expected) in &expected {
                assert_eq!(
                    tools::code(expected),
                    0,
                    "{kind}: {}",
                    text(&expected.stderr)
                );
                let name = format!("{kind}, {what}, made for {flavour}");
                same_result(&name, expected, &run(&app.path, what)).unwrap();
                for options in MODES {
                    if options[1] == "burst" && flavour == "ring" {
                        continue;
                    }
                    let got = record(options, &trace, &app.path, what);
                    same_result(&format!("{name}, {}", options[1]), expected, &got).unwrap();
                    if options[1] == "full" && *what == "clean" {
                        complete(&name, &trace);
                    }
                }
            }
        }
    }
}

/// The trace has all loads of the sums of each process and thread of `sanitized clean`.
fn complete(name: &str, trace: &Path) {
    let trace = rows::read_trace(trace).unwrap();
    let told = &trace.manifest.totals.dropped;
    assert!(told.is_empty(), "{name}: {told:?}");
    // The program, its child and the program that it executes: each with four threads in addition
    // to the main thread.
    let rows: Vec<usize> = trace.threads.values().map(Vec::len).collect();
    let workers = rows.iter().filter(|&&n| n >= 200_000).count();
    assert!(rows.len() >= 14 && workers >= 12, "{name}: {rows:?}");
}

#[test]
fn mistakes_are_reported_alike() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = build(kind, dir.path()) else {
            continue;
        };
        let trace = dir.path().join("trace");
        let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
        for &what in kind.mistakes {
            let expected = run(&original, what);
            let is_trap = kind.flags.iter().any(|f| f.contains("trap"));
            assert!(
                is_trap || summary(&expected.stderr).iter().any(|l| !l.is_empty()),
                "{kind}, {what}: nothing is reported"
            );
            let mut got = vec![("bare", run(&app.path, what))];
            got.extend(MODES.map(|m| (m[1], record(m, &trace, &app.path, what))));
            for (mode, got) in got {
                let name = format!("{kind}, {what}, {mode}");
                same_result(&name, &expected, &got).unwrap();
                assert_eq!(
                    summary(&got.stderr),
                    summary(&expected.stderr),
                    "{name}: {}",
                    text(&got.stderr)
                );
                // It depends on chance in which of two threads a race is detected.
                if !kind.inside && what != "race" {
                    assert_eq!(report(&got.stderr), report(&expected.stderr), "{name}");
                }
            }
        }
    }
}

#[test]
fn a_mistake_is_found_while_bursts_come_and_go() {
    for kind in KINDS.iter().filter(|k| k.mistakes == ADDRESS) {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = build(*kind, dir.path()) else {
            continue;
        };
        let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
        let expected = run(&original, "late");
        let trace = dir.path().join("trace");
        let got = record(MODES[2], &trace, &app.path, "late");
        same_result(&kind.to_string(), &expected, &got).unwrap();
        assert_eq!(summary(&got.stderr), summary(&expected.stderr), "{kind}");
        let trace = rows::read_trace(&trace).unwrap();
        assert!(
            trace.manifest.totals.samples > 10 && trace.rows() > 5000,
            "{kind}: {:?}",
            trace.manifest.totals
        );
    }
}

#[test]
fn intel_pt_programs_are_as_they_are() {
    for kind in KINDS.iter().filter(|k| k.compiler == "gcc") {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = build(*kind, dir.path()) else {
            continue;
        };
        let out = dir.path().join("app.pt");
        let mut instrument = tools::tool("mgz-instrument");
        instrument
            .args(["--backend", "pt", "-o"])
            .arg(&out)
            .arg(&original);
        let done = tools::run_limited(&mut instrument, LIMIT).unwrap();
        if kind.inside && tools::code(&done) == 3 {
            assert!(
                text(&done.stderr).contains("--backend soft"),
                "{}",
                text(&done.stderr)
            );
            continue;
        }
        assert_eq!(tools::code(&done), 0, "{kind}: {}", text(&done.stderr));
        if !nop::executes_ptwrite() {
            nop::replace(&out).unwrap();
        }
        for what in ["clean", "handled"].iter().chain(kind.mistakes) {
            let (expected, got) = (run(&original, what), run(&out, what));
            let name = format!("{kind}, {what}");
            same_result(&name, &expected, &got).unwrap();
            assert_eq!(summary(&got.stderr), summary(&expected.stderr), "{name}");
        }
    }
}

#[test]
fn runtimes_inside_of_programs_are_left_and_told_by_names_alone() {
    for kind in KINDS.iter().filter(|k| k.inside && k.mistakes != UNDEFINED) {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = build(*kind, dir.path()) else {
            continue;
        };
        let app = session::instrument(&original, "soft", &[]).unwrap();
        let functions = app.sidecar.functions.iter();
        let named: Vec<(&str, bool)> = functions
            .map(|f| (app.sidecar.string(f.name), f.clone_start == 0))
            .collect();
        let of_runtime = named.iter().filter(|f| f.0.contains("__sanitizer"));
        assert!(of_runtime.clone().count() > 100, "{kind}");
        assert!(of_runtime.clone().all(|f| f.1), "{kind}");
        assert!(named.contains(&("walk", false)), "{kind}");
        let stripped = dir.path().join("stripped");
        let done = Command::new("strip")
            .arg("-o")
            .args([&stripped, &original])
            .status();
        assert!(done.unwrap().success());
        let mut instrument = tools::tool("mgz-instrument");
        instrument
            .arg("-o")
            .args([dir.path().join("none"), stripped]);
        let done = tools::run_limited(&mut instrument, LIMIT).unwrap();
        assert_eq!(tools::code(&done), 3, "{kind}");
        let told = text(&done.stderr);
        assert!(
            told.contains("before it is stripped") && told.contains("shared library"),
            "{kind}: {told}"
        );
    }
}

#[test]
fn what_cannot_be_had_with_a_sanitizer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [KINDS[0], KINDS[10]] {
        let Some(original) = build(kind, dir.path()) else {
            continue;
        };
        let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
        let trace = dir.path().join("trace");
        let got = record(&["--mode", "full", "--heap"], &trace, &app.path, "brief");
        assert_eq!(tools::code(&got), 125, "{kind}");
        assert!(
            text(&got.stderr).contains("record without --heap"),
            "{kind}: {}",
            text(&got.stderr)
        );
        assert!(got.stdout.is_empty(), "{kind}: the program has run");
    }
    // A library that replaces no functions is not a problem.
    let Some(original) = build(KINDS[3], dir.path()) else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let trace = dir.path().join("trace");
    let got = record(&["--mode", "full", "--heap"], &trace, &app.path, "brief");
    assert_eq!(tools::code(&got), 0, "{}", text(&got.stderr));
}

#[test]
fn shared_runtimes_are_none_of_the_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = build(KINDS[0], dir.path()) else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--libs"]).unwrap();
    let folder = PathBuf::from(format!("{}.libs", app.path.display()));
    let libraries: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|e| e.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("libasan"))
        .collect();
    assert!(libraries.is_empty(), "{libraries:?}");
    let (expected, trace) = (run(&original, "clean"), dir.path().join("trace"));
    let got = record(MODES[0], &trace, &app.path, "clean");
    same_result("--libs", &expected, &got).unwrap();
}

/// Compiles a shared library.
fn library(name: &str, flags: &[&str], dir: &Path) -> PathBuf {
    let out = dir.join(format!("lib{name}.so"));
    let source = programs::sources().join(format!("{name}.c"));
    let done = Command::new("gcc")
        .args(["-O1", "-g", "-shared", "-fPIC", "-w"])
        .args(flags)
        .arg("-o")
        .args([&out, &source])
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    out
}

#[test]
fn a_preloaded_library_that_must_be_first_is_first_and_is_asked_first() {
    let dir = tempfile::tempdir().unwrap();
    let first = library("first", &[], dir.path());
    for name in ["threads", "rawsignals"] {
        let Some(original) = programs::build(name, PLAIN, &[], dir.path()).unwrap() else {
            return;
        };
        let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
        let preload = format!("LD_PRELOAD={}", first.display());
        // Set through `env`, so that the recorder itself is unaffected: it starts the command in
        // its arguments.
        let plain = |program: &Path| {
            let mut command = Command::new(program);
            command.env("LD_PRELOAD", &first);
            tools::run_limited(&mut command, LIMIT).unwrap()
        };
        let expected = plain(&original);
        let told = text(&expected.stdout);
        assert!(
            told.contains("actions") && !told.contains("threads 0"),
            "{told}"
        );
        same_result(name, &expected, &plain(&app.path)).unwrap();
        for options in [MODES[0], MODES[1], MODES[2], &["--mode", "full", "--heap"]] {
            let trace = dir.path().join("trace");
            let options = [options, &["--force"]].concat();
            let mut command = record_command(&options, &trace, Path::new("env"), &[]);
            command.arg(&preload).arg(&app.path);
            let got = tools::run_limited(&mut command, LIMIT).unwrap();
            same_result(&format!("{name} {options:?}"), &expected, &got).unwrap();
            let rows = rows::read_trace(&trace).unwrap().rows();
            assert!(rows > 0 || options[1] == "burst", "{name} {options:?}");
        }
    }
}

#[test]
fn a_needed_library_that_stands_in_for_the_c_library_is_asked_first() {
    let dir = tempfile::tempdir().unwrap();
    let first = library("first", &["-Wl,-soname,libfirst.so"], dir.path());
    let flags = [
        "-Wl,--no-as-needed",
        first.to_str().unwrap(),
        "-Wl,-rpath,$ORIGIN",
    ];
    let Some(original) = programs::build("threads", PLAIN, &flags, dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
    let expected = tools::run_limited(&mut Command::new(&original), LIMIT).unwrap();
    let told = text(&expected.stdout);
    assert!(
        told.contains("actions") && !told.contains("threads 0"),
        "{told}"
    );
    for options in MODES {
        let trace = dir.path().join("trace");
        let options = [options, &["--force"]].concat();
        let mut command = record_command(&options, &trace, &app.path, &[]);
        let got = tools::run_limited(&mut command, LIMIT).unwrap();
        same_result(&format!("{options:?}"), &expected, &got).unwrap();
    }
}

#[test]
fn a_sanitizer_that_the_user_preloads_watches_a_library_alone() {
    let dir = tempfile::tempdir().unwrap();
    let asan = Command::new("gcc")
        .arg("-print-file-name=libasan.so")
        .output()
        .unwrap();
    let asan = text(&asan.stdout).trim().to_owned();
    if !asan.starts_with('/') {
        return tools::skip("gcc's AddressSanitizer is not installed");
    }
    let checked = library(
        "checked",
        &["-fsanitize=address", "-Wl,-soname,libchecked.so"],
        dir.path(),
    );
    let flags = ["-DUSER", checked.to_str().unwrap(), "-Wl,-rpath,$ORIGIN"];
    let main = dir.path().join("checked");
    let source = programs::sources().join("checked.c");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-w", "-o"])
        .args([&main, &source])
        .args(flags)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    for libraries in [&["--for", "burst"][..], &["--for", "burst", "--libs"]] {
        let app = session::instrument(&main, "soft", libraries).unwrap();
        for what in ["right", "wrong"] {
            let mut plain = Command::new(&main);
            let expected =
                tools::run_limited(plain.arg(what).env("LD_PRELOAD", &asan), LIMIT).unwrap();
            assert_eq!(tools::code(&expected), i32::from(what == "wrong"));
            for options in MODES {
                let trace = dir.path().join("trace");
                let options = [options, &["--force"]].concat();
                let mut command = record_command(&options, &trace, Path::new("env"), &[]);
                command
                    .arg(format!("LD_PRELOAD={asan}"))
                    .arg(&app.path)
                    .arg(what);
                let got = tools::run_limited(&mut command, LIMIT).unwrap();
                let name = format!("{what} {libraries:?} {options:?}");
                same_result(&name, &expected, &got).unwrap();
                assert_eq!(summary(&got.stderr), summary(&expected.stderr), "{name}");
            }
        }
    }
}

#[test]
fn handlers_of_faults_that_the_c_library_does_not_know_of() {
    for clang in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let variant = Variant { clang, ..PLAIN };
        let Some(original) = programs::build("rawsignals", variant, &[], dir.path()).unwrap()
        else {
            continue;
        };
        for way in ["library", "asm"] {
            let expected = run(&original, way);
            assert!(text(&expected.stdout).contains("handled 20 wrong 0"));
            for flavour in ["ring", "burst"] {
                let app = session::instrument(&original, "soft", &["--for", flavour]).unwrap();
                for options in MODES {
                    if options[1] == "burst" && flavour == "ring" {
                        continue;
                    }
                    let trace = dir.path().join("trace");
                    let got = record(options, &trace, &app.path, way);
                    let name = format!("{variant} {way}, made for {flavour}, {options:?}");
                    same_result(&name, &expected, &got).unwrap();
                    let trace = rows::read_trace(&trace).unwrap();
                    assert!(trace.rows() > 0 || options[1] == "burst", "{name}");
                }
            }
        }
    }
}

#[test]
fn what_was_preloaded_is_seen_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = compile("surroundings", KINDS[0], dir.path()) else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap();
    let libm = "LD_PRELOAD=libm.so.6";
    for list in [
        &[][..],
        &["LD_PRELOAD="],
        &[libm],
        &["LD_PRELOAD=libm.so.6 :libm.so.6:"],
    ] {
        // A sanitizer requires to be the first library, but an option disables that check.
        let fixed = ["ASAN_OPTIONS=verify_asan_link_order=0", "B=2"];
        let environment = [&["-i", "A=1"][..], list, &fixed].concat();
        let mut plain = Command::new("env");
        plain.args(&environment).arg(&original);
        let expected = tools::run_limited(&mut plain, LIMIT).unwrap();
        assert_eq!(tools::code(&expected), 0, "{}", text(&expected.stderr));
        let mut command = Command::new("env");
        command
            .args(&environment)
            .arg(tools::binary("mgz-record"))
            .args(["--mode", "full", "--force", "-o"])
            .arg(dir.path().join("trace"))
            .arg("--")
            .arg(&app.path);
        let got = tools::run_limited(&mut command, LIMIT).unwrap();
        same_result(&format!("{list:?}"), &expected, &got).unwrap();
    }
}

#[test]
fn watched_programs_can_be_attached_to() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [KINDS[0], KINDS[1], KINDS[10]] {
        let Some(original) = build(kind, dir.path()) else {
            continue;
        };
        let app = session::instrument(&original, "soft", &["--for", "burst"]).unwrap();
        let expected = run(&original, "lasting");
        let trace = dir.path().join("trace");
        let mut told = None;
        let attach = |pid: i32| {
            tools::until_used(pid, std::time::Duration::from_millis(100));
            let mut command = tools::tool("mgz-record");
            command
                .args(["--rate", "2000", "--force", "--duration", "1", "--attach"])
                .arg(pid.to_string())
                .arg("-o")
                .arg(&trace);
            told = Some(tools::run_limited(&mut command, LIMIT).unwrap());
        };
        let mut command = Command::new(&app.path);
        let got = tools::run_beside(command.arg("lasting"), None, LIMIT, attach).unwrap();
        same_result(&kind.to_string(), &expected, &got).unwrap();
        let told = told.unwrap();
        if kind.inside {
            assert_eq!(tools::code(&told), 125, "{kind}");
            assert!(
                text(&told.stderr).contains("from its start"),
                "{}",
                text(&told.stderr)
            );
        } else {
            assert_eq!(tools::code(&told), 0, "{kind}: {}", text(&told.stderr));
            assert!(rows::read_trace(&trace).unwrap().rows() > 1000, "{kind}");
        }
    }
}
