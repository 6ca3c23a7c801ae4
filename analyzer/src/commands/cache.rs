//! `mgz-analyze cache`: hit rates by the stack-distance cache model, beside an exact simulation (Barai et al. 2019).

use super::document::{Column, Document, Table, Unit, maybe, value};
use super::mimic::{Mimic, mimic};
use super::stream::{Accesses, Segment};
use super::threads::{Thread, load, ordered};
use super::{Common, open, require_full, size, visit, warn_of_gaps};
use crate::code::CodeMap;
use crate::input::{ColumnSet, Trace};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use mgz_models::cache::{Hierarchy, LevelCounts, SetProfile, Shape, expected_hits};
use mgz_models::histogram::{Fine, SMALL, WHOLE};
use mgz_models::interleave::Turns;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  mgz-analyze cache trace                                      the caches of this machine
  mgz-analyze cache trace --level 32K:8 --level 1M:16 --level 25M:20
  mgz-analyze cache omp1 --mimic 1,2,4,8,16,32 --level 6M:12   shared cache with n threads, from a run with OMP_NUM_THREADS=1
  mgz-analyze cache omp4 --level 32K:8 --level 6M:12           private first level, shared last level, as recorded
  mgz-analyze cache small --weights-from large                 profiles of code pieces, recombined for another input

A level is SIZE:WAYS or SIZE:WAYS:LINE. docs/models.md has the definitions, docs/models-json.md the keys.";

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
    /// Accesses of a turn with --turns chunks.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk: u64,
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

fn level(text: &str) -> Result<Shape, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = |t: &str| t.parse::<u64>().map_err(|_| format!("{t:?} is not a number"));
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
    for entry in std::fs::read_dir(folder).with_context(|| format!("{}: this machine does not tell its caches; {remedy}", folder.display()))? {
        let path = entry?.path();
        let read = |name: &str| std::fs::read_to_string(path.join(name)).map(|t| t.trim().to_string()).unwrap_or_default();
        if !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("index")) || read("type") == "Instruction" {
            continue;
        }
        let number = |name: &str| read(name).parse::<u64>().ok();
        if let (Some(level), Ok(bytes), Some(ways), Some(line)) = (number("level"), size(&read("size")), number("ways_of_associativity"), number("coherency_line_size")) {
            let shape = Shape::new(bytes, ways, line).with_context(|| format!("{}: this machine's description cannot be; {remedy}", path.display()))?;
            levels.push((level, shape));
        }
    }
    levels.sort_by_key(|l| l.0);
    anyhow::ensure!(!levels.is_empty(), "{}: this machine does not tell its caches; {remedy}", folder.display());
    Ok(levels.into_iter().map(|l| l.1).collect())
}

/// The caches of a setting.
struct Setup {
    levels: Vec<Shape>,
    /// Levels from here on are shared.
    shared: usize,
}

/// Model and simulation of one level.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Accesses that hit in a cache of this shape, by the model: alone, as if it saw every access.
    model: f64,
    /// The same by the model that knows how the sets are used; `None` where there are too many.
    by_sets: Option<f64>,
    /// The same by simulation of the cache alone.
    alone: u64,
    /// In the hierarchy.
    counts: LevelCounts,
}

/// Distances of a stream of accesses. One that touches two lines hits if both do: it has the greater distance of the two.
struct Profile {
    fine: Fine,
    sets: Option<SetProfile>,
    /// Of the access so far: whether a line is new, and the greatest distance with its line.
    new: bool,
    greatest: Option<(u64, u64)>,
}

