//! Jobs of many ranks: each rank writes its own trace.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session;
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const PLAIN: Variant = Variant::O2;

fn app(dir: &Path) -> std::path::PathBuf {
    let original = programs::build("hash", PLAIN, &[], dir).unwrap().unwrap();
    session::instrument(&original, "soft", &["--for", "ring"])
        .unwrap()
        .path
}

/// Runs mgz-record in a folder, as a rank that a launcher has started.
fn rank(dir: &Path, app: &Path, variables: &[(&str, &str)], options: &[&str]) -> Output {
    let mut command = tools::tool("mgz-record");
    command
        .current_dir(dir)
        .args(options)
        .arg("--")
        .arg(app)
        .envs(variables.iter().copied());
    tools::run_limited(&mut command, LIMIT).unwrap()
}

fn manifest(trace: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(trace.join("manifest.json")).unwrap()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn ranks_write_traces_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path());
    for (own, local) in [("0", "0"), ("1", "1"), ("2", "0")] {
        let variables = [
            ("OMPI_COMM_WORLD_RANK", own),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", local),
            ("JOB", "j1"),
        ];
        let done = rank(dir.path(), &app, &variables, &[]);
        assert_eq!(tools::code(&done), 0, "{}", stderr(&done));
        let of_default = manifest(&dir.path().join(format!("trace.{own}")));
        let number = own.parse::<u64>().unwrap();
        assert_eq!(of_default["rank"], number);
        assert_eq!(of_default["world_size"], 3);
        assert_eq!(of_default["local_rank"], local.parse::<u64>().unwrap());
        let done = rank(dir.path(), &app, &variables, &["-o", "%q{JOB}-%r%%"]);
        assert_eq!(tools::code(&done), 0, "{}", stderr(&done));
        assert_eq!(
            manifest(&dir.path().join(format!("j1-{own}%")))["rank"],
            number
        );
    }
    // A folder that all ranks would write to.
    let variables = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let done = rank(dir.path(), &app, &variables, &["-o", "one"]);
    assert_eq!(tools::code(&done), 125);
    assert!(stderr(&done).contains("-o 'one.%r'"), "{}", stderr(&done));
    assert!(!dir.path().join("one").exists());
    // One rank is a job like any other; without a launcher there is no rank.
    let alone = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    assert_eq!(
        tools::code(&rank(dir.path(), &app, &alone, &["-o", "alone"])),
        0
    );
    assert_eq!(tools::code(&rank(dir.path(), &app, &[], &[])), 0);
    assert!(manifest(&dir.path().join("trace")).get("rank").is_none());
    let done = rank(dir.path(), &app, &[], &["-o", "t.%r"]);
    assert_eq!(tools::code(&done), 125);
    assert!(stderr(&done).contains("no launcher"), "{}", stderr(&done));
}

#[test]
fn ranks_that_are_not_listed_run_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path());
    let expected = tools::run_limited(&mut Command::new(&app), LIMIT).unwrap();
    for (own, recorded) in [("0", true), ("1", false), ("5", true)] {
        let done = rank(
            dir.path(),
            &app,
            &[("PMI_RANK", own), ("PMI_SIZE", "8")],
            &["--ranks", "0,4-6"],
        );
        assert_eq!(tools::code(&done), 0, "{}", stderr(&done));
        assert_eq!(done.stdout, expected.stdout);
        assert_eq!(dir.path().join(format!("trace.{own}")).exists(), recorded);
        assert_eq!(done.stderr.is_empty(), !recorded, "{}", stderr(&done));
    }
    let done = rank(dir.path(), &app, &[], &["--ranks", "0"]);
    assert_eq!(tools::code(&done), 125);
    assert!(stderr(&done).contains("--ranks"), "{}", stderr(&done));
}

