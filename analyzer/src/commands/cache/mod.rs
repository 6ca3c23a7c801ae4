//! `mgz-analyze cache`: hit rates by the stack-distance cache model, beside an exact simulation (Barai et al. 2019).

mod evaluate;
mod pieces;

use crate::commands::mimic::{Mimic, aligned, in_phases, mimic};
use crate::commands::private_data::PrivateData;
use crate::commands::threads::{Thread, load, recorded};
use crate::commands::{Common, open, require_full, size, warn_of_gaps};
use crate::data::code_map::CodeMap;
use crate::output::document::{Column, Document, Table, Unit, maybe, value};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use evaluate::{Outcome, Setup};
use mgz_models::cache::{SetHits, Shape};
use mgz_models::threads::interleave::Turns;
use mgz_models::threads::schedule::Schedule;
use serde_json::Value;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  mgz-analyze cache trace                                      the caches of this machine
  mgz-analyze cache trace --level 32K:8 --level 1M:16 --level 25M:20
  mgz-analyze cache omp1 --mimic 1,2,4,8,16,32 --level 6M:12   shared cache with n threads, from a run with OMP_NUM_THREADS=1
  mgz-analyze cache omp4 --level 32K:8 --level 6M:12           private first level, shared last level, as recorded
  mgz-analyze cache small --weights-from large                 profiles of code pieces, recombined for another input

A level is SIZE:WAYS or SIZE:WAYS:LINE. docs/reference/models.md has the definitions,
docs/reference/models-json.md the keys.";

/// Arguments of `cache`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CacheArguments {
    /// The folder that mgz-record wrote.
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// A cache level, first level first: SIZE:WAYS or SIZE:WAYS:LINE. Without it: the data caches of this machine.
    #[arg(long, value_name = "SIZE:WAYS[:LINE]", value_parser = level)]
    pub level: Vec<Shape>,
    /// First level (from 1) that all threads share; without it: the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub shared_from: Option<u64>,
    /// Predicts the caches for these numbers of threads from a run with one thread (OpenMP regions, static scheduling).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub mimic: Vec<u64>,
    /// How threads take turns; without it: by recorded times, and round-robin with --mimic.
    #[arg(long, value_enum)]
    pub turns: Option<TurnsArgument>,
    /// With --mimic: the loops' clause schedule, as static, static,C, dynamic or dynamic,C.
    #[arg(long, default_value = "static", value_name = "CLAUSE", value_parser = schedule)]
    pub schedule: Schedule,
    /// Accesses of a turn with --turns chunks.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk: u64,
    /// Follows so many sets of a level at most for hit_rate_sets; with fewer than it has, the rate is an estimate with an interval.
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    pub sets: u64,
    /// Takes P(BB), how often each piece of code runs, from this trace of the same program (any mode) and recombines the profiles.
    #[arg(long, value_name = "TRACE")]
    pub weights_from: Option<PathBuf>,
    /// Counts recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
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
}

impl TurnsArgument {
    fn turns(self, chunk: u64) -> Turns {
        match self {
            TurnsArgument::RoundRobin => Turns::RoundRobin,
            TurnsArgument::Proportional => Turns::Proportional,
            TurnsArgument::Random => Turns::Random { seed: 1 },
            TurnsArgument::Chunks => Turns::Chunks { length: chunk },
            TurnsArgument::Sequential => Turns::Sequential,
        }
    }
}

fn schedule(text: &str) -> Result<Schedule, String> {
    Schedule::parse(text).ok_or_else(|| "write static, static,C, dynamic or dynamic,C".into())
}

/// A cache from `SIZE:WAYS` or `SIZE:WAYS:LINE`.
pub(crate) fn level(text: &str) -> Result<Shape, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = |t: &str| {
        t.parse::<u64>()
            .map_err(|_| format!("{t:?} is not a number"))
    };
    let (bytes, ways, line) = match parts.as_slice() {
        [bytes, ways] => (size(bytes)?, number(ways)?, 64),
        [bytes, ways, line] => (size(bytes)?, number(ways)?, size(line)?),
        _ => return Err("write SIZE:WAYS or SIZE:WAYS:LINE, e.g. 32K:8".into()),
    };
    let shape = Shape::new(bytes, ways, line).map_err(|e| e.to_string())?;
    if shape.blocks() > 1 << 28 {
        return Err("more than 256 Mi lines".into());
    }
    Ok(shape)
}

/// The data caches of this machine.
fn machine() -> anyhow::Result<Vec<Shape>> {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut levels: Vec<(u64, Shape)> = Vec::new();
    let remedy = "name the caches with --level SIZE:WAYS";
    for entry in std::fs::read_dir(folder).with_context(|| {
        format!(
            "{}: this machine does not tell its caches; {remedy}",
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
                    "{}: this machine's description cannot be; {remedy}",
                    path.display()
                )
            })?;
            levels.push((level, shape));
        }
    }
    levels.sort_by_key(|l| l.0);
    anyhow::ensure!(
        !levels.is_empty(),
        "{}: this machine does not tell its caches; {remedy}",
        folder.display()
    );
    Ok(levels.into_iter().map(|l| l.1).collect())
}

