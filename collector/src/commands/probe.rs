//! Work of `mgz-record` without running a program: `--probe` and `--import`.

use crate::import::dump;
use crate::options::args::{Cli, Format};
use crate::util::failure::Failure;
use mgz_perf::data_file::PerfDataError;
use std::io;
use std::io::Write;
use std::path::Path;

/// Prints the recording capabilities of this machine. Status 0 if it can record at all.
pub fn probe(cli: &Cli) -> Result<i32, Failure> {
    let report = crate::machine::capabilities::probe();
    let text = match cli.format {
        Format::Text => report.to_string(),
        Format::Json => serde_json::to_string(&report).map_err(|e| failure(&e))? + "\n",
    };
    finish(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(if report.backend == "none" { 125 } else { 0 })
}

/// Makes a trace of a perf.data file, or prints its content: then rows go to standard output, and
/// the account of losses to standard error.
pub fn import(cli: &Cli, file: &Path) -> Result<i32, Failure> {
    if !cli.raw && !cli.packets {
        return crate::import::run(cli, file);
    }
    let mut out = io::stdout().lock();
    let done = if cli.packets {
        dump::packets(file, &mut out)
    } else {
        dump::raw(file, &mut out).map(|report| eprint!("{report}"))
    };
    match done {
        Ok(()) => Ok(0),
        Err(PerfDataError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure {
            status: 125,
            message: format!("{}: {error}", file.display()),
        }),
    }
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
