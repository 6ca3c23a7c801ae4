//! `mgz run`: from a program to a report.

use crate::cli::{FAILED, Run};
use crate::fix::FixCommand;
use crate::html::HtmlOptions;
use crate::instrumented::{self, Asked, InstrumentOutcome};
use crate::known::{Known, KnownFile};
use crate::program::Program;
use crate::python::{self, Hook};
use crate::{elsewhere, measured, nothing, refused_runtime, report, signals, tools, windows_only};
use anyhow::{Context, bail};
use mgz_annotations_schema::manifest::{COMMAND_OF_RUN, Manifest};
use mgz_annotations_schema::{shell, tell};
use mgz_collector::objects::heap::blocks::HeapBlocks;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The trace below the folder of a run.
pub const TRACE: &str = "trace";
/// The report below it.
pub const REPORT: &str = "report.html";

/// Runs the program. Returns its exit status.
pub fn run_program(run: &Run) -> anyhow::Result<i32> {
    let name = run.program.first().context("no program given")?;
    let program = Program::find(name)?;
    let folder = folder(run.output.as_deref(), &program)?;
    // Check that the tool exists before anything is run.
    tools::find_tool("mgz-analyze")?;
    if let Some(script) = &program.script {
        tell!(
            "mgz: {} is a script: its interpreter, {}, is recorded; programs that it starts are recorded if they are instrumented",
            script.display(),
            program.file.display()
        );
    }
    if let Some(shim) = &program.shim {
        tell!(
            "mgz: {} stands for {}, which is recorded",
            shim.display(),
            program.file.display()
        );
    }
    let had_run = folder.join(TRACE).exists();
    let status = match record(run, &program, &folder, &mut signals::wait_for)? {
        Recorded::Trace(status) => status,
        Recorded::Nothing(status) | Recorded::Refused(status) => return Ok(status),
    };
    match show(run, &program, &folder, had_run) {
        Ok(()) => Ok(status),
        // The program has run, so its status is returned, unless it was 0: a missing report must be
        // visible.
        Err(error) => {
            tell!(
                "mgz: {error:#}; the trace is complete: mgz report {}",
                folder.display()
            );
            Ok(if status == 0 { FAILED } else { status })
        }
    }
}

/// Runs a command to its end.
pub type Wait<'a> = &'a mut dyn FnMut(&mut Command) -> std::io::Result<ExitStatus>;

/// Instruments and records the program into the folder of a run. `wait` runs the recorder.
pub fn record(run: &Run, program: &Program, folder: &Path, wait: Wait) -> anyhow::Result<Recorded> {
    let (name, rest) = run.program.split_first().context("no program given")?;
    let recorder = tools::find_tool("mgz-record")?;
    let mut facts = KnownFile::of(&program.file).ok();
    let known = facts.as_ref().map(|f| f.known.clone()).unwrap_or_default();
    let asked = Asked {
        known: &known.libraries,
        libs: run.libs.as_deref(),
        alone: run.no_libs,
        stores: run.stores,
        beside: run.beside,
        debuginfod: run.debuginfod,
    };
    let file = match instrumented::prepare(&program.file, &asked)? {
        InstrumentOutcome::Ready { file, cached } => {
            if !cached {
                tell!("mgz: {} is instrumented", program.file.display());
            }
            file
        }
        InstrumentOutcome::Refused(status) => {
            if let Some(said) = refused_runtime::next_step(&program.file, &run.program) {
                tell!("mgz: {said}");
            }
            return Ok(Recorded::Refused(status));
        }
    };
    if run.full
        && let Some(why) = windows_only::no_full(&program.file, &file, &run.program)
    {
        bail!("{why}");
    }
    measured::before_run();
    let trace = folder.join(TRACE);
    let hook = hook(run, program, rest);
    let mut command = Command::new(&recorder);
    command.arg("-o").arg(&trace).args(options(run, &known));
    // A program may use its name to determine its function and to find its files.
    command.arg("--argv0").arg(shown_name(program, name));
    command.arg("--").arg(&file).args(&program.first).args(rest);
    let recorded = recorded(command, &trace, wait);
    if let Some(said) = hook.and_then(Hook::end) {
        tell!("mgz: {said}");
    }
    let recorded = recorded?;
    let (Recorded::Trace(status) | Recorded::Nothing(status) | Recorded::Refused(status)) =
        recorded;
    if status != 0 {
        tell_of_own_folder(&program.file, &file);
    }
    if !matches!(recorded, Recorded::Trace(_)) {
        return Ok(recorded);
    }
    let takes_libraries = run.libs.is_none()
        && !run.no_libs
        && std::fs::canonicalize(&program.file).is_ok_and(|own| own != file);
    if let Some(facts) = &mut facts {
        learn(facts, &trace, takes_libraries);
    }
    Ok(recorded)
}

