//! `mgz report`: makes one HTML file from a trace.

use crate::affinity;
use crate::cli::Report;
use crate::fix::{self, FixCommand};
use crate::html::{self, HtmlOptions};
use crate::program::Program;
use crate::run::{REPORT, TRACE, read_command};
use crate::tools;
use crate::watched;
use anyhow::{Context, bail};
use mgz_annotations_schema::TraceMode;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Result of making a report.
pub struct Made {
    /// Part of the trace was damaged, and skipped.
    pub damaged: bool,
    /// The trace has no loads.
    pub is_empty: bool,
    /// The command that tries remedies of the program's findings.
    pub fixes: FixCommand,
}

/// Runs the command.
pub fn run_report(report: &Report) -> anyhow::Result<i32> {
    let (trace, default) = locate_report(&report.trace);
    let file = report.output.clone().unwrap_or(default);
    let options = HtmlOptions {
        source: !report.no_source,
        trace: Some(trace.clone()),
        command: read_command(&report.trace),
        measured: report.measured.clone(),
    };
    let made = make_report(&trace, &file, &options, (Stdio::null(), None))?;
    crate::cli::print(format!("{}\n", file.display()).as_bytes())?;
    Ok(i32::from(made.damaged))
}

/// The trace, and the path of its report.
pub fn locate_report(given: &Path) -> (PathBuf, PathBuf) {
    let inner = given.join(TRACE);
    if !given.join("manifest.json").exists() && inner.join("manifest.json").exists() {
        return (inner, given.join(REPORT));
    }
    let mut name = std::path::absolute(given)
        .unwrap_or_else(|_| given.to_path_buf())
        .into_os_string();
    name.push(".html");
    (given.to_path_buf(), name.into())
}

/// Analyses a trace and writes its report; `screen`: receives the output of `mgz-analyze`;
/// `program`: the program, if it was run.
pub fn make_report(
    trace: &Path,
    file: &Path,
    options: &HtmlOptions,
    (screen, program): (Stdio, Option<&Program>),
) -> anyhow::Result<Made> {
    let manifest = any_manifest(trace)?;
    if is_watched(&manifest) {
        let words = manifest["command"].as_array().into_iter().flatten();
        let words = words.filter_map(Value::as_str).map(str::to_owned);
        return watched::make_watch_report(trace, &words.collect::<Vec<_>>(), file);
    }
    let (analysis, damaged) = analysed(trace, options, screen)?;
    let mut parts = html::report_parts(&analysis, &manifest, options);
    parts.extend(affinity::part(trace, &manifest));
    write_private(file, &html::page(&parts)?)?;
    Ok(Made {
        damaged,
        is_empty: analysis["summary"]["A"].as_u64() == Some(0),
        fixes: program.map_or(FixCommand::Nothing, |program| {
            fix::fix_command(program, &analysis, &manifest)
        }),
    })
}

/// The manifest of a trace with tables of loads.
pub fn manifest(trace: &Path) -> anyhow::Result<Value> {
    let manifest = any_manifest(trace)?;
    if is_watched(&manifest) {
        bail!(
            "{0}: is a trace of watchpoints, which has no tables of loads; show it by mgz report {0}",
            trace.display()
        );
    }
    Ok(manifest)
}

fn is_watched(manifest: &Value) -> bool {
    manifest["mode"] == TraceMode::Watch.as_str()
}

fn any_manifest(trace: &Path) -> anyhow::Result<Value> {
    let file = trace.join("manifest.json");
    let text = std::fs::read(&file).with_context(|| {
        format!(
            "{}: cannot be read; give the folder of a trace, as mgz-record or mgz run has made it",
            file.display()
        )
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{}: is no manifest", file.display()))
}

/// Runs the analysis, which prints its own errors.
fn analysed(trace: &Path, options: &HtmlOptions, screen: Stdio) -> anyhow::Result<(Value, bool)> {
    let data = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut command = analysis(trace, options, data.path())?;
    let status = command
        .stdout(screen)
        .status()
        .with_context(|| format!("{}: cannot be executed", command_name(&command)))?;
    Ok((read_report_data(trace, data.path())?, !status.success()))
}

/// The command that analyses a trace, and writes the data of a report to `data`.
pub fn analysis(trace: &Path, options: &HtmlOptions, data: &Path) -> anyhow::Result<Command> {
    // An absolute path, so that a folder named like a subcommand is not taken for one.
    let trace = std::path::absolute(trace)?;
    let mut command = Command::new(tools::find_tool("mgz-analyze")?);
    command.arg("--report-data").arg(data);
    if !options.command.is_empty() {
        let words = serde_json::to_string(&options.command)?;
        command.arg(format!("--command-line={words}"));
    }
    if let Some(measured) = &options.measured {
        command
            .arg("--measured")
            .arg(std::path::absolute(measured)?);
    }
    command.arg(trace).stdin(Stdio::null());
    Ok(command)
}

/// Reads the analysis's output.
pub fn read_report_data(trace: &Path, data: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(data).context("the output of mgz-analyze is gone")?;
    if bytes.is_empty() {
        bail!("{}: could not be analysed", trace.display());
    }
    serde_json::from_slice(&bytes).context("mgz-analyze has written no result that can be read")
}

fn command_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Writes a file atomically, readable only by its user like the trace.
pub fn write_private(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let cannot = || {
        format!(
            "{}: cannot write; choose a place that you may write to with -o",
            file.display()
        )
    };
    let folder = file
        .parent()
        .filter(|f| !f.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let new = tempfile::Builder::new()
        .prefix(".report-")
        .tempfile_in(folder)
        .with_context(cannot)?;
    std::fs::write(new.path(), bytes).with_context(cannot)?;
    new.persist(file).with_context(cannot)?;
    Ok(())
}
