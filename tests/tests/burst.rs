//! Burst mode: windows are exact parts of the program's execution, and the program behaves as it
//! does without mgz.

use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::manifest::within;
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, RecordedRow, Trace};
use mgz_tests::session::{
    self, Instrumented, SessionOptions, analysis_json, record_command, record_program,
    recorded_run, same_result,
};
use mgz_tests::tools::{self, LIMIT};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: Variant = Variant::O2;
const FIXED: Variant = Variant::CLANG_FIXED;
const TRANSLATED: &[&str] = &["--for", "burst"];

fn app(name: &str, variant: Variant, dir: &Path) -> Option<Instrumented> {
    let original = programs::build(name, variant, &[], dir).unwrap()?;
    Some(session::instrument(&original, "soft", TRANSLATED).unwrap())
}

/// A `full` trace of a translated clone has every load, in order, at its address, like that of a
/// direct clone.
#[test]
fn full_traces_of_translated_clones() {
    for (name, lossy) in [
        ("calls", false),
        ("recurse", false),
        ("switches", false),
        ("threads", false),
        ("strings", false),
        ("signals", false),
        ("ways", false),
        ("objects", true),
        ("goto", true),
        ("jumps", true),
    ] {
        for variant in [PLAIN, FIXED] {
            let dir = tempfile::tempdir().unwrap();
            let Some(built) = programs::build(name, variant, &[], dir.path()).unwrap() else {
                continue;
            };
            let options = SessionOptions {
                instrument: TRANSLATED,
                lossy,
                soft_only: true,
            };
            let args: &[&str] = if name == "ways" { &["4"] } else { &[] };
            if let Err(error) = session::soft_addresses(dir.path(), &built, args, options) {
                panic!("{name} {variant}: {error:#}");
            }
        }
    }
}

/// A call to a function without a clone returns into the clone: a translated clone records as much
/// as a direct one.
#[test]
fn calls_to_functions_without_a_clone() {
    for flags in [&[][..], &["-static"]] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build("midway", PLAIN, flags, dir.path()).unwrap() else {
            continue;
        };
        let rows = ["ring", "burst"].map(|serves| {
            let app = session::instrument(&original, "soft", &["--for", serves]).unwrap();
            let trace = dir.path().join("trace");
            record_program(
                &["--mode", "full", "--no-aslr", "--force"],
                &trace,
                &app.path,
                &[],
            );
            let own = symbols(&app.original, &["main", "sum"]);
            let mut rows = loads(rows::read_trace(&trace).unwrap().first_thread());
            // (The code before and after may tail-call such functions, which do not return to the
            // clone.)
            rows.retain(|&(ip, ..)| own.iter().any(|&(from, to)| (from..to).contains(&ip)));
            rows
        });
        assert!(rows[0].len() > 32_000);
        assert!(
            rows[0] == rows[1],
            "{flags:?}: {} rows of the direct clone, {} of the translated one",
            rows[0].len(),
            rows[1].len()
        );
    }
}