/// Stores facts of the run for the next one, and prints the resulting changes.
fn learn(facts: &mut KnownFile, trace: &Path, libraries: bool) {
    let manifest = report::manifest(trace)
        .and_then(|manifest| Ok(serde_json::from_value::<Manifest>(manifest)?));
    // The report shows errors of the manifest.
    let Ok(manifest) = manifest else {
        return;
    };
    match facts.learn(&manifest, libraries) {
        Ok(said) => said.iter().for_each(|said| tell!("mgz: {said}")),
        Err(error) => tell!("mgz: {error:#}; the next run starts as this one did"),
    }
}

/// Prints that a failed program may have missed files beside itself.
fn tell_of_own_folder(program: &Path, file: &Path) {
    let folder = |path: &Path| std::fs::canonicalize(path.parent()?).ok();
    let sign = || elsewhere::looks_beside_itself(&std::fs::read(program).ok()?);
    if folder(program) != folder(file)
        && let Some(path) = sign()
    {
        tell!(
            "mgz: {} may look for files beside itself ({path}): if it has missed any, use mgz run --beside",
            program.display()
        );
    }
}

/// For a Python program: instruments its extension modules when it imports them.
fn hook(run: &Run, program: &Program, rest: &[OsString]) -> Option<Hook> {
    if run.no_modules || !python::is_python(&program.file) {
        return None;
    }
    if let Some(flag) = python::ignores_hook(program.first.iter().chain(rest)) {
        tell!(
            "mgz: with -{flag} Python ignores the hook of mgz, so that extension modules are not instrumented; those that take time are named below"
        );
        return None;
    }
    match Hook::start() {
        Ok(hook) => Some(hook),
        Err(error) => {
            tell!("mgz: extension modules of Python are not instrumented: {error:#}");
            None
        }
    }
}

/// The program's name (`argv[0]`): the one that the shell would pass, the path in a script's first
/// line, or the path that a shim executes.
pub fn shown_name<'a>(program: &'a Program, name: &'a OsStr) -> &'a OsStr {
    match (&program.script, &program.shim) {
        (None, None) => name,
        _ => program.file.as_os_str(),
    }
}

/// The folder of the run, created if necessary.
fn folder(given: Option<&Path>, program: &Program) -> anyhow::Result<PathBuf> {
    let folder = match given {
        Some(folder) => folder.to_path_buf(),
        None => PathBuf::from(format!("{}.mgz", program.name())),
    };
    if folder.join("manifest.json").exists() {
        bail!(
            "{} is a trace; give another folder with -o DIR, or make a report of it: mgz report {}",
            folder.display(),
            folder.display()
        );
    }
    std::fs::create_dir_all(&folder).with_context(|| {
        format!(
            "{}: cannot make the folder; give another one with -o DIR",
            folder.display()
        )
    })?;
    Ok(folder)
}

fn write_command(folder: &Path, program: &[OsString]) -> anyhow::Result<Vec<String>> {
    let words: Vec<String> = program
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let file = folder.join(COMMAND_OF_RUN);
    std::fs::write(&file, serde_json::to_vec(&words)?)
        .with_context(|| format!("{}: cannot write", file.display()))?;
    Ok(words)
}

