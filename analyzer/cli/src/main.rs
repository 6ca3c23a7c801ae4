//! `mgz-analyze`: a trace in, tables out.

use anyhow::Context;
use clap::{CommandFactory, Parser};
use mgz_analyze::{Cli, Command};
use mgz_analyzer::cli::{Arguments, OutputFormat};
use mgz_analyzer::commands::counted::is_counted;
use mgz_analyzer::commands::{
    Common, is_watched, progress_bar, refuse_watched, run_ranks, show_counted,
};
use mgz_analyzer::input::counted::of_trace;
use mgz_analyzer::input::trace_error::TraceError;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::export::{FileFormat, write_tables};
use mgz_analyzer::output::paint::Paint;
use mgz_analyzer::output::screen::screen;
use mgz_analyzer::output::text::{asked, render};
use mgz_analyzer::output::text_table::Style;
use mgz_analyzer::report::Analysis;
use mgz_analyzer::report::build::{EarlyScreen, examine_in_steps, merge_all, partial, tables_of};
use mgz_analyzer::report::counted::find_counts;
use mgz_analyzer::report::questions::Questions;
use mgz_annotations_schema::tell;
use mgz_model_commands::show_watched;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let at_random = matches!(cli.command, Some(Command::Model(_) | Command::Ranks(_)));
    keep_memory(at_random);
    match run(&cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("mgz-analyze: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Makes glibc keep freed memory. Columns of tens of megabytes are allocated and freed repeatedly.
/// glibc would return each to the system and get fresh pages for the next, which costs a sixth of
/// the run. The heap begins with room for most traces. (It takes no memory before it is used.)
/// `at_random`: small parts will be accessed at random, as in the models. Then the heap uses huge
/// pages if the system has them. Otherwise nearly all accesses are in order, and large tables have
/// huge pages of their own. Small pages are then cheaper if a hypervisor has to find memory for
/// each huge one first: this was up to a fifth of a run, and a quarter with `--zoom`.
fn keep_memory(at_random: bool) {
    // Other C libraries have no such settings.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = at_random;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const HEAP_ROOM_BYTES: usize = 512 << 20;
        const HUGE_PAGE_BYTES: usize = 2 << 20;
        // SAFETY: `mallopt` takes plain numbers, `sbrk(0)` only returns the end of the heap, and no
        // other thread runs yet.
        let begin = unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
            libc::mallopt(libc::M_TOP_PAD, HEAP_ROOM_BYTES as libc::c_int);
            libc::sbrk(0)
        };
        // Larger than the initial heap, so that the heap grows by `HEAP_ROOM_BYTES`.
        drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
        // SAFETY: as above.
        let end = unsafe {
            libc::mallopt(libc::M_TOP_PAD, 128 << 10);
            libc::sbrk(0)
        };
        let offset = begin.addr().next_multiple_of(HUGE_PAGE_BYTES) - begin.addr();
        let room =
            end.addr().saturating_sub(begin.addr() + offset) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if at_random && room > 0 {
            // SAFETY: the range lies inside the heap, and the call is a hint that changes no
            // content.
            unsafe {
                libc::madvise(begin.byte_add(offset), room, libc::MADV_HUGEPAGE);
            }
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let arguments = &cli.analysis;
    if let Some(shell) = arguments.completions {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "mgz-analyze", &mut bytes);
        return print(&bytes);
    }
    if arguments.man {
        let mut bytes = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut bytes)?;
        return print(&bytes);
    }
    match &cli.command {
        None => {}
        Some(Command::Model(command)) => return mgz_model_commands::run_subcommand(command),
        Some(Command::Ranks(arguments)) => return run_ranks(arguments),
        Some(Command::Compare(arguments)) => return mgz_analyzer::compare::run_compare(arguments),
        Some(Command::WhatIf(arguments)) => {
            return mgz_analyzer::commands::what_if::run_what_if(arguments);
        }
        Some(Command::Export(arguments)) => return mgz_export::run_export(arguments),
        Some(Command::Import(arguments)) => return mgz_export::import::run_import(arguments),
        Some(Command::Query(arguments)) => return mgz_analyzer::query::run_query(arguments),
    }
    if matches!(arguments.format, OutputFormat::Csv | OutputFormat::Parquet)
        && arguments.output.is_none()
    {
        Cli::command()
            .error(
                clap::error::ErrorKind::MissingRequiredArgument,
                "--format csv and parquet need a folder: -o DIR",
            )
            .exit();
    }
    if arguments.threads > 0 {
        rayon::ThreadPoolBuilder::new()
            .num_threads(arguments.threads)
            .build_global()
            .context("cannot start threads")?;
    }
    if !arguments.merge.is_empty() {
        let merged = merge_all(&arguments.merge)?;
        let whole = merged.outcome.damage.is_empty();
        match &arguments.partial {
            Some(file) => merged.write(file)?,
            None => {
                let analysis = tables_of(merged, arguments.estimator);
                warn(&analysis.warnings);
                show_tables(&analysis, arguments)?;
            }
        }
        return Ok(if whole {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        });
    }
    analyse(arguments)
}