/// Runs the command. Also tells whether something could not be read.
pub fn run(arguments: &CacheArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("cache");
    let levels = if arguments.level.is_empty() {
        machine()?
    } else {
        arguments.level.clone()
    };
    for pair in levels.windows(2) {
        anyhow::ensure!(
            pair[0].size <= pair[1].size,
            "a level of {} bytes cannot lie behind one of {} bytes; give the first level first",
            pair[1].size,
            pair[0].size
        );
    }
    let shared = arguments
        .shared_from
        .map_or(levels.len() - 1, |n| n as usize - 1);
    anyhow::ensure!(
        shared < levels.len(),
        "--shared-from {} is beyond the last of {} levels",
        shared + 1,
        levels.len()
    );
    let trace = open(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "the hit rate of a cache", "")?;
    warn_of_gaps(&trace, &mut document);
    let (threads, implied, damaged) = load(&trace, arguments.stores, &mut document)?;
    let accesses: u64 = threads
        .iter()
        .map(|t| t.accesses.address.len() as u64)
        .sum();
    document.put("A", Unit::Count, accesses);
    document.put("A_const", Unit::Count, implied);
    document.put("threads", Unit::Count, threads.len());
    let (mut rows, mut ways) = (Vec::new(), Vec::new());
    if arguments.mimic.is_empty() {
        let setup = Setup {
            shared: if threads.len() > 1 { shared } else { 0 },
            levels: levels.clone(),
            follow: arguments.sets,
        };
        let outcomes = match arguments.turns.map(|t| t.turns(arguments.chunk)) {
            None => evaluate::evaluate(&threads, &|next| recorded(&threads, next), &setup),
            Some(turns) => {
                let aligned = aligned(&threads, &trace.code);
                if threads.len() > 1 {
                    document.put("regions", Unit::Count, aligned.regions);
                    document.put("aligned", Unit::Flag, aligned.regions > 0);
                }
                evaluate::evaluate(
                    &threads,
                    &|next| in_phases(&aligned.phases, turns, next),
                    &setup,
                )
            }
        };
        let order = turns_name(arguments, "recorded");
        push_rows(
            &mut rows,
            &mut ways,
            threads.len() as u64,
            &order,
            &setup,
            &outcomes,
            None,
            accesses,
            implied,
        );
    } else {
        if threads.len() != 1 {
            bail!(
                "{}: --mimic needs a run with one thread, and this trace has {}; record it with OMP_NUM_THREADS=1",
                arguments.trace.display(),
                threads.len()
            );
        }
        let (own, problem) = PrivateData::read(&arguments.trace);
        document.warnings.extend(problem);
        // What is predicted by one who knows nothing of threads: the rate of one.
        let setup = Setup {
            shared: 0,
            levels: levels.clone(),
            follow: arguments.sets,
        };
        let one = evaluate::evaluate(
            &threads,
            &|next| (0..accesses as usize).for_each(|i| next(0, i)),
            &setup,
        );
        let null: Vec<f64> = one
            .iter()
            .map(|o| o.alone as f64 / accesses as f64)
            .collect();
        for &n in &arguments.mimic {
            let Mimicked {
                outcomes,
                setup,
                made,
            } = mimicked(
                &threads[0],
                &trace.code,
                n as usize,
                arguments,
                &levels,
                shared,
                &own,
            );
            if made.regions == 0 {
                bail!(
                    "{}: no OpenMP region was found (functions named *._omp_fn.* or *omp_outlined*); compile with -fopenmp and symbols, and instrument that file",
                    arguments.trace.display()
                );
            }
            let divided: u64 = made
                .threads
                .iter()
                .map(|t| t.accesses.address.len() as u64)
                .sum();
            if n == arguments.mimic[0] {
                document.put("regions", Unit::Count, made.regions);
                document.put(
                    "parallel_share",
                    Unit::Share,
                    value(made.parallel as f64 / divided as f64),
                );
                document.put(
                    "private_share",
                    Unit::Share,
                    value(made.private as f64 / made.parallel.max(1) as f64),
                );
                document.put(
                    "private_heap_share",
                    Unit::Share,
                    value(made.private_heap as f64 / made.parallel.max(1) as f64),
                );
            }
            push_rows(
                &mut rows,
                &mut ways,
                n,
                &turns_name(arguments, "round-robin"),
                &setup,
                &outcomes,
                Some(&null),
                divided,
                implied,
            );
        }
    }
    document.tables.push(Table {
        name: "levels",
        title: "Hit rates (model, sets and alone: the cache sees every access; hierarchy: hits in this level or before it; lo and hi: 95% interval)".into(),
        columns: vec![
            Column("threads", Unit::Id),
            Column("order", Unit::Text),
            Column("level", Unit::Id),
            Column("size", Unit::Bytes),
            Column("ways", Unit::Id),
            Column("line", Unit::Bytes),
            Column("shared", Unit::Flag),
            Column("hit_rate_model", Unit::Share),
            Column("hit_rate_sets", Unit::Share),
            Column("hit_rate_alone", Unit::Share),
            Column("difference_points", Unit::Number),
            Column("difference_points_sets", Unit::Number),
            Column("hit_rate_sets_lo", Unit::Share),
            Column("hit_rate_sets_hi", Unit::Share),
            Column("hit_rate_hierarchy", Unit::Share),
            Column("hit_rate_local", Unit::Share),
            Column("hit_rate_with_implied", Unit::Share),
            Column("misses", Unit::Count),
            Column("hit_rate_one_thread", Unit::Share),
        ],
        rows,
        text_rows: usize::MAX,
    });
    document.tables.push(Table {
        name: "ways",
        title: "Hit rates with other numbers of ways (as many sets as the level; by set distances)"
            .into(),
        columns: vec![
            Column("threads", Unit::Id),
            Column("level", Unit::Id),
            Column("ways", Unit::Id),
            Column("size", Unit::Bytes),
            Column("hit_rate_sets", Unit::Share),
            Column("hit_rate_sets_lo", Unit::Share),
            Column("hit_rate_sets_hi", Unit::Share),
        ],
        rows: ways,
        text_rows: usize::MAX,
    });
    if threads.len() == 1 {
        pieces::pieces(&threads[0], &trace, &levels, arguments, &mut document)?;
    }
    Ok((document, damaged))
}

