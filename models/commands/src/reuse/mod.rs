//! `mgz-analyze reuse`: reuse distance and interval, exact or approximate.

mod begun;
mod counts;
mod tables;

use crate::beside;
use crate::threads::{load, recorded};
use begun::{Begun, Windows};
use clap::{Args, Parser, ValueEnum};
use counts::{ReuseHistograms, ReuseTally};
use mgz_analyzer::cli::trace;
use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::owners::Owners;
use mgz_analyzer::commands::stream::{AccessSegment, Accesses, View};
use mgz_analyzer::commands::{
    Common, block_size, open_rest, open_trace, require_full, size, visit, warn_of_gaps,
};
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{ColumnUnit, Document, maybe};
use mgz_models::histogram::{PART_BITS, REFERENCE_PARTITIONS, Scale};
use mgz_models::reuse::approx::ApproxEngine;
use mgz_models::reuse::scale_tree::Bound;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tables::{miss_ratios, object_tables, reference, tables_of_code, threads};

pub(crate) use tables::{histogram, histogram_rows};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze reuse trace
      exact distances of each thread's whole run
  mgz-analyze reuse trace --relative-error 0.01
      99% precise, in logarithmic space
  mgz-analyze reuse trace --block 4K --bins log-linear --format json
  mgz-analyze reuse trace --windows 100000
      inside windows of 100,000 accesses
  mgz-analyze reuse sampled --windows
      inside the windows of a sampled trace
  mgz-analyze reuse trace --together
      all threads of a process together
  mgz-analyze reuse trace --rdx --period 10000
      an estimate from four simulated watchpoints, and pairs of code
  mgz-analyze reuse watched --rdx --accesses-from ring
      a trace of mgz-record --mode watch: live watchpoints
  mgz-analyze reuse trace --cache 32K --cache 1M
      miss ratios at these sizes too
  mgz-record --mode full --analyze='reuse --no-objects' -- ./app
      while the program runs

Distances count distinct blocks between two accesses to a block; intervals count accesses. \
docs/reference/models.md has the definitions, docs/reference/models-json.md the keys.";

/// Arguments of `reuse`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct ReuseArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Bytes of a block: a power of two (64, 4K, 2M …).
    #[arg(long, default_value = "64", value_parser = block_size)]
    pub block: u64,
    /// Scale of the histograms.
    #[arg(long, value_enum, default_value_t = Bins::Log)]
    pub bins: Bins,
    /// Width of linear bins; with log-linear: where linear bins begin and their width, a power of two.
    #[arg(long, default_value_t = 2048, value_name = "N")]
    pub width: u64,
    /// Approximate distances with at most this relative error, e.g. 0.01 (scale tree, logarithmic space).
    #[arg(long, value_name = "E", value_parser = fraction, conflicts_with = "absolute_error")]
    pub relative_error: Option<f64>,
    /// Approximate distances with at most this absolute error in blocks (scale tree).
    #[arg(long, value_name = "BLOCKS")]
    pub absolute_error: Option<u64>,
    /// With --absolute-error: distances up to here are exact.
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 0,
        requires = "absolute_error"
    )]
    pub exact_below: u64,
    /// Cut each thread's run into windows of N accesses and measure inside them; without N, the
    /// samples of the trace are the windows. Needed for sampled traces.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub windows: Option<u64>,
    /// Measure concurrent reuse distances: of all threads of a process together, in the order of
    /// recorded times (approximate across threads).
    #[arg(long, conflicts_with_all = ["windows", "rdx"])]
    pub together: bool,
    /// Count recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
    /// Estimate from sampled use–reuse pairs, as RDX does with a few watchpoints.
    #[arg(long, conflicts_with_all = ["relative_error", "absolute_error", "windows"])]
    pub rdx: bool,
    /// With --rdx: mean number of accesses between samples.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: u64,
    /// With --rdx: number of watchpoints.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub watchpoints: u64,
    /// With --rdx: how samples are weighted.
    #[arg(long, value_enum, default_value_t = crate::rdx::Weights::Survival)]
    pub attribution: crate::rdx::Weights,
    /// With --rdx: seed of the random numbers.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// With --rdx: also measure exactly and show the similarities S and Ŝ of the paper.
    #[arg(long, requires = "rdx")]
    pub compare: bool,
    /// With --rdx on a trace of --mode watch without counted accesses: a full or ring trace of the
    /// same command, which gives the rate of accesses.
    #[arg(long, value_name = "TRACE", requires = "rdx")]
    pub accesses_from: Option<PathBuf>,
    /// Sizes of caches whose miss ratios are shown in addition to the curve.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub cache: Vec<u64>,
    /// Leave out the tables of data objects, which need the times of all rows and allocations.
    #[arg(long)]
    pub no_objects: bool,
    /// For mgz-record: rows come on standard input, and the trace has those that follow.
    #[arg(long, hide = true)]
    pub online: bool,
}

