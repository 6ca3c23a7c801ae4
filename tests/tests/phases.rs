//! Phases: `--start-after`, `--stop-after`, `--from-function`, and the markers of `markers/`.
//!
//! The program loads one array outside of phases and another one inside, from three threads that wait
//! for each other, so that every load is known.

use mgz_annotations_schema::PhaseBegin;
use mgz_tests::programs::{self, Variant};
use mgz_tests::rows::{self, Trace};
use mgz_tests::session::{self, record_command, record_program, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const THREADS: u64 = 3;

fn markers() -> PathBuf {
    programs::sources().join("../../markers")
}

fn build(dir: &Path, more: &[&str]) -> Option<PathBuf> {
    let include = format!("-I{}", markers().display());
    let variant = Variant {
        clang: false,
        opt: "2",
        pie: !more.contains(&"-static"),
    };
    let flags = [&["-g", "-pthread", include.as_str()], more].concat();
    let built = programs::build("marked/marked", variant, &flags, dir);
    built.unwrap_or_else(|e| panic!("{e:#}"))
}

/// The address range of an array, as the program prints it.
fn range(output: &Output, name: &str) -> Range<u64> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .find(|l| l.starts_with("hot 0x"))
        .unwrap_or_else(|| panic!("no addresses in {text}"));
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|w| *w == name).unwrap();
    let start = u64::from_str_radix(words[at + 1].trim_start_matches("0x"), 16).unwrap();
    start..start + words[5].parse::<u64>().unwrap()
}

fn loads(trace: &Trace, range: &Range<u64>) -> u64 {
    let all = trace.threads.values().flatten();
    all.filter(|r| !r.store && range.contains(&r.address))
        .count() as u64
}

/// Records a run; returns its output, the trace, and the loads of `hot` and of `cold`.
fn record(app: &Path, options: &[&str], arguments: &[&str]) -> (Output, Trace, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let output = tools::succeed(&mut record_command(options, &trace, app, arguments), LIMIT)
        .unwrap_or_else(|e| panic!("{options:?}: {e:#}"));
    let read = rows::read_trace(&trace).unwrap_or_else(|e| panic!("{options:?}: {e:#}"));
    let (hot, cold) = (
        loads(&read, &range(&output, "hot")),
        loads(&read, &range(&output, "cold")),
    );
    (output, read, hot, cold)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn markers_choose_what_is_recorded_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for more in [&[][..], &["-static"]] {
        let folder = dir.path().join(more.len().to_string());
        std::fs::create_dir_all(folder.join("marked")).unwrap();
        let Some(original) = build(&folder, more) else {
            return;
        };
        let app = session::instrument(&original, "soft", &["--for", "burst"])
            .unwrap()
            .path;
        let (rounds, each) = (20, 1000);
        let arguments = ["20", "1000"];
        let plain = tools::succeed(Command::new(&original).args(arguments), LIMIT).unwrap();
        let alone = tools::succeed(Command::new(&app).args(arguments), LIMIT).unwrap();
        assert_eq!(alone.stdout, plain.stdout);
        let expected = THREADS * rounds * each;
        // Exactly all loads of all threads.
        let (output, trace, hot, cold) = record(&app, &["--mode", "full"], &arguments);
        assert_eq!(output.stdout, plain.stdout);
        assert_eq!((hot, cold), (expected, 0), "{}", said(&output));
        let phases = trace.manifest.phases.as_ref().unwrap();
        assert_eq!((phases.count, phases.markers), (rounds, 2));
        assert!(phases.outside_slots > 0 && phases.list[0].by == PhaseBegin::Marker);
        assert!(phases.cpu_seconds <= trace.manifest.cpu_seconds + 0.01);
        assert!(
            said(&output).contains("only in 20 phases with "),
            "{}",
            said(&output)
        );
        let totals = &trace.manifest.totals;
        assert_eq!(totals.records_executed, totals.records_kept);
        assert!(totals.loads_executed.is_some(), "{}", said(&output));
        // Without phases, everything is recorded.
        let (output, trace, hot, cold) =
            record(&app, &["--mode", "full", "--ignore-markers"], &arguments);
        assert_eq!(output.stdout, plain.stdout);
        assert_eq!((hot, cold), (expected, 2 * expected));
        assert_eq!(trace.manifest.phases, None);
        // Windows are inside phases and represent only the phases' loads.
        let arguments = ["50", "20000"];
        let plain = tools::succeed(Command::new(&original).args(arguments), LIMIT).unwrap();
        let options = ["--mode", "ring", "--period", "20000", "--window", "500"];
        let (output, trace, hot, cold) = record(&app, &options, &arguments);
        assert_eq!(output.stdout, plain.stdout);
        assert!(hot > 10_000, "{hot}");
        assert_eq!(cold, 0, "{}", said(&output));
        let inside = THREADS * 50 * 20_000;
        let estimate = trace.manifest.totals.loads_executed_estimate.unwrap();
        let off = estimate / inside as f64;
        assert!(
            (0.8..1.3).contains(&off),
            "{estimate} loads, {inside} in phases"
        );
        // Bursts: a window that another thread has begun may end after the phase.
        let arguments = ["30", "300000"];
        let plain = tools::succeed(Command::new(&original).args(arguments), LIMIT).unwrap();
        let (output, _, hot, cold) = record(
            &app,
            &["--mode", "burst", "--rate", "2000", "--window", "300"],
            &arguments,
        );
        assert_eq!(output.stdout, plain.stdout);
        assert!(hot > 1000, "{hot}: {}", said(&output));
        assert!(cold * 10 < hot, "{cold} of {hot}: {}", said(&output));
    }
}

