//! `mgz-record --analyze`, which analyses without a trace on disk, and `--exit-after`.

use mgz_tests::programs::{self, Variant};
use mgz_tests::rows;
use mgz_tests::session::{self, record_command, record_program, recorded_run};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const PLAIN: Variant = Variant::O2;

/// A recorder next to an analyzer that keeps a copy of its input in `$KEEP`.
fn keeping(dir: &Path) -> PathBuf {
    let own = dir.join("bin");
    std::fs::create_dir(&own).unwrap();
    let recorder = own.join("mgz-record");
    std::fs::copy(tools::binary("mgz-record"), &recorder).unwrap();
    let analyzer = own.join("mgz-analyze");
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\n[ ! -d \"$last\" ] || cp -r \"$last\" \"$KEEP\"\nexec '{}' \"$@\"\n",
        tools::binary("mgz-analyze").display()
    );
    std::fs::write(&analyzer, script).unwrap();
    std::fs::set_permissions(&analyzer, std::fs::Permissions::from_mode(0o755)).unwrap();
    recorder
}

/// In-memory folders of the recorder with this process ID.
fn left_in_memory(recorder: u32) -> Vec<PathBuf> {
    let start = format!("mgz-analyze.{recorder}.");
    ["/dev/shm", "/run/shm"]
        .into_iter()
        .map(PathBuf::from)
        .chain(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
        .chain([std::env::temp_dir()])
        .flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&start))
        .map(|entry| entry.path())
        .collect()
}

/// Runs a command in an empty folder and checks that nothing is left there or in memory.
fn leaving_nothing(command: &mut Command, meanwhile: impl FnOnce(i32) + Send) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let mut recorder = 0;
    let output = tools::run_beside(command.current_dir(empty.path()), None, LIMIT, |pid| {
        recorder = pid as u32;
        meanwhile(pid);
    });
    let output = output.unwrap();
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
    assert_eq!(left_in_memory(recorder), Vec::<PathBuf>::new());
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn analyse(trace: &Path, options: &[&str]) -> Output {
    tools::succeed(tools::tool("mgz-analyze").args(options).arg(trace), LIMIT).unwrap()
}

#[test]
fn without_a_trace_the_analysis_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = keeping(dir.path());
    for (number, name) in [
        "small", "chase", "hash", "loops", "jumps", "strings", "bits", "recurse", "threads",
        "forks",
    ]
    .into_iter()
    .enumerate()
    {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let Some(original) = programs::build(name, PLAIN, &["-g", "-pthread"], &folder).unwrap()
        else {
            continue;
        };
        let more: &[&str] = if number % 3 == 0 { &["--stores"] } else { &[] };
        let app = session::instrument(&original, "soft", more).unwrap().path;
        let mode: &[&str] = match number % 2 {
            0 => &["--mode", "full", "--no-aslr"],
            _ => &[
                "--mode",
                "ring",
                "--period",
                "5000",
                "--window",
                "500",
                "--no-aslr",
            ],
        };
        let options = if number % 4 < 2 {
            "--format json --objects"
        } else {
            "--all"
        };
        // The same run, with a copy of the input of the analysis.
        let (kept, file) = (folder.join("kept"), folder.join("analysis"));
        let mut command = Command::new(&recorder);
        command
            .args(mode)
            .arg(format!("--analyze={options}"))
            .arg("--analysis")
            .arg(&file)
            .arg("--")
            .arg(&app)
            .env("KEEP", &kept);
        let output = leaving_nothing(&mut command, |_| {});
        assert_eq!(tools::code(&output), 0, "{name}: {}", said(&output));
        assert!(said(&output).contains(" in memory"), "{}", said(&output));
        let words: Vec<&str> = options.split(' ').collect();
        let through = analyse(&kept, &words);
        let diskless = std::fs::read(&file).unwrap();
        assert!(diskless == through.stdout, "{name}: another analysis");
        // Another run with a trace on disk has the same loads.
        let trace = folder.join("trace");
        let recorded = record_program(mode, &trace, &app, &[]);
        assert_eq!(output.stdout, recorded.stdout, "{name}");
        if matches!(name, "threads" | "forks") || options == "--all" {
            continue;
        }
        // (Footprints depend on addresses, and the stack has another address.)
        let loads = |bytes: &[u8]| {
            let all: Value = serde_json::from_slice(bytes).unwrap();
            let rows = all["functions"].as_array().unwrap().iter();
            rows.map(|row| (row["function"].to_string(), row["A"].to_string()))
                .collect::<std::collections::BTreeSet<_>>()
        };
        let on_disk = loads(&analyse(&trace, &words).stdout);
        assert!(!on_disk.is_empty());
        assert_eq!(loads(&diskless), on_disk, "{name}");
    }
}