impl ReuseArguments {
    /// Arguments that show the pairs in a trace of `--mode watch`.
    pub(crate) fn of_watched(folder: &Path) -> anyhow::Result<ReuseArguments> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            reuse: ReuseArguments,
        }
        let words = ["reuse".as_ref(), folder.as_os_str(), "--rdx".as_ref()];
        Ok(Line::try_parse_from(words)?.reuse)
    }
}

/// Scale of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bins {
    /// [0,1) [1,2) [2,4) [4,8) …
    Log,
    /// [0,w) [w,2w) …
    Linear,
    /// Logarithmic below w, then linear bins of that width.
    LogLinear,
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(e) if e > 0.0 && e < 1.0 => Ok(e),
        _ => Err("must be above 0 and below 1".into()),
    }
}

/// An engine of either kind.
pub(crate) enum Engine {
    Exact(Box<ReuseEngine>),
    Approximate(Box<ApproxEngine>),
}

impl Engine {
    pub(crate) fn new(shift: u32, bound: Option<Bound>) -> Engine {
        match bound {
            None => Engine::Exact(Box::new(ReuseEngine::new(shift))),
            Some(bound) => Engine::Approximate(Box::new(ApproxEngine::new(shift, bound))),
        }
    }

    /// Engine for the arguments.
    fn of(arguments: &ReuseArguments) -> Engine {
        Engine::new(arguments.block.trailing_zeros(), bound(arguments))
    }

    /// The maximum number of nodes of its tree, if it has one.
    fn most_nodes(&self) -> usize {
        match self {
            Engine::Exact(_) => 0,
            Engine::Approximate(e) => e.most_nodes(),
        }
    }

    pub(crate) fn begin(&mut self) {
        match self {
            Engine::Exact(e) => e.begin(),
            Engine::Approximate(e) => e.begin(),
        }
    }

    pub(crate) fn run<S: ReuseSink>(&mut self, accesses: View<'_, u32>, sink: &mut S) {
        match self {
            Engine::Exact(e) => e.run(accesses.address, accesses.size, accesses.group, sink),
            Engine::Approximate(e) => e.run(accesses.address, accesses.size, accesses.group, sink),
        }
    }
}

/// Refuses options that are incompatible with rows on standard input.
fn refuse_beside(arguments: &ReuseArguments) {
    beside::refuse(&[
        (arguments.rdx, "--rdx"),
        (arguments.together, "--together"),
        (
            !arguments.no_objects,
            "data objects; leave them out with --no-objects",
        ),
    ]);
}

