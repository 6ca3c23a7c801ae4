//! `mgz-analyze reuse`: reuse distance and interval, exact or approximate.

use super::owners::{OBJECT_COLUMNS, Owners};
use super::document::{Column, Document, Table, Unit, maybe, value};
use super::stream::{Accesses, Segment, View};
use super::threads::{load, recorded};
use super::{Common, block_size, open, require_full, size, visit, warn_of_gaps};
use crate::code::CodeMap;
use crate::input::{ColumnSet, Trace};
use clap::{Args, ValueEnum};
use mgz_models::approx::ApproxEngine;
use mgz_models::histogram::{Bin, Fine, SMALL, Scale, WHOLE};
use mgz_models::miss_ratio::MissRatio;
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use mgz_models::scale_tree::Bound;
use serde_json::Value;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  mgz-analyze reuse trace                             exact distances of each thread's whole run
  mgz-analyze reuse trace --relative-error 0.01       99% precise, in logarithmic space
  mgz-analyze reuse trace --block 4K --bins log-linear --format json
  mgz-analyze reuse trace --windows 100000            inside windows of 100,000 accesses
  mgz-analyze reuse sampled --windows                 inside the windows of a sampled trace
  mgz-analyze reuse trace --together                  all threads of a process on one stack
  mgz-analyze reuse trace --rdx --period 10000        what four watchpoints would have seen; pairs of code
  mgz-analyze reuse watched --rdx --accesses-from ring   a trace of mgz-record --mode watch: live watchpoints
  mgz-analyze reuse trace --cache 32K --cache 1M      miss ratios at these sizes too

Distances count distinct blocks between two accesses to a block; intervals count accesses. docs/models.md has the
definitions, docs/models-json.md the keys.";

/// Arguments of `reuse`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReuseArguments {
    /// The folder that mgz-record wrote.
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
    /// Partitions of the reference histogram.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub partitions: u64,
    /// Approximates distances with at most this relative error, e.g. 0.01 (scale tree, logarithmic space).
    #[arg(long, value_name = "E", value_parser = fraction, conflicts_with = "absolute_error")]
    pub relative_error: Option<f64>,
    /// Approximates distances with at most this absolute error in blocks (scale tree).
    #[arg(long, value_name = "BLOCKS")]
    pub absolute_error: Option<u64>,
    /// With --absolute-error: distances up to here are exact.
    #[arg(long, value_name = "BLOCKS", default_value_t = 0, requires = "absolute_error")]
    pub exact_below: u64,
    /// Cuts each thread's run into windows of N accesses and measures inside them; without N, the samples of the trace
    /// are the windows. Needed for sampled traces.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub windows: Option<u64>,
    /// Takes the threads of a process together, in the order of recorded times (approximate across threads): concurrent reuse distance.
    #[arg(long, conflicts_with_all = ["windows", "rdx"])]
    pub together: bool,
    /// Counts recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
    /// Estimates from sampled use–reuse pairs, as RDX does with a few watchpoints.
    #[arg(long, conflicts_with_all = ["relative_error", "absolute_error", "windows"])]
    pub rdx: bool,
    /// With --rdx: mean number of accesses between samples.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: u64,
    /// With --rdx: number of watchpoints.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub watchpoints: u64,
    /// With --rdx: how samples are weighted.
    #[arg(long, value_enum, default_value_t = super::rdx::Weights::Survival)]
    pub attribution: super::rdx::Weights,
    /// With --rdx: seed of the coins.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// With --rdx: also measures exactly and tells the similarities S and Ŝ of the paper.
    #[arg(long, requires = "rdx")]
    pub compare: bool,
    /// With --rdx on a trace of --mode watch where nothing counted accesses: a full or ring trace of the same command, for the rate.
    #[arg(long, value_name = "TRACE", requires = "rdx")]
    pub accesses_from: Option<PathBuf>,
    /// Sizes of caches whose miss ratio is wanted besides the curve.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub cache: Vec<u64>,
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

    pub(crate) fn begin(&mut self) {
        match self {
            Engine::Exact(e) => e.begin(),
            Engine::Approximate(e) => e.begin(),
        }
    }

    pub(crate) fn run<S: ReuseSink>(&mut self, accesses: View<'_>, sink: &mut S) {
        match self {
            Engine::Exact(e) => e.run(accesses.address, accesses.size, accesses.group, sink),
            Engine::Approximate(e) => e.run(accesses.address, accesses.size, accesses.group, sink),
        }
    }
}