#[test]
fn recording_begins_at_a_function_and_ends_after_an_amount() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("marked")).unwrap();
    let Some(original) = build(dir.path(), &[]) else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--for", "burst"])
        .unwrap()
        .path;
    let arguments = ["3", "50000"];
    let plain = tools::succeed(Command::new(&original).args(arguments), LIMIT).unwrap();
    let expected = THREADS * 3 * 50_000;
    // All of `cold` except its first part is omitted, and the first load of `hot` is recorded.
    let options = [
        "--mode",
        "full",
        "--ignore-markers",
        "--from-function",
        "^hot_part$",
    ];
    let (output, trace, hot, cold) = record(&app, &options, &arguments);
    assert_eq!(output.stdout, plain.stdout);
    let first = THREADS * 50_000;
    assert!(
        (expected - THREADS..=expected).contains(&hot),
        "{hot} of {expected}: {}",
        said(&output)
    );
    assert_eq!(cold, 2 * expected - first);
    assert_eq!(
        trace.manifest.phases.unwrap().list[0].by,
        PhaseBegin::FromFunction
    );
    // No function has this name.
    let options = [
        "--mode",
        "full",
        "--ignore-markers",
        "--from-function",
        "^nobody$",
    ];
    let trace = dir.path().join("none");
    let output = recorded_run(&options, &trace, &app, &arguments);
    assert_eq!(output.stdout, plain.stdout);
    assert!(
        said(&output).contains("no function of the instrumented files has such a name"),
        "{}",
        said(&output)
    );
    // Limits by loads, exact to within a chunk of each thread.
    let chunks = 2 * 3 * 16_384 * THREADS;
    let options = [
        "--mode",
        "full",
        "--ignore-markers",
        "--start-after",
        "300Kloads",
        "--stop-after",
        "0.4Mloads",
    ];
    let (output, trace, hot, cold) = record(&app, &options, &arguments);
    assert_eq!(output.stdout, plain.stdout);
    let kept = hot + cold;
    assert!(
        (400_000 - chunks..=400_000 + chunks).contains(&kept),
        "{kept}: {}",
        said(&output)
    );
    assert_eq!(trace.manifest.phases.unwrap().count, 1);
}

