//! Arguments of the command `cache`.

use crate::cache::spec::{TlbSpec, full_level, tlb_level};
use clap::{Args, ValueEnum};
use mgz_analyzer::cli::trace;
use mgz_analyzer::commands::Common;
use mgz_models::cache::LevelSpec;
use mgz_models::threads::interleave::Turns;
use mgz_models::threads::schedule::Schedule;
use std::path::PathBuf;

pub(super) const EXAMPLES_HELP: &str = "\
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
    /// Leave out the first N accesses.
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with_all = ["mimic", "turns"])]
    pub skip: u64,
    /// Simulate the first N accesses (after those of --skip) without counting them.
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with_all = ["mimic", "turns"])]
    pub warm_up: u64,
    /// Add tables of misses by function, line and object, with the shares that prefetchers would
    /// have foreseen.
    #[arg(long, conflicts_with_all = ["mimic", "turns"])]
    pub misses: bool,
    /// Number of implicit stack reads in the run (pop, ret, leave), for hit_rate_all_reads. Traces
    /// do not contain them; another tool can count them.
    #[arg(long, value_name = "N")]
    pub stack_reads: Option<u64>,
    /// Add the stack-distance model, set distances with other numbers of ways, and pieces of code.
    /// All accesses are then held in memory.
    #[arg(long)]
    pub models: bool,
    /// First level (from 1) that all threads share; without it: the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub shared_from: Option<u64>,
    /// Predict the caches for these numbers of threads from a run with one thread (OpenMP regions,
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
    /// With --models: follow at most N sets of a level for hit_rate_sets (4096 without this
    /// option); if the level has more sets, the rate is an estimate with an interval.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    pub sets: Option<u64>,
    /// Take P(BB), the frequency of each piece of code, from this trace of the same program (any
    /// mode) and recombines the profiles.
    #[arg(long, value_name = "TRACE")]
    pub weights_from: Option<PathBuf>,
    /// Simulate recorded stores too: they fetch lines, are written back, and take lines from other
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
    pub(super) fn order(&self, turns: TurnsArgument) -> Turns {
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

pub(super) fn schedule(text: &str) -> Result<Schedule, String> {
    Schedule::parse(text).ok_or_else(|| "write static, static,C, dynamic or dynamic,C".into())
}

/// Processors that this process may use.
fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}