struct Mimicked {
    outcomes: Vec<Outcome>,
    setup: Setup,
    made: Mimic,
}

#[allow(clippy::too_many_arguments, reason = "what a prediction depends on")]
fn mimicked(
    thread: &Thread,
    code: &CodeMap,
    n: usize,
    arguments: &CacheArguments,
    levels: &[Shape],
    shared: usize,
    own: &PrivateData,
) -> Mimicked {
    let made = mimic(thread, code, n, arguments.schedule, own);
    let turns = arguments
        .turns
        .map_or(Turns::RoundRobin, |t| t.turns(arguments.chunk));
    let setup = Setup {
        shared,
        levels: levels.to_vec(),
        follow: arguments.sets,
    };
    let outcomes = evaluate::evaluate(
        &made.threads,
        &|next| in_phases(&made.phases, turns, next),
        &setup,
    );
    Mimicked {
        outcomes,
        setup,
        made,
    }
}

fn turns_name(arguments: &CacheArguments, default: &str) -> String {
    arguments
        .turns
        .and_then(|t| t.to_possible_value().map(|v| v.get_name().to_string()))
        .unwrap_or_else(|| default.into())
}

#[allow(clippy::too_many_arguments, reason = "a row's parts")]
fn push_rows(
    rows: &mut Vec<Vec<Value>>,
    ways: &mut Vec<Vec<Value>>,
    threads: u64,
    order: &str,
    setup: &Setup,
    outcomes: &[Outcome],
    null: Option<&[f64]>,
    accesses: u64,
    implied: u64,
) {
    let all = accesses as f64;
    for (number, (shape, outcome)) in setup.levels.iter().zip(outcomes).enumerate() {
        let (model, alone) = (outcome.model / all, outcome.alone as f64 / all);
        let missed = outcome.counts.misses as f64;
        let local =
            (outcome.counts.accesses > 0).then(|| 1.0 - missed / outcome.counts.accesses as f64);
        let rates = |hits: &SetHits| {
            let error = 1.96 * hits.variance.sqrt();
            [
                hits.hits,
                (hits.hits - error).max(0.0),
                (hits.hits + error).min(all),
            ]
            .map(|n| n / all)
        };
        let sets = outcome
            .by_ways
            .first()
            .map_or([0.0; 3], |(_, hits)| rates(hits));
        rows.push(vec![
            Value::from(threads),
            Value::from(order),
            Value::from(number + 1),
            Value::from(shape.size),
            Value::from(shape.ways),
            Value::from(shape.line),
            Value::from(threads > 1 && number >= setup.shared),
            value(model),
            value(sets[0]),
            value(alone),
            value(100.0 * (model - alone)),
            value(100.0 * (sets[0] - alone)),
            value(sets[1]),
            value(sets[2]),
            value(1.0 - missed / all),
            maybe(local),
            value(1.0 - missed / (all + implied as f64)),
            Value::from(outcome.counts.misses),
            maybe(null.and_then(|null| null.get(number)).copied()),
        ]);
        let mut by_ways: Vec<&(usize, SetHits)> = outcome.by_ways.iter().collect();
        by_ways.sort_by_key(|w| w.0);
        ways.extend(by_ways.into_iter().map(|(n, hits)| {
            let [rate, low, high] = rates(hits);
            vec![
                Value::from(threads),
                Value::from(number + 1),
                Value::from(*n),
                Value::from(shape.sets() * *n as u64 * shape.line),
                value(rate),
                value(low),
                value(high),
            ]
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_refused() {
        assert_eq!(
            level("32K:8").unwrap(),
            Shape {
                size: 32768,
                ways: 8,
                line: 64
            }
        );
        assert_eq!(level("1M:16:128").unwrap().line, 128);
        for bad in [
            "32K", "32K:0", "x:8", "1000:8", "32K:8:48", "1:2:3:4", "99999G:1",
        ] {
            assert!(level(bad).is_err(), "{bad}");
        }
    }
}
