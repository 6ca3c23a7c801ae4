//! The torture matrix: programs that check themselves, one for each feature that has broken
//! rewriters, × compilers × levels × kinds of executable × stripped or not × flavours. Output and
//! status must be those of the original. The soft flavour runs under `mgz-record` in `full` and
//! `ring`; its translated clones run in `burst`, and with `--attach` while the programs wait before
//! their main function. The PT flavour runs without a recorder (with no-operations instead of
//! `ptwrite`s if the CPU does not support them).
//!
//! `MGZ_FLAVOUR=burst` (or `attach`) and `MGZ_REPEAT=100` repeat the parts that differ from run to
//! run. `MGZ_TESTS=full` runs the whole matrix; otherwise each program has a few variants, which
//! differ between programs. `MGZ_WAY=gcc-O2-static` (any part of a variant's name) selects some.
//! `MGZ_KEEP` keeps the folders.

use mgz_tests::ways::{self, ExecutableKind, Strip, Way};
use mgz_tests::{nop, session, tools};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

/// Time limit of one run, sufficient for a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that may be declined. Everything else must be instrumented. Loops, exceptions, threads,
/// switch tables and vector code are never a reason. If a program with them is listed, the reason
/// is signal handlers in the file's C library or in Rust's library.
struct MayBeDeclined {
    /// Name of the program; empty for all programs.
    program: &'static str,
    /// Parts of the variant's name.
    way: &'static str,
    /// Part of the message.
    says: &'static str,
    why: &'static str,
}

const fn row(
    program: &'static str,
    way: &'static str,
    says: &'static str,
    why: &'static str,
) -> MayBeDeclined {
    MayBeDeclined {
        program,
        way,
        says,
        why,
    }
}

const IN_THE_FILE: &str = "its handlers inspect and change the place of a fault and its registers, and the C library's function that installs them is in the file";
const REGISTER: &str =
    "a register may hold the address of the C library's function that installs them";
const RETURNS: &str = "a profiler would see return addresses of rewritten code";
const LINKAGE: &str = "an entry of the linkage table leads through code that is not understood";

/// Nearly all rows are for fault handlers in the PT flavour.
const MAY_BE_DECLINED: &[MayBeDeclined] = &[
    row("", "-pg", "mcount looks at return addresses", RETURNS),
    row(
        "",
        "-finstrument-functions",
        "looks at return addresses",
        RETURNS,
    ),
    row(
        "faults",
        "static",
        "a handler that may use its third argument",
        IN_THE_FILE,
    ),
    // (The handler is not known, or is described in memory that is not traced.)
    row("rewind", "static", "a handler that is ", IN_THE_FILE),
    row("breaks", "static", "a handler that ", IN_THE_FILE),
    row("steps", "static", "a handler that ", IN_THE_FILE),
    row("tagged", "static", "a handler that ", IN_THE_FILE),
    row("again", "static", "a handler that ", IN_THE_FILE),
    row("repairs", "static", "a handler that ", IN_THE_FILE),
    row(
        "handlers",
        "static",
        "a handler that is described in memory which is not followed",
        IN_THE_FILE,
    ),
    row(
        "handlers",
        "clang -fno-plt",
        "the address of sigaction is taken",
        REGISTER,
    ),
    row(
        "rewind",
        "clang -fno-plt",
        "the address of sigaction is taken",
        REGISTER,
    ),
    row(
        "handlers",
        "retpolineplt",
        "an entry of the linkage table that is not understood",
        LINKAGE,
    ),
    row(
        "rewind",
        "retpolineplt",
        "an entry of the linkage table that is not understood",
        LINKAGE,
    ),
    row(
        "faults",
        "retpolineplt",
        "an entry of the linkage table that is not understood",
        LINKAGE,
    ),
    row(
        "breaks",
        "retpolineplt",
        "an entry of the linkage table that is not understood",
        LINKAGE,
    ),
    row(
        "forks",
        "static",
        "a handler that is not known",
        "the C library's posix_spawn, which is in the file, installs handlers that are not followed",
    ),
    row(
        "overflow",
        "clang static",
        "a handler that is described in memory which is not followed",
        "its action is a copy that memcpy has made",
    ),
    row(
        "signals",
        "gcc-Os-static",
        "arguments that are kept over a call",
        "the signal is in a register over a call",
    ),
    row(
        "objects",
        "clang-Os-static",
        "a system call whose number is not known",
        "the C library has a system call whose number is not followed",
    ),
    row(
        "cancel",
        "musl static",
        "a handler that is described in memory which is not followed",
        "musl's function that installs handlers, which is in the file, moves the signal's number by 32 bits, so that it counts as unknown; and the handler looks at where the thread was interrupted",
    ),
];

