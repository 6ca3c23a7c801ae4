//! `mgz-record --analyze`: the analysis without a trace on disk; and `--exit-after`.

use mgz_tests::programs::{self, Variant};
use mgz_tests::rows;
use mgz_tests::session::{self, record_command};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const PLAIN: Variant = Variant {
    clang: false,
    opt: "2",
    pie: true,
};

/// A recorder with an analyzer beside it that keeps a copy of what it is given in `$KEEP`.
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

/// Folders in memory of the recorder with this id.
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

/// Runs in an empty folder, and looks that nothing is left there and in memory.
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
        // The same run, with a copy of what the analysis had.
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
        assert!(said(&output).contains(" in memory, "), "{}", said(&output));
        let words: Vec<&str> = options.split(' ').collect();
        let through = analyse(&kept, &words);
        let diskless = std::fs::read(&file).unwrap();
        assert!(diskless == through.stdout, "{name}: another analysis");
        // Another run by way of a trace on disk has the same loads.
        let trace = folder.join("trace");
        let recorded = tools::succeed(&mut record_command(mode, &trace, &app, &[]), LIMIT).unwrap();
        assert_eq!(output.stdout, recorded.stdout, "{name}");
        if matches!(name, "threads" | "forks") || options == "--all" {
            continue;
        }
        // (Footprints are a matter of addresses, and the stack lies elsewhere.)
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

/// The markers' program, which would run for hours.
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
        // SAFETY: a call with plain numbers, to a process of our own.
        unsafe { libc::kill(recorder, libc::SIGINT) };
    });
    assert_eq!(
        tools::code(&output),
        128 + libc::SIGINT,
        "{}",
        said(&output)
    );
    let text = said(&output);
    assert!(text.contains("signal 2: ~"), "{text}");
    assert!(text.contains("Functions") && text.contains("sum"), "{text}");
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
        let output = tools::run(
            &mut record_command(&options, &trace, &app, &FOR_HOURS),
            LIMIT,
        )
        .unwrap();
        assert_eq!(tools::code(&output), 0, "{options:?}: {}", said(&output));
        let read = rows::read(&trace).unwrap();
        assert_eq!(read.manifest.program_status, "ended by --exit-after");
        assert_eq!(read.manifest.state, "complete", "{}", said(&output));
        assert!(read.rows() > 0, "{options:?}: {}", said(&output));
        (output, read)
    };
    // Markers: the loads of whole phases. (More than one may go by before the recorder looks.)
    let (_, read) = record(&["--mode", "full"]);
    let phases = read.manifest.phases.as_ref().unwrap();
    assert!(phases.count >= 1, "{phases:?}");
    // An amount, and a time.
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
    // Without a trace.
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