/// What is counted of a thread, function or line.
#[derive(Clone)]
struct Part {
    distances: Fine,
    intervals: f64,
    firsts: u64,
}

impl Part {
    fn new(bits: u32) -> Part {
        Part { distances: Fine::new(bits), intervals: 0.0, firsts: 0 }
    }

    fn merge(&mut self, other: &Part) {
        self.distances.merge(&other.distances);
        self.intervals += other.intervals;
        self.firsts += other.firsts;
    }
}

/// All counts.
struct Counts {
    distances: Fine,
    intervals: Fine,
    firsts: u64,
    /// By tag, see [`Tags`].
    groups: Vec<Option<Box<Part>>>,
    tags: Tags,
    threads: Vec<(u32, u32, u64, Part)>,
}

impl Counts {
    #[inline(always)]
    fn group(&mut self, tag: u32) -> &mut Part {
        if tag as usize >= self.groups.len() {
            self.groups.resize(tag as usize + 1, None);
        }
        self.groups[tag as usize].get_or_insert_with(|| Box::new(Part::new(SMALL)))
    }
}

/// Tags of accesses: numbers of the pairs of group and object that occur.
#[derive(Default)]
struct Tags {
    pairs: Vec<(u32, u32)>,
    /// By group: objects and their tags, the last one used first.
    by_group: Vec<Vec<(u32, u32)>>,
    objects: Vec<u32>,
    out: Vec<u32>,
}

impl Tags {
    #[inline(always)]
    fn tag(&mut self, group: u32, object: u32) -> u32 {
        match self.by_group.get(group as usize).and_then(|list| list.first()) {
            Some(&(known, tag)) if known == object => tag,
            _ => self.find(group, object),
        }
    }

    #[cold]
    fn find(&mut self, group: u32, object: u32) -> u32 {
        if group as usize >= self.by_group.len() {
            self.by_group.resize(group as usize + 1, Vec::new());
        }
        let list = &mut self.by_group[group as usize];
        let at = list.iter().position(|o| o.0 == object).unwrap_or_else(|| {
            list.push((object, self.pairs.len() as u32));
            self.pairs.push((group, object));
            list.len() - 1
        });
        list.swap(0, at);
        list[0].1
    }

    /// Makes the tags of consecutive accesses, in `out`.
    fn make(&mut self, owners: &mut Owners, process: u32, accesses: View<'_>, times: (u64, u64)) {
        let mut objects = std::mem::take(&mut self.objects);
        let mut out = std::mem::take(&mut self.out);
        objects.clear();
        out.clear();
        owners.fill(process, accesses.address, times, &mut objects);
        out.extend(accesses.group.iter().zip(&objects).map(|(&group, &object)| self.tag(group, object)));
        (self.objects, self.out) = (objects, out);
    }
}

impl ReuseSink for Counts {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, tag: u32) {
        self.firsts += 1;
        self.group(tag).firsts += 1;
        if let Some(thread) = self.threads.last_mut() {
            thread.3.firsts += 1;
        }
    }

    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, tag: u32, distance: u64, interval: u64) {
        self.distances.add(distance);
        self.intervals.add(interval);
        let group = self.group(tag);
        group.distances.add(distance);
        group.intervals += interval as f64;
        if let Some(thread) = self.threads.last_mut() {
            thread.3.distances.add(distance);
            thread.3.intervals += interval as f64;
        }
    }

    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Runs the command. Also tells whether something could not be read.