/// Shows the pairs in a trace of `--mode watch`.
fn run_watched(arguments: &ReuseArguments) -> anyhow::Result<(Document, bool)> {
    let asked = [
        (arguments.together, "--together"),
        (arguments.windows.is_some(), "--windows"),
        (arguments.relative_error.is_some(), "--relative-error"),
        (arguments.absolute_error.is_some(), "--absolute-error"),
    ];
    if let Some((_, option)) = asked.iter().find(|a| a.0) {
        return Err(mgz_analyzer::commands::refuse_watched(
            &arguments.trace,
            option,
        ));
    }
    mgz_analyzer::commands::note_watched(&arguments.trace);
    crate::rdx::run_rdx(arguments)
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_reuse(arguments: &ReuseArguments) -> anyhow::Result<(Document, bool)> {
    if arguments.online {
        refuse_beside(arguments);
    }
    if arguments.rdx {
        return crate::rdx::run_rdx(arguments);
    }
    if !arguments.online && mgz_analyzer::commands::is_watched(&arguments.trace) {
        return run_watched(arguments);
    }
    let mut document = Document::new("reuse");
    let scale = scale(arguments)?;
    let begun = arguments.online.then(|| Begun::take(arguments));
    let begun = begun.transpose()?;
    let names = !arguments.common.no_annotations;
    let trace = match arguments.online {
        true => open_rest(&arguments.trace, names, &mut document)?,
        false => open_trace(&arguments.trace, &arguments.common, &mut document)?,
    };
    if arguments.windows.is_none() {
        require_full(
            &trace,
            "reuse distance of whole runs",
            ", or measure inside its windows with --windows",
        )?;
    }
    warn_of_gaps(&trace, &mut document);
    let mut engine = Engine::of(arguments);
    let mut counts = ReuseHistograms::new();
    let mut owners = match arguments.no_objects {
        true => Owners::default(),
        false => Owners::open(&trace, &mut document),
    };
    let mut measured = if arguments.together {
        together(
            &trace,
            arguments,
            &mut owners,
            &mut engine,
            &mut counts,
            &mut document,
        )?
    } else {
        alone(
            &trace,
            arguments,
            &mut owners,
            &mut engine,
            &mut counts,
            begun,
            &mut document,
        )
    };
    measured.nodes = measured.nodes.max(engine.most_nodes());
    ensure_accesses(measured.accesses, &trace)?;
    put_summary(arguments, &counts, &measured, &mut document);
    for (name, title, of) in [
        (
            "distances",
            "Reuse distance D, in blocks",
            &counts.distances,
        ),
        (
            "intervals",
            "Reuse interval, in accesses",
            &counts.intervals,
        ),
    ] {
        document.tables.push(histogram(name, title, of, &scale)?);
        if let Some((from, values)) = of.divided(&scale) {
            document.warnings.push(format!(
                "{name}: beyond {from}, values are counted in bins of up to 1/4096 of them, which are wider than those of the table; {values} of {} values are spread evenly over the table's bins",
                of.count()
            ));
        }
    }
    document.tables.extend([
        reference(&counts.distances, REFERENCE_PARTITIONS),
        miss_ratios(&counts, measured.implied, arguments),
    ]);
    tables_of_code(&counts, &trace, &mut document);
    if owners.known() {
        object_tables(&counts, &owners, &mut document);
    }
    threads(&counts, &mut document);
    Ok((document, measured.damaged))
}

/// Writes the numbers of the whole trace.
fn put_summary(
    arguments: &ReuseArguments,
    counts: &ReuseHistograms,
    measured: &Measured,
    document: &mut Document,
) {
    let bound = bound(arguments);
    let (distances, intervals) = (&counts.distances, &counts.intervals);
    let count = |value: Option<u64>| value.map_or(Value::Null, Value::from);
    document.put("method", ColumnUnit::Text, method(bound));
    document.put("block", ColumnUnit::Bytes, arguments.block);
    document.put("A", ColumnUnit::Count, measured.accesses);
    document.put("A_const", ColumnUnit::Count, measured.implied);
    document.put("threads", ColumnUnit::Count, counts.threads.len());
    document.put("windows", ColumnUnit::Count, measured.samples);
    document.put(
        "touches",
        ColumnUnit::Count,
        distances.count() + counts.firsts,
    );
    document.put("reuses", ColumnUnit::Count, distances.count());
    document.put("first_touches", ColumnUnit::Count, counts.firsts);
    document.put("D_mean", ColumnUnit::Number, maybe(distances.mean()));
    document.put("D_max", ColumnUnit::Count, count(distances.max()));
    document.put("interval_mean", ColumnUnit::Number, maybe(intervals.mean()));
    document.put("interval_max", ColumnUnit::Count, count(intervals.max()));
    if bound.is_some() {
        document.put("tree_nodes", ColumnUnit::Count, measured.nodes);
    }
}

/// Sums over the trace.
struct Measured {
    accesses: u64,
    implied: u64,
    /// Number of runs or windows.
    samples: u64,
    /// Maximum number of nodes of a tree.
    nodes: usize,
    damaged: bool,
}

/// Measures each thread's run or window separately, after the rows of `begun`.
fn alone(
    trace: &Trace,
    arguments: &ReuseArguments,
    owners: &mut Owners,
    engine: &mut Engine,
    counts: &mut ReuseHistograms,
    begun: Option<Begun>,
    document: &mut Document,
) -> Measured {
    let (mut implied, known) = (0u64, owners.known());
    let mut windows = Windows::new(arguments);
    let mut begun = begun.and_then(|begun| begun.join(&trace.code, counts, &mut implied));
    let mut buffer = Accesses::default();
    let mut each = |segment: &AccessSegment<'_>| {
        let id = (segment.run.process, segment.run.thread);
        let mut starts = segment.starts;
        if counts.threads.last().is_none_or(|t| (t.0, t.1) != id) {
            match begun.take_if(|begun| begun.id() == id) {
                // The thread's rows continue after those of `begun`.
                Some(before) => {
                    starts = segment.run.sample != before.sample;
                    before.go_on(engine, &mut windows, counts);
                }
                None => counts
                    .threads
                    .push((id.0, id.1, 0, ReuseTally::new(PART_BITS))),
            }
        }
        if starts {
            windows.begin(engine);
        }
        implied += segment.implied();
        let view = segment.accesses(arguments.stores, &mut buffer);
        counts.tags.make(
            owners,
            id,
            view,
            (segment.run.first_time, segment.run.last_time),
        );
        let tags = std::mem::take(&mut counts.tags.out);
        let view = View {
            address: view.address,
            size: view.size,
            group: &tags[..],
        };
        windows.run(view, engine, counts);
        counts.tags.out = tags;
    };
    // Successive objects at an address are distinguished by time.
    let damaged = visit(trace, ColumnSet { time: known }, document, &mut each);
    if let Some(before) = begun {
        before.go_on(engine, &mut windows, counts);
        // In the same order as in a trace.
        counts.threads.sort_by_key(|t| (t.0, t.1));
    }
    Measured {
        accesses: windows.accesses,
        implied,
        samples: windows.samples,
        nodes: windows.nodes,
        damaged,
    }
}