/// Message of the recorder that the analysis got its rows while the program ran.
const BESIDE: &str = " were analysed while the program ran";

const FULL: [&str; 3] = ["--mode", "full", "--no-aslr"];

/// The output of a complete run without a trace on disk, and its analysis.
fn without_trace(app: &Path, arguments: &[&str], options: &str, dir: &Path) -> (Output, Vec<u8>) {
    let file = dir.join("analysis");
    let mut command = tools::tool("mgz-record");
    command
        .args(FULL)
        .arg(format!("--analyze={options}"))
        .arg("--analysis")
        .arg(&file)
        .arg("--")
        .arg(app)
        .args(arguments);
    let output = leaving_nothing(&mut command, |_| {});
    (output, std::fs::read(&file).unwrap())
}

/// A document without the ids of processes and threads, which differ in each run.
fn without_ids(document: &[u8]) -> Vec<&[u8]> {
    let is_id = |line: &[u8]| {
        let key = line.trim_ascii();
        key.starts_with(b"\"process\":") || key.starts_with(b"\"thread\":")
    };
    document
        .split(|&byte| byte == b'\n')
        .filter(|line| !is_id(line))
        .collect()
}

/// Compares a run that is analysed while the program runs with one that has a trace on disk, for
/// programs that make the same accesses in each run. Returns the messages of the first recorder.
fn beside_and_behind(app: &Path, arguments: &[&str], options: &str, dir: &Path) -> String {
    let trace = dir.join("trace");
    let mut record = record_command(&FULL, &trace, app, arguments);
    let recorded = tools::run_limited(&mut record, LIMIT).unwrap();
    let words: Vec<&str> = options.split(' ').collect();
    let through = analyse(&trace, &words);
    let (output, beside) = without_trace(app, arguments, options, dir);
    let context = || format!("{} {options}: {}", app.display(), said(&output));
    assert_eq!(output.status, recorded.status, "{}", context());
    assert_eq!(output.stdout, recorded.stdout, "{}", context());
    assert!(
        without_ids(&beside) == without_ids(&through.stdout),
        "{}\n{}\n{}",
        context(),
        String::from_utf8_lossy(&beside),
        String::from_utf8_lossy(&through.stdout)
    );
    said(&output)
}

/// Programs with one thread that make the same accesses in each run, and their arguments.
const ALONE: [(&str, &[&str]); 13] = [
    ("levels/sort", &["2"]),
    ("levels/search", &["2"]),
    ("chase", &[]),
    ("hash", &[]),
    ("loops", &[]),
    ("jumps", &[]),
    ("strings", &[]),
    ("bits", &[]),
    ("recurse", &[]),
    ("switches", &[]),
    ("gathers", &[]),
    ("forms", &[]),
    ("vector", &[]),
];

/// Compares both methods on the programs of [`ALONE`], every other one with stores; `options`
/// returns the options for a program's number.
fn both_ways(options: impl Fn(usize) -> String) {
    let dir = tempfile::tempdir().unwrap();
    for (number, (name, arguments)) in ALONE.into_iter().enumerate() {
        let folder = dir.path().join(number.to_string());
        std::fs::create_dir_all(folder.join("levels")).unwrap();
        let flags = ["-g", "-pthread", "-mavx2"];
        let Some(original) = programs::build(name, PLAIN, &flags, &folder).unwrap() else {
            continue;
        };
        let stores = number % 2 == 0;
        let more: &[&str] = if stores { &["--stores"] } else { &[] };
        let app = session::instrument(&original, "soft", more).unwrap().path;
        let said = beside_and_behind(&app, arguments, &options(number), &folder);
        assert!(said.contains(BESIDE), "{name}: {said}");
        assert!(!said.contains("others began to run"), "{name}: {said}");
    }
}

#[test]
fn rows_are_simulated_while_the_program_runs_with_the_same_results() {
    let levels = "--level 4K:4 --level 32K:8:plru:inclusive --level 256K:16:rrip";
    both_ways(|number| match number % 3 {
        0 => format!("cache --format json {levels} --tlb 16:4 --stores"),
        1 => format!("cache {levels} --skip 50 --warm-up 20"),
        _ => format!("cache --format json {levels}:next-line"),
    });
}

