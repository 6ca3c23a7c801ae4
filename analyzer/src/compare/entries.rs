//! Compared entries: the run, functions, lines, loops and objects of one analysis, and the numbers
//! of each.

use crate::compare::findings::RunFindings;
use crate::compare::original::Original;
use crate::compare::picture;
use crate::data::log_histogram::Bin;
use crate::data::object_map::{HEAP, is_address};
use crate::estimate::row_estimates::Hats;
use crate::estimate::time_shares::TimeShare;
use crate::misses::Misses;
use crate::report::{Analysis, LoadMetrics};
use crate::views::object_row::ObjectRow;
use mgz_annotations_schema::manifest::Manifest;
use mgz_models::statistics::ROUNDED_NORMAL_QUANTILE_OF_95_PCT;
use serde::Serialize;
use std::collections::BTreeMap;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// The whole run.
    Run,
    /// A function.
    Function,
    /// A loop.
    Loop,
    /// A source line.
    Line,
    /// A data object.
    Object,
}

impl EntryKind {
    /// The kind's name in text output.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Run => "run",
            EntryKind::Function => "function",
            EntryKind::Loop => "loop",
            EntryKind::Line => "line",
            EntryKind::Object => "object",
        }
    }
}

/// A number that is compared. All are better if smaller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// CPU seconds of one entry.
    Seconds,
    /// Share of the CPU time, percent; used if the seconds are unknown.
    Time,
    /// Share of the loads, percent.
    Share,
    /// CPU seconds of the run.
    Cpu,
    /// Executed loads.
    Loads,
    /// Footprint of the run, addresses.
    Footprint,
    /// Footprint over loads.
    Growth,
    /// Percentiles of reuse distance, blocks.
    Distance(u8),
    /// Bytes of an object's largest block.
    Size,
    /// Misses of a level: of the run if that is known, else per load.
    Misses(String),
}

impl Metric {
    /// Unit of misses if executed loads are unknown.
    pub const PER_LOAD: &str = "misses per load";

    /// The metric's name in `--fail-if` and in JSON.
    pub fn name(&self) -> String {
        match self {
            Metric::Seconds | Metric::Time => "time".into(),
            Metric::Share => "share".into(),
            Metric::Cpu => "cpu".into(),
            Metric::Loads => "loads".into(),
            Metric::Footprint => "F".into(),
            Metric::Growth => "growth".into(),
            Metric::Distance(p) => format!("D{p}"),
            Metric::Size => "size".into(),
            Metric::Misses(level) => format!("misses.{level}"),
        }
    }

    /// Unit of its numbers.
    pub fn unit(&self, per_load: bool) -> &'static str {
        match self {
            Metric::Time => "% of the time",
            Metric::Share => "% of the loads",
            Metric::Seconds | Metric::Cpu => "CPU seconds",
            Metric::Loads => "loads",
            Metric::Footprint => "addresses",
            Metric::Growth => "addresses per load",
            Metric::Distance(_) => "blocks",
            Metric::Size => "bytes",
            Metric::Misses(_) if per_load => Metric::PER_LOAD,
            Metric::Misses(_) => "misses",
        }
    }

    /// True for parts of a whole: if one shrinks, the others grow.
    pub fn is_share(&self) -> bool {
        matches!(self, Metric::Time | Metric::Share)
    }
}

/// A number within its 95 % interval; without ends its error is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The number.
    pub value: f64,
    /// Lower end.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
}

impl Cell {
    /// An exact number.
    pub fn exact(value: f64) -> Cell {
        Cell {
            value,
            lo: Some(value),
            hi: Some(value),
        }
    }

    /// True if it is exact.
    pub fn is_exact(&self) -> bool {
        self.lo == Some(self.value) && self.hi == Some(self.value)
    }

    fn of(value: Option<f64>, lo: Option<f64>, hi: Option<f64>) -> Option<Cell> {
        let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
        Some(Cell {
            value: finite(value)?,
            lo: finite(lo),
            hi: finite(hi),
        })
    }
}

