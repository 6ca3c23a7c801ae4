//! Watch mode: programs behave as they do without mgz, and the reuses are those in the source.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session;
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const PLAIN: Variant = Variant::O2;

/// Runs a program in watch mode; returns `None`, with a message, if this machine does not support
/// it.
fn watched(options: &[&str], trace: &Path, program: &Path, args: &[&str]) -> Option<Output> {
    let mut command = tools::tool("mgz-record");
    command
        .args(["--mode", "watch"])
        .args(options)
        .arg("-o")
        .arg(trace)
        .arg("--")
        .arg(program)
        .args(args);
    let output = tools::run_limited(&mut command, LIMIT).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if tools::code(&output) == 125 && text.contains("this machine") {
        tools::skip(&format!("watch mode: {text}"));
        return None;
    }
    Some(output)
}

fn analyze(args: &[&str]) -> (i32, Value, String) {
    let output = tools::run_limited(
        tools::tool("mgz-analyze")
            .args(args)
            .args(["--format", "json"]),
        LIMIT,
    )
    .unwrap();
    (
        tools::code(&output),
        serde_json::from_slice(&output.stdout).unwrap_or_default(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn reuses_are_those_of_the_source() {
    const ROUNDS: &str = "9000";
    let dir = tempfile::tempdir().unwrap();
    let program = programs::build("hot", PLAIN, &["-g"], dir.path())
        .unwrap()
        .unwrap();
    let trace = dir.path().join("t");
    let shown = trace.to_str().unwrap();
    let Some(output) = watched(&["--rate", "1000"], &trace, &program, &[ROUNDS]) else {
        return;
    };
    assert_eq!(
        tools::code(&output),
        3,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let alone = tools::run_limited(Command::new(&program).arg(ROUNDS), LIMIT).unwrap();
    assert_eq!(output.stdout, alone.stdout);

    let (status, got, text) = analyze(&["reuse", shown, "--rdx"]);
    assert_eq!(status, 0, "{text}");
    let counted = got["summary"]["time"]
        .as_str()
        .unwrap()
        .starts_with("accesses");
    let samples = got["summary"]["samples"].as_f64().unwrap();
    assert!(samples > 50.0, "{}", got["summary"]);
    if !counted {
        assert!(text.contains("nothing counts accesses"), "{text}");
        let near = |least: f64| {
            got["near_intervals"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|b| b["from"].as_f64().unwrap() >= least)
                .map(|b| b["count"].as_f64().unwrap())
                .sum::<f64>()
        };
        assert!(near(4.0) <= 0.1 * near(0.0), "{}", got["near_intervals"]);
    }
    let pairs = got["pairs"].as_array().unwrap();
    let in_pass = |p: &&Value| p["use_function"] == "pass" && p["reuse_function"] == "pass";
    assert!(
        pairs
            .iter()
            .any(|p| in_pass(&p) && p["use_line"].as_str().unwrap().starts_with("hot.c:")),
        "{pairs:?}"
    );
    let share: f64 = pairs
        .iter()
        .filter(in_pass)
        .map(|p| p["share_hat"].as_f64().unwrap())
        .sum();
    assert!(share > 0.9, "{pairs:?}");

    // With the rate from a counted run: half of the loads are words whose reuse distance is the
    // array; the others have short distances.
    let file = session::instrument(&program, "soft", &[]).unwrap().path;
    let ring = dir.path().join("ring");
    let mut command = session::record_command(&["--mode", "ring"], &ring, &file, &[ROUNDS]);
    assert_eq!(
        tools::code(&tools::run_limited(&mut command, LIMIT).unwrap()),
        3
    );
    let (status, got, text) = analyze(&[
        "reuse",
        shown,
        "--rdx",
        "--accesses-from",
        ring.to_str().unwrap(),
    ]);
    assert_eq!(status, 0, "{text}");
    let far: f64 = got["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|b| (16_384.0..1_000_000.0).contains(&b["from"].as_f64().unwrap()))
        .map(|b| b["share_hat"].as_f64().unwrap())
        .sum();
    // Four standard deviations of a random draw.
    let allowed = 4.0 * (0.25 / samples).sqrt() + 0.03;
    assert!(
        (far - 0.5).abs() <= allowed,
        "{far} of {samples}, ±{allowed}: {}",
        got["intervals"]
    );

    // A run without counts gives no rate.
    let file = ring.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    manifest["totals"]["loads_executed"] = 0.into();
    std::fs::write(&file, manifest.to_string()).unwrap();
    let refused = analyze(&[
        "reuse",
        shown,
        "--rdx",
        "--accesses-from",
        ring.to_str().unwrap(),
    ]);
    assert!(
        counted || refused.0 == 1 && refused.2.contains("no access was counted"),
        "{}",
        refused.2
    );

    let refused = analyze(&["reuse", shown, "--rdx", "--accesses-from", shown]);
    assert!(
        refused.0 == 1 && (counted || refused.2.contains("has no number of executed accesses")),
        "{}",
        refused.2
    );
    // Without the option the output is the same, with a hint.
    let (status, led, text) = analyze(&["reuse", shown]);
    assert!(
        status == 0 && text.contains("--rdx shows") && led["pairs"].as_array() == Some(pairs),
        "{text}"
    );
}

/// Share and mean interval of reuses in a recording of `passes`, by the functions of use and reuse.
struct Reuses(Vec<Value>);

impl Reuses {
    fn of(trace: &str, more: &[&str]) -> Reuses {
        let (status, got, text) = analyze(&[&["reuse", trace, "--rdx"], more].concat());
        assert_eq!(status, 0, "{text}");
        Reuses(got["pairs"].as_array().unwrap().clone())
    }

    fn between(&self, used: &str, reused: &str) -> (f64, f64) {
        let own: Vec<&Value> = self
            .0
            .iter()
            .filter(|p| p["use_function"] == used && p["reuse_function"] == reused)
            .collect();
        let sum = |key: &str| own.iter().map(|p| p[key].as_f64().unwrap()).sum::<f64>();
        (
            sum("share_hat"),
            own.iter()
                .map(|p| {
                    p["share_hat"].as_f64().unwrap() * p["interval_mean_hat"].as_f64().unwrap()
                })
                .sum::<f64>()
                / sum("share_hat").max(1e-9),
        )
    }
}

#[test]
fn a_load_is_reused_by_the_next_load_unless_stores_count() {
    // Intervals are times here and include the time of other programs on the processor. A
    // comparison of their lengths may therefore take several tries.
    const TRIES: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let program = programs::build("passes", PLAIN, &["-g"], dir.path())
        .unwrap()
        .unwrap();
    let mut ratios = Vec::new();
    for attempt in 0..TRIES {
        let trace = dir.path().join(attempt.to_string());
        let shown = trace.to_str().unwrap();
        let Some(output) = watched(&["--rate", "1000"], &trace, &program, &["2000"]) else {
            return;
        };
        assert_eq!(
            tools::code(&output),
            0,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap();
        let triggers = &manifest["totals"]["triggers"];
        // Each hit is at the one instruction that accesses the word. (Once, on a virtual machine,
        // one of 284 was reported at an address that no access precedes; it is counted.)
        let count = |key: &str| triggers[key].as_u64().unwrap_or(0);
        assert!(
            count("hits_unclear") * 100 <= count("hits") && count("hits_lost") == 0,
            "{triggers}"
        );
        let strange = count("hits_unclear") as f64 / count("hits") as f64;

        let loads = Reuses::of(shown, &[]);
        let none = loads.between("take", "put").0
            + loads.between("put", "take").0
            + loads.between("put", "put").0;
        assert!(
            loads.between("take", "take").0 > 0.9 && none <= 2.0 * strange,
            "{:?}",
            loads.0
        );
        let all = Reuses::of(shown, &["--stores"]);
        // Samples are proportional to time, and the loop of loads is the slower one.
        let (taken, put) = (all.between("take", "put"), all.between("put", "take"));
        let within = all.between("take", "take").0 + all.between("put", "put").0;
        assert!(
            (0.15..0.85).contains(&taken.0) && (0.15..0.85).contains(&put.0) && within < 0.05,
            "{taken:?} {put:?}"
        );
        // The interval from load to load is a whole round: from load to store plus from store to
        // load.
        let (whole, parts) = (loads.between("take", "take").1, taken.1 + put.1);
        ratios.push(whole / parts);
        if (0.7..1.4).contains(&(whole / parts)) {
            return;
        }
    }
    panic!("a whole round is {ratios:?} of its parts");
}

#[test]
fn programs_do_what_they_do_alone() {
    for name in [
        "threads", "forks", "signals", "alarms", "cancel", "contexts", "faults", "parallel",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = programs::build(name, PLAIN, &[], dir.path()).unwrap() else {
            continue;
        };
        let alone = tools::run_limited(&mut Command::new(&program), LIMIT).unwrap();
        let Some(output) = watched(&["--rate", "2000"], &dir.path().join("t"), &program, &[])
        else {
            return;
        };
        assert_eq!(
            (tools::code(&output), &output.stdout),
            (tools::code(&alone), &alone.stdout),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_usual_status() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t");
    let Some(missing) = watched(&[], &trace, Path::new("/nonexistent/program"), &[]) else {
        return;
    };
    assert_eq!(tools::code(&missing), 127);
    let Some(file) = watched(&[], &trace, Path::new("/etc/passwd"), &[]) else {
        return;
    };
    assert_eq!(tools::code(&file), 126);
    assert!(!trace.exists());
    for bad in [
        ["--watchpoints", "5"],
        ["--watchpoints", "0"],
        ["--rate", "0"],
    ] {
        let output = watched(&bad, &trace, Path::new("/bin/true"), &[]).unwrap();
        assert_eq!(tools::code(&output), 125);
    }
    let Some(short) = watched(&[], &trace, Path::new("/bin/true"), &[]) else {
        return;
    };
    assert_eq!(tools::code(&short), 0);
    let (status, _, text) = analyze(&["reuse", trace.to_str().unwrap(), "--rdx"]);
    assert!(
        status == 1 && text.contains("no sampled load was reused"),
        "{text}"
    );
}