impl ReuseSink for Profile {
    #[inline(always)]
    fn first(&mut self, _row: u64, block: u64, _tag: u32) {
        self.new = true;
        if let Some(sets) = &mut self.sets {
            sets.first(block);
        }
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, block: u64, _tag: u32, distance: u64, _interval: u64) {
        self.greatest = self.greatest.max(Some((distance, block)));
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {
        if let Some((distance, block)) = self.greatest.take()
            && !self.new
        {
            self.fine.add(distance);
            if let Some(sets) = &mut self.sets {
                sets.reuse(block, distance);
            }
        }
        self.new = false;
    }
}

/// An order of accesses: calls back with (thread, access).
type Order<'a> = &'a dyn Fn(&mut dyn FnMut(usize, usize));

/// Model and simulation of all levels. Private levels see one thread each, shared ones all in `order`.
fn evaluate(threads: &[Thread], order: Order<'_>, setup: &Setup) -> Vec<Outcome> {
    let mut out = vec![Outcome::default(); setup.levels.len()];
    let address = |thread: usize, access: usize| {
        let t = &threads[thread];
        // Processes have address spaces of their own.
        let space = u64::from(t.process != threads[0].process) * u64::from(t.process) << 48;
        (t.accesses.address[access] ^ space, t.accesses.size[access])
    };
    for (number, shape) in setup.levels.iter().enumerate() {
        let mut touches = 0u64;
        if number < setup.shared {
            for (t, thread) in threads.iter().enumerate() {
                let whole = |next: &mut dyn FnMut(usize, usize)| (0..thread.accesses.address.len()).for_each(|i| next(t, i));
                let (model, by_sets, alone) = profile(&whole, &address, shape);
                out[number].model += model;
                out[number].by_sets = by_sets.map(|hits| hits + out[number].by_sets.unwrap_or(0.0));
                out[number].alone += alone;
                touches += thread.accesses.address.len() as u64;
            }
        } else {
            let (model, by_sets, alone) = profile(order, &address, shape);
            (out[number].model, out[number].by_sets, out[number].alone) = (model, by_sets, alone);
            touches = threads.iter().map(|t| t.accesses.address.len() as u64).sum();
        }
        out[number].model /= touches.max(1) as f64;
        out[number].by_sets = out[number].by_sets.map(|hits| hits / touches.max(1) as f64);
    }
    let mut private: Vec<Hierarchy> = threads.iter().map(|_| Hierarchy::new(&setup.levels[..setup.shared])).collect();
    let mut shared = Hierarchy::new(&setup.levels[setup.shared..]);
    order(&mut |thread, access| {
        let (address, size) = address(thread, access);
        if setup.shared == 0 || private[thread].misses(address, size) {
            shared.access(address, size);
        }
    });
    for (number, outcome) in out.iter_mut().enumerate() {
        if number < setup.shared {
            for hierarchy in &private {
                let counts = hierarchy.counts()[number];
                outcome.counts.accesses += counts.accesses;
                outcome.counts.misses += counts.misses;
            }
        } else {
            outcome.counts = shared.counts()[number - setup.shared];
        }
    }
    out
}

/// Hits of one cache that sees the stream: by the model, by the model that knows the sets, and by simulation.
fn profile(order: Order<'_>, address: &dyn Fn(usize, usize) -> (u64, u32), shape: &Shape) -> (f64, Option<f64>, u64) {
    let mut engine = ReuseEngine::new(shape.line.trailing_zeros());
    let mut sink = Profile { fine: Fine::new(WHOLE), sets: SetProfile::new(shape), new: false, greatest: None };
    let mut alone = Hierarchy::new(std::slice::from_ref(shape));
    let mut buffer = Accesses::default();
    order(&mut |thread, access| {
        let (address, size) = address(thread, access);
        alone.access(address, size);
        buffer.address.push(address);
        buffer.size.push(size);
        buffer.group.push(0);
        if buffer.address.len() == 1 << 14 {
            engine.run(&buffer.address, &buffer.size, &buffer.group, &mut sink);
            buffer.clear();
        }
    });
    engine.run(&buffer.address, &buffer.size, &buffer.group, &mut sink);
    let hits = expected_hits(sink.fine.bins(), shape);
    let by_sets = sink.sets.map(|sets| sets.expected_hits(shape.ways));
    let counts = alone.counts()[0];
    (hits, by_sets, counts.accesses - counts.misses)
}

/// Runs the command. Also tells whether something could not be read.
pub fn run(arguments: &CacheArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("cache");
    let levels = if arguments.level.is_empty() { machine()? } else { arguments.level.clone() };
    for pair in levels.windows(2) {
        anyhow::ensure!(pair[0].size <= pair[1].size, "a level of {} bytes cannot lie behind one of {} bytes; give the first level first", pair[1].size, pair[0].size);
    }
    let shared = arguments.shared_from.map_or(levels.len() - 1, |n| n as usize - 1);
    anyhow::ensure!(shared < levels.len(), "--shared-from {} is beyond the last of {} levels", shared + 1, levels.len());
    let trace = open(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "the hit rate of a cache", "")?;
    warn_of_gaps(&trace, &mut document);
    let (threads, implied, damaged) = load(&trace, arguments.stores, &mut document)?;
    let accesses: u64 = threads.iter().map(|t| t.accesses.address.len() as u64).sum();
    document.put("A", Unit::Number, accesses);
    document.put("A_const", Unit::Number, implied);
    document.put("threads", Unit::Number, threads.len());
    let mut rows = Vec::new();
    if arguments.mimic.is_empty() {
        let turns = arguments.turns.map(|t| t.turns(arguments.chunk));
        let setup = Setup { shared: if threads.len() > 1 { shared } else { 0 }, levels: levels.clone() };
        let outcomes = evaluate(&threads, &|next| ordered(&threads, turns, next), &setup);
        let order = turns_name(arguments, "recorded");
        push_rows(&mut rows, threads.len() as u64, &order, &setup, &outcomes, accesses, implied);
    } else {
        if threads.len() != 1 {
            bail!(
                "{}: --mimic needs a run with one thread, and this trace has {}; record it with OMP_NUM_THREADS=1",
                arguments.trace.display(),
                threads.len()
            );
        }
        for &n in &arguments.mimic {
            let Mimicked { outcomes, setup, made } = mimicked(&threads[0], &trace.code, n as usize, arguments, &levels, shared);
            if made.regions == 0 {
                bail!(
                    "{}: no OpenMP region was found (functions named *._omp_fn.* or *omp_outlined*); compile with -fopenmp and symbols, and instrument that file",
                    arguments.trace.display()
                );
            }
            if n == arguments.mimic[0] {
                document.put("regions", Unit::Number, made.regions);
                document.put("parallel_share", Unit::Share, value(made.parallel as f64 / accesses as f64));
                document.put("private_share", Unit::Share, value(made.private as f64 / made.parallel.max(1) as f64));
            }
            push_rows(&mut rows, n, &turns_name(arguments, "round-robin"), &setup, &outcomes, accesses, implied);
        }
    }
    document.tables.push(Table {
        name: "levels",
        title: "Hit rates (model, sets and alone: the cache sees every access; hierarchy: hits in this level or before it)".into(),
        columns: vec![
            Column("threads", Unit::Text),
            Column("order", Unit::Text),
            Column("level", Unit::Text),
            Column("size", Unit::Bytes),
            Column("ways", Unit::Text),
            Column("line", Unit::Bytes),
            Column("shared", Unit::Text),
            Column("hit_rate_model", Unit::Share),
            Column("hit_rate_sets", Unit::Share),
            Column("hit_rate_alone", Unit::Share),
            Column("difference_points", Unit::Number),
            Column("difference_points_sets", Unit::Number),
            Column("hit_rate_hierarchy", Unit::Share),
            Column("hit_rate_local", Unit::Share),
            Column("hit_rate_with_implied", Unit::Share),
            Column("misses", Unit::Number),
        ],
        rows,
        text_rows: usize::MAX,
    });
    if threads.len() == 1 {
        pieces(&threads[0], &trace, &levels, arguments, &mut document)?;
    }
    Ok((document, damaged))
}

struct Mimicked {
    outcomes: Vec<Outcome>,
    setup: Setup,
    made: Mimic,
}

fn mimicked(thread: &Thread, code: &CodeMap, n: usize, arguments: &CacheArguments, levels: &[Shape], shared: usize) -> Mimicked {
    let made = mimic(thread, code, n);
    let turns = arguments.turns.map_or(Turns::RoundRobin, |t| t.turns(arguments.chunk));
    let setup = Setup { shared, levels: levels.to_vec() };
    let outcomes = evaluate(&made.threads, &|next| made.ordered(turns, next), &setup);
    Mimicked { outcomes, setup, made }
}

fn turns_name(arguments: &CacheArguments, default: &str) -> String {
    arguments.turns.and_then(|t| t.to_possible_value().map(|v| v.get_name().to_string())).unwrap_or_else(|| default.into())
}

fn push_rows(rows: &mut Vec<Vec<Value>>, threads: u64, order: &str, setup: &Setup, outcomes: &[Outcome], accesses: u64, implied: u64) {
    let all = accesses as f64;
    for (number, (shape, outcome)) in setup.levels.iter().zip(outcomes).enumerate() {
        let alone = outcome.alone as f64 / all;
        let missed = outcome.counts.misses as f64;
        let local = (outcome.counts.accesses > 0).then(|| 1.0 - missed / outcome.counts.accesses as f64);
        rows.push(vec![
            Value::from(threads),
            Value::from(order),
            Value::from(number + 1),
            Value::from(shape.size),
            Value::from(shape.ways),
            Value::from(shape.line),
            Value::from(threads > 1 && number >= setup.shared),
            value(outcome.model),
            maybe(outcome.by_sets),
            value(alone),
            value(100.0 * (outcome.model - alone)),
            maybe(outcome.by_sets.map(|model| 100.0 * (model - alone))),
            value(1.0 - missed / all),
            maybe(local),
            value(1.0 - missed / (all + implied as f64)),
            Value::from(outcome.counts.misses),
        ]);
    }
}

/// Distances by group: P(D|BB).
struct Groups {
    parts: Vec<Option<Box<(Fine, u64)>>>,
}

impl Groups {
    #[inline(always)]
    fn part(&mut self, tag: u32) -> &mut (Fine, u64) {
        if tag as usize >= self.parts.len() {
            self.parts.resize(tag as usize + 1, None);
        }
        self.parts[tag as usize].get_or_insert_with(|| Box::new((Fine::new(SMALL), 0)))
    }
}

impl ReuseSink for Groups {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, tag: u32) {
        self.part(tag).1 += 1;
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, tag: u32, distance: u64, _interval: u64) {
        self.part(tag).0.add(distance);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Profiles of pieces of code, P(D|BB) and P(BB), and their recombination with other weights (equation 1).
fn pieces(thread: &Thread, trace: &Trace, levels: &[Shape], arguments: &CacheArguments, document: &mut Document) -> anyhow::Result<()> {
    let line = levels[0].line;
    let mut engine = ReuseEngine::new(line.trailing_zeros());
    let mut groups = Groups { parts: Vec::new() };
    let view = thread.accesses.view();
    engine.run(view.address, view.size, view.group, &mut groups);
    let total: u64 = groups.parts.iter().flatten().map(|p| p.0.count() + p.1).sum();
    // Hit rate of a group in each level, given that it runs.
    let rates: Vec<Option<Vec<f64>>> = groups
        .parts
        .iter()
        .map(|part| {
            part.as_ref().map(|p| {
                let touches = (p.0.count() + p.1) as f64;
                levels.iter().map(|shape| expected_hits(p.0.bins(), shape) / touches).collect()
            })
        })
        .collect();
    let mut rows: Vec<(u64, Vec<Value>)> = Vec::new();
    for (group, (part, rate)) in groups.parts.iter().zip(&rates).enumerate() {
        let (Some(part), Some(rate)) = (part, rate) else { continue };
        let piece = &trace.code.pieces[group / 4];
        let place = &trace.code.lines[piece.line as usize];
        let touches = part.0.count() + part.1;
        let mut row = vec![
            Value::from(trace.code.functions[piece.function as usize].function.as_str()),
            Value::from(place.file.rsplit('/').next().unwrap_or("")),
            Value::from(place.line),
            Value::from(["constant", "strided", "irregular", "store"][group % 4]),
            value(touches as f64 / total as f64),
            maybe(part.0.mean()),
            value(part.1 as f64 / touches as f64),
        ];
        row.extend((0..4).map(|i| maybe(rate.get(i).copied())));
        rows.push((touches, row));
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.0));
    let mut columns = vec![Column("function", Unit::Text), Column("file", Unit::Text), Column("line", Unit::Number), Column("class", Unit::Text), Column("P_BB", Unit::Share), Column("D_mean", Unit::Number), Column("first_share", Unit::Share)];
    columns.extend(["hit_rate_1", "hit_rate_2", "hit_rate_3", "hit_rate_4"].map(|n| Column(n, Unit::Share)));
    document.tables.push(Table {
        name: "pieces",
        title: "Pieces of code: P(BB), and hit rates by the model from P(D|BB)".into(),
        columns,
        rows: rows.into_iter().map(|r| r.1).collect(),
        text_rows: usize::MAX,
    });
    if let Some(folder) = &arguments.weights_from {
        recombine(folder, &rates, trace, levels, arguments, document)?;
    }
    Ok(())
}

fn recombine(folder: &Path, rates: &[Option<Vec<f64>>], trace: &Trace, levels: &[Shape], arguments: &CacheArguments, document: &mut Document) -> anyhow::Result<()> {
    let other = Trace::open(folder, !arguments.common.no_annotations)?;
    let ids = |t: &Trace| t.manifest.modules.iter().map(|m| m.sidecar_id.clone()).collect::<Vec<_>>();
    anyhow::ensure!(
        ids(&other) == ids(trace),
        "{}: a trace of another program, or of another build of it; --weights-from needs the same instrumented files as {}",
        folder.display(),
        trace.folder.display()
    );
    let mut counts = vec![0u64; trace.code.groups()];
    let mut buffer = Accesses::default();
    visit(&other, ColumnSet::default(), document, &mut |segment: &Segment<'_>| {
        for &group in segment.accesses(arguments.stores, &mut buffer).group {
            counts[group as usize] += 1;
        }
    });
    let all: u64 = counts.iter().sum();
    let known: u64 = counts.iter().enumerate().filter(|(g, _)| rates.get(*g).is_some_and(Option::is_some)).map(|c| c.1).sum();
    anyhow::ensure!(known > 0, "{}: none of its code runs in {}", folder.display(), trace.folder.display());
    let rows = levels.iter().enumerate().map(|(i, shape)| {
        let hits: f64 = counts.iter().enumerate().filter_map(|(g, &n)| rates.get(g)?.as_ref().map(|r| r[i] * n as f64)).sum();
        vec![Value::from(i + 1), Value::from(shape.size), value(hits / known as f64), value(known as f64 / all as f64)]
    });
    document.tables.push(Table {
        name: "recombined",
        title: "Hit rates with P(BB) of the other trace (coverage: its accesses whose code was profiled)".into(),
        columns: vec![Column("level", Unit::Text), Column("size", Unit::Bytes), Column("hit_rate_model", Unit::Share), Column("coverage", Unit::Share)],
        rows: rows.collect(),
        text_rows: usize::MAX,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_refused() {
        assert_eq!(level("32K:8").unwrap(), Shape { size: 32768, ways: 8, line: 64 });
        assert_eq!(level("1M:16:128").unwrap().line, 128);
        for bad in ["32K", "32K:0", "x:8", "1000:8", "32K:8:48", "1:2:3:4", "99999G:1"] {
            assert!(level(bad).is_err(), "{bad}");
        }
    }
}