/// Measures all threads of a process on one stack.
fn together(
    trace: &Trace,
    arguments: &ReuseArguments,
    owners: &mut Owners,
    engine: &mut Engine,
    counts: &mut ReuseHistograms,
    document: &mut Document,
) -> anyhow::Result<Measured> {
    let (mut threads, implied, damaged) = load(trace, arguments.stores, document)?;
    let mut tags_of: Vec<Vec<u32>> = Vec::with_capacity(threads.len());
    for thread in &mut threads {
        let mut tags = Vec::with_capacity(thread.accesses.address.len());
        for stretch in &thread.stretches {
            let all = thread.accesses.view().slice(stretch.clone());
            let times = (thread.time[stretch.start], thread.time[stretch.end - 1]);
            let id = (thread.process, thread.thread);
            counts.tags.make(owners, id, all, times);
            tags.extend_from_slice(&counts.tags.out);
        }
        // Tags replace the groups.
        thread.accesses.group = Vec::new();
        tags_of.push(tags);
    }
    let mut measured = Measured {
        accesses: 0,
        implied,
        samples: 0,
        nodes: 0,
        damaged,
    };
    let mut rest = &tags_of[..];
    // Rows are sorted by process.
    for process in threads.chunk_by(|a, b| a.process == b.process) {
        let tags;
        (tags, rest) = rest.split_at(process.len());
        engine.begin();
        measured.samples += 1;
        let mut buffer = Accesses::default();
        counts
            .threads
            .push((process[0].process, 0, 0, ReuseTally::new(PART_BITS)));
        let mut flush = |buffer: &mut Accesses<u32>| {
            measured.accesses += buffer.address.len() as u64;
            if let Some(all) = counts.threads.last_mut() {
                all.2 += buffer.address.len() as u64;
            }
            engine.run(buffer.view(), counts);
            buffer.clear();
        };
        recorded(process, |thread, access| {
            let from = &process[thread].accesses;
            buffer.address.push(from.address[access]);
            buffer.size.push(from.size[access]);
            buffer.group.push(tags[thread][access]);
            if buffer.address.len() == 1 << 14 {
                flush(&mut buffer);
            }
        });
        flush(&mut buffer);
    }
    Ok(measured)
}

/// Allowed error of distances.
fn bound(arguments: &ReuseArguments) -> Option<Bound> {
    match (arguments.relative_error, arguments.absolute_error) {
        (Some(e), _) => Some(Bound::Relative(e)),
        (None, Some(error)) => Some(Bound::Absolute {
            error,
            exact: arguments.exact_below,
        }),
        (None, None) => None,
    }
}

fn method(bound: Option<Bound>) -> String {
    match bound {
        None => "exact".into(),
        Some(Bound::Relative(e)) => format!("scale tree, relative error at most {e}"),
        Some(Bound::Absolute { error, exact }) => {
            format!("scale tree, absolute error at most {error} blocks beyond {exact}")
        }
    }
}

fn scale(arguments: &ReuseArguments) -> anyhow::Result<Scale> {
    let width = arguments.width;
    anyhow::ensure!(width > 0, "--width must be above 0");
    Ok(match arguments.bins {
        Bins::Log => Scale::Log,
        Bins::Linear => Scale::Linear { width },
        Bins::LogLinear => {
            anyhow::ensure!(
                width.is_power_of_two(),
                "--width must be a power of two with --bins log-linear"
            );
            Scale::LogLinear { width }
        }
    })
}
