//! `mgz-analyze simpoints`: a few windows with weights that represent the run (SimPoint).

use anyhow::Context;
use clap::Args;
use mgz_analyzer::cli::trace;
use mgz_analyzer::columns;
use mgz_analyzer::commands::stream::AccessSegment;
use mgz_analyzer::commands::{Common, ensure_accesses, open_trace, visit};
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::data::group::AccessClass;
use mgz_analyzer::data::memory_units::CacheLine;
use mgz_analyzer::input::weights::{UNIT, Weights, read_weights};
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{
    ColumnUnit, Document, DocumentColumn, DocumentTable, maybe, value,
};
use mgz_models::clusters::{Clusters, Point, choose, project};
use rayon::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz simpoints app.mgz/trace                 windows that represent the run
  mgz simpoints full --window 10M             of a complete trace: in windows of 10M loads
  mgz simpoints full --write app              also app.simpts and app.weights, for simulators
  mgz simpoints app.mgz/trace --format json

docs/reference/models/simpoints.md has the method.";

/// Windows into which a complete trace is divided, about. Source: Chosen.
const WINDOWS_OF_FULL_TRACE: u64 = 1000;
/// Loads of such a window at least. Source: Chosen.
const MIN_LOADS_OF_WINDOW: u64 = 1000;
/// Windows that choose the groups at most. Of more windows, every n-th one does. Source: Chosen.
const MAX_GROUPED_WINDOWS: usize = 4096;

/// Arguments of `simpoints`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct SimpointsArguments {
    /// The folder that mgz-record or mgz run wrote.
    #[arg(value_parser = trace())]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Complete traces: loads of a window [default: a thousandth of the loads, at least 1000].
    /// Sampled traces have windows of their own.
    #[arg(long, value_name = "LOADS", value_parser = loads)]
    pub window: Option<u64>,
    /// Maximum number of groups of windows.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub max: u64,
    /// Seed of the random numbers. Equal seeds give equal results.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Also write PREFIX.simpts (number of the window, group) and PREFIX.weights (weight, group),
    /// as SimPoint does.
    #[arg(long, value_name = "PREFIX")]
    pub write: Option<PathBuf>,
}

fn loads(text: &str) -> Result<u64, String> {
    match mgz_analyzer::commands::size(text)? {
        0 => Err("a window has at least one load".into()),
        loads => Ok(loads),
    }
}

/// A quantity of a window that its representative should have too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Loads,
    Footprint,
    Lines,
    Strided,
    Irregular,
}

const QUANTITIES: [(Quantity, &str, ColumnUnit); 5] = [
    (Quantity::Loads, "A", ColumnUnit::Count),
    (Quantity::Footprint, "F", ColumnUnit::Count),
    (Quantity::Lines, "F_64", ColumnUnit::Count),
    (Quantity::Strided, "strided_share", ColumnUnit::Share),
    (Quantity::Irregular, "irregular_share", ColumnUnit::Share),
];

/// A window.
#[derive(Clone, Debug)]
struct Window {
    number: u64,
    process: u32,
    thread: u32,
    first_time: u64,
    last_time: u64,
    loads: u64,
    /// Distinct start addresses.
    footprint: u64,
    /// Distinct lines.
    lines: u64,
    strided: u64,
    irregular: u64,
    /// The part of the run that it represents.
    weight: f64,
    /// Its loads by code, projected.
    point: Point,
    /// The line piece with most of its loads.
    main_piece: u32,
}

impl Window {
    fn quantity(&self, quantity: Quantity) -> f64 {
        let loads = self.loads as f64;
        match quantity {
            Quantity::Loads => loads,
            Quantity::Footprint => self.footprint as f64,
            Quantity::Lines => self.lines as f64,
            Quantity::Strided => self.strided as f64 / loads,
            Quantity::Irregular => self.irregular as f64 / loads,
        }
    }
}

/// Collects the windows of a trace.
struct Collector<'a> {
    /// Loads of a window of a complete trace; otherwise samples are windows.
    length: Option<u64>,
    seed: u64,
    weights: Option<&'a Weights>,
    /// Loads of the current window by line piece, and the pieces that have any.
    by_piece: Vec<u64>,
    pieces: Vec<u32>,
    addresses: Vec<u64>,
    /// The first and the last line of each load.
    lines: Vec<[u64; 2]>,
    current: Option<Window>,
    times: Vec<u64>,
    windows: Vec<Window>,
}

