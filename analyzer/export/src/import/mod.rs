//! `mgz-analyze import`: converts a trace of another tool to a trace folder, for these models and
//! reports.

mod champsim;
mod drmemtrace;
mod gem5;
mod lackey;
mod unpack;
mod writer;

use crate::accesses::dr;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use mgz_analyzer::commands::byte_bar;
use mgz_annotations_schema::{TraceBackend, tell};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use writer::TraceWriter;

const EXAMPLES_HELP: &str = "\
Examples:
  valgrind --tool=lackey --trace-mem=yes --log-file=app.lackey ./app
  mgz import app.lackey --from lackey -o app.trace
  drrun -t drmemtrace -offline -- ./app; drrun -t drmemtrace -indir drmemtrace.app.*.dir -tool basic_counts
  mgz import drmemtrace.app.*.dir --from drmemtrace -o app.trace
  mgz import 605.mcf_s-1554B.champsimtrace.xz -o mcf.trace
  mgz import m5out/system.monitor.trc.gz --from gem5 -o app.trace
  mgz analyze app.trace; mgz analyze reuse app.trace; mgz report app.trace

Functions and lines are unknown; pages of code take the place of functions. docs/reference/export.md has the details.";

/// The tool that made the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Valgrind: --tool=lackey --trace-mem=yes.
    Lackey,
    /// DynamoRIO: drmemtrace, after post-processing.
    Drmemtrace,
    /// ChampSim: instructions of 64 bytes, also packed by xz or gzip.
    Champsim,
    /// gem5: packets of MemTraceProbe, also packed by gzip.
    Gem5,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct ImportArguments {
    /// The file, or the folder of drmemtrace; - is standard input (not packed, not drmemtrace).
    pub input: PathBuf,
    /// The tool that made it [default: by its first bytes and its name].
    #[arg(long, value_enum, value_name = "TOOL")]
    pub from: Option<From>,
    /// The trace folder to make.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// Counts of a read trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Imported {
    /// The traced command; empty if unknown.
    command: String,
    /// Accesses.
    accesses: u64,
    /// Files that end without their last record.
    cut: u64,
    /// Lines, records or packets that are not understood.
    strange: u64,
    /// Packets that are no accesses of the program.
    skipped: u64,
}

impl Imported {
    /// Sentences on what is missing.
    fn notes(&self, from: From) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cut > 0 {
            notes.push(format!(
                "{} files end before their last record; what is there is taken",
                self.cut
            ));
        }
        if self.strange > 0 && from == From::Lackey {
            notes.push(format!(
                "{} lines are neither accesses nor valgrind's own; they are skipped",
                self.strange
            ));
        } else if self.strange > 0 {
            notes.push(format!(
                "{} records are of a kind that is not known; they are skipped",
                self.strange
            ));
        }
        if self.skipped > 0 {
            notes.push(format!(
                "{} packets are no loads or stores of the program (fetches of instructions, prefetches, page walks, write-backs, responses); they are skipped",
                self.skipped
            ));
        }
        notes
    }
}

/// Limits of the tool's traces, as sentences.
fn limits(from: From) -> Vec<String> {
    let times = match from {
        From::Gem5 => "times are those of the simulated machine",
        From::Lackey | From::Drmemtrace | From::Champsim => "times are numbers of instructions",
    };
    let mut notes = Vec::new();
    match from {
        From::Champsim => {
            notes.push("the sizes of accesses are not known: each counts as one byte".into());
        }
        From::Gem5 => {
            notes.push("addresses of data are those of the simulated physical memory".into());
        }
        From::Lackey | From::Drmemtrace => {}
    }
    notes.push(format!(
        "{times}, and classes and functions are not known: classes come from the observed addresses, and pages of code take the place of functions"
    ));
    notes
}

/// Fills `bytes` as far as the input reaches. Returns the number of bytes read.
fn fill(input: &mut dyn Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The tool that made a file, by its first bytes, else by its name.
fn tool_of(path: &Path) -> anyhow::Result<From> {
    if path.is_dir() {
        return Ok(From::Drmemtrace);
    }
    let mut head = [0; dr::RECORD];
    let is_stream = path.as_os_str() == "-";
    if !is_stream {
        fill(&mut *unpack::open(path, &byte_bar(0))?, &mut head)?;
    }
    let lackey: [&[u8]; 4] = [b"==", b"I  ", b" L ", b" S "];
    if head.starts_with(gem5::GEM5_MAGIC) {
        return Ok(From::Gem5);
    }
    if lackey.iter().any(|begin| head.starts_with(begin)) {
        return Ok(From::Lackey);
    }
    if drmemtrace::is_header(&head) {
        return Ok(From::Drmemtrace);
    }
    if path.to_string_lossy().contains("champsim") {
        return Ok(From::Champsim);
    }
    bail!(
        "{}: neither its first bytes nor its name tell which tool made it; give --from",
        path.display()
    );
}

/// Runs the command.
pub fn run_import(arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let shown = arguments.input.display();
    let from = match arguments.from {
        Some(from) => from,
        None => tool_of(&arguments.input)?,
    };
    let files = match from {
        From::Drmemtrace => drmemtrace::files(&arguments.input)?,
        From::Lackey | From::Champsim | From::Gem5 => vec![arguments.input.clone()],
    };
    let lengths = files.iter().filter_map(|f| Some(f.metadata().ok()?.len()));
    let bar = byte_bar(lengths.sum());
    let mut out = TraceWriter::new(&arguments.output)?;
    out.manifest.backend = from
        .to_possible_value()
        .map_or_else(TraceBackend::default, |v| v.get_name().into());
    out.manifest.backend_why = format!("imported from {shown}");
    let read = |out: &mut TraceWriter| {
        if from == From::Drmemtrace {
            return drmemtrace::read_drmemtrace(&files, &bar, out);
        }
        let mut input = BufReader::with_capacity(1 << 20, unpack::open(&arguments.input, &bar)?);
        let found = match from {
            From::Champsim => champsim::read_champsim(&mut input, out),
            From::Gem5 => gem5::read_gem5(&mut input, out),
            From::Lackey | From::Drmemtrace => lackey::read_lackey(&mut input, out),
        };
        found.with_context(|| format!("{shown}"))
    };
    let found = read(&mut out);
    bar.finish_and_clear();
    let found = found?;
    anyhow::ensure!(found.accesses > 0, "{shown}: no access is in it");
    let notes = found.notes(from);
    out.manifest.problems = limits(from);
    out.manifest.problems.extend(notes.iter().cloned());
    for note in &notes {
        tell!("mgz-analyze: note: {note}");
    }
    out.manifest.command = found.command.split_whitespace().map(String::from).collect();
    let program = out.manifest.command.first().cloned();
    let rows = out.finish(program.as_deref().unwrap_or("program"))?;
    tell!(
        "mgz-analyze: {}: {rows} accesses",
        arguments.output.display()
    );
    Ok(ExitCode::SUCCESS)
}