/// Analyses a trace, and shows or writes the result.
fn analyse(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let folder = arguments.trace.as_deref().context("no trace given")?;
    if is_watched(folder) {
        return watched(folder, arguments);
    }
    if is_counted(folder) {
        return show_counted(folder, &common(arguments));
    }
    let trace = open(folder, arguments)?;
    if let Some(file) = &arguments.partial {
        let damaged = !trace.damage.is_empty();
        let bar = progress_bar(rows_of(&trace));
        let found = partial(
            trace,
            arguments.block,
            arguments.footprint_bytes(),
            &|rows| bar.inc(rows),
        );
        bar.finish_and_clear();
        warn(&found.warnings);
        found.write(file)?;
        return Ok(if damaged || !found.outcome.damage.is_empty() {
            ExitCode::from(1)
        } else {
            ExitCode::SUCCESS
        });
    }
    let Answer {
        analysis,
        damage,
        shown,
    } = answer(&trace, arguments)?;
    let new = |warning: &&String| !shown.as_ref().is_some_and(|s| s.warnings.contains(warning));
    warn(analysis.warnings.iter().filter(new));
    let shown = shown.map_or_else(|| show_tables(&analysis, arguments), |s| s.printed);
    if let Some(file) = &arguments.report_data {
        // The data are written also if nobody reads the screen.
        std::fs::write(file, serde_json::to_vec(&analysis)?)
            .with_context(|| format!("{}: cannot write", file.display()))?;
    }
    shown?;
    // The readable part has been shown. The exit status reports that it is incomplete.
    Ok(if trace.damage.is_empty() && damage.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Opens a trace. Code without samples gets no names, unless an option needs them.
fn open(folder: &Path, arguments: &Arguments) -> Result<Trace, TraceError> {
    let asks_for_all = arguments.partial.is_some()
        || arguments.weights_from.is_some()
        || of_trace(folder).is_some()
        || !arguments.filters.conditions().is_empty();
    match asks_for_all {
        true => Trace::open(folder, !arguments.no_annotations),
        false => Trace::open_seen(folder, !arguments.no_annotations),
    }
}

/// Shows the use–reuse pairs of a `--mode watch` trace, which has no tables of loads.
fn watched(folder: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let asked = [
        (arguments.zoom, "--zoom"),
        (arguments.objects, "--objects"),
        (arguments.partial.is_some(), "--partial"),
        (!arguments.filters.conditions().is_empty(), "a filter"),
    ];
    if let Some((_, option)) = asked.iter().find(|a| a.0) {
        return Err(refuse_watched(folder, option));
    }
    show_watched(folder, common(arguments))
}

fn common(arguments: &Arguments) -> Common {
    Common {
        format: arguments.format,
        output: arguments.output.clone(),
        rows: arguments.rows,
        no_annotations: arguments.no_annotations,
        // The thread pool is already running.
        threads: 0,
    }
}

fn warn<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        tell!("mgz-analyze: warning: {warning}");
    }
}

/// Rows of a trace, as far as known.
fn rows_of(trace: &Trace) -> u64 {
    let source = trace.source(ColumnSet::default());
    (0..source.pieces()).map(|p| source.piece_rows(p)).sum()
}

/// The result of an analysis.
struct Answer {
    analysis: Analysis,
    /// Damage found in the trace.
    damage: Vec<String>,
    /// The screen, if it was shown before the rest was computed.
    shown: Option<ShownScreen>,
}