impl Collector<'_> {
    fn segment(&mut self, segment: &AccessSegment<'_>) {
        if segment.starts {
            self.end_window();
        }
        self.times.clear();
        let mut times = std::mem::take(&mut self.times);
        segment.times(false, &mut times);
        let mut at = 0;
        while at < segment.loads.len() {
            let has = self.current.as_ref().map_or(0, |w| w.loads);
            let room = self.length.map_or(u64::MAX, |length| length - has);
            let end = segment.loads.len().min(at.saturating_add(room as usize));
            self.add(segment, at..end, &times);
            if self.current.as_ref().map(|w| w.loads) == self.length {
                self.end_window();
            }
            at = end;
        }
        self.times = times;
    }

    fn add(&mut self, segment: &AccessSegment<'_>, loads: std::ops::Range<usize>, times: &[u64]) {
        let run = segment.run;
        let number = match self.length {
            Some(_) => self.windows.len() as u64,
            None => run.sample.into(),
        };
        let time = |at: usize| times.get(at).copied().unwrap_or(run.first_time);
        let weight = match self.weights {
            Some(weights) => weights.of(run.sample) as f64 / UNIT as f64,
            None => 1.0,
        };
        let window = self.current.get_or_insert_with(|| Window {
            number,
            process: run.process,
            thread: run.thread,
            first_time: time(loads.start),
            last_time: 0,
            loads: 0,
            footprint: 0,
            lines: 0,
            strided: 0,
            irregular: 0,
            weight: 0.0,
            point: Point::default(),
            main_piece: 0,
        });
        window.last_time = time(loads.end - 1);
        window.loads += loads.len() as u64;
        window.weight += weight * loads.len() as f64;
        let addresses = &segment.loads.address[loads.clone()];
        self.addresses.extend_from_slice(addresses);
        for (&address, &size) in addresses.iter().zip(&segment.loads.size[loads.clone()]) {
            let last = address.saturating_add(u64::from(size.max(1)) - 1);
            let lines = [address, last].map(|a| CacheLine::of(a).number());
            if self.lines.last() != Some(&lines) {
                self.lines.push(lines);
            }
        }
        for group in &segment.loads.group[loads] {
            window.strided += u64::from(group.class() == AccessClass::Strided);
            window.irregular += u64::from(group.class() == AccessClass::Irregular);
            let piece = group.piece();
            if self.by_piece.len() <= piece as usize {
                self.by_piece.resize(piece as usize + 1, 0);
            }
            let count = &mut self.by_piece[piece as usize];
            if *count == 0 {
                self.pieces.push(piece);
            }
            *count += 1;
        }
    }

    fn end_window(&mut self) {
        let Some(mut window) = self.current.take() else {
            return;
        };
        self.addresses.sort_unstable();
        self.addresses.dedup();
        window.footprint = self.addresses.len() as u64;
        self.addresses.clear();
        window.lines = covered(&mut self.lines);
        // The order decides how sums are rounded.
        self.pieces.sort_unstable();
        let count = |piece: &u32| self.by_piece[*piece as usize];
        let most = self.pieces.iter().max_by_key(|piece| count(piece));
        window.main_piece = most.copied().unwrap_or(0);
        let loads = window.loads as f64;
        let shares = (self.pieces.iter()).map(|p| (u64::from(*p), count(p) as f64 / loads));
        window.point = project(shares, self.seed);
        for piece in self.pieces.drain(..) {
            self.by_piece[piece as usize] = 0;
        }
        self.windows.push(window);
    }
}

/// Number of lines in any of the ranges, which are removed.
fn covered(ranges: &mut Vec<[u64; 2]>) -> u64 {
    ranges.sort_unstable();
    let (mut next, mut count) = (0, 0);
    for [first, last] in ranges.drain(..) {
        count += (last + 1).saturating_sub(first.max(next));
        next = next.max(last + 1);
    }
    count
}

/// A group of windows with its representative.
struct Group {
    /// Index of the representative.
    window: usize,
    /// Number of windows.
    count: u64,
    /// Part of the run.
    weight: f64,
}

