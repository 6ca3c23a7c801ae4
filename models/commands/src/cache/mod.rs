//! `mgz-analyze cache`: hit rates of caches by exact simulation, and by the stack-distance cache
//! model (Barai et al. 2019).

mod arranged;
pub mod evaluate;
mod exact;
mod levels;
mod misses;
mod pieces;
pub mod spec;

use crate::beside;
use crate::cache::exact::Counted;
use crate::cache::levels::{LevelRows, Of};
use crate::cache::spec::{TlbSpec, check_hierarchy, full_level, tlb_level};
use crate::threads::{load, recorded};
use anyhow::Context;
use arranged::Arranged;
use clap::{Args, Parser, ValueEnum};
use evaluate::{LevelOutcome, Setup};
use mgz_analyzer::cli::trace;
use mgz_analyzer::commands::{
    Common, open_nameless, open_rest, open_trace, require_full, size, warn_of_gaps,
};
use mgz_analyzer::input::Trace;
use mgz_analyzer::output::document::{ColumnUnit, Document};
use mgz_models::cache::{LevelSpec, Seen, Shape};
use mgz_models::threads::interleave::Turns;
use mgz_models::threads::schedule::Schedule;
use serde_json::Value;
use std::path::{Path, PathBuf};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze cache trace
      the caches of this machine
  mgz-analyze cache trace --level 32K:8:plru:stride --level 1M:16:rrip:inclusive --level 24M:12:exclusive
  mgz-analyze cache trace --tlb 64:4:4K --tlb 32:4:2M --tlb 1536:12
      TLBs with pages of 4 KiB, and of 2 MiB
  mgz-analyze cache trace --misses --skip 1000000 --warm-up 500000
      misses after the start of the program
  mgz-analyze cache omp4 --stores --level 32K:8 --level 6M:12
      write-backs, false sharing
  mgz-analyze cache trace --models
      also the models, and other numbers of ways
  mgz-analyze cache omp1 --mimic 1,2,4,8,16,32 --level 6M:12
      shared cache with n threads, from a run with OMP_NUM_THREADS=1
  mgz-analyze cache omp4 --level 32K:8 --level 6M:12
      private first level, shared last level, as recorded
  mgz-analyze cache small --weights-from large
      profiles of code pieces, recombined for another input

A level is SIZE:WAYS, then in any order a line (:128) and words: lru, fifo, random, plru, rrip; non-inclusive, \
inclusive, exclusive (of the levels before it); next-line, stride (prefetchers). A TLB is ENTRIES:WAYS, then :4K \
or :2M if it is for such pages only, and a policy. docs/reference/models/cache.md has the definitions, \
docs/reference/models-json.md the keys.";

/// Arguments of `cache`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct CacheArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// A cache level, first level first: SIZE:WAYS, then in any order the line and words, see
    /// below. Without it: the data caches of this machine.
    #[arg(long, value_name = "SIZE:WAYS[:LINE][:WORD…]", value_parser = full_level)]
    pub level: Vec<LevelSpec>,
    /// A TLB level, first level first; without PAGE it is for pages of both sizes.
    #[arg(long, value_name = "ENTRIES:WAYS[:PAGE][:POLICY]", value_parser = tlb_level, conflicts_with_all = ["mimic", "turns"])]
    pub tlb: Vec<TlbSpec>,
    /// Leaves out the first N accesses.
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with_all = ["mimic", "turns"])]
    pub skip: u64,
    /// Simulates the first N accesses (after those of --skip) without counting them.
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with_all = ["mimic", "turns"])]
    pub warm_up: u64,
    /// Adds tables of misses by function, line and object, with the shares that prefetchers would
    /// have foreseen.
    #[arg(long, conflicts_with_all = ["mimic", "turns"])]
    pub misses: bool,
    /// Number of implicit stack reads in the run (pop, ret, leave), for hit_rate_all_reads. Traces
    /// do not contain them; another tool can count them.
    #[arg(long, value_name = "N")]
    pub stack_reads: Option<u64>,
    /// Adds the stack-distance model, set distances with other numbers of ways, and pieces of code.
    /// All accesses are then held in memory.
    #[arg(long)]
    pub models: bool,
    /// First level (from 1) that all threads share; without it: the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub shared_from: Option<u64>,
    /// Predicts the caches for these numbers of threads from a run with one thread (OpenMP regions,
    /// static scheduling).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub mimic: Vec<u64>,
    /// Order of the threads' accesses; without it: by recorded times, and round-robin with --mimic.
    #[arg(long, value_enum)]
    pub turns: Option<TurnsArgument>,
    /// With --mimic: the schedule clause of the loops: static, static,C, dynamic or dynamic,C.
    #[arg(long, default_value = "static", value_name = "CLAUSE", value_parser = schedule)]
    pub schedule: Schedule,
    /// Threads that run at once with --turns cores; without it: the processors of this machine.
    #[arg(long, value_name = "N", requires = "turns", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub cores: Option<u64>,
    /// Accesses of a turn with --turns chunks and --turns cores.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk: u64,
    /// With --models: follows at most N sets of a level for hit_rate_sets (4096 without this
    /// option); if the level has more sets, the rate is an estimate with an interval.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    pub sets: Option<u64>,
    /// Takes P(BB), the frequency of each piece of code, from this trace of the same program (any
    /// mode) and recombines the profiles.
    #[arg(long, value_name = "TRACE")]
    pub weights_from: Option<PathBuf>,
    /// Simulates recorded stores too: they fetch lines, are written back, and take lines from other
    /// threads.
    #[arg(long)]
    pub stores: bool,
    /// For mgz-record: rows come on standard input, and the trace has those that follow.
    #[arg(long, hide = true)]
    pub online: bool,
}

