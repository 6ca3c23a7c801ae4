//! Parts of the commands that read a trace: common arguments, opening, and a [`Document`] shown.
//!
//! The commands themselves are in crates above this one: locality models in `mgz-model-commands`,
//! formats of other tools in `mgz-export`.

pub mod counted;
pub mod owners;
pub mod ranks;
pub mod row_batches;
pub mod stream;
pub mod what_if;

use crate::cli::{OutputFormat, block};
use crate::input::{ColumnSet, Trace, folder_of, manifest_of};
use crate::output::document::Document;
use crate::output::export::FileFormat;
pub use crate::util::progress::{bar as progress_bar, byte_bar};
use anyhow::{Context, bail};
use clap::{Args, CommandFactory};
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::tell;
pub use mgz_models::util::size::size;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of all subcommands.
#[derive(Debug, Args)]
pub struct Common {
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub format: OutputFormat,
    /// Folder for --format csv and parquet; created if missing. With json: also write
    /// DIR/COMMAND.json.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Rows of long tables on stdout.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub rows: usize,
    /// Do not read the sidecars: addresses are analysed, but code has no names.
    #[arg(long)]
    pub no_annotations: bool,
    /// Threads to use; 0: one per CPU.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
}

/// A block size: a power of two, suffixes allowed.
pub fn block_size(text: &str) -> Result<u64, String> {
    block(&size(text)?.to_string())
}

/// Runs `ranks`.
pub fn run_ranks(arguments: &ranks::RanksArguments) -> anyhow::Result<ExitCode> {
    let common = &arguments.common;
    start(common)?;
    let (document, lacking) = ranks::run_ranks(arguments)?;
    let Some(document) = document else {
        return Ok(ExitCode::from(u8::from(lacking)));
    };
    if common.format == OutputFormat::Table {
        let findings = crate::ranks::view::findings_text(&document, common.rows);
        std::io::stdout().write_all(findings.as_bytes())?;
    }
    finish((document, lacking), common)
}

/// Shows the counts of a trace of `--count`.
pub fn show_counted(folder: &Path, common: &Common) -> anyhow::Result<ExitCode> {
    finish(counted::run_counted(folder)?, common)
}

