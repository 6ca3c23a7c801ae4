//! `mgz-analyze import`: converts a trace of another tool to a trace folder, for these models and
//! reports.

mod drmemtrace;
mod lackey;
mod unpack;
mod writer;

use anyhow::Context;
use clap::{Args, ValueEnum};
use mgz_annotations_schema::tell;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use writer::TraceWriter;

const EXAMPLES_HELP: &str = "\
Examples:
  valgrind --tool=lackey --trace-mem=yes --log-file=app.lackey ./app
  mgz import app.lackey --from lackey -o app.trace
  drrun -t drmemtrace -offline -- ./app; drrun -t drmemtrace -indir drmemtrace.app.*.dir -tool basic_counts
  mgz import drmemtrace.app.*.dir --from drmemtrace -o app.trace
  mgz analyze app.trace; mgz analyze reuse app.trace; mgz report app.trace

Functions and lines are unknown; pages of code take the place of functions. docs/reference/export.md has the details.";

/// The tool that made the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Valgrind: --tool=lackey --trace-mem=yes.
    Lackey,
    /// DynamoRIO: drmemtrace, after post-processing.
    Drmemtrace,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct ImportArguments {
    /// The file, or the folder of drmemtrace; - is standard input (lackey).
    pub input: PathBuf,
    /// The tool that made it.
    #[arg(long, value_enum, value_name = "TOOL")]
    pub from: From,
    /// The trace folder to make.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// Runs the command.
pub fn run_import(arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let shown = arguments.input.display();
    let mut out = TraceWriter::new(&arguments.output)?;
    let mut notes = Vec::new();
    let manifest = &mut out.manifest;
    manifest.backend_why = format!("imported from {shown}");
    manifest.problems.push("times are numbers of instructions, and classes and functions are not known: classes come from the observed addresses, and pages of code take the place of functions".into());
    let program = match arguments.from {
        From::Lackey => {
            out.manifest.backend = "lackey".into();
            let mut input: Box<dyn BufRead> = match arguments.input.to_str() {
                Some("-") => Box::new(BufReader::new(std::io::stdin())),
                _ => Box::new(BufReader::with_capacity(
                    1 << 20,
                    std::fs::File::open(&arguments.input)
                        .with_context(|| format!("{shown}: cannot be read"))?,
                )),
            };
            let found =
                lackey::read_lackey(&mut *input, &mut out).with_context(|| format!("{shown}"))?;
            if found.strange > 0 {
                notes.push(format!(
                    "{} lines are neither accesses nor valgrind's own; they are skipped",
                    found.strange
                ));
            }
            out.manifest.command = found.command.split_whitespace().map(String::from).collect();
            found
                .command
                .split_whitespace()
                .next()
                .unwrap_or("program")
                .to_string()
        }
        From::Drmemtrace => {
            out.manifest.backend = "drmemtrace".into();
            let files = drmemtrace::files(&arguments.input)?;
            let found = drmemtrace::read_drmemtrace(&files, &mut out)?;
            anyhow::ensure!(found.accesses > 0, "{shown}: no access is in it");
            if found.cut > 0 {
                notes.push(format!(
                    "{} files end before their last record; what is there is taken",
                    found.cut
                ));
            }
            if found.strange > 0 {
                notes.push(format!(
                    "{} records are of a kind that is not known; they are skipped",
                    found.strange
                ));
            }
            "program".to_string()
        }
    };
    out.manifest.problems.extend(notes.iter().cloned());
    for note in &notes {
        tell!("mgz-analyze: note: {note}");
    }
    let rows = out.finish(&program)?;
    tell!(
        "mgz-analyze: {}: {rows} accesses",
        arguments.output.display()
    );
    Ok(ExitCode::SUCCESS)
}
