//! `--probe`.

use crate::commands::intel_pt::IntelPt;
use crate::options::args::{Cli, OutputFormat};
use crate::util::failure::Failure;
use std::io;
use std::io::Write;

/// Prints the recording capabilities of this machine. Status 0 if it can record at all.
pub fn probe(cli: &Cli, pt: Option<IntelPt>) -> Result<i32, Failure> {
    let report = crate::machine::capabilities::probe(pt.map(|pt| (pt.facts)()));
    let text = match cli.format {
        OutputFormat::Text => report.to_string(),
        OutputFormat::Json => serde_json::to_string(&report).map_err(|e| failure(&e))? + "\n",
    };
    finish(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(if report.backend == "none" { 125 } else { 0 })
}

fn failure(error: &dyn std::fmt::Display) -> Failure {
    Failure {
        status: 125,
        message: error.to_string(),
    }
}

/// A reader that has gone is no failure.
fn finish(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failure(&error)),
        _ => Ok(()),
    }
}