/// One thing with its numbers.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Function, object; empty for the run.
    pub name: String,
    /// File name of the module.
    pub module: String,
    /// Kind and type of an object.
    pub sort: String,
    /// Source file of a line or loop.
    pub file: String,
    /// Its line; 0 if unknown.
    pub line: u32,
    /// Nesting depth of a loop.
    pub depth: u32,
    /// Code that it was inlined into.
    pub chain: String,
    /// Share of time or loads, percent.
    pub weight: f64,
    /// Numbers.
    pub cells: BTreeMap<Metric, Cell>,
    /// Misses per load, beside the misses of the run.
    pub per_load: BTreeMap<Metric, Cell>,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct RunEntries {
    /// Path of the run.
    pub path: String,
    /// Every load was recorded or counted.
    pub exact: bool,
    /// The files that the traced modules were made from.
    pub originals: Vec<Original>,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// The user's command line, if it is a recording of `mgz run`.
    pub command: Vec<String>,
    /// Windows.
    pub samples: u64,
    /// CPU seconds of the program; 0 is unknown.
    pub cpu_seconds: f64,
    /// CPU seconds of its instrumented code, if they are known.
    pub instrumented_seconds: Option<f64>,
    /// By kind.
    pub tables: BTreeMap<EntryKind, Vec<Entry>>,
    /// Findings. `None` if their absence means nothing.
    pub findings: Option<RunFindings>,
    /// Warnings about missing or doubtful data.
    pub warnings: Vec<String>,
    /// Data for a report; see [`picture`].
    pub picture: serde_json::Value,
}

impl RunEntries {
    /// Removes predicted misses from the compared numbers.
    pub(super) fn leave_out_misses(&mut self) {
        let is_kept = |metric: &Metric| !matches!(metric, Metric::Misses(_));
        for entry in self.tables.values_mut().flatten() {
            entry.cells.retain(|metric, _| is_kept(metric));
            entry.per_load.retain(|metric, _| is_kept(metric));
        }
    }
}

struct Numbers<'a> {
    time: TimeShare,
    /// CPU seconds of all instrumented code, if they are known. Shares of time refer to them.
    whole_seconds: Option<f64>,
    share: Option<f64>,
    hats: &'a Hats,
    distances: &'a [Bin],
    percentiles: [Option<f64>; 3],
    misses: Option<&'a Misses>,
    exact: bool,
}

impl Numbers<'_> {
    fn cells(&self, entry: &mut Entry) {
        let exact = self.exact;
        let mut put = |metric: Metric, cell: Option<Cell>| {
            // Complete traces are exact, even if no ends are given.
            let cell = cell.map(|cell| if exact { Cell::exact(cell.value) } else { cell });
            if let Some(cell) = cell {
                entry.cells.insert(metric, cell);
            }
        };
        // The sides are different runs, whose phases may differ.
        let (lo, hi) = self.time.of_runs.unzip();
        let share = Cell::of(self.time.value, lo, hi);
        put(Metric::Time, share);
        let seconds = share.zip(self.whole_seconds).map(|(share, whole)| Cell {
            value: share.value / 100.0 * whole,
            lo: share.lo.map(|lo| lo / 100.0 * whole),
            hi: share.hi.map(|hi| hi / 100.0 * whole),
        });
        put(Metric::Seconds, seconds);
        // If loads are known, shares are left out: a change of one share changes all others.
        if self.time.value.is_none() && self.hats.accesses.is_none() {
            let ends = self.share.filter(|_| self.exact);
            put(Metric::Share, Cell::of(self.share, ends, ends));
        }
        let hats = self.hats;
        let loads = Cell::of(hats.accesses, hats.accesses_lo, hats.accesses_hi);
        put(Metric::Loads, loads);
        let footprint = Cell::of(hats.footprint, hats.footprint_lo, hats.footprint_hi)
            .filter(|_| !hats.footprint_undersampled);
        put(Metric::Footprint, footprint);
        let growth = loads.zip(footprint).and_then(|(loads, footprint)| {
            let over = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|&b| b > 0.0)?);
            Cell::of(
                over(Some(footprint.value), Some(loads.value)),
                over(footprint.lo, loads.hi),
                over(footprint.hi, loads.lo),
            )
        });
        put(Metric::Growth, growth);
        for (p, value) in [50u8, 90, 99].into_iter().zip(self.percentiles) {
            put(Metric::Distance(p), self.percentile(p, value));
        }
        for level in self.misses.iter().flat_map(|m| &m.levels) {
            let cell = |r: Option<[f64; 3]>| {
                r.and_then(|[lo, value, hi]| Cell::of(Some(value), Some(lo), Some(hi)))
            };
            let metric = Metric::Misses(level.level.clone());
            if let Some(ratio) = cell(level.ratio) {
                entry.per_load.insert(metric.clone(), ratio);
            }
            if let Some(count) = cell(level.count) {
                entry.cells.insert(metric, count);
            }
        }
    }

    /// A percentile of D with the interval of its rank. The number of samples counts as the number
    /// of values, since values of one sample are correlated.
    fn percentile(&self, p: u8, value: Option<f64>) -> Option<Cell> {
        let value = value?;
        if self.exact {
            return Some(Cell::exact(value));
        }
        let n = self.hats.samples_seen? as f64;
        let all: u64 = self.distances.iter().map(|b| b.count).sum();
        if n < 4.0 || all == 0 {
            return Cell::of(Some(value), None, None);
        }
        let share = f64::from(p) / 100.0;
        let off = ROUNDED_NORMAL_QUANTILE_OF_95_PCT * (share * (1.0 - share) / n).sqrt();
        // There is no upper end beyond the last value.
        let at = |share: f64| (share < 1.0).then(|| quantile(self.distances, all, share.max(0.0)));
        let (lo, hi) = (at(share - off), at(share + off));
        Cell::of(
            Some(value),
            lo.map(|x| x.min(value)),
            hi.map(|x| x.max(value)),
        )
    }
}