/// See [`Turns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TurnsArgument {
    /// One access of each thread in turn.
    RoundRobin,
    /// So that all threads end together.
    Proportional,
    /// A random thread each time.
    Random,
    /// Some accesses of each thread in turn, see --chunk.
    Chunks,
    /// One thread after the other.
    Sequential,
    /// Fewer cores than threads: in turn, one access of each thread that has a core; see --cores
    /// and --chunk.
    Cores,
}

impl CacheArguments {
    /// The order that the arguments request.
    fn order(&self, turns: TurnsArgument) -> Turns {
        let chunk = self.chunk;
        match turns {
            TurnsArgument::RoundRobin => Turns::RoundRobin,
            TurnsArgument::Proportional => Turns::Proportional,
            TurnsArgument::Random => Turns::Random { seed: 1 },
            TurnsArgument::Chunks => Turns::Chunks { length: chunk },
            TurnsArgument::Sequential => Turns::Sequential,
            TurnsArgument::Cores => Turns::Cores {
                cores: self.cores.unwrap_or_else(processors),
                slice: chunk,
            },
        }
    }
}

/// Processors that this process may use.
fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn schedule(text: &str) -> Result<Schedule, String> {
    Schedule::parse(text).ok_or_else(|| "write static, static,C, dynamic or dynamic,C".into())
}

/// The data caches of this machine.
fn machine() -> anyhow::Result<Vec<LevelSpec>> {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut levels: Vec<(u64, Shape)> = Vec::new();
    let remedy = "name the caches with --level SIZE:WAYS";
    for entry in std::fs::read_dir(folder).with_context(|| {
        format!(
            "{}: the caches of this machine are unknown; {remedy}",
            folder.display()
        )
    })? {
        let path = entry?.path();
        let read = |name: &str| {
            std::fs::read_to_string(path.join(name))
                .map(|t| t.trim().to_string())
                .unwrap_or_default()
        };
        if !path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("index"))
            || read("type") == "Instruction"
        {
            continue;
        }
        let number = |name: &str| read(name).parse::<u64>().ok();
        if let (Some(level), Ok(bytes), Some(ways), Some(line)) = (
            number("level"),
            size(&read("size")),
            number("ways_of_associativity"),
            number("coherency_line_size"),
        ) {
            let shape = Shape::new(bytes, ways, line).with_context(|| {
                format!(
                    "{}: the description of this machine's caches is invalid; {remedy}",
                    path.display()
                )
            })?;
            levels.push((level, shape));
        }
    }
    levels.sort_by_key(|l| l.0);
    anyhow::ensure!(
        !levels.is_empty(),
        "{}: the caches of this machine are unknown; {remedy}",
        folder.display()
    );
    Ok(levels.into_iter().map(|l| l.1.into()).collect())
}

