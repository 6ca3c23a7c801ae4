//! Instruments, records and steps one program, in a temporary folder.

use crate::age::oldest_first;
use crate::compare::{self, Summary};
use crate::events::{EventKind, StepperEvent, WatchedCode};
use crate::nop;
use crate::rows::{self, Trace};
use crate::tools::{self, LIMIT};
use anyhow::{Context, Result, bail, ensure};
use mgz_annotations_schema::Sidecar;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program and its instrumented form.
pub struct Instrumented {
    /// The input.
    pub original: PathBuf,
    /// The output.
    pub path: PathBuf,
    /// The sidecar.
    pub sidecar: Sidecar,
}

/// Options of a comparison of a program.
#[derive(Clone, Copy, Default)]
pub struct SessionOptions<'a> {
    /// More arguments for `mgz-instrument`.
    pub instrument: &'a [&'a str],
    /// Loads may be lost to original code that cannot be patched.
    pub lossy: bool,
    /// The PT flavour is not compared.
    pub soft_only: bool,
}

/// Instruments a program beside itself as `NAME.FLAVOUR`.
pub fn instrument(original: &Path, flavour: &str, extra: &[&str]) -> Result<Instrumented> {
    let path = PathBuf::from(format!("{}.{flavour}", original.display()));
    let mut command = tools::tool("mgz-instrument");
    command
        .args(["--backend", flavour, "-o"])
        .arg(&path)
        .args(extra)
        .arg(original);
    if !extra.contains(&"--for") {
        // Clones that `burst` cannot use need the most testing in the other modes.
        command.args(["--for", "ring"]);
    }
    tools::succeed(&mut command, LIMIT)?;
    let sidecar =
        Sidecar::read(&PathBuf::from(format!("{}.mgza", path.display()))).context("the sidecar")?;
    ensure!(
        sidecar.functions.iter().any(|f| f.clone_start != 0),
        "no function of {} was instrumented",
        original.display()
    );
    Ok(Instrumented {
        original: original.into(),
        path,
        sidecar,
    })
}

/// Instruments a file as `NAME.FORM`. `ring` and `burst` are forms of the soft flavour. If this
/// processor does not execute `ptwrite`, the form `pt` has no-operations instead, also in
/// libraries.
pub fn instrument_as(file: &Path, form: &str, more: &[&str]) -> PathBuf {
    let out = PathBuf::from(format!("{}.{form}", file.display()));
    let options: &[&str] = if form == "pt" {
        &["--backend", "pt"]
    } else {
        &["--backend", "soft", "--for", form]
    };
    tools::succeed(
        tools::tool("mgz-instrument")
            .args(options)
            .args(more)
            .arg("-o")
            .arg(&out)
            .arg(file),
        LIMIT,
    )
    .unwrap();
    if form == "pt" && !nop::executes_ptwrite() {
        nop::replace(&out).unwrap();
        for entry in std::fs::read_dir(format!("{}.libs", out.display()))
            .into_iter()
            .flatten()
        {
            let path = entry.unwrap().path();
            if !path.is_symlink() && path.extension().is_none_or(|e| e != "mgza") {
                nop::replace(&path).unwrap();
            }
        }
    }
    out
}

/// `mgz-record OPTIONS -o TRACE -- PROGRAM ARGS`.
pub fn record_command(options: &[&str], trace: &Path, program: &Path, args: &[&str]) -> Command {
    let mut command = tools::tool("mgz-record");
    command
        .args(options)
        .arg("-o")
        .arg(trace)
        .arg("--")
        .arg(program)
        .args(args);
    command
}

/// Records a program that succeeds.
pub fn record_program(options: &[&str], trace: &Path, program: &Path, args: &[&str]) -> Output {
    let mut command = record_command(options, trace, program, args);
    tools::succeed(&mut command, LIMIT).unwrap()
}

/// Records a program that may fail.
pub fn recorded_run(options: &[&str], trace: &Path, program: &Path, args: &[&str]) -> Output {
    let mut command = record_command(options, trace, program, args);
    tools::run_limited(&mut command, LIMIT).unwrap()
}

/// The analysis of a trace as JSON.
pub fn analysis_json(trace: &Path, options: &[&str]) -> Value {
    let mut analyze = tools::tool("mgz-analyze");
    analyze.arg(trace).args(["--format", "json"]).args(options);
    let output = tools::succeed(&mut analyze, LIMIT).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the stepper over a command in which `program` is stepped.
pub fn step(
    dir: &Path,
    watch: &WatchedCode,
    program: &Path,
    flags: &[&str],
    command: &Command,
) -> Result<(Output, Vec<StepperEvent>)> {
    let (watch_file, events) = (dir.join("watch"), dir.join("events"));
    std::fs::write(&watch_file, watch.to_text())?;
    let mut stepper = Command::new(tools::binary("mgz-stepper"));
    stepper
        .arg(&watch_file)
        .arg(&events)
        .arg(program)
        .args(flags)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    stepper.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = tools::run_limited(&mut stepper, LIMIT)?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        text.contains("mgz-stepper: status"),
        "the stepper failed: {text}"
    );
    Ok((output, StepperEvent::read(&events)?))
}