/// Entries of linkage tables lead out of the file and back, whichever linker wrote them; no window
/// ends there.
#[test]
fn windows_go_on_through_every_linkage_table() {
    const LLD: &str = "-fuse-ld=lld";
    for (linker, clang, flags) in [
        ("ld.bfd", false, &["-fuse-ld=bfd"][..]),
        ("ld.bfd", false, &["-fuse-ld=bfd", "-Wl,-z,now"]),
        ("ld.bfd", false, &["-fuse-ld=bfd", "-Wl,-z,ibtplt"]),
        ("ld.gold", false, &["-fuse-ld=gold"]),
        ("ld.lld", false, &[LLD]),
        ("ld.lld", true, &[LLD, "-Wl,-z,retpolineplt"]),
        ("ld.lld", true, &[LLD, "-Wl,-z,retpolineplt,-z,now"]),
        ("mold", false, &["-fuse-ld=mold"]),
        ("mold", false, &["-fuse-ld=mold", "-Wl,-z,now"]),
    ] {
        if !tools::have(linker) {
            tools::skip(&format!(
                "{linker} is not installed, so its linkage tables were not tested"
            ));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let variant = Variant { clang, ..PLAIN };
        let Some(original) = programs::build("linkage", variant, flags, dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", TRANSLATED).unwrap();
        let trace = dir.path().join("trace");
        let options = [
            "--mode", "burst", "--rate", "2000", "--window", "3000", "--force",
        ];
        record_program(&options, &trace, &app.path, &["500"]);
        let totals = rows::read_trace(&trace).unwrap().manifest.totals;
        let ended = totals
            .truncated_windows
            .get("no_clone")
            .copied()
            .unwrap_or(0);
        assert!(
            totals.triggers["windows"] > 5 && ended * 4 < totals.triggers["windows"],
            "{flags:?}: {:?}, {:?}",
            totals.triggers,
            totals.truncated_windows
        );
    }
}

type Load = (u64, u64, u32);

fn loads(rows: &[RecordedRow]) -> Vec<Load> {
    rows.iter().map(|r| (r.ip, r.address, r.size)).collect()
}

/// Result of comparing windows with the complete trace.
#[derive(Debug, Default)]
struct Agreement {
    windows: usize,
    rows: usize,
    /// Windows whose first rows do not match the others. Their region had begun before the window,
    /// so loads whose address was recorded before it are missing.
    torn: usize,
}

/// Finds each window in the full trace; panics if one is missing.
fn compare(what: &str, whole: &[RecordedRow], windows: &Trace) -> Agreement {
    const KEY: usize = 3;
    /// Maximum number of loads in one region.
    const REGION: usize = 128;
    let all = loads(whole);
    let mut places: HashMap<&[Load], Vec<usize>> = HashMap::new();
    for (at, key) in all.windows(KEY).enumerate() {
        places.entry(key).or_default().push(at);
    }
    let mut agreement = Agreement::default();
    for window in windows
        .threads
        .values()
        .flat_map(|rows| rows.chunk_by(|a, b| a.sample == b.sample))
    {
        let window = loads(window);
        agreement.windows += 1;
        agreement.rows += window.len();
        let found = |from: usize| {
            let rest = &window[from..];
            match rest.get(..KEY) {
                Some(key) => places
                    .get(key)
                    .is_some_and(|at| at.iter().any(|&a| all[a..].starts_with(rest))),
                None => rest.is_empty() || all.windows(rest.len()).any(|w| w == rest),
            }
        };
        let Some(from) = (0..=window.len().min(REGION)).find(|&from| found(from)) else {
            let same = |from: usize, at: usize| {
                window[from..]
                    .iter()
                    .zip(&all[at..])
                    .take_while(|(a, b)| a == b)
                    .count()
            };
            let starts = (0..window.len().min(REGION)).flat_map(|from| {
                window
                    .get(from..from + KEY)
                    .and_then(|key| places.get(key))
                    .into_iter()
                    .flatten()
                    .map(move |&at| (from, at))
            });
            let (length, from, at) = starts
                .map(|(from, at)| (from + same(from, at), from, at))
                .max()
                .unwrap_or_default();
            let next = length - from + at;
            panic!(
                "{what}: a window of {} rows is not in the full trace; its first {length}, but for {from}, are; {:x?} follow instead of {:x?}",
                window.len(),
                &window[length..window.len().min(length + 6)],
                &all[next..all.len().min(next + 6)]
            );
        };
        agreement.torn += usize::from(from > 0);
    }
    agreement
}

#[test]
fn windows_are_pieces_of_the_whole() {
    let repetitions = if tools::full_matrix() { 200 } else { 2 };
    let mut windows = 0;
    let plain: &[&str] = &[];
    let optimised = Variant {
        clang: false,
        opt: "3",
        pie: false,
    };
    for (variant, flags) in [
        (PLAIN, plain),
        (FIXED, plain),
        (optimised, plain),
        (optimised, &["-static"]),
        (
            Variant {
                clang: true,
                opt: "2",
                pie: true,
            },
            plain,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(original) = programs::build("ways", variant, flags, dir.path()).unwrap() else {
            continue;
        };
        let app = session::instrument(&original, "soft", TRANSLATED).unwrap();
        let record = |options: &[&str]| {
            let trace = dir.path().join("trace");
            record_program(
                &[options, &["--no-aslr", "--force"]].concat(),
                &trace,
                &app.path,
                &[],
            );
            rows::read_trace(&trace).unwrap()
        };
        let full = record(&["--mode", "full"]);
        for window in ["1000", "100", "16"] {
            let mut all = Agreement::default();
            for _ in 0..repetitions {
                let burst = record(&["--mode", "burst", "--rate", "50000", "--window", window]);
                assert_eq!(burst.manifest.mode, TraceMode::Burst);
                assert_eq!(burst.manifest.totals.dropped.get("unknown_ids"), None);
                let one = compare(
                    &format!("{variant} {flags:?} {window}"),
                    full.first_thread(),
                    &burst,
                );
                (all.windows, all.rows, all.torn) = (
                    all.windows + one.windows,
                    all.rows + one.rows,
                    all.torn + one.torn,
                );
                println!(
                    "{variant} {flags:?} {window}: {:?} {:?}",
                    burst.manifest.totals.triggers, burst.manifest.totals.truncated_windows
                );
            }
            println!("{variant} {flags:?} {window}: {all:?}");
            assert!(
                all.windows > 5,
                "{variant} {flags:?} {window}: only {} windows",
                all.windows
            );
            windows += all.windows;
        }
    }
    assert!(windows > 150, "only {windows} windows");
}

/// All programs behave as they do without mgz.
#[test]
fn programs_do_not_notice() {
    let programs: &[(&str, &[&[&str]])] = &[
        (
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
                &["term"],
                &["segv"],
                &["load-segv"],
                &["trap"],
            ],
        ),
        ("alarms", &[&[]]),
        ("backtraces", &[&[]]),
        ("bits", &[&[]]),
        ("calls", &[&[]]),
        ("descriptors", &[&[]]),
        ("faults", &[&[]]),
        ("forks", &[&[]]),
        ("forms", &[&[]]),
        ("gathers", &[&[]]),
        ("goto", &[&[]]),
        ("jumps", &[&[]]),
        ("objects", &[&[]]),
        ("parallel", &[&["3000"]]),
        ("recurse", &[&[]]),
        ("retries", &[&[]]),
        ("signals", &[&[]]),
        ("simd", &[&[]]),
        ("stack", &[&[]]),
        ("switches", &[&[]]),
        ("threads", &[&[]]),
        ("throws", &[&[]]),
        ("uncaught", &[&[]]),
        ("waits", &[&[]]),
        ("x87", &[&[]]),
    ];
    let repetitions = if tools::full_matrix() { 100 } else { 2 };
    for &(name, runs) in programs {
        let variants = if tools::full_matrix() {
            programs::all_variants()
        } else {
            vec![PLAIN, FIXED]
        };
        for variant in variants {
            let dir = tempfile::tempdir().unwrap();
            let Some(app) = app(name, variant, dir.path()) else {
                continue;
            };
            for args in runs {
                let expected =
                    tools::run_limited(Command::new(&app.original).args(*args), LIMIT).unwrap();
                for i in 0..repetitions {
                    for (window, rate) in [("1000", "1000"), ("16", "10000")] {
                        let options = [
                            "--mode", "burst", "--force", "--window", window, "--rate", rate,
                        ];
                        let trace = dir.path().join("trace");
                        let got = recorded_run(&options, &trace, &app.path, args);
                        same_result(
                            &format!("{name} {args:?} {variant} {options:?} repetition {i}"),
                            &expected,
                            &got,
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
}

/// Without a loader, the recorder finds threads and children at system calls in the original code.
/// They are sampled too, including short-lived threads and those of a child.
#[test]
fn threads_of_static_executables() {
    let dir = tempfile::tempdir().unwrap();
    let original = programs::build(
        "parallel",
        Variant {
            pie: false,
            ..PLAIN
        },
        &["-static"],
        dir.path(),
    )
    .unwrap()
    .unwrap();
    let app = session::instrument(&original, "soft", TRANSLATED).unwrap();
    let expected = tools::run_limited(Command::new(&original).arg("300000"), LIMIT).unwrap();
    let trace = dir.path().join("trace");
    let got = recorded_run(&["--rate", "10000"], &trace, &app.path, &["300000"]);
    same_result("static", &expected, &got).unwrap();
    let manifest = rows::read_trace(&trace).unwrap().manifest;
    let sampled = manifest.threads.iter().filter(|t| t.samples > 0).count();
    assert!(
        sampled > 2
            && manifest
                .totals
                .dropped
                .keys()
                .all(|what| what.ends_with("_loads")),
        "{sampled} threads; {:?}",
        manifest.totals
    );
    assert_eq!(manifest.mode, TraceMode::Burst);
}

/// The trace of a program that must give the same result as without mgz.
fn recorded_as_before(app: &Instrumented, options: &[&str], dir: &Path) -> PathBuf {
    let expected = tools::run_limited(&mut Command::new(&app.original), LIMIT).unwrap();
    let trace = dir.join("trace");
    let got = recorded_run(options, &trace, &app.path, &[]);
    same_result("recorded", &expected, &got).unwrap();
    trace
}

/// Some threads are moved into the clone between the read of a jump table and the jump. They leave
/// it immediately through the original table's address. That must not keep the window open: in the
/// past it did, and each trigger after the first such event found the thread busy.
#[test]
fn triggers_between_a_table_and_its_jump() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("dispatch", PLAIN, dir.path()) else {
        return;
    };
    let options = ["--mode", "burst", "--rate", "20000", "--window", "16"];
    let trace = recorded_as_before(&app, &options, dir.path());
    let totals = rows::read_trace(&trace).unwrap().manifest.totals;
    let count = |what: &str| totals.triggers.get(what).copied().unwrap_or(0);
    println!("{:?} {:?}", totals.triggers, totals.truncated_windows);
    assert!(count("came") > 100, "{:?}", totals.triggers);
    // On slow machines a trigger every 50 us arrives while the last window is still open ("busy").
    // This test is not about that.
    assert!(
        count("windows") * 10 >= (count("came") - count("no_room") - count("busy")) * 9,
        "{:?}",
        totals.triggers
    );
    let whole = count("windows") - totals.truncated_windows.values().sum::<u64>() - count("empty");
    assert!(
        whole * 10 >= count("windows") * 6,
        "{:?} {:?}",
        totals.triggers,
        totals.truncated_windows
    );
}

/// When the queue of signals is full, the kernel sends another signal, whose default action kills
/// the program. Programs were killed by this; any other process of the same user could fill the
/// queue.
#[test]
fn no_room_in_the_queue_of_signals() {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    for (name, room) in [("dispatch", 0), ("alarms", 0), ("dispatch", 2)] {
        let app = app(name, PLAIN, dir.path()).unwrap();
        let limited = |command: &mut Command| {
            // SAFETY: a system call on a local structure.
            unsafe {
                command.pre_exec(move || {
                    let limit = libc::rlimit {
                        rlim_cur: room,
                        rlim_max: room,
                    };
                    if libc::setrlimit(libc::RLIMIT_SIGPENDING, &limit) == 0 {
                        Ok(())
                    } else {
                        Err(std::io::Error::last_os_error())
                    }
                })
            };
            tools::run_limited(command, LIMIT).unwrap()
        };
        let expected = limited(&mut Command::new(&app.original));
        let trace = dir.path().join("trace");
        let got = limited(&mut record_command(
            &[
                "--mode", "burst", "--rate", "5000", "--window", "16", "--force",
            ],
            &trace,
            &app.path,
            &[],
        ));
        same_result(name, &expected, &got).unwrap();
        let totals = rows::read_trace(&trace).unwrap().manifest.totals;
        assert!(
            totals.triggers["windows"] > 5,
            "{name}: {:?}",
            totals.triggers
        );
    }
}

/// The signal of a timer or an event may arrive after that has ended, for example if the thread had
/// blocked signals. It must not reach the program, whose default action is to end.
#[test]
fn signals_of_ended_triggers_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("stale", PLAIN, dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    for trigger in ["cpu-time", "ticks"] {
        let got = recorded_run(
            &[
                "--mode",
                "burst",
                "--trigger",
                trigger,
                "--signal",
                "60",
                "--force",
            ],
            &trace,
            &app.path,
            &["60"],
        );
        assert_eq!(
            (tools::code(&got), &*got.stdout),
            (0, &b"fine\n"[..]),
            "{trigger}: {}",
            String::from_utf8_lossy(&got.stderr)
        );
    }
}

/// Address ranges of functions of an executable, found by their symbols.
fn symbols(program: &Path, names: &[&str]) -> Vec<(u64, u64)> {
    let listed = tools::succeed(Command::new("nm").arg("-S").arg(program), LIMIT).unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let find = |name: &&str| {
        let words: Vec<&str> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>())
            .find(|w| w.len() == 4 && w[3] == *name)
            .unwrap();
        let [start, size] = [0, 1].map(|i| u64::from_str_radix(words[i], 16).unwrap());
        (start, start + size)
    };
    names.iter().map(find).collect()
}

/// Samples are distributed over functions in proportion to CPU time, which the program measures
/// itself. Over several runs, each share is within four standard deviations of a binomial draw,
/// plus one percent for the clock calls.
#[test]
fn samples_are_spread_as_time_is() {
    let runs = if tools::full_matrix() { 60 } else { 6 };
    spread(&["--rate", "2000"], runs, 250, 500.0);
}

/// The same check where windows begin at the kernel's tick, which can occur at any phase of the
/// program's rounds.
#[test]
fn samples_at_ticks_are_spread_as_time_is() {
    let runs = if tools::full_matrix() { 20 } else { 2 };
    let Some(rate) = ticks() else { return };
    spread(
        &["--trigger", "ticks", "--rate", &(0.8 * rate).to_string()],
        runs,
        2000,
        0.4 * rate,
    );
}

/// Number of windows per second that the kernel's tick can begin, if it interrupts no system calls.
fn ticks() -> Option<f64> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next()?, numbers.next()?);
    // SAFETY: zero is a valid value, and the value outlives the call.
    let tick = unsafe {
        let mut tick: libc::timespec = std::mem::zeroed();
        libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut tick);
        tick.tv_nsec as f64
    };
    if version < (5, 10) || tick <= 0.0 {
        eprintln!("SKIPPED: this kernel's ticks begin no windows");
        return None;
    }
    Some(1e9 / tick / 2.0)
}

/// Records `rounds` rounds of `phases` `runs` times, which must give at least `least` samples.
fn spread(options: &[&str], runs: usize, rounds: usize, least: f64) {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let functions = symbols(&app.original, &["chase", "sum", "mix"]);
    let (mut time, mut samples) = ([0f64; 3], [0f64; 3]);
    let trace = dir.path().join("trace");
    let options = [&["--mode", "burst", "--window", "100", "--force"], options].concat();
    for _ in 0..runs {
        let output = record_program(&options, &trace, &app.path, &[&rounds.to_string()]);
        let said = String::from_utf8(output.stderr).unwrap();
        let line = said
            .lines()
            .find_map(|l| l.strip_prefix("phases "))
            .unwrap();
        for (sum, word) in time.iter_mut().zip(line.split(' ')) {
            *sum += word.parse::<f64>().unwrap();
        }
        let rows = rows::read_trace(&trace).unwrap();
        for first in rows
            .threads
            .values()
            .flat_map(|rows| rows.chunk_by(|a, b| a.sample == b.sample))
            .map(|w| w[0].ip)
        {
            if let Some(i) = functions.iter().position(|f| (f.0..f.1).contains(&first)) {
                samples[i] += 1.0;
            }
        }
    }
    let (n, total) = (samples.iter().sum::<f64>(), time.iter().sum::<f64>());
    assert!(n > least, "only {n} samples");
    for i in 0..3 {
        let (share, expected) = (samples[i] / n, time[i] / total);
        let allowed = 4.0 * (expected * (1.0 - expected) / n).sqrt() + 0.01;
        println!("{i}: {share:.4} of {n} samples, {expected:.4} of the time, ±{allowed:.4}");
        assert!(
            (share - expected).abs() <= allowed,
            "function {i}: {share:.4} of {n} samples, {expected:.4} of the time, allowed {allowed:.4}"
        );
    }
}

/// Ticks that occur while the kernel works for the program interrupt no system calls and begin no
/// windows. The number of windows is still as requested.
#[test]
fn ticks_end_no_system_calls() {
    let dir = tempfile::tempdir().unwrap();
    let Some(polls) = app("polls", PLAIN, dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let Some(rate) = ticks() else { return };
    let shown = rate.to_string();
    let options = [
        "--mode",
        "burst",
        "--trigger",
        "ticks",
        "--rate",
        &shown,
        "--force",
    ];
    let args = ["60000"];
    let expected = tools::run_limited(Command::new(&polls.original).args(args), LIMIT).unwrap();
    assert!(String::from_utf8_lossy(&expected.stdout).ends_with("interrupted 0 times\n"));
    let got = recorded_run(&options, &trace, &polls.path, &args);
    same_result("polls", &expected, &got).unwrap();
    let manifest = rows::read_trace(&trace).unwrap().manifest;
    let counted = |what| manifest.totals.triggers.get(what).copied().unwrap_or(0);
    assert!(manifest.trigger.contains("timers"), "{}", manifest.trigger);
    assert!(
        counted("outside") + counted("windows") > 10,
        "{:?}",
        manifest.totals.triggers
    );

    let Some(busy) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let output = record_program(&options, &trace, &busy.path, &["1500"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let ns: f64 = said
        .lines()
        .find_map(|l| l.strip_prefix("phases "))
        .unwrap()
        .split(' ')
        .map(|word| word.parse::<f64>().unwrap())
        .sum();
    let came = rows::read_trace(&trace).unwrap().manifest.totals.triggers["came"] as f64;
    let asked = ns / 1e9 * rate;
    // (If other programs use the processor too, ticks that the clock counts may be missing.)
    assert!(
        (0.6..1.2).contains(&(came / asked)),
        "{came} of {asked:.0} triggers came"
    );
}

/// The weights of windows follow from the ticks that were requested, not from the CPU time of other
/// programs that this one has started.
#[test]
fn time_of_others_is_no_time_of_windows() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let Some(rate) = ticks() else { return };
    let trace = dir.path().join("trace");
    // The shell runs both programs; the second one is not instrumented and takes several times as
    // long.
    let script = format!(
        "{} 1000; {} 6000",
        app.path.display(),
        app.original.display()
    );
    let shown = rate.to_string();
    let options = [
        "--mode",
        "burst",
        "--trigger",
        "ticks",
        "--rate",
        &shown,
        "--force",
    ];
    record_program(&options, &trace, Path::new("/bin/sh"), &["-c", &script]);
    let totals = rows::read_trace(&trace).unwrap().manifest.totals;
    let truth = 1000.0 * 382_805.0;
    let (estimate, error) = (
        totals.loads_executed_assumed.unwrap(),
        totals.loads_executed_assumed_error.unwrap(),
    );
    assert!(
        estimate < 1.5 * (1.0 + error) * truth,
        "{estimate:.3e} of {truth:.3e}, {}",
        within(error)
    );
}

/// Samples are proportional to time, but estimated numbers of loads are weighted by the speed of
/// the code. The source determines the loads of each function: 6.6, 85.5 and 7.8%, although each
/// takes a quarter to a half of the time. Without weights, the second would have 40 to 50%.
#[test]
fn loads_are_estimated_from_the_speed_of_the_code() {
    const LOADS: [f64; 3] = [25_125.0, 327_680.0, 30_000.0];
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let functions = symbols(&app.original, &["chase", "sum", "mix"]);
    let (runs, rounds) = (5, 750.0);
    let trace = dir.path().join("trace");
    let (mut sums, mut totals, mut covered) = (Vec::new(), Vec::new(), 0);
    for _ in 0..runs {
        let options = ["--mode", "burst", "--rate", "1000", "--force"];
        record_program(&options, &trace, &app.path, &[&rounds.to_string()]);
        let rows = rows::read_trace(&trace).unwrap();
        let weights = rows::weights(&trace).unwrap();
        let mut loads = [0f64; 3];
        for row in rows.threads.values().flatten() {
            if let Some(i) = functions.iter().position(|f| (f.0..f.1).contains(&row.ip)) {
                loads[i] += weights.get(&row.sample).copied().flatten().unwrap();
            }
        }
        let all: f64 = loads.iter().sum();
        let totals_of = &rows.manifest.totals;
        let (estimate, error) = (
            totals_of.loads_executed_assumed.unwrap(),
            totals_of.loads_executed_assumed_error.unwrap(),
        );
        let truth = rounds * LOADS.iter().sum::<f64>();
        println!(
            "shares {:?}, {estimate:.3e} {} of {truth:.3e}",
            loads.map(|l| l / all),
            within(error)
        );
        assert!((estimate / all - 1.0).abs() < 0.01, "{estimate} {all}");
        covered += u32::from((1.0 / (1.0 + error)..=1.0 + error).contains(&(estimate / truth)));
        sums.push(loads[1] / all);
        totals.push(estimate / truth);
    }
    for list in [&mut sums, &mut totals] {
        list.sort_by(f64::total_cmp);
    }
    let (share, total) = (sums[runs / 2], totals[runs / 2]);
    // A run of one second has few measurements, each correct to within a factor of two or three.
    // The intervals account for that.
    assert!(share > 0.6 && share < 0.98, "{sums:?}");
    assert!((0.25..4.0).contains(&total), "{totals:?}");
    assert!(
        covered >= 3,
        "{covered} of {runs} intervals cover the truth: {totals:?}"
    );
}

/// Footprints per window are means over the windows, which represent equal times. In `sum` each
/// load of a window reads a different word, so its footprint per window is its share of the
/// recorded loads times their number.
#[test]
fn footprints_per_window_are_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    record_program(
        &["--mode", "burst", "--rate", "1000", "--force"],
        &trace,
        &app.path,
        &["750"],
    );
    let found = analysis_json(&trace, &[]);
    let of = |row: &serde_json::Value, key: &str| row[key].as_f64().unwrap();
    let (summary, sum) = (
        &found["summary"],
        found["functions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["function"] == "sum")
            .unwrap(),
    );
    // All windows represent the same time, so the share of `sum` in time equals its share in the
    // recorded loads.
    let by_time = of(sum, "A") / of(summary, "A") * of(summary, "sample_mean");
    let footprint = of(sum, "F_sample");
    assert!(
        (footprint / by_time - 1.0).abs() < 0.05,
        "{footprint}, by time {by_time}"
    );
    let (low, high) = (of(sum, "time_pct_lo"), of(sum, "time_pct_hi"));
    let part = 100.0 * of(sum, "A") / of(summary, "A");
    assert!(
        low - 5.0 < part && part < high + 5.0,
        "{part}% of the rows, {low} to {high}% of the time"
    );
    // The other functions' values are smaller, because they come from the windows without `sum`.
    let whole = found["growth"]
        .as_array()
        .unwrap()
        .iter()
        .find(|w| w["W"] == 512)
        .unwrap();
    let window = found["windows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|w| w["W"] == 512)
        .unwrap();
    assert_eq!(whole["F_hat"], window["F"]);
    assert!(of(window, "F") > 0.9 * 512.0 * part / 100.0, "{window}");
}

/// A counter triggers once per period of the event that it counts, and each window represents a
/// period. Not every machine counts loads, so the test counts page faults; the program's own pages
/// cause 50,000 of them.
#[test]
fn triggers_that_count() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("touches", PLAIN, dir.path()) else {
        return;
    };
    let options = ["--loads-event", "1:2", "--period", "250", "--window", "100"];
    let trace = recorded_as_before(&app, &options, dir.path());
    let read = rows::read_trace(&trace).unwrap();
    let (manifest, totals) = (&read.manifest, &read.manifest.totals);
    assert!(
        manifest.trigger.starts_with("loads (perf_event 1:0x2"),
        "{}",
        manifest.trigger
    );
    assert_eq!((manifest.period, manifest.rate), (250, 0.0));
    // Every trigger represents a period, including one that occurred while a window was open. The
    // windows share those periods as fractions. On a busy machine periods become longer.
    let slowed = totals.triggers.get("slowed").copied().unwrap_or(0);
    let outside = totals.triggers.get("outside").copied().unwrap_or(0);
    let least = (totals.triggers["came"] - outside) * 250;
    let estimate = totals.loads_executed_estimate.unwrap();
    assert_eq!(estimate.round() as u64, totals.trigger_periods);
    assert!(
        totals.trigger_periods == least || slowed > 0 && totals.trigger_periods > least,
        "{estimate}: {:?}",
        totals.triggers
    );
    // The start of the process and its libraries also cause some faults. Page faults trigger once
    // more where the period changes: when a new one is drawn, and when it becomes longer.
    let error = 1.0 + totals.loads_executed_error.unwrap();
    let longer = (250 << slowed.min(10)) as f64 * slowed as f64;
    assert!(
        estimate / error < 53_000.0 + longer && estimate * error > 49_000.0,
        "{estimate}, {error}: {:?}",
        totals.triggers
    );
    let sum = symbols(&app.original, &["sum"])[0];
    let rows = read.first_thread();
    let own = rows
        .iter()
        .filter(|r| (sum.0..sum.1).contains(&r.ip))
        .count();
    assert!(
        own > 1000 && own as f64 > 0.95 * rows.len() as f64,
        "{own} of {}",
        rows.len()
    );
    let said = recorded_run(
        &["--loads-event", "1:2", "--rate", "5", "--force"],
        &trace,
        &app.path,
        &[],
    );
    assert_eq!(tools::code(&said), 125, "a rate is by time");
}

/// A window may be open when the C library calls the program back by a pointer in memory. Such a
/// window ends before that call, as a trigger shows.
#[test]
fn callbacks_that_triggers_find() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("cookie", PLAIN, dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let mut found = 0;
    for _ in 0..10 {
        record_program(
            &[
                "--mode", "burst", "--rate", "20000", "--window", "2000", "--force",
            ],
            &trace,
            &app.path,
            &[],
        );
        let totals = rows::read_trace(&trace).unwrap().manifest.totals;
        found += totals
            .truncated_windows
            .get("callback")
            .copied()
            .unwrap_or(0);
        if found > 0 {
            return;
        }
    }
    panic!("no window ended for a callback");
}

/// Threads that end inside an unrecorded lap of the clone leave no open window, and a thread that
/// takes over their ring finds it intact.
#[test]
fn threads_that_end_in_a_lap() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("lapend", PLAIN, dir.path()) else {
        return;
    };
    let expected = tools::run_limited(&mut Command::new(&app.original), LIMIT).unwrap();
    let trace = dir.path().join("trace");
    for _ in 0..2 {
        let got = recorded_run(
            &["--mode", "burst", "--rate", "20000", "--force"],
            &trace,
            &app.path,
            &[],
        );
        same_result("laps", &expected, &got).unwrap();
        let manifest = rows::read_trace(&trace).unwrap().manifest;
        let totals = manifest.totals;
        // Threads live a twentieth of a millisecond. Few of them receive a trigger if the recorder
        // found signals too expensive for the requested rate, as under a high load of the machine.
        let are_few = manifest.trigger_why.contains("times a second instead of");
        assert!(
            (are_few || totals.samples > 50) && totals.dropped.is_empty(),
            "{}: {totals:?}",
            manifest.trigger_why
        );
    }
}

/// If `perf_event_open` is refused, timers replace it. If timers are refused too, the program runs
/// unharmed and the user gets a message.
#[test]
fn clocks_that_are_refused() {
    const PERF_EVENT_OPEN: &str = "298";
    const TIMER_CREATE: &str = "222";
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = app("phases", PLAIN, dir.path()) else {
        return;
    };
    let deny = programs::build("deny", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    let trace = dir.path().join("trace");
    for refused in [&[PERF_EVENT_OPEN][..], &[PERF_EVENT_OPEN, TIMER_CREATE]] {
        let record = record_command(
            &["--mode", "burst", "--rate", "1000", "--force"],
            &trace,
            &app.path,
            &[],
        );
        let output = tools::run_limited(
            Command::new(&deny)
                .args(refused)
                .arg("--")
                .arg(record.get_program())
                .args(record.get_args()),
            LIMIT,
        )
        .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(tools::code(&output), 0, "{said}");
        let manifest = rows::read_trace(&trace).unwrap().manifest;
        let windows = manifest
            .totals
            .triggers
            .get("windows")
            .copied()
            .unwrap_or(0);
        if refused.len() == 1 {
            assert!(
                manifest.trigger.contains("timers") && windows > 5,
                "{} {windows}",
                manifest.trigger
            );
        } else {
            assert_eq!(
                (windows, manifest.totals.triggers.get("threads_without")),
                (0, Some(&1))
            );
            assert!(
                said.contains("1 threads were not sampled") && said.contains("--mode ring"),
                "{said}"
            );
        }
    }
}

/// A program that spends its time in a library that is not instrumented: the recorder names the
/// library.
#[test]
fn where_the_time_goes_instead() {
    if !Path::new("/usr/bin/xz").exists() {
        tools::skip("/usr/bin/xz is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("xz");
    tools::succeed(
        tools::tool("mgz-instrument")
            .args(["--backend", "soft", "-o"])
            .arg(&out)
            .arg("/usr/bin/xz"),
        LIMIT,
    )
    .unwrap();
    let trace = dir.path().join("trace");
    let mut command = record_command(
        &["--mode", "burst", "--rate", "200"],
        &trace,
        &out,
        &["-9", "-c"],
    );
    let done = tools::run_with(
        &mut command,
        Some(&mgz_tests::inputs::mixed_data(4 << 20, 3)),
        LIMIT,
    )
    .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(tools::code(&done), 0, "{said}");
    assert!(
        said.contains("triggers came where no window can begin")
            && said.contains("--libs=liblzma`"),
        "{said}"
    );
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
    let outside = manifest["totals"]["outside"].as_object().unwrap();
    assert!(
        outside
            .iter()
            .any(|(file, n)| file.contains("liblzma") && n.as_u64() >= Some(10)),
        "{outside:?}"
    );
}