struct ShownScreen {
    /// Warnings printed before it.
    warnings: Vec<String>,
    printed: anyhow::Result<()>,
}

/// Analyses a trace. With `--report-data` the screen is shown first, since the data of a report
/// take longer.
fn answer(trace: &Trace, arguments: &Arguments) -> anyhow::Result<Answer> {
    let mut questions = Questions {
        detail: arguments.detail(),
        ..arguments.questions()?
    };
    let given = arguments.weights_from.as_deref();
    if questions.filter.is_empty() {
        questions.counted = find_counts(trace, given).map_err(anyhow::Error::msg)?;
    } else if given.is_some() {
        anyhow::bail!(
            "--weights-from: the counts are of the whole run, and a filter selects a part of it; leave one of the two out"
        );
    } else if of_trace(&trace.folder).is_some() {
        tell!(
            "mgz-analyze: note: the loads that were counted (calibration/) are of the whole run; with a filter they are not used"
        );
    }
    let bar = progress_bar(rows_of(trace));
    let mut shown = None;
    let mut show = |analysis: Analysis| {
        bar.finish_and_clear();
        let analysis = with_command(analysis, arguments);
        warn(&analysis.warnings);
        shown = Some(ShownScreen {
            printed: show_tables(&analysis, arguments),
            warnings: analysis.warnings,
        });
    };
    let early = arguments.is_screen_with_report().then(|| EarlyScreen {
        rows: arguments.screen_rows(),
        show: &mut show,
    });
    let found = examine_in_steps(trace, &questions, &|rows| bar.inc(rows), early);
    bar.finish_and_clear();
    let (analysis, damage) = found?;
    Ok(Answer {
        analysis: with_command(analysis, arguments),
        damage,
        shown,
    })
}

/// The analysis with the command line as the user gave it.
fn with_command(mut analysis: Analysis, arguments: &Arguments) -> Analysis {
    if let Some(words) = &arguments.command_line {
        analysis.summary.trace.command.clone_from(&words.0);
    }
    analysis
}

fn show_tables(analysis: &Analysis, arguments: &Arguments) -> anyhow::Result<()> {
    // The reason has been printed already, and `mgz` prints what the user can do.
    let is_for_report = arguments.report_data.is_some() && arguments.format == OutputFormat::Table;
    if is_for_report && analysis.summary.metrics.accesses == 0 {
        return print(b"no loads were recorded\n").map(|_| ());
    }
    match arguments.format {
        OutputFormat::Table => {
            let width = if std::io::stdout().is_terminal() {
                comfy_table::Table::new().width()
            } else {
                None
            };
            let style = Style {
                width,
                rows: arguments.rows,
                misses: arguments.misses,
                // A trace without call paths reports this only on request.
                call_paths: arguments.call_paths
                    || arguments.all && analysis.call_paths.state != "unknown",
                by_path: arguments.by_path,
                paint: Paint::of(std::io::stdout().is_terminal()),
            };
            // A trace without rows has only a summary.
            let every = arguments.all || analysis.summary.metrics.accesses == 0;
            let has_report = arguments.report_data.is_some();
            let mut text = if every {
                render(analysis, style)
            } else {
                screen(analysis, style, has_report)
            };
            // Tables requested by name are shown.
            if !every
                && (arguments.zoom
                    || arguments.objects
                    || arguments.misses
                    || arguments.call_paths
                    || arguments.by_path)
            {
                text.push_str(&asked(analysis, style));
            }
            print(text.as_bytes())?;
        }
        OutputFormat::Json => {
            let mut bytes = serde_json::to_vec_pretty(analysis)?;
            bytes.push(b'\n');
            if let Some(folder) = &arguments.output {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
                let file = folder.join("analysis.json");
                std::fs::write(&file, &bytes)
                    .with_context(|| format!("{}: cannot write", file.display()))?;
            }
            print(&bytes)?;
        }
        OutputFormat::Csv | OutputFormat::Parquet => {
            let format = if arguments.format == OutputFormat::Csv {
                FileFormat::Csv
            } else {
                FileFormat::Parquet
            };
            let folder = arguments.output.as_deref().context("no folder given")?;
            for file in write_tables(analysis, folder, format)? {
                print(format!("{}\n", file.display()).as_bytes())?;
            }
        }
    }
    Ok(())
}

fn print(bytes: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