/// Results of a test.
#[derive(Default)]
struct Verdict {
    wrong: Vec<String>,
    /// Rows of [`MAY_BE_DECLINED`] that match tested programs, and those rows that explain a
    /// refusal.
    met: BTreeSet<usize>,
    needed: BTreeSet<usize>,
}

impl Verdict {
    /// Returns whether the program may be declined with this message (`None`: it was not declined).
    fn may_be_declined(&mut self, what: &str, name: &str, message: Option<&str>) -> bool {
        let rows: Vec<_> = (0..)
            .zip(MAY_BE_DECLINED)
            .filter(|(_, d)| {
                [name, ""].contains(&d.program) && d.way.split(' ').all(|part| what.contains(part))
            })
            .collect();
        self.met.extend(rows.iter().map(|(i, _)| i));
        let fitting: Vec<usize> = rows
            .iter()
            .filter(|(_, d)| message.is_some_and(|m| m.contains(d.says)))
            .map(|(i, _)| *i)
            .collect();
        self.needed.extend(&fitting);
        !fitting.is_empty()
    }

    /// Reports the failures. In the whole matrix every row of the list must be needed.
    fn end(mut self) {
        if tools::full_matrix() && std::env::var_os("MGZ_WAY").is_none() {
            let vain = self
                .met
                .difference(&self.needed)
                .map(|i| &MAY_BE_DECLINED[*i]);
            self.wrong.extend(vain.map(|d| {
                format!(
                    "{} {} is no more declined with {:?} ({}): take it off the list",
                    d.program, d.way, d.says, d.why
                )
            }));
        }
        tools::no_failures(&self.wrong);
    }
}

fn outcome(command: &mut Command) -> Result<Output, String> {
    tools::run_limited(command, LIMIT).map_err(|e| format!("{e:#}"))
}

/// Outputs of `mgz-instrument` for a program: the form, the mode that it serves, and the flavours
/// of the matrix that run it.
const FORMS: [(&str, &str, &[&str]); 3] = [
    ("soft", "ring", &["soft"]),
    ("soft", "burst", &["burst", "attach"]),
    ("pt", "ring", &["pt"]),
];

/// Instruments one executable in every form, and runs it with each list of arguments in every mode.
fn check(
    what: &str,
    name: &str,
    program: &Path,
    runs: &[&[&str]],
    dir: &Path,
    verdict: &mut Verdict,
) {
    let mut expected = Vec::new();
    for args in runs {
        match outcome(Command::new(program).args(*args)) {
            Ok(output) => expected.push(output),
            Err(why) => {
                let why = format!("{what} {args:?}: the original: {why}");
                return verdict.wrong.push(why);
            }
        }
    }
    let wanted = flavours();
    for (backend, purpose, flavours) in FORMS {
        let flavours: Vec<&str> = flavours
            .iter()
            .copied()
            .filter(|f| wanted.contains(f) && !(*f == "attach" && what.contains("static")))
            .collect();
        if flavours.is_empty() {
            continue;
        }
        let out = dir.join(format!("app.{backend}.{purpose}"));
        let options = ["--backend", backend, "--for", purpose];
        let done = match outcome(
            tools::tool("mgz-instrument")
                .args(options)
                .arg("-o")
                .arg(&out)
                .arg(program),
        ) {
            Ok(done) => done,
            Err(why) => {
                verdict
                    .wrong
                    .push(format!("{what} {flavours:?}: mgz-instrument: {why}"));
                continue;
            }
        };
        let message = String::from_utf8_lossy(&done.stderr);
        let declined = (tools::code(&done) == 3).then_some(&*message);
        if verdict.may_be_declined(what, name, declined) {
            continue;
        }
        let wrong = &mut verdict.wrong;
        if tools::code(&done) != 0 {
            wrong.push(format!(
                "{what} {flavours:?}: mgz-instrument: status {}: {}",
                tools::code(&done),
                message
            ));
            continue;
        }
        if backend == "pt" && !nop::executes_ptwrite() {
            nop::replace(&out).unwrap();
        }
        for flavour in flavours {
            for (args, expected) in runs.iter().zip(&expected) {
                let what = match args {
                    [] => what.to_owned(),
                    _ => format!("{what} {args:?}"),
                };
                wrong.extend(run(&what, flavour, &out, args, dir, expected));
            }
        }
    }
}