pub fn run(arguments: &ReuseArguments) -> anyhow::Result<(Document, bool)> {
    if arguments.rdx {
        return super::rdx::run(arguments);
    }
    let mut document = Document::new("reuse");
    let scale = scale(arguments)?;
    let trace = open(&arguments.trace, &arguments.common, &mut document)?;
    if arguments.windows.is_none() {
        require_full(&trace, "reuse distance of whole runs", ", or measure inside its windows with --windows")?;
    }
    warn_of_gaps(&trace, &mut document);
    let bound = match (arguments.relative_error, arguments.absolute_error) {
        (Some(e), _) => Some(Bound::Relative(e)),
        (None, Some(error)) => Some(Bound::Absolute { error, exact: arguments.exact_below }),
        (None, None) => None,
    };
    let mut engine = Engine::new(arguments.block.trailing_zeros(), bound);
    let mut counts = Counts { distances: Fine::new(WHOLE), intervals: Fine::new(WHOLE), firsts: 0, groups: Vec::new(), tags: Tags::default(), threads: Vec::new() };
    let mut owners = Owners::open(&trace, &mut document);
    let measured = if arguments.together {
        together(&trace, arguments, &mut owners, &mut engine, &mut counts, &mut document)?
    } else {
        alone(&trace, arguments, &mut owners, &mut engine, &mut counts, &mut document)
    };
    let Measured { accesses, implied, samples, damaged } = measured;
    anyhow::ensure!(accesses > 0, "{}: the trace has no accesses to measure", arguments.trace.display());
    let touches = counts.distances.count() + counts.firsts;
    document.put("method", Unit::Text, method(bound));
    document.put("block", Unit::Bytes, arguments.block);
    document.put("A", Unit::Number, accesses);
    document.put("A_const", Unit::Number, implied);
    document.put("threads", Unit::Number, counts.threads.len());
    document.put("windows", Unit::Number, samples);
    document.put("touches", Unit::Number, touches);
    document.put("reuses", Unit::Number, counts.distances.count());
    document.put("first_touches", Unit::Number, counts.firsts);
    document.put("D_mean", Unit::Number, maybe(counts.distances.mean()));
    document.put("D_max", Unit::Number, counts.distances.max().map_or(Value::Null, Value::from));
    document.put("interval_mean", Unit::Number, maybe(counts.intervals.mean()));
    document.put("interval_max", Unit::Number, counts.intervals.max().map_or(Value::Null, Value::from));
    if let Engine::Approximate(engine) = &engine {
        document.put("tree_nodes", Unit::Number, engine.most_nodes());
    }
    document.tables.push(histogram("distances", "Reuse distance D, in blocks", &counts.distances, &scale)?);
    document.tables.push(histogram("intervals", "Reuse interval, in accesses", &counts.intervals, &scale)?);
    document.tables.push(reference(&counts.distances, arguments.partitions as usize));
    document.tables.push(miss_ratios(&counts, implied, arguments));
    tables_of_code(&counts, &trace, &mut document);
    if owners.known() {
        objects(&counts, &owners, &mut document);
    }
    threads(&counts, &mut document);
    Ok((document, damaged))
}

/// Sums over the trace.
struct Measured {
    accesses: u64,
    implied: u64,
    /// Runs or windows.
    samples: u64,
    damaged: bool,
}