/// Shows the document of a command. The flag is true if a part of the trace could not be read.
pub fn finish((document, damaged): (Document, bool), common: &Common) -> anyhow::Result<ExitCode> {
    for warning in &document.warnings {
        tell!("mgz-analyze: warning: {warning}");
    }
    show(&document, common)?;
    Ok(if damaged {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Checks the common arguments and starts the threads.
pub fn start(common: &Common) -> anyhow::Result<()> {
    if matches!(common.format, OutputFormat::Csv | OutputFormat::Parquet) && common.output.is_none()
    {
        crate::cli::Arguments::command()
            .error(
                clap::error::ErrorKind::MissingRequiredArgument,
                "--format csv and parquet need a folder: -o DIR",
            )
            .exit();
    }
    if common.threads > 0 {
        rayon::ThreadPoolBuilder::new()
            .num_threads(common.threads)
            .build_global()
            .context("cannot start threads")?;
    }
    Ok(())
}

/// Prints that the use–reuse pairs of a watched run are shown.
pub fn note_watched(folder: &Path) {
    tell!(
        "mgz-analyze: note: {0}: a trace of mgz-record --mode watch has use\u{2013}reuse pairs that watchpoints saw, not rows of loads; this is what mgz-analyze reuse {0} --rdx shows",
        folder.display()
    );
}

/// Error for a trace of `--mode watch` that lacks the data for `asked`. It names the commands that
/// show the trace.
pub fn refuse_watched(folder: &Path, asked: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{0}: {asked} takes rows of loads, and a trace of mgz-record --mode watch has use\u{2013}reuse pairs only; see these with mgz-analyze reuse {0} --rdx, or record with another --mode",
        folder.display()
    )
}

/// True if a folder has a trace of `--mode watch`. Errors of the folder are reported when it is
/// opened.
pub fn is_watched(folder: &Path) -> bool {
    manifest_of(folder).is_ok_and(|m| m.mode == TraceMode::Watch)
}

/// An opened trace with its warnings in the document.
pub fn open_trace(
    folder: &std::path::Path,
    common: &Common,
    document: &mut Document,
) -> anyhow::Result<Trace> {
    let folder = &folder_of(folder.to_path_buf());
    if is_watched(folder) {
        return Err(refuse_watched(
            folder,
            &format!("mgz-analyze {}", document.command),
        ));
    }
    warned(Trace::open(folder, !common.no_annotations)?, document)
}

/// As [`open_trace`], for a command that does not need names of code.
pub fn open_nameless(
    folder: &std::path::Path,
    common: &Common,
    document: &mut Document,
) -> anyhow::Result<Trace> {
    let folder = &folder_of(folder.to_path_buf());
    if is_watched(folder) || common.no_annotations {
        return open_trace(folder, common, document);
    }
    warned(Trace::open_nameless(folder)?, document)
}

/// Opens a trace whose first rows came on standard input. `names` is true if code is named.
pub fn open_rest(
    folder: &std::path::Path,
    names: bool,
    document: &mut Document,
) -> anyhow::Result<Trace> {
    warned(Trace::open_rest(folder, names)?, document)
}

fn warned(trace: Trace, document: &mut Document) -> anyhow::Result<Trace> {
    document
        .warnings
        .extend(trace.warnings.iter().chain(&trace.damage).cloned());
    Ok(trace)
}

/// Refuses a trace that does not have every load of every thread.
pub fn require_full(trace: &Trace, what: &str, remedy: &str) -> anyhow::Result<()> {
    let mode = &trace.manifest.mode;
    if !mode.has_all_loads() {
        bail!(
            "{}: {what} needs every load of the run, and this trace is sampled (mode {mode}); record with mgz-record --mode full{remedy}",
            trace.folder.display()
        );
    }
    Ok(())
}

/// Refuses a trace without rows, and reports what became of them if that is known.
pub fn ensure_accesses(accesses: u64, trace: &Trace) -> anyhow::Result<()> {
    let lost = match &trace.damage[..] {
        [] => String::new(),
        damage => format!(" ({})", damage.join("; ")),
    };
    anyhow::ensure!(
        accesses > 0,
        "{}: the trace has no accesses to measure{lost}",
        trace.folder.display()
    );
    Ok(())
}

/// Reports what a full trace lacks.
pub fn warn_of_gaps(trace: &Trace, document: &mut Document) {
    let dropped: u64 = trace.manifest.totals.dropped.values().sum();
    if trace.manifest.mode.has_all_loads() && dropped > 0 {
        document.warnings.push(format!("the recorder lost data ({dropped} records or loads); distances do not reach across the gaps"));
    }
}

/// Visits all segments with a progress bar. Returns whether something could not be read.
pub fn visit(
    trace: &Trace,
    columns: ColumnSet,
    document: &mut Document,
    each: &mut (dyn FnMut(&stream::AccessSegment<'_>) + Send),
) -> bool {
    let source = trace.source(columns);
    let rows: u64 = (0..source.pieces()).map(|p| source.piece_rows(p)).sum();
    let bar = progress_bar(rows);
    let damage = stream::visit(&*source, &|n| bar.inc(n), each);
    bar.finish_and_clear();
    document.warnings.extend(source.notes());
    let damaged = !damage.is_empty() || !trace.damage.is_empty();
    document.warnings.extend(damage);
    damaged
}

fn show(document: &Document, common: &Common) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match common.format {
        OutputFormat::Table => {
            let width = if std::io::stdout().is_terminal() {
                comfy_table::Table::new().width()
            } else {
                None
            };
            out.write_all(document.text(common.rows, width).as_bytes())?;
        }
        OutputFormat::Json => {
            let mut bytes =
                serde_json::to_vec_pretty(&document.json().map_err(anyhow::Error::msg)?)?;
            bytes.push(b'\n');
            if let Some(folder) = &common.output {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
                let file = folder.join(format!("{}.json", document.command));
                std::fs::write(&file, &bytes)
                    .with_context(|| format!("{}: cannot write", file.display()))?;
            }
            out.write_all(&bytes)?;
        }
        OutputFormat::Csv | OutputFormat::Parquet => {
            let format = if common.format == OutputFormat::Csv {
                FileFormat::Csv
            } else {
                FileFormat::Parquet
            };
            let folder = common.output.as_deref().context("no folder given")?;
            for file in document.write(folder, format)? {
                out.write_all(format!("{}\n", file.display()).as_bytes())?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