/// Runs an instrumented program in the modes of one flavour. Returns what went wrong.
fn run(
    what: &str,
    flavour: &str,
    program: &Path,
    args: &[&str],
    dir: &Path,
    expected: &Output,
) -> Vec<String> {
    if flavour == "attach" {
        return (0..repetitions())
            .filter_map(|turn| attached(what, program, args, dir, expected, turn))
            .collect();
    }
    let modes: &[(&str, &[&str])] = match flavour {
        "soft" => &[
            ("bare", &[]),
            ("full", &["--mode", "full"]),
            (
                "ring",
                &["--mode", "ring", "--period", "20000", "--window", "500"],
            ),
        ],
        // Short windows, to force every entry and exit path.
        "burst" => &[
            ("burst", &["--mode", "burst", "--rate", "1000", "--force"]),
            (
                "bursts",
                &[
                    "--mode", "burst", "--rate", "10000", "--window", "16", "--force",
                ],
            ),
        ],
        _ => &[("pt", &[])],
    };
    // Bursts begin at a different position in each run.
    let times = if flavour == "burst" { repetitions() } else { 1 };
    let mut wrong = Vec::new();
    for (mode, options) in (0..times).flat_map(|_| modes) {
        let trace = dir.join(format!("trace.{mode}"));
        // Remove the trace of another list of arguments.
        let _ = std::fs::remove_dir_all(&trace);
        let got = match options {
            [] => outcome(Command::new(program).args(args)),
            _ => outcome(&mut session::record_command(options, &trace, program, args)),
        };
        let same = got
            .map_err(anyhow::Error::msg)
            .and_then(|got| session::same_result(mode, expected, &got));
        wrong.extend(same.err().map(|why| format!("{what}: {why:#}")));
        if !options.is_empty() && flavour != "burst" {
            wrong.extend(
                recorded(&trace)
                    .err()
                    .map(|why| format!("{what} {mode}: {why}")),
            );
        }
    }
    wrong
}

/// The library that holds a program before its main function, compiled once for each C library.
fn gate_library(is_musl: bool) -> &'static [u8] {
    static COMPILED: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    COMPILED[usize::from(is_musl)].get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("gate.so");
        let mut command = Command::new(if is_musl { "musl-gcc" } else { "gcc" });
        command
            .args(["-O1", "-w", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(mgz_tests::programs::source("gate"));
        tools::succeed(&mut command, LIMIT).unwrap();
        std::fs::read(library).unwrap()
    })
}