/// Each thread's run, or window, by itself.
fn alone(trace: &Trace, arguments: &ReuseArguments, owners: &mut Owners, engine: &mut Engine, counts: &mut Counts, document: &mut Document) -> Measured {
    let (mut accesses, mut implied, mut samples, mut in_window) = (0u64, 0u64, 0u64, 0u64);
    let window = arguments.windows.unwrap_or(0);
    let known = owners.known();
    let mut buffer = Accesses::default();
    let mut each = |segment: &Segment<'_>| {
        let id = (segment.run.process, segment.run.thread);
        if counts.threads.last().is_none_or(|t| (t.0, t.1) != id) {
            counts.threads.push((id.0, id.1, 0, Part::new(SMALL)));
        }
        if segment.starts {
            engine.begin();
            samples += 1;
            in_window = 0;
        }
        implied += segment.implied();
        let view = segment.accesses(arguments.stores, &mut buffer);
        counts.tags.make(owners, segment.run.process, view, (segment.run.first_time, segment.run.last_time));
        let tags = std::mem::take(&mut counts.tags.out);
        let view = View { group: &tags, ..view };
        accesses += view.len() as u64;
        if let Some(thread) = counts.threads.last_mut() {
            thread.2 += view.len() as u64;
        }
        let mut at = 0;
        while at < view.len() {
            if window > 0 && in_window == window {
                engine.begin();
                samples += 1;
                in_window = 0;
            }
            let most = if window > 0 { (window - in_window) as usize } else { usize::MAX };
            let end = at + most.min(view.len() - at);
            engine.run(view.slice(at..end), counts);
            in_window += (end - at) as u64;
            at = end;
        }
        counts.tags.out = tags;
    };
    // Objects that follow each other at an address are told apart by time.
    let damaged = visit(trace, ColumnSet { time: known }, document, &mut each);
    Measured { accesses, implied, samples, damaged }
}

/// All threads of a process on one stack.
fn together(trace: &Trace, arguments: &ReuseArguments, owners: &mut Owners, engine: &mut Engine, counts: &mut Counts, document: &mut Document) -> anyhow::Result<Measured> {
    let (mut threads, implied, damaged) = load(trace, arguments.stores, document)?;
    for thread in &mut threads {
        let mut tags = Vec::with_capacity(thread.accesses.address.len());
        for ends in thread.marks.chunks_exact(2) {
            let all = thread.accesses.view().slice(ends[0].0..ends[1].0 + 1);
            counts.tags.make(owners, thread.process, all, (ends[0].1, ends[1].1));
            tags.extend_from_slice(&counts.tags.out);
        }
        thread.accesses.group = tags;
    }
    let mut measured = Measured { accesses: 0, implied, samples: 0, damaged };
    // Rows are sorted by process.
    for process in threads.chunk_by(|a, b| a.process == b.process) {
        engine.begin();
        measured.samples += 1;
        let mut buffer = Accesses::default();
        counts.threads.push((process[0].process, 0, 0, Part::new(SMALL)));
        let mut flush = |buffer: &mut Accesses| {
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
            buffer.group.push(from.group[access]);
            if buffer.address.len() == 1 << 14 {
                flush(&mut buffer);
            }
        });
        flush(&mut buffer);
    }
    Ok(measured)
}

fn method(bound: Option<Bound>) -> String {
    match bound {
        None => "exact".into(),
        Some(Bound::Relative(e)) => format!("scale tree, relative error at most {e}"),
        Some(Bound::Absolute { error, exact }) => format!("scale tree, absolute error at most {error} blocks beyond {exact}"),
    }
}

fn scale(arguments: &ReuseArguments) -> anyhow::Result<Scale> {
    let width = arguments.width;
    anyhow::ensure!(width > 0, "--width must be above 0");
    Ok(match arguments.bins {
        Bins::Log => Scale::Log,
        Bins::Linear => Scale::Linear { width },
        Bins::LogLinear => {
            anyhow::ensure!(width.is_power_of_two(), "--width must be a power of two with --bins log-linear");
            Scale::LogLinear { width }
        }
    })
}

/// A histogram as a table.
pub(crate) fn histogram(name: &'static str, title: &str, fine: &Fine, scale: &Scale) -> anyhow::Result<Table> {
    if let (Scale::Linear { width }, Some(max)) = (scale, fine.max()) {
        anyhow::ensure!(max / width < 10_000_000, "--width {width} makes more than 10 million bins up to {max}; choose a larger one or --bins log-linear");
    }
    let bins = fine.cut(scale);
    Ok(histogram_rows(name, title, &bins))
}