/// The levels, and the first shared one, from 0.
fn given_levels(arguments: &CacheArguments) -> anyhow::Result<(Vec<LevelSpec>, usize)> {
    let levels = if arguments.level.is_empty() {
        machine()?
    } else {
        arguments.level.clone()
    };
    check_hierarchy(&levels).map_err(anyhow::Error::msg)?;
    let shared = arguments
        .shared_from
        .map_or(levels.len() - 1, |n| n as usize - 1);
    anyhow::ensure!(
        shared < levels.len(),
        "--shared-from {} is beyond the last of {} levels",
        shared + 1,
        levels.len()
    );
    let in_order = arguments.mimic.is_empty() && arguments.turns.is_none();
    anyhow::ensure!(
        in_order || !levels.iter().any(|l| l.prefetch.stride),
        "stride: instructions are followed in the recorded order only; leave out stride, or --mimic and --turns"
    );
    Ok((levels, shared))
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_cache(arguments: &CacheArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("cache");
    let (levels, shared) = given_levels(arguments)?;
    let begun = arguments.online.then(|| {
        beside::refuse(&[
            (arguments.misses, "--misses"),
            (arguments.models, "--models"),
            (arguments.sets.is_some(), "--sets"),
            (arguments.weights_from.is_some(), "--weights-from"),
            (!arguments.mimic.is_empty(), "--mimic"),
            (arguments.turns.is_some(), "--turns"),
            (levels.iter().any(|l| l.prefetch.stride), "stride"),
        ]);
        exact::Begun::take(&levels, arguments)
    });
    let begun = begun.transpose()?;
    let models = arguments.models
        || arguments.sets.is_some()
        || arguments.weights_from.is_some()
        || !arguments.mimic.is_empty();
    let code = models || arguments.turns.is_some() || exact::asks_for_code(&levels, arguments);
    let (folder, common) = (&arguments.trace, &arguments.common);
    let trace = match code {
        _ if arguments.online => open_rest(folder, false, &mut document)?,
        true => open_trace(folder, common, &mut document)?,
        false => open_nameless(folder, common, &mut document)?,
    };
    require_full(&trace, "the hit rate of a cache", "")?;
    warn_of_gaps(&trace, &mut document);
    let follow = models.then(|| arguments.sets.unwrap_or(4096));
    let mut rows = LevelRows::new(arguments.stack_reads);
    if arguments.mimic.is_empty() && arguments.turns.is_none() {
        let mut beside = Document::new("cache");
        let found = exact::simulate(&trace, &levels, shared, arguments, begun, &mut beside)?;
        document.put("A", ColumnUnit::Count, found.counted.rows);
        document.put("A_const", ColumnUnit::Count, found.counted.implied);
        document.put("threads", ColumnUnit::Count, found.threads);
        put_counted(&mut document, arguments, found.counted);
        document.summary.append(&mut beside.summary);
        document.warnings.append(&mut beside.warnings);
        let setup = Setup {
            levels,
            shared: found.shared,
            follow,
            simulate: false,
        };
        let (mut outcomes, mut thread) = (vec![LevelOutcome::default(); setup.levels.len()], None);
        if models {
            // The rows are read a second time, and kept.
            let (mut threads, ..) = load(&trace, arguments.stores, &mut Document::new("cache"))?;
            let order = |next: &mut dyn FnMut(usize, usize)| recorded(&threads, next);
            outcomes = evaluate::evaluate(&threads, &order, &setup).map_err(anyhow::Error::msg)?;
            thread = threads.pop().filter(|_| threads.is_empty());
        }
        for (outcome, seen) in outcomes.iter_mut().zip(&found.seen) {
            outcome.seen = *seen;
        }
        let accesses = found.counted.loads + found.counted.stores;
        let modelled = models.then_some(found.counted.rows);
        let run = Of {
            threads: found.threads as u64,
            order: "recorded",
            accesses,
            implied: found.counted.implied,
            modelled,
        };
        rows.push(&run, &setup, &outcomes, None);
        rows.tables(&mut document);
        document.tables.append(&mut beside.tables);
        if let Some(thread) = thread {
            let shapes: Vec<Shape> = setup.levels.iter().map(|l| l.shape).collect();
            pieces::put_pieces(&thread, &trace, &shapes, arguments, &mut document)?;
        }
        return Ok((document, found.damaged));
    }
    let arranged = Arranged {
        arguments,
        trace: &trace,
        levels: &levels,
        shared,
        follow,
    };
    let damaged = arranged.run(rows, &mut document)?;
    Ok((document, damaged))
}

/// Counts of the levels for a full trace, with all its threads in the order of their recorded times
/// and a shared last level: the counts of this command without options. The sentences report
/// unreadable parts.
///
/// # Errors
///
/// A trace that is sampled or empty, and incompatible levels.
pub fn levels_of_trace(
    trace: &Trace,
    levels: &[LevelSpec],
) -> anyhow::Result<(Vec<Seen>, Vec<String>)> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheArguments,
    }
    require_full(trace, "the simulation of caches", "")?;
    let arguments = Line::try_parse_from(["cache".as_ref(), trace.folder.as_os_str()])?.cache;
    let mut document = Document::new("cache");
    let shared = levels.len().saturating_sub(1);
    let found = exact::simulate(trace, levels, shared, &arguments, None, &mut document)?;
    let mut lacking = trace.damage.clone();
    if found.damaged {
        lacking.append(&mut document.warnings);
    }
    Ok((found.seen, lacking))
}

/// Writes the counts of the rows.
fn put_counted(document: &mut Document, arguments: &CacheArguments, counted: Counted) {
    document.put("skipped", ColumnUnit::Count, arguments.skip);
    document.put("warm_up", ColumnUnit::Count, arguments.warm_up);
    document.put("loads", ColumnUnit::Count, counted.loads);
    document.put("stores", ColumnUnit::Count, counted.stores);
    document.put(
        "stack_reads",
        ColumnUnit::Count,
        arguments.stack_reads.map_or(Value::Null, Value::from),
    );
}