#[test]
fn a_launcher_starts_recorders() {
    let launchers: Vec<&str> = ["mpirun.mpich", "mpirun.openmpi"]
        .into_iter()
        .filter(|l| tools::have(l))
        .collect();
    if launchers.is_empty() {
        tools::skip("mpirun: not installed");
    }
    for launcher in launchers {
        let dir = tempfile::tempdir().unwrap();
        let app = app(dir.path());
        let mut command = Command::new(launcher);
        if launcher.ends_with("openmpi") {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
        }
        command
            .current_dir(dir.path())
            .args(["-n", "3"])
            .arg(tools::binary("mgz-record"))
            .arg("--")
            .arg(&app);
        let done = tools::run_limited(&mut command, LIMIT).unwrap();
        assert_eq!(tools::code(&done), 0, "{launcher}: {}", stderr(&done));
        for own in 0..3 {
            let manifest = manifest(&dir.path().join(format!("trace.{own}")));
            assert_eq!(manifest["rank"], own, "{launcher}");
            assert_eq!(manifest["world_size"], 3, "{launcher}");
            assert_eq!(manifest["state"], "complete", "{launcher}");
        }
    }
}

/// The reverse order: the recorder starts the launcher, and the launcher starts a recorder for each
/// rank. A killed rank leaves the others intact.
#[test]
fn a_recorder_lets_the_launcher_start_recorders() {
    if !tools::have("mpirun.mpich") {
        return tools::skip("mpirun.mpich: not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let original = programs::build("rank_dies", PLAIN, &[], dir.path())
        .unwrap()
        .unwrap();
    let app = session::instrument(&original, "soft", &["--for", "ring"])
        .unwrap()
        .path;
    let launch = |options: &[&str], dies: &str| {
        let mut command = tools::tool("mgz-record");
        command
            .current_dir(dir.path())
            .args([
                "--force", "--mode", "ring", "--period", "2000", "--window", "500",
            ])
            .args(options)
            .args(["--", "mpirun.mpich", "-disable-auto-cleanup", "-n", "3"])
            .args(["env", "A=1"])
            .arg(&app)
            .arg(dies);
        tools::run_limited(&mut command, LIMIT).unwrap()
    };
    let done = launch(&[], "none");
    assert_eq!(tools::code(&done), 0, "{}", stderr(&done));
    assert_eq!(
        String::from_utf8_lossy(&done.stdout).lines().count(),
        3,
        "{}",
        stderr(&done)
    );
    for own in 0..3 {
        let manifest = manifest(&dir.path().join(format!("trace.{own}")));
        assert_eq!(manifest["rank"], own);
        assert_eq!(manifest["world_size"], 3);
        assert_eq!(manifest["state"], "complete");
    }
    let analysed = |traces: &[&str]| -> Value {
        let mut command = tools::tool("mgz-analyze");
        command
            .current_dir(dir.path())
            .arg("ranks")
            .args(traces)
            .args(["--format", "json"]);
        let done = tools::run_limited(&mut command, LIMIT).unwrap();
        assert_eq!(tools::code(&done), 0, "{}", stderr(&done));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let ranks = analysed(&["trace.0", "trace.1", "trace.2"]);
    assert_eq!(ranks["summary"]["ranks"], 3);
    let first = &ranks["findings"][0];
    assert_eq!(first["kind"], "imbalance", "{first}");
    assert_eq!(first["rank"], "rank 2", "{first}");
    assert_eq!(first["function"], "work", "{first}");
    // A rank is killed in the middle of its work.
    let done = launch(&["-o", "killed.%r"], "1");
    assert_ne!(tools::code(&done), 0);
    for own in [0, 2] {
        let manifest = manifest(&dir.path().join(format!("killed.{own}")));
        assert_eq!(manifest["state"], "complete");
        assert!(manifest["totals"]["samples"].as_u64().unwrap() > 0);
    }
    let of_killed = manifest(&dir.path().join("killed.1"));
    assert!(
        of_killed["program_status"].as_str().unwrap().contains('9'),
        "{of_killed}"
    );
    let ranks = analysed(&["killed.0", "killed.2"]);
    assert_eq!(ranks["summary"]["missing_ranks"], "1");
    // All ranks would write to one folder.
    let done = launch(&["-o", "one"], "none");
    assert_ne!(tools::code(&done), 0);
    assert!(stderr(&done).contains("-o 'one.%r'"), "{}", stderr(&done));
}