/// Bins as a table.
pub(crate) fn histogram_rows(name: &'static str, title: &str, bins: &[Bin]) -> Table {
    let total: f64 = bins.iter().map(|b| b.count).sum();
    let rows = bins.iter().map(|b| vec![value(b.from), value(b.to), value(b.count), value(if total > 0.0 { b.count / total } else { 0.0 }), maybe((b.count > 0.0).then(|| b.mean()))]).collect();
    let columns = vec![Column("from", Unit::Number), Column("to", Unit::Number), Column("count", Unit::Number), Column("share", Unit::Share), Column("mean", Unit::Number)];
    Table { name, title: title.into(), columns, rows, text_rows: 64 }
}

fn reference(distances: &Fine, partitions: usize) -> Table {
    let rows = distances.reference(partitions).iter().enumerate().map(|(i, p)| vec![Value::from(i), value(p.from), value(p.to), value(p.mean)]).collect();
    let columns = vec![Column("partition", Unit::Number), Column("from", Unit::Number), Column("to", Unit::Number), Column("mean", Unit::Number)];
    Table { name: "reference", title: "Reference histogram".into(), columns, rows, text_rows: 0 }
}

fn miss_ratios(counts: &Counts, implied: u64, arguments: &ReuseArguments) -> Table {
    let ratio = MissRatio::new(counts.distances.bins(), counts.firsts as f64, implied as f64);
    let mut rows: Vec<(u64, f64)> = ratio.curve(4).into_iter().map(|(blocks, miss)| (blocks * arguments.block, miss)).collect();
    let asked = arguments.cache.iter().map(|&bytes| (bytes, ratio.ratio((bytes / arguments.block) as f64)));
    rows.extend(asked);
    rows.sort_by_key(|r| r.0);
    rows.dedup_by_key(|r| r.0);
    let rows = rows.into_iter().map(|(bytes, miss)| vec![Value::from(bytes), Value::from(bytes / arguments.block), value(miss)]).collect();
    Table {
        name: "miss_ratios",
        title: "Miss ratio of fully associative LRU caches (implied Constant loads count as hits)".into(),
        columns: vec![Column("bytes", Unit::Bytes), Column("blocks", Unit::Number), Column("miss_ratio", Unit::Share)],
        rows,
        text_rows: 256,
    }
}

/// Value below which a share of the distances lies.
fn quantile(distances: &Fine, share: f64) -> Value {
    let target = share * distances.count() as f64;
    let mut seen = 0.0;
    for bin in distances.bins() {
        seen += bin.count;
        if seen >= target {
            return value(bin.mean());
        }
    }
    Value::Null
}

fn part_cells(part: &Part) -> Vec<Value> {
    let reuses = part.distances.count();
    vec![
        Value::from(reuses),
        Value::from(part.firsts),
        maybe(part.distances.mean()),
        quantile(&part.distances, 0.5),
        quantile(&part.distances, 0.9),
        part.distances.max().map_or(Value::Null, Value::from),
        maybe((reuses > 0).then(|| part.intervals / reuses as f64)),
    ]
}

const PART_COLUMNS: [Column; 7] = [
    Column("reuses", Unit::Number),
    Column("first_touches", Unit::Number),
    Column("D_mean", Unit::Number),
    Column("D_median", Unit::Number),
    Column("D_p90", Unit::Number),
    Column("D_max", Unit::Number),
    Column("interval_mean", Unit::Number),
];

fn columns(first: &[Column]) -> Vec<Column> {
    first.iter().chain(&PART_COLUMNS).copied().collect()
}

/// Sums groups by `key`, hottest first.
fn by<K: Fn(&CodeMap, usize, u32) -> u32>(counts: &Counts, code: &CodeMap, key: K) -> Vec<(u32, Part)> {
    let mut sums: std::collections::BTreeMap<u32, Part> = std::collections::BTreeMap::new();
    for (part, &(group, object)) in counts.groups.iter().zip(&counts.tags.pairs) {
        if let Some(part) = part {
            sums.entry(key(code, group as usize / 4, object)).or_insert_with(|| Part::new(SMALL)).merge(part);
        }
    }
    let mut sums: Vec<(u32, Part)> = sums.into_iter().collect();
    sums.sort_by(|a, b| (b.1.distances.count() + b.1.firsts).cmp(&(a.1.distances.count() + a.1.firsts)).then(a.0.cmp(&b.0)));
    sums
}