/// The user's command line of a run; empty if the folder is not that of a run.
pub fn read_command(folder: &Path) -> Vec<String> {
    std::fs::read(folder.join(COMMAND_OF_RUN))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

/// Options of the recorder.
fn options(run: &Run, known: &Known) -> Vec<OsString> {
    // The analysis reports missing data with options of this command.
    let mut options: Vec<OsString> = vec!["--for-run".into()];
    match (run.heap, known.heap_cost) {
        _ if run.no_heap => {}
        (None, Some(cost)) => tell!(
            "mgz: heap off (the log of heap blocks took {:.0} % of the time before; --heap keeps one)",
            100.0 * cost
        ),
        (blocks, _) => {
            let blocks = blocks.unwrap_or(HeapBlocks::Budget).name();
            options.push(format!("--heap={blocks}").into());
        }
    }
    if let Some(percent) = &run.overhead {
        options.push(format!("--overhead={percent}").into());
    }
    if run.full {
        options.push("--mode=full".into());
    }
    options
}

/// Result of recording.
#[derive(Clone, Copy, Debug)]
pub enum Recorded {
    /// A trace was made; the program's status.
    Trace(i32),
    /// No trace was made; the recorder's status.
    Nothing(i32),
    /// Nothing was run; the instrumenter's status.
    Refused(i32),
}

/// Records the program. The last run's trace is renamed first, and restored if there is no new one.
/// In that case the recorder has printed the reason.
fn recorded(mut command: Command, trace: &Path, wait: Wait) -> anyhow::Result<Recorded> {
    let old = trace.with_extension(format!("old-{}", std::process::id()));
    let had_one = trace.exists();
    if had_one {
        std::fs::rename(trace, &old)
            .with_context(|| format!("{}: cannot be renamed", trace.display()))?;
    }
    let status = wait(&mut command);
    let is_there = trace.join("manifest.json").exists();
    if !is_there && had_one {
        // An incomplete folder of the recorder is not a trace.
        let _ = std::fs::remove_dir_all(trace);
        std::fs::rename(&old, trace)
            .with_context(|| format!("{}: cannot be renamed", old.display()))?;
    } else if had_one {
        std::fs::remove_dir_all(&old)
            .with_context(|| format!("{}: cannot be removed", old.display()))?;
    }
    let status = status.context("mgz-record cannot be executed")?;
    let status = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(match (is_there, status) {
        (true, status) => Recorded::Trace(status),
        (false, 0) => Recorded::Nothing(FAILED),
        (false, status) => Recorded::Nothing(status),
    })
}

/// Analyses the trace, writes the report, and prints the findings. `had_run` is true if the folder had
/// an earlier run, which is replaced.
fn show(run: &Run, program: &Program, folder: &Path, had_run: bool) -> anyhow::Result<()> {
    let (file, trace) = (folder.join(REPORT), &folder.join(TRACE));
    let options = HtmlOptions {
        source: !run.no_source,
        trace: Some(trace.to_path_buf()),
        command: write_command(folder, &run.program)?,
        measured: None,
    };
    // An empty line separates this from the program's output.
    tell!();
    let screen = std::io::stderr().as_fd().try_clone_to_owned()?;
    let made = report::make_report(trace, &file, &options, (screen.into(), Some(program)))?;
    if made.is_empty {
        tell!(
            "mgz: {}",
            nothing::remedy(&report::manifest(trace)?, &options.command)
        );
    }
    let tables = format!("mgz-analyze {} --all", trace.display());
    // Only one line, since the screen has no more room.
    let words = shell::line(options.command.iter().map(String::as_str));
    let fixes = match made.fixes {
        FixCommand::Program => format!("; to try fixes: mgz fix -- {words}"),
        FixCommand::Source => format!("; to try fixes: mgz fix --source -- {words}"),
        FixCommand::Nothing => String::new(),
    };
    let replaced = match had_run {
        true => " (replaces the earlier one; -o DIR keeps both)",
        false => "",
    };
    tell!(
        "mgz: report: {}{replaced}; every table: {tables}{fixes}",
        file.display()
    );
    if !run.no_open && has_display() && std::io::stderr().is_terminal() {
        open_in_browser(file.as_os_str());
    }
    Ok(())
}

/// True if there is a display.
pub fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()))
}

/// Opens the file in the user's browser, which keeps running. Errors are ignored, since the path
/// was printed.
pub fn open_in_browser(file: &OsStr) {
    if let Some(opener) = tools::in_path("xdg-open") {
        let _ = Command::new(opener)
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
}