/// The value below which a share of a histogram lies, evenly inside its bins.
fn quantile(bins: &[Bin], all: u64, share: f64) -> f64 {
    let mut left = share * all as f64;
    for bin in bins {
        let count = bin.count as f64;
        if left <= count && count > 0.0 {
            let (from, to) = (bin.from as f64, bin.to as f64);
            return from + (to - from) * left / count;
        }
        left -= count;
    }
    bins.last().map_or(0.0, |b| b.to as f64)
}

/// Facts about a whole run.
#[derive(Clone, Copy)]
struct Whole {
    /// Every load was recorded or counted.
    exact: bool,
    /// CPU seconds of instrumented code, if they are known.
    seconds: Option<f64>,
}

/// CPU seconds of instrumented code: the total, less the share of triggers in other code.
fn instrumented_seconds(manifest: &Manifest) -> Option<f64> {
    let triggers = |what: &str| manifest.totals.triggers.get(what).copied().unwrap_or(0) as f64;
    let elsewhere = match triggers("came") {
        0.0 => 0.0,
        came => (triggers("outside") / came).min(1.0),
    };
    let seconds = manifest.cpu_seconds * (1.0 - elsewhere);
    (manifest.triggers_by_time() && seconds > 0.0).then_some(seconds)
}

fn of_loads(loads: &LoadMetrics, whole: Whole, mut entry: Entry) -> Entry {
    entry.weight = loads.weight();
    Numbers {
        time: loads.time,
        whole_seconds: whole.seconds,
        share: loads.share,
        hats: &loads.hats,
        distances: &loads.distances,
        percentiles: [
            loads.metrics.distance_p50,
            loads.metrics.distance_p90,
            loads.metrics.distance_p99,
        ],
        misses: loads.misses.as_ref(),
        exact: whole.exact,
    }
    .cells(&mut entry);
    entry
}