#[test]
fn recording_begins_and_ends_by_time() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("marked")).unwrap();
    let Some(original) = build(dir.path(), &[]) else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--for", "burst"])
        .unwrap()
        .path;
    // Runs long enough on any machine.
    let arguments = ["600", "500000"];
    let plain = tools::succeed(Command::new(&original).args(arguments), LIMIT).unwrap();
    for mode in ["burst", "ring"] {
        let options = [
            "--mode",
            mode,
            "--ignore-markers",
            "--start-after",
            "50ms",
            "--stop-after",
            "150ms",
        ];
        let (output, trace, ..) = record(&app, &options, &arguments);
        assert_eq!(output.stdout, plain.stdout);
        let m = &trace.manifest;
        let phases = m.phases.as_ref().unwrap();
        let phase = &phases.list[0];
        let length = phase.end_ns.unwrap() - phase.begin_ns;
        assert!(phases.count == 1 && length >= 150_000_000, "{phases:?}");
        assert!(phases.cpu_seconds < m.cpu_seconds, "{phases:?}");
    }
    // A start time after the program's end.
    let trace = dir.path().join("late");
    let options = ["--ignore-markers", "--start-after", "3min"];
    let output = recorded_run(&options, &trace, &app, &["2", "1000"]);
    assert!(
        said(&output).contains("no samples: recording had not begun when the program ended"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_the_remedy() {
    for (options, status, why) in [
        (&["--start-after", "2"][..], 125, "give a unit"),
        (&["--from-function", "("], 125, "--from-function"),
        (
            &["--mode", "watch", "--start-after", "2s"],
            125,
            "phases are for recording by software",
        ),
    ] {
        let mut command = tools::tool("mgz-record");
        command
            .args(options)
            .args(["-o", "/nonexistent/trace", "--", "/bin/true"]);
        let output = tools::run_limited(&mut command, LIMIT).unwrap();
        assert_eq!(tools::code(&output), status, "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}

/// The module for Fortran and the crate for Rust produce the same markers.
#[test]
fn other_languages_have_markers_too() {
    let dir = tempfile::tempdir().unwrap();
    let sources = programs::sources().join("marked");
    let markers = markers();
    let fortran = dir.path().join("fortran");
    if tools::have("gfortran") && tools::have("gcc") {
        let object = dir.path().join("mgz_fortran.o");
        tools::succeed(
            Command::new("gcc")
                .arg("-c")
                .arg(markers.join("mgz_fortran.c"))
                .arg("-o")
                .arg(&object),
            LIMIT,
        )
        .unwrap();
        tools::succeed(
            Command::new("gfortran")
                .current_dir(dir.path())
                .args(["-O1", "-g"])
                .arg(markers.join("mgz.f90"))
                .arg(sources.join("marked.f90"))
                .arg(&object)
                .arg("-o")
                .arg(&fortran),
            LIMIT,
        )
        .unwrap();
        check_language(&fortran);
    } else {
        tools::skip("gfortran is not installed");
    }
    let library = dir.path().join("libmgz_markers.rlib");
    tools::succeed(
        Command::new("rustc")
            .args([
                "--edition",
                "2021",
                "-O",
                "--crate-type",
                "rlib",
                "--crate-name",
                "mgz_markers",
            ])
            .arg(markers.join("rust/src/lib.rs"))
            .arg("-o")
            .arg(&library),
        LIMIT,
    )
    .unwrap();
    let rust = dir.path().join("rust");
    let with = format!("mgz_markers={}", library.display());
    tools::succeed(
        Command::new("rustc")
            .args(["--edition", "2021", "-O", "--extern", &with])
            .arg(sources.join("marked.rs"))
            .arg("-o")
            .arg(&rust),
        LIMIT,
    )
    .unwrap();
    check_language(&rust);
}

/// Checks that the program has one phase and the same output with and without mgz.
fn check_language(original: &Path) {
    let plain = tools::succeed(&mut Command::new(original), LIMIT).unwrap();
    let app = session::instrument(original, "soft", &[]).unwrap().path;
    let trace = original.with_extension("trace");
    let output = record_program(&["--mode", "full"], &trace, &app, &[]);
    assert_eq!(output.stdout, plain.stdout);
    let read = rows::read_trace(&trace).unwrap();
    let phases = read.manifest.phases.as_ref().unwrap();
    assert_eq!((phases.count, phases.markers), (1, 2), "{}", said(&output));
    // The phase loads 1000 numbers, and the program many more.
    assert!((900..3000).contains(&read.rows()), "{} rows", read.rows());
}