/// The windows in groups: the group of each window, and the groups that have any window.
fn grouped(windows: &[Window], max: u64, seed: u64) -> (Vec<usize>, Vec<Group>) {
    let all = windows.iter().map(|w| (w.point, w.weight));
    let all: Vec<(Point, f64)> = all.filter(|p| p.1 > 0.0).collect();
    let step = all.len().div_ceil(MAX_GROUPED_WINDOWS);
    let points: Vec<(Point, f64)> = all.into_iter().step_by(step).collect();
    let counts = 1..=(max as usize).min(points.len());
    let candidates: Vec<Clusters> = counts
        .into_par_iter()
        .map(|count| Clusters::of(&points, count, seed))
        .collect();
    let chosen = &candidates[choose(&candidates)];
    let nearest: Vec<(usize, f64)> = windows.iter().map(|w| chosen.nearest(&w.point)).collect();
    let total: f64 = windows.iter().map(|w| w.weight).sum();
    let mut groups: Vec<Group> = Vec::new();
    let mut of = vec![0; windows.len()];
    for cluster in 0..chosen.centers.len() {
        let members = || (0..windows.len()).filter(|&at| nearest[at].0 == cluster);
        let representatives = members().filter(|&at| windows[at].weight > 0.0);
        let best = representatives.min_by(|&a, &b| nearest[a].1.total_cmp(&nearest[b].1));
        let Some(window) = best else { continue };
        members().for_each(|at| of[at] = groups.len());
        groups.push(Group {
            window,
            count: members().count() as u64,
            weight: members().map(|at| windows[at].weight).sum::<f64>() / total,
        });
    }
    (of, groups)
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_simpoints(arguments: &SimpointsArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("simpoints");
    let trace = open_trace(&arguments.trace, &arguments.common, &mut document)?;
    let weights = weights_of(&trace, &mut document);
    let mut collector = Collector {
        length: window_length(&trace, arguments.window)?,
        seed: arguments.seed,
        weights: weights.as_ref(),
        by_piece: Vec::new(),
        pieces: Vec::new(),
        addresses: Vec::new(),
        lines: Vec::new(),
        current: None,
        times: Vec::new(),
        windows: Vec::new(),
    };
    let damaged = visit(
        &trace,
        ColumnSet { time: true },
        &mut document,
        &mut |segment| collector.segment(segment),
    );
    collector.end_window();
    let length = collector.length;
    let mut windows = collector.windows;
    ensure_accesses(windows.len() as u64, &trace)?;
    if windows.iter().all(|w| w.weight <= 0.0) {
        windows.iter_mut().for_each(|w| w.weight = w.loads as f64);
    }
    if windows.len() > 1 && windows.iter().all(|w| w.point == windows[0].point) {
        document.warnings.push(
            "all windows run the same code in the same shares, so that any of them represents the others".into(),
        );
    }
    let (of, groups) = grouped(&windows, arguments.max, arguments.seed);
    document.put("windows", ColumnUnit::Count, windows.len());
    document.put("window_loads", ColumnUnit::Count, length);
    document.put("simpoints", ColumnUnit::Count, groups.len());
    let chosen: u64 = groups.iter().map(|g| windows[g.window].loads).sum();
    let all: u64 = windows.iter().map(|w| w.loads).sum();
    document.put(
        "share_of_loads",
        ColumnUnit::Share,
        value(chosen as f64 / all as f64),
    );
    document.put("seed", ColumnUnit::Id, arguments.seed);
    document.tables.extend([
        simpoints_table(&windows, &groups, &trace.code),
        reproduced_table(&windows, &groups),
        windows_table(&windows, &of),
    ]);
    if let Some(prefix) = &arguments.write {
        write_files(prefix, &windows, &groups)?;
    }
    Ok((document, damaged))
}

/// Loads of a window of a complete trace; none for sampled traces, whose samples are windows.
fn window_length(trace: &Trace, given: Option<u64>) -> anyhow::Result<Option<u64>> {
    if !trace.manifest.mode.has_all_loads() {
        anyhow::ensure!(
            given.is_none(),
            "{}: --window divides complete traces, and this trace has windows of its own; leave it out",
            trace.folder.display()
        );
        return Ok(None);
    }
    let part = trace.manifest.totals.rows / WINDOWS_OF_FULL_TRACE;
    Ok(Some(given.unwrap_or(part.max(MIN_LOADS_OF_WINDOW))))
}

/// Weights of the windows of a sampled trace, if it has any.
fn weights_of(trace: &Trace, document: &mut Document) -> Option<Weights> {
    let weights = read_weights(&trace.folder, trace.manifest.triggers_by_time());
    weights.unwrap_or_else(|sentence| {
        document.warnings.push(sentence);
        None
    })
}

fn simpoints_table(windows: &[Window], groups: &[Group], code: &CodeMap) -> DocumentTable {
    let begin = windows.iter().map(|w| w.first_time).min().unwrap_or(0);
    let mut columns = columns![
        simpoint: Id, window: Id, weight: Share, windows: Count, process: Id, thread: Id,
        from_s: Number, duration_us: Number,
    ]
    .to_vec();
    columns.extend(QUANTITIES.map(|(_, name, unit)| DocumentColumn(name, unit)));
    columns.push(DocumentColumn("function", ColumnUnit::Text));
    let rows = groups.iter().enumerate().map(|(at, group)| {
        let window = &windows[group.window];
        let mut row = vec![
            Value::from(at),
            Value::from(window.number),
            value(group.weight),
            Value::from(group.count),
            Value::from(window.process),
            Value::from(window.thread),
            value((window.first_time - begin) as f64 / 1e9),
            value(window.last_time.saturating_sub(window.first_time) as f64 / 1e3),
        ];
        row.extend(QUANTITIES.map(|(quantity, _, unit)| {
            let of = window.quantity(quantity);
            match unit {
                ColumnUnit::Count => Value::from(of as u64),
                _ => value(of),
            }
        }));
        let piece = code.pieces.get(window.main_piece as usize);
        let function = piece.and_then(|p| code.functions.get(p.function as usize));
        row.push(function.map_or(Value::Null, |f| f.function.as_str().into()));
        row
    });
    DocumentTable {
        name: "simpoints",
        title: "Windows that represent the run (function: the one with most of the window's loads)"
            .into(),
        columns,
        rows: rows.collect(),
        text_rows: usize::MAX,
    }
}

/// Compares the weighted means of the chosen windows with those of all windows.
fn reproduced_table(windows: &[Window], groups: &[Group]) -> DocumentTable {
    let total: f64 = windows.iter().map(|w| w.weight).sum();
    let rows = QUANTITIES.map(|(quantity, name, _)| {
        let all = windows
            .iter()
            .map(|w| w.weight / total * w.quantity(quantity));
        let chosen = groups
            .iter()
            .map(|g| g.weight * windows[g.window].quantity(quantity));
        let (all, chosen): (f64, f64) = (all.sum(), chosen.sum());
        // In hundredths of a percent.
        let error = ((chosen - all) / all * 1e4).round() / 1e4;
        vec![
            Value::from(name),
            value(all),
            value(chosen),
            maybe((all > 0.0).then_some(error)),
        ]
    });
    DocumentTable {
        name: "reproduced",
        title: "Means by window: of all windows, and of the chosen ones with their weights".into(),
        columns: columns![quantity: Text, all: Number, simpoints: Number, error: Share].to_vec(),
        rows: rows.to_vec(),
        text_rows: usize::MAX,
    }
}

fn windows_table(windows: &[Window], of: &[usize]) -> DocumentTable {
    let total: f64 = windows.iter().map(|w| w.weight).sum();
    let rows = windows.iter().zip(of).map(|(window, &simpoint)| {
        vec![
            Value::from(window.number),
            Value::from(simpoint),
            value(window.weight / total),
            Value::from(window.loads),
        ]
    });
    DocumentTable {
        name: "windows",
        title: "Windows".into(),
        columns: columns![window: Id, simpoint: Id, weight: Share, A: Count].to_vec(),
        rows: rows.collect(),
        text_rows: 0,
    }
}

/// Writes the pair of files that SimPoint writes.
fn write_files(prefix: &Path, windows: &[Window], groups: &[Group]) -> anyhow::Result<()> {
    let (mut points, mut weights) = (String::new(), String::new());
    for (at, group) in groups.iter().enumerate() {
        points.push_str(&format!("{} {at}\n", windows[group.window].number));
        weights.push_str(&format!("{:.6} {at}\n", group.weight));
    }
    for (end, text) in [(".simpts", points), (".weights", weights)] {
        let mut path = prefix.as_os_str().to_owned();
        path.push(end);
        std::fs::write(&path, text)
            .with_context(|| format!("{}: cannot write", Path::new(&path).display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_of_lines_count_once() {
        for (ranges, count) in [
            (vec![], 0),
            (vec![[5, 5], [5, 5]], 1),
            (vec![[8, 9], [0, 3], [2, 2], [3, 5]], 8),
        ] {
            let mut ranges: Vec<[u64; 2]> = ranges;
            assert_eq!(covered(&mut ranges), count);
            assert!(ranges.is_empty());
        }
    }
}