/// The entries of an analysis.
pub fn entries(path: &str, analysis: &Analysis, manifest: &Manifest) -> RunEntries {
    let summary = &analysis.summary;
    let cpu_seconds = manifest.cpu_seconds;
    let exact =
        summary.trace.mode.has_all_loads() && summary.rho.is_none_or(|rho| rho < 1.0 + 1e-9);
    let whole = Whole {
        exact,
        // Recording every load changes the program's time.
        seconds: instrumented_seconds(manifest).filter(|_| !exact),
    };
    let mut run = Entry {
        weight: 100.0,
        ..Entry::default()
    };
    Numbers {
        time: TimeShare::default(),
        whole_seconds: None,
        share: None,
        hats: &summary.hats,
        distances: &summary.distances,
        percentiles: [
            summary.metrics.distance_p50,
            summary.metrics.distance_p90,
            summary.metrics.distance_p99,
        ],
        misses: summary.misses.as_ref(),
        exact,
    }
    .cells(&mut run);
    if cpu_seconds > 0.0 && !exact {
        let seconds = Cell::of(Some(cpu_seconds), None, None);
        run.cells.extend(seconds.map(|cell| (Metric::Cpu, cell)));
    }
    let functions = analysis.functions.iter().map(|row| {
        let entry = Entry {
            name: row.function.clone(),
            module: row.module.clone(),
            ..Entry::default()
        };
        of_loads(&row.loads, whole, entry)
    });
    let lines = analysis.lines.iter().map(|row| {
        let entry = Entry {
            name: row.function.clone(),
            module: row.module.clone(),
            file: row.file.clone(),
            line: row.line,
            chain: row.inlined_into.first().cloned().unwrap_or_default(),
            ..Entry::default()
        };
        of_loads(&row.loads, whole, entry)
    });
    let loops = analysis.loops.iter().map(|row| {
        let entry = Entry {
            name: row.function.clone(),
            module: row.module.clone(),
            file: row.file.clone(),
            line: row.line,
            depth: row.depth,
            chain: row.inlined_into.clone(),
            ..Entry::default()
        };
        of_loads(&row.loads, whole, entry)
    });
    RunEntries {
        path: path.into(),
        originals: Vec::new(),
        exact,
        arguments: summary.trace.command.iter().skip(1).cloned().collect(),
        command: Vec::new(),
        samples: summary.samples,
        cpu_seconds,
        instrumented_seconds: whole.seconds,
        tables: BTreeMap::from([
            (EntryKind::Run, vec![run]),
            (EntryKind::Function, functions.collect()),
            (EntryKind::Line, lines.collect()),
            (EntryKind::Loop, loops.collect()),
            (EntryKind::Object, of_objects(analysis, whole)),
        ]),
        findings: RunFindings::of(analysis),
        warnings: analysis.warnings.clone(),
        picture: picture::run_picture(path, analysis),
    }
}

/// True if an object has the same name in another run. Memory that is named by its address does
/// not, and the share of heap memory without a known block depends on the blocks that were logged.
fn keeps_its_name(object: &str) -> bool {
    object != HEAP && !is_address(object)
}

/// The entries of objects.
fn of_objects(analysis: &Analysis, whole: Whole) -> Vec<Entry> {
    let rows = analysis.objects.iter();
    let named = rows.filter(|o| keeps_its_name(&o.object));
    named.map(|row| of_object(row, whole)).collect()
}

fn of_object(row: &ObjectRow, whole: Whole) -> Entry {
    let mut entry = Entry {
        name: row.object.clone(),
        module: row.module.clone(),
        sort: format!("{} {}", row.kind, row.of_type),
        chain: row.stack.join(" < "),
        weight: row.time.value.or(row.share).unwrap_or(0.0),
        ..Entry::default()
    };
    Numbers {
        time: row.time,
        whole_seconds: whole.seconds,
        share: row.share,
        hats: &row.hats,
        distances: &[],
        percentiles: [None; 3],
        misses: row.misses.as_ref(),
        exact: whole.exact,
    }
    .cells(&mut entry);
    if row.sampled.is_some() {
        // These are of the logged blocks alone, whose number differs from run to run.
        entry.per_load.clear();
        let is_of_all = |metric: &Metric| matches!(metric, Metric::Seconds | Metric::Time);
        entry.cells.retain(|metric, _| is_of_all(metric));
    }
    // Not an estimate: the size was logged or is in the file.
    let size = row.largest.map(|bytes| Cell::exact(bytes as f64));
    entry.cells.extend(size.map(|cell| (Metric::Size, cell)));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::all_blocks::AllBlocks;

    #[test]
    fn addresses_are_no_names() {
        for object in ["0x7f86 (64.0 MiB)", "[heap]"] {
            assert!(!keeps_its_name(object), "{object}");
        }
        for object in ["table", "main two.c:7", "[stack]"] {
            assert!(keeps_its_name(object), "{object}");
        }
    }

    /// The number of logged blocks differs from run to run, and so do their loads.
    #[test]
    fn loads_of_a_sample_of_blocks_are_not_compared() {
        let whole = Whole {
            exact: false,
            seconds: Some(2.0),
        };
        let mut row = ObjectRow {
            object: "make a.cpp:4".into(),
            ..ObjectRow::default()
        };
        row.time.value = Some(50.0);
        row.hats.accesses = Some(1000.0);
        let metrics =
            |row: &ObjectRow| -> Vec<Metric> { of_object(row, whole).cells.into_keys().collect() };
        assert!(metrics(&row).contains(&Metric::Loads));
        row.sampled = Some(AllBlocks::default());
        assert_eq!(metrics(&row), [Metric::Seconds, Metric::Time]);
    }
}