/// Runs a program without a recorder and holds it before its main function until a recorder has
/// attached to it. Returns the errors.
fn attached(
    what: &str,
    program: &Path,
    args: &[&str],
    dir: &Path,
    expected: &Output,
    turn: usize,
) -> Option<String> {
    let (gate, library, trace) = (
        dir.join("gate"),
        dir.join("gate.so"),
        dir.join("trace.attached"),
    );
    let _ = std::fs::remove_file(&gate);
    if !library.exists() {
        std::fs::write(&library, gate_library(what.contains("musl"))).unwrap();
    }
    let (rate, window) = if turn.is_multiple_of(2) {
        ("10000", "16")
    } else {
        ("1000", "1000")
    };
    let mut refused = None;
    let meanwhile = |pid: i32| {
        let mut recorder = tools::tool("mgz-record");
        recorder
            .args([
                "--force",
                "--rate",
                rate,
                "--window",
                window,
                "--attach",
                &pid.to_string(),
                "-o",
            ])
            .arg(&trace);
        let is_in = || {
            std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|m| {
                m.lines()
                    .any(|l| l.contains("/memfd:mgz-arena") && l.contains("r-xp"))
            })
        };
        let began = std::time::Instant::now();
        // Attach while the loader may still be running.
        std::thread::sleep(Duration::from_millis(10));
        let done = tools::run_beside(&mut recorder, None, LIMIT, |_| {
            while !is_in() && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(&gate, b"").unwrap();
        });
        refused = match done {
            Ok(done) if tools::code(&done) == 0 => None,
            Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(error) => Some(format!("{error:#}")),
        };
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .env("LD_PRELOAD", &library)
        .env("MGZ_TEST_GATE", &gate);
    let got = tools::run_beside(&mut command, None, LIMIT, meanwhile);
    let wrong = got
        .and_then(|got| session::same_result("attached to", expected, &got))
        .err()
        .map(|e| format!("{e:#}"));
    wrong.or(refused).map(|why| format!("{what}: {why}"))
}

/// Checks that the records of a run are in its trace.
fn recorded(trace: &Path) -> Result<(), String> {
    let text =
        std::fs::read(trace.join("manifest.json")).map_err(|e| format!("the manifest: {e}"))?;
    let manifest: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| format!("the manifest: {e}"))?;
    // Two threads in one ring would corrupt each other's records.
    if let Some(n) = manifest["totals"]["dropped"]["foreign_threads"].as_u64() {
        return Err(format!("{n} threads met a ring of another"));
    }
    match manifest["totals"]["records_executed"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(format!("nothing was recorded: {}", manifest["problems"])),
    }
}

/// `MGZ_REPEAT`: number of runs of each program in `burst`.
fn repetitions() -> usize {
    std::env::var("MGZ_REPEAT")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1)
}

/// `MGZ_FLAVOUR` selects one.
fn flavours() -> Vec<&'static str> {
    let only = std::env::var("MGZ_FLAVOUR").unwrap_or_default();
    ["soft", "burst", "attach", "pt"]
        .into_iter()
        .filter(|f| only.is_empty() || *f == only)
        .collect()
}

/// Compiles a variant of a program and checks it, unless this machine lacks a tool for it.
fn check_built(name: &str, way: &Way, runs: &[&[&str]], dir: &Path, verdict: &mut Verdict) {
    match way.build(name, dir) {
        Ok(Some(program)) => check(&format!("{name} {way}"), name, &program, runs, dir, verdict),
        Ok(None) => {}
        Err(why) => verdict.wrong.push(format!("{name} {way}: {why:#}")),
    }
}

/// Compiles a program in each of its variants and runs it with each list of arguments.
fn torture(name: &str, runs: &[&[&str]]) {
    let mut verdict = Verdict::default();
    for way in ways::ways(name) {
        let dir = tempfile::tempdir().unwrap();
        check_built(name, &way, runs, dir.path(), &mut verdict);
        if std::env::var_os("MGZ_KEEP").is_some() {
            println!("{name} {way}: kept in {}", dir.keep().display());
        }
    }
    verdict.end();
}