fn tables_of_code(counts: &Counts, trace: &Trace, document: &mut Document) {
    let code = &trace.code;
    let functions = by(counts, code, |code, piece, _| code.pieces[piece].function);
    let name = |f: u32| vec![Value::from(code.functions[f as usize].function.as_str()), Value::from(code.functions[f as usize].module.as_str())];
    document.tables.push(Table {
        name: "functions",
        title: "Functions (of the reusing access)".into(),
        columns: columns(&[Column("function", Unit::Text), Column("module", Unit::Text)]),
        rows: functions.iter().map(|(f, part)| [name(*f), part_cells(part)].concat()).collect(),
        text_rows: usize::MAX,
    });
    let lines = by(counts, code, |code, piece, _| code.pieces[piece].line);
    document.tables.push(Table {
        name: "lines",
        title: "Lines (of the reusing access)".into(),
        columns: columns(&[Column("function", Unit::Text), Column("file", Unit::Text), Column("line", Unit::Number)]),
        rows: lines
            .iter()
            .map(|(l, part)| {
                let line = &code.lines[*l as usize];
                [vec![Value::from(line.function.as_str()), Value::from(line.file.as_str()), Value::from(line.line)], part_cells(part)].concat()
            })
            .collect(),
        text_rows: usize::MAX,
    });
    let mut rows = Vec::new();
    for (f, part) in &functions {
        for bin in part.distances.cut(&Scale::Log).iter().filter(|b| b.count > 0.0) {
            rows.push([name(*f), vec![value(bin.from), value(bin.to), value(bin.count)]].concat());
        }
    }
    document.tables.push(Table {
        name: "function_distances",
        title: String::new(),
        columns: vec![Column("function", Unit::Text), Column("module", Unit::Text), Column("from", Unit::Number), Column("to", Unit::Number), Column("count", Unit::Number)],
        rows,
        text_rows: 0,
    });
}

/// Objects of the reusing access, and their histograms.
fn objects(counts: &Counts, owners: &Owners, document: &mut Document) {
    let parts = by(counts, &CodeMap::new(), |_, _, object| object);
    document.tables.push(Table {
        name: "objects",
        title: "Objects (distances over all blocks in between)".into(),
        columns: columns(&OBJECT_COLUMNS),
        rows: parts.iter().map(|(o, part)| [owners.cells(*o), part_cells(part)].concat()).collect(),
        text_rows: usize::MAX,
    });
    let mut rows = Vec::new();
    for (o, part) in &parts {
        for bin in part.distances.cut(&Scale::Log).iter().filter(|b| b.count > 0.0) {
            rows.push([owners.cells(*o), vec![value(bin.from), value(bin.to), value(bin.count)]].concat());
        }
    }
    document.tables.push(Table {
        name: "object_distances",
        title: String::new(),
        columns: OBJECT_COLUMNS.into_iter().chain([Column("from", Unit::Number), Column("to", Unit::Number), Column("count", Unit::Number)]).collect(),
        rows,
        text_rows: 0,
    });
}

fn threads(counts: &Counts, document: &mut Document) {
    document.tables.push(Table {
        name: "threads",
        title: "Threads".into(),
        columns: columns(&[Column("process", Unit::Text), Column("thread", Unit::Text), Column("A", Unit::Number)]),
        rows: counts.threads.iter().map(|(process, thread, accesses, part)| [vec![Value::from(*process), Value::from(*thread), Value::from(*accesses)], part_cells(part)].concat()).collect(),
        text_rows: if counts.threads.len() > 1 { usize::MAX } else { 0 },
    });
}