/// Checks that a run of an instrumented program has the same result as the original.
pub fn same_result(what: &str, expected: &Output, got: &Output) -> Result<()> {
    if tools::code(expected) != tools::code(got) || expected.stdout != got.stdout {
        bail!(
            "{what}: status {} instead of {}, output {:?} instead of {:?}; stderr: {}",
            tools::code(got),
            tools::code(expected),
            String::from_utf8_lossy(&got.stdout),
            String::from_utf8_lossy(&expected.stdout),
            String::from_utf8_lossy(&got.stderr)
        );
    }
    Ok(())
}

/// Compares the trace of `--mode full` with the reference, which steps the same file under `--mode off`:
/// same mappings and environment, original code.
pub fn soft_addresses(
    dir: &Path,
    original: &Path,
    args: &[&str],
    options: SessionOptions,
) -> Result<(Summary, Trace)> {
    let app = instrument(original, "soft", options.instrument)?;
    let expected = tools::run_limited(Command::new(original).args(args), LIMIT)?;

    let watch = compare::watch_originals(&app.path, &app.sidecar);
    let off = record_command(
        &["--mode", "off", "--no-aslr"],
        &dir.join("trace.ref"),
        &app.path,
        args,
    );
    let (output, events) = step(dir, &watch, &app.path, &[], &off)?;
    same_result("the reference run", &expected, &output)?;

    let trace = dir.join("trace.got");
    let output = tools::run_limited(
        &mut record_command(&["--mode", "full", "--no-aslr"], &trace, &app.path, args),
        LIMIT,
    )?;
    same_result("the recorded run", &expected, &output)?;
    let trace = rows::read_trace(&trace)?;
    compare_threads(&app.sidecar, &events, &trace, options.lossy).map(|s| (s, trace))
}

fn compare_threads(
    sidecar: &Sidecar,
    events: &[StepperEvent],
    trace: &Trace,
    lossy: bool,
) -> Result<Summary> {
    let loads: Vec<StepperEvent> = events
        .iter()
        .filter(|e| !matches!(e.kind, EventKind::Module | EventKind::Fault))
        .copied()
        .collect();
    let reference = compare::by_thread(&loads);
    let module = trace
        .module(&sidecar.id_hex())
        .context("the manifest does not have the program's sidecar")?;
    let mut recorded: Vec<Vec<rows::RecordedRow>> = oldest_first(&trace.threads)
        .into_iter()
        .map(|(_, all)| all.iter().filter(|r| r.module == module).copied().collect())
        .collect();
    recorded.retain(|r| !r.is_empty());
    let mut total = Summary::default();
    // No thread executes only implied loads, since each region with an implied load has a row.
    if reference.len() != recorded.len() {
        let counts: Vec<_> = reference.values().map(Vec::len).collect();
        let rows: Vec<_> = recorded.iter().map(Vec::len).collect();
        bail!(
            "the reference has {} threads ({counts:?} loads), the trace {} ({rows:?} rows)",
            reference.len(),
            recorded.len()
        );
    }
    for ((id, events), rows) in oldest_first(&reference).into_iter().zip(&recorded) {
        total.add(
            compare::thread(sidecar, events, rows, lossy)
                .with_context(|| format!("thread {id:?} of the reference"))?,
        );
    }
    Ok(total)
}

/// Steps the PT flavour, with each `ptwrite` emulated, and checks that its payloads give the loads
/// that its clones execute.
pub fn pt_addresses(
    dir: &Path,
    original: &Path,
    args: &[&str],
    options: SessionOptions,
) -> Result<Summary> {
    let app = instrument(original, "pt", options.instrument)?;
    let expected = tools::run_limited(Command::new(original).args(args), LIMIT)?;
    let watch = compare::watch_clones(&app.path, &app.original, &app.sidecar);
    let mut command = Command::new(&app.path);
    command.args(args);
    let (output, events) = step(dir, &watch, &app.path, &["--fixed"], &command)?;
    same_result("the stepped run", &expected, &output)?;
    let bias = events
        .iter()
        .find(|e| e.kind == EventKind::Module)
        .map_or(0, |e| e.value);
    let mut total = Summary::default();
    for (id, events) in compare::by_thread(&events) {
        total.add(
            compare::ptwrites(&app.sidecar, &events, bias, options.lossy)
                .with_context(|| format!("thread {id:?}"))?,
        );
    }
    ensure!(total.rows > 0, "no load was recorded");
    Ok(total)
}