#[test]
fn reuse_is_measured_while_the_program_runs_with_the_same_results() {
    both_ways(|number| {
        let own = match number % 4 {
            0 => "--format json --stores",
            1 => "--format json --windows 1000",
            2 => "--block 4K --relative-error 0.02",
            _ => "--format json --bins linear --cache 32K",
        };
        format!("reuse --no-objects {own}")
    });
}

#[test]
fn libraries_may_come_while_rows_are_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = programs::build("plugin", PLAIN, &["-shared", "-fPIC"], dir.path());
    let loader = programs::build("loader", PLAIN, &["-ldl"], dir.path());
    let (Some(plugin), Some(loader)) = (plugin.unwrap(), loader.unwrap()) else {
        return;
    };
    let library = session::instrument(&plugin, "soft", &[]).unwrap().path;
    let app = session::instrument(&loader, "soft", &[]).unwrap().path;
    for (number, options) in [
        "cache --format json --level 1K:4 --level 8K:8",
        "reuse --format json --no-objects",
    ]
    .into_iter()
    .enumerate()
    {
        let folder = dir.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let said = beside_and_behind(&app, &[library.to_str().unwrap()], options, &folder);
        assert!(said.contains(BESIDE), "{said}");
    }
}

/// The analysis of code that runs concurrently with other code follows from the memory trace. (Its
/// order is that of recorded times, which differ from run to run; `collector/src/convert/tests.rs`
/// and `analyzer/cli/tests/integration/beside.rs` compare the same rows.)
#[test]
fn threads_that_begin_later_follow() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("relay", PLAIN, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &["--stores"]);
    let app = app.unwrap().path;
    let trace = dir.path().join("trace");
    record_program(&FULL, &trace, &app, &[]);
    let options = "cache --format json --stores --level 4K:4 --level 32K:8";
    let (output, beside) = without_trace(&app, &[], options, dir.path());
    let text = said(&output);
    assert_eq!(tools::code(&output), 0, "{text}");
    assert!(
        text.contains(BESIDE) && text.contains("others began to run"),
        "{text}"
    );
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let words: Vec<&str> = options.split(' ').collect();
    let (beside, through) = (read(&beside), read(&analyse(&trace, &words).stdout));
    assert_eq!(through["summary"]["threads"], 3, "{through}");
    for key in ["A", "A_const", "threads", "loads", "stores"] {
        assert_eq!(beside["summary"][key], through["summary"][key], "{key}");
    }
    let rate = |all: &Value| all["levels"][1]["hit_rate_hierarchy"].as_f64().unwrap();
    assert!((rate(&beside) - rate(&through)).abs() < 0.01);
    // Threads without recorded times have no order.
    let options = "reuse --format json --stores --no-objects";
    let (output, beside) = without_trace(&app, &[], options, dir.path());
    let text = said(&output);
    assert!(
        text.contains(BESIDE) && text.contains("others began to run"),
        "{text}"
    );
    let words: Vec<&str> = options.split(' ').collect();
    let (beside, through) = (read(&beside), read(&analyse(&trace, &words).stdout));
    assert_eq!(through["summary"]["threads"], 3, "{through}");
    for key in ["A", "A_const", "threads", "windows"] {
        assert_eq!(beside["summary"][key], through["summary"][key], "{key}");
    }
    let mean = |all: &Value| all["summary"]["D_mean"].as_f64().unwrap();
    assert!((mean(&beside) / mean(&through) - 1.0).abs() < 0.01);
}

/// Analyses that need more than a single pass over the rows get the trace in memory.
#[test]
fn analyses_that_look_back_read_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let Some(original) = programs::build("loops", PLAIN, &["-g"], dir.path()).unwrap() else {
        return;
    };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    for options in [
        "reuse --format json",
        "reuse --format json --no-objects --together",
        "cache --format json --misses --level 4K:4",
        "cache --format json --level 4K:4:stride",
    ] {
        let (output, analysis) = without_trace(&app, &[], options, dir.path());
        let text = said(&output);
        assert_eq!(tools::code(&output), 0, "{options}: {text}");
        assert!(!text.contains(BESIDE), "{options}: {text}");
        assert!(!analysis.is_empty());
    }
}