macro_rules! programs {
    ($($name:ident)*) => { $( #[test] fn $name() { torture(stringify!($name), &[&[]]); } )* };
}

programs! {
    // Control flow.
    switches tables goto jumps midway calls noreturn recurse contexts coroutines made textdata forms locks
    // Exceptions and unwinding.
    throws callbacks objects backtraces escapes panics
    // Signals.
    signals alarms ticking waits redzone retries overflow faults rewind handlers steps tagged again repairs
    // Threads and processes.
    threads parallel cancel breaks undone openmp forks
    // Start-up and storage.
    tls ifuncs stack
    // Loads.
    loops chase hash simd gathers strings bits bignum x87 arrays
}

#[test]
fn ends() {
    torture(
        "ends",
        &[
            &["return"],
            &["exit"],
            &["_exit"],
            &["raw"],
            &["thread"],
            &["pthread_exit"],
            &["abort"],
            &["kill"],
            &["segv"],
            &["trap"],
        ],
    );
}

/// Variants of linking and layout of an executable, independent of its code, tested on programs
/// with tables, exceptions, threads, constructors and thread-local storage.
#[test]
fn linkers_and_layouts() {
    let ways = [
        Way::GCC.with(&["-fuse-ld=gold"]),
        Way::GCC.with(&[
            "-fuse-ld=gold",
            "-ffunction-sections",
            "-Wl,--icf=all",
            "-Wl,--gc-sections",
        ]),
        Way::CLANG.with(&["-fuse-ld=lld", "-ffunction-sections", "-Wl,--icf=all"]),
        Way::CLANG.with(&["-fuse-ld=lld", "-Wl,-z,separate-code"]),
        Way::CLANG
            .with(&["-fuse-ld=lld"])
            .kind(ExecutableKind::NoPie),
        Way::CLANG
            .with(&["-fuse-ld=lld"])
            .kind(ExecutableKind::Static),
        Way::CLANG.with(&["-fuse-ld=mold"]),
        Way::CLANG
            .with(&["-fuse-ld=mold"])
            .kind(ExecutableKind::Static)
            .strip(Strip::Sections),
        Way::GCC.with(&["-Wl,-z,pack-relative-relocs"]),
        Way::GCC
            .with(&["-Wl,-z,noseparate-code"])
            .strip(Strip::Sections),
        Way::GCC
            .with(&["-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,--hash-style=sysv"])
            .kind(ExecutableKind::NoPie),
        Way::GCC.with(&["-Wl,-z,now", "-fno-plt"]),
        Way::GCC.with(&["-flto"]),
        Way::CLANG.with(&["-flto=thin", "-fuse-ld=lld"]),
        Way::GCC.with(&["-fcf-protection=full", "-mshstk"]),
        Way::GCC
            .with(&["-fcf-protection=full"])
            .kind(ExecutableKind::Static),
        Way::GCC
            .with(&[
                "-ffunction-sections",
                "-fdata-sections",
                "-Wl,--gc-sections",
            ])
            .strip(Strip::Sections),
        Way::GCC
            .with(&["-freorder-blocks-and-partition", "-fno-inline"])
            .opt("3"),
        Way::GCC.with(&["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"]),
        Way::GCC.with(&[
            "-fno-omit-frame-pointer",
            "-fstack-protector-all",
            "-fstack-clash-protection",
        ]),
        Way::GCC
            .with(&["-mcmodel=large"])
            .kind(ExecutableKind::NoPie),
        Way::GCC
            .with(&["-mcmodel=medium", "-falign-functions=1", "-falign-loops=1"])
            .kind(ExecutableKind::NoPie),
        Way::GCC.with(&["-march=native"]).opt("3"),
        Way::GCC.with(&["-pg"]),
        Way::GCC.with(&["-finstrument-functions", "-fpatchable-function-entry=8,4"]),
        Way::GCC.with(&["-g3", "-gz"]),
    ];
    let mut verdict = Verdict::default();
    for (i, way) in ways.into_iter().enumerate() {
        let all = ["throws", "switches", "callbacks", "ifuncs", "tls"];
        // This is the only program with functions that a linker may fold.
        let second = if way.flags.contains(&"-Wl,--icf=all") {
            "callbacks"
        } else {
            all[2 + i % 3]
        };
        let programs = if tools::full_matrix() {
            &all[..]
        } else {
            &[all[i % 2], second]
        };
        for name in programs {
            // A resolver must not call other functions. lld 14 loses ifuncs in thin LTO. gcc
            // refuses some models of thread-local storage in the large model.
            let impossible = match *name {
                "ifuncs" => &["-finstrument-functions", "-flto=thin"][..],
                "tls" => &["-mcmodel=large"],
                _ => &[],
            };
            if way.flags.iter().any(|f| impossible.contains(f)) {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            check_built(name, &way, &[&[]], dir.path(), &mut verdict);
        }
    }
    verdict.end();
}

/// Variants of calling the C library, for programs whose handlers inspect faults.
#[test]
fn handlers_and_layouts() {
    let ways = [
        Way::GCC.with(&["-Wl,-z,now", "-fno-plt"]),
        Way::CLANG
            .with(&["-Wl,-z,now", "-fno-plt"])
            .opt("s")
            .kind(ExecutableKind::NoPie),
        Way::GCC.with(&["-Wl,-z,lazy"]).strip(Strip::Symbols),
        Way::GCC.with(&["-fcf-protection=full", "-Wl,-z,ibtplt"]),
        Way::GCC.with(&["-fcf-protection=full", "-Wl,-z,now"]),
        Way::GCC.with(&["-fuse-ld=gold"]),
        Way::CLANG.with(&["-fuse-ld=lld", "-Wl,-z,separate-code"]),
        Way::CLANG.with(&["-fuse-ld=lld", "-Wl,-z,retpolineplt", "-Wl,-z,now"]),
        Way::CLANG.with(&["-fuse-ld=mold"]),
        Way::CLANG
            .with(&["-fuse-ld=mold"])
            .kind(ExecutableKind::NoPie),
        Way::CLANG.with(&["-fuse-ld=mold"]).strip(Strip::Sections),
        Way::GCC.with(&["-fno-asynchronous-unwind-tables"]),
        Way::GCC.strip(Strip::Sections),
        Way::CLANG
            .kind(ExecutableKind::NoPie)
            .strip(Strip::Sections),
        Way::GCC
            .with(&["-Wl,-z,now", "-fno-plt"])
            .strip(Strip::Sections),
        // The C library's functions are called through words of the global offset table.
        Way::GCC
            .with(&["-fno-plt", "-Wl,--no-relax"])
            .kind(ExecutableKind::Static),
        Way::GCC
            .with(&["-fno-plt", "-Wl,--no-relax"])
            .kind(ExecutableKind::StaticPie),
    ];
    let mut verdict = Verdict::default();
    for way in ways {
        for name in ["handlers", "rewind", "faults", "breaks"] {
            let dir = tempfile::tempdir().unwrap();
            check_built(name, &way, &[&[]], dir.path(), &mut verdict);
        }
    }
    verdict.end();
}

/// Unwinding without a loader. gcc's files have no search table, so their own start-up code
/// registers the unwind tables that it finds, and no table describes the runtime's code.
#[test]
fn unwinding_without_a_loader() {
    let mut verdict = Verdict::default();
    for name in ["backtraces", "escapes"] {
        for (clang, kind) in [
            (false, ExecutableKind::Static),
            (true, ExecutableKind::Static),
            (false, ExecutableKind::StaticPie),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let way = if clang { Way::CLANG } else { Way::GCC };
            let way = way.kind(kind).strip(Strip::Symbols);
            check_built(name, &way, &[&[]], dir.path(), &mut verdict);
        }
    }
    verdict.end();
}

/// Programs with musl, another C library: with a loader, and static.
#[test]
fn musl() {
    if !tools::have("musl-gcc") {
        tools::skip("musl-gcc is not installed, so no program of musl was tested");
        return;
    }
    let mut verdict = Verdict::default();
    for name in [
        "loops", "switches", "tables", "threads", "parallel", "signals", "jumps", "cancel",
        "forks", "tls",
    ] {
        for kind in [ExecutableKind::Pie, ExecutableKind::Static] {
            let dir = tempfile::tempdir().unwrap();
            let out = dir.path().join(name);
            let mut command = Command::new("musl-gcc");
            let source = mgz_tests::programs::source(name);
            let assembly = Some(source.with_extension("S")).filter(|a| a.exists());
            command
                .args(["-O2", "-w", "-pthread"])
                .args(kind.flags())
                .arg("-o")
                .arg(&out)
                .arg(source)
                .args(assembly);
            tools::succeed(&mut command, LIMIT).unwrap();
            check(
                &format!("{name} musl {kind}"),
                name,
                &out,
                &[&[]],
                dir.path(),
                &mut verdict,
            );
        }
    }
    verdict.end();
}
