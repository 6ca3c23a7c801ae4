//! `mgz report`: a trace in, one HTML file out.

use crate::cli::Report;
use crate::html::{self, Options};
use crate::run::{REPORT, TRACE, read_command};
use crate::tools;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was made.
pub struct Made {
    /// The analysis.
    pub analysis: Value,
    /// Part of the trace was damaged, and skipped.
    pub damaged: bool,
}

/// Runs the command.
pub fn command(report: &Report) -> anyhow::Result<i32> {
    let (trace, default) = place(&report.trace);
    let file = report.output.clone().unwrap_or(default);
    let options = Options {
        source: !report.no_source,
        command: read_command(&report.trace),
    };
    let made = make(&trace, &file, &options)?;
    crate::cli::print(format!("{}\n", file.display()).as_bytes())?;
    Ok(i32::from(made.damaged))
}

/// The trace, and where its report goes.
fn place(given: &Path) -> (PathBuf, PathBuf) {
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

/// Analyses a trace and writes its report.
pub fn make(trace: &Path, file: &Path, options: &Options) -> anyhow::Result<Made> {
    let manifest = trace.join("manifest.json");
    let text = std::fs::read(&manifest).with_context(|| {
        format!(
            "{}: cannot be read; give the folder of a trace, as mgz-record or mgz run has made it",
            manifest.display()
        )
    })?;
    let manifest: Value = serde_json::from_slice(&text)
        .with_context(|| format!("{}: is no manifest", manifest.display()))?;
    if manifest["mode"] == "watch" {
        bail!(
            "{}: is a trace of watchpoints, which has no tables of loads; show it by mgz analyze {}",
            trace.display(),
            trace.display()
        );
    }
    let (analysis, damaged) = analysed(trace)?;
    let page = html::page(&analysis, &manifest, options)?;
    write(file, &page)?;
    Ok(Made { analysis, damaged })
}

/// Runs the analysis, which says by itself what is wrong.
fn analysed(trace: &Path) -> anyhow::Result<(Value, bool)> {
    let tool = tools::find("mgz-analyze")?;
    // A folder named like a subcommand is a folder.
    let trace = std::path::absolute(trace)?;
    let done = Command::new(&tool)
        .args(["--zoom", "--objects", "--call-paths", "--format", "json"])
        .arg(&trace)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{}: cannot be executed", tool.display()))?;
    if done.stdout.is_empty() {
        bail!("{}: could not be analysed", trace.display());
    }
    let analysis: Value = serde_json::from_slice(&done.stdout)
        .context("mgz-analyze has written no result that can be read")?;
    Ok((analysis, !done.status.success()))
}

/// Writes a file that its user alone can read, as the trace is, and whole or not at all.
fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
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