/// Highest memory use of a recorder, in bytes.
#[derive(Debug, Default)]
struct Peak {
    /// In its folders in memory.
    folder: u64,
    /// By the recorder and the analysis, without the memory shared with the program and without
    /// mapped files.
    processes: u64,
}

/// Bytes of all files in a folder.
fn allocated(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some(match meta.is_dir() {
                true => allocated(&entry.path()),
                false => meta.blocks() * 512,
            })
        })
        .sum()
}

impl Peak {
    /// Polls until the recorder has ended.
    fn watch(&mut self, recorder: i32) {
        let field = |process: &str, name: &str| -> Option<u64> {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            let line = status.lines().find_map(|l| l.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let own = recorder.to_string();
        let ended = || {
            let status = std::fs::read_to_string(format!("/proc/{own}/status"));
            status.map_or(true, |s| s.lines().any(|l| l.starts_with("State:\tZ")))
        };
        while !ended() {
            let folders = left_in_memory(recorder as u32);
            // (A folder may appear under several names.)
            let folder = folders.iter().map(|folder| allocated(folder)).max();
            let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
            let children = children.unwrap_or_default();
            let analyzers = children.split_whitespace().filter(|child| {
                std::fs::read_to_string(format!("/proc/{child}/comm"))
                    .is_ok_and(|name| name.starts_with("mgz-analyze"))
            });
            let processes = analyzers.chain([own.as_str()]);
            let memory = processes.filter_map(|process| field(process, "RssAnon:"));
            self.processes = self.processes.max(memory.sum::<u64>() << 10);
            self.folder = self.folder.max(folder.unwrap_or(0));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A program that executes too many loads for a small trace.
fn large(dir: &Path) -> Option<PathBuf> {
    std::fs::create_dir_all(dir.join("levels")).unwrap();
    let original = programs::build("levels/histogram", PLAIN, &["-g"], dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap().path)
}

#[test]
fn what_does_not_fit_into_memory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = large(dir.path()) else {
        return;
    };
    const BOUND: u64 = 8 << 20;
    let mut command = tools::tool("mgz-record");
    command
        .args(["--mode", "full", "--max-size", "8M"])
        .args(["--analyze=reuse --format json", "--"])
        .arg(&app)
        .arg("20");
    let mut peak = Peak::default();
    let output = leaving_nothing(&mut command, |recorder| peak.watch(recorder));
    let text = said(&output);
    assert_eq!(tools::code(&output), 0, "{text}");
    assert!(
        text.contains("recording ended early: the size limit of 8388608 bytes was reached"),
        "{text}"
    );
    // Records, the columns that replace them, and sidecars.
    assert!(
        peak.folder > BOUND / 2 && peak.folder < BOUND * 2,
        "{peak:?} {text}"
    );
    assert!(peak.processes < 200 << 20, "{peak:?}");
}

#[test]
fn memory_is_the_same_however_long_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = large(dir.path()) else {
        return;
    };
    let run = |analyze: &str, rounds: &str| {
        let mut command = tools::tool("mgz-record");
        command
            .args(["--mode", "full", "--max-size", "1M", analyze, "--"])
            .arg(&app)
            .arg(rounds);
        let mut peak = Peak::default();
        let output = leaving_nothing(&mut command, |recorder| peak.watch(recorder));
        let text = said(&output);
        assert_eq!(tools::code(&output), 0, "{text}");
        assert!(text.contains(BESIDE), "{text}");
        assert!(!text.contains("ended early"), "{text}");
        peak
    };
    // 5 and 20 million loads, which are some 20 and 80 MB of records.
    for analyze in [
        "--analyze=cache --level 32K:8",
        "--analyze=reuse --no-objects",
    ] {
        for peak in [run(analyze, "5"), run(analyze, "20")] {
            println!("{peak:?}");
            assert!(peak.folder < 1 << 20, "{peak:?}");
            assert!(peak.processes < 100 << 20, "{peak:?}");
        }
    }
}

/// The program with markers, which would run for hours.
fn marked(dir: &Path) -> Option<PathBuf> {
    let include = format!("-I{}", programs::sources().join("../../markers").display());
    std::fs::create_dir_all(dir.join("marked")).unwrap();
    let flags = ["-g", "-pthread", include.as_str()];
    let original = programs::build("marked/marked", PLAIN, &flags, dir).unwrap()?;
    Some(session::instrument(&original, "soft", &[]).unwrap().path)
}

const FOR_HOURS: [&str; 2] = ["100000000", "1000"];

/// Waits until a child of the process has used some CPU time.
fn until_busy_child(parent: i32) {
    let is_busy = |stat: String| {
        let (name, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse().ok()?;
        let ours = fields.get(1)? == &parent.to_string() && name.contains("(marked");
        (ours && ticks >= 20).then_some(())
    };
    loop {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut stats = processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
        if stats.any(|stat| is_busy(stat).is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn interrupted_recordings_are_analysed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = marked(dir.path()) else {
        return;
    };
    let mut command = tools::tool("mgz-record");
    command
        .args(["--mode", "ring", "--period", "20000", "--window", "500"])
        .args(["--ignore-markers", "--analyze=--all", "--"])
        .arg(&app)
        .args(FOR_HOURS);
    tools::interruptible(&mut command);
    let output = leaving_nothing(&mut command, |recorder| {
        until_busy_child(recorder);
        // SAFETY: a call with plain numbers, for a process that this test started.
        unsafe { libc::kill(recorder, libc::SIGINT) };
    });
    assert_eq!(
        tools::code(&output),
        128 + libc::SIGINT,
        "{}",
        said(&output)
    );
    let text = said(&output);
    assert!(text.contains("ended with signal 2; recorded "), "{text}");
    assert!(
        text.to_lowercase().contains("functions") && text.contains("sum"),
        "{text}"
    );
    assert_eq!(output.stdout, b"");
}

#[test]
fn wrong_options_of_the_analysis_are_told_before_the_program_runs() {
    let run = |options: &[&str]| {
        let mut command = tools::tool("mgz-record");
        let output = leaving_nothing(command.args(options).args(["--", "/bin/true"]), |_| {});
        assert_eq!(tools::code(&output), 125);
        said(&output)
    };
    assert!(run(&["--analyze=--no-such-option"]).contains("does not take these options"));
    assert!(run(&["--analyze='--all"]).contains("a quote is not closed"));
    assert!(run(&["--analyze=--help"]).contains("takes options of mgz-analyze for tables"));
    assert!(run(&["--analyze", "--analysis", "/no/folder"]).contains("name another file"));
    assert!(run(&["--analyze"]).contains("is instrumented"));
    assert!(run(&["--analyze", "-o", "t"]).contains("cannot be used with"));
}

#[test]
fn a_program_ends_when_its_phase_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(app) = marked(dir.path()) else {
        return;
    };
    let trace = dir.path().join("trace");
    let record = |options: &[&str]| {
        let options = [options, &["--force", "--exit-after"]].concat();
        let output = recorded_run(&options, &trace, &app, &FOR_HOURS);
        assert_eq!(tools::code(&output), 0, "{options:?}: {}", said(&output));
        let read = rows::read_trace(&trace).unwrap();
        assert_eq!(
            read.manifest.program_status.to_string(),
            "ended by --exit-after"
        );
        assert_eq!(
            read.manifest.state.as_str(),
            "complete",
            "{}",
            said(&output)
        );
        assert!(read.rows() > 0, "{options:?}: {}", said(&output));
        (output, read)
    };
    // Markers: the loads of whole phases. (More than one phase may pass before the recorder
    // checks.)
    let (_, read) = record(&["--mode", "full"]);
    let phases = read.manifest.phases.as_ref().unwrap();
    assert!(phases.count >= 1, "{phases:?}");
    // A limit by amount, and one by time.
    let (_, read) = record(&[
        "--mode",
        "full",
        "--ignore-markers",
        "--stop-after",
        "100Kloads",
    ]);
    let rows = read.rows() as u64;
    assert!((90_000..1_000_000).contains(&rows), "{rows}");
    record(&[
        "--mode",
        "ring",
        "--period",
        "10000",
        "--ignore-markers",
        "--stop-after",
        "50ms",
    ]);
    record(&[
        "--mode",
        "ring",
        "--period",
        "10000",
        "--ignore-markers",
        "--duration",
        "0.2",
    ]);
    // The same without a trace.
    let mut command = tools::tool("mgz-record");
    let output = leaving_nothing(
        command
            .args(["--mode", "full", "--exit-after", "--analyze", "--"])
            .arg(OsStr::new(&app))
            .args(FOR_HOURS),
        |_| {},
    );
    assert_eq!(tools::code(&output), 0, "{}", said(&output));
    assert!(said(&output).contains("\nsum "), "{}", said(&output));
}
