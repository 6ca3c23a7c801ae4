//! Verdicts: better, worse, the same or unclear, for each number of each entry that both builds
//! have.

use crate::compare::change::{Change, Test, Verdict};
use crate::compare::entries::{Cell, Entry, EntryKind, Metric, RunEntries};
use crate::compare::findings::FindingChanges;
use crate::compare::fix::KnownFix;
use crate::compare::matching::partners;
use mgz_models::statistics::distributions::student_p;
use mgz_models::statistics::rank_test::{holm, mann_whitney, smallest_p};
use mgz_models::statistics::{NORMAL_QUANTILE_OF_95_PCT, median};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum probability of any false change, over all comparisons together. Source: Chosen.
const MAX_ERROR_PROBABILITY: f64 = 0.05;
/// Minimum number of runs per side for a comparison by ranks. Source: Chosen.
pub(super) const MIN_RUNS_FOR_RANKS: usize = 4;
/// Half the 95 % interval of the CPU time of one run of a program, as a part of it. Source: Chosen,
/// as twice the measured one: twelve runs of the guide's example have a standard deviation of 2.3
/// %, and the two farthest apart differ by 8.8 %.
const RUN_TO_RUN: f64 = 0.10;
/// Two numbers are the same if the interval of their ratio lies within one plus or minus this part.
/// Source: Chosen.
const SAME_RATIO: f64 = 0.10;
/// Shares that differ by less are also the same, percentage points.
const SAME_POINTS: f64 = 1.0;
/// Functions and objects with less weight on both sides are not compared, percent. Source: Chosen.
const MIN_WEIGHT_PCT: f64 = 1.0;
/// Lines and loops with less weight on both sides are not compared, percent. Source: Chosen.
const MIN_LINE_WEIGHT_PCT: f64 = 5.0;

/// Everything that was compared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Traces of the base.
    pub base: Vec<String>,
    /// Traces of the new build.
    pub new: Vec<String>,
    /// The comparisons.
    pub changes: Vec<Change>,
    /// Entries on one side only, with their share in percent: kind, name.
    pub only_base: Vec<Alone>,
    /// See `only_base`.
    pub only_new: Vec<Alone>,
    /// Number of comparisons that the correction for chance includes.
    pub tests: usize,
    /// True if there are too few runs for ranks to show any difference.
    pub too_few_runs: bool,
    /// Findings that only one side has.
    pub findings: FindingChanges,
    /// The fix of `mgz fix` that leads from the base to the new build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<KnownFix>,
    /// Warnings about missing or doubtful data.
    pub warnings: Vec<String>,
    /// The way to narrow the intervals, if too few runs leave an important time open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowing: Option<String>,
}

/// An entry of one side only.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Its name.
    pub name: String,
    /// Its share of time or loads, percent.
    pub weight: f64,
}

/// An entry of each run of a side; `None` in runs without it.
type Runs<'a> = Vec<Option<&'a Entry>>;

/// Entries of the first run of a side, each with its partners in the others.
fn side(runs: &[RunEntries], kind: EntryKind) -> Vec<Runs<'_>> {
    let Some((first, others)) = runs.split_first() else {
        return Vec::new();
    };
    let mut rows: Vec<Runs<'_>> = first
        .tables
        .get(&kind)
        .into_iter()
        .flatten()
        .map(|e| vec![Some(e)])
        .collect();
    for other in others {
        let found = partners(first, other);
        let table = other.tables.get(&kind);
        for (at, row) in rows.iter_mut().enumerate() {
            let partner = found.get(&kind).and_then(|f| f.get(at).copied().flatten());
            row.push(partner.and_then(|p| table?.get(p)));
        }
    }
    rows
}

fn weight(row: &Runs<'_>) -> f64 {
    row.iter().flatten().map(|e| e.weight).sum::<f64>() / row.len().max(1) as f64
}

/// The number of an entry in each run. In a run without the entry, it has no loads, or so little
/// time that no window saw it.
fn cells(row: &Runs<'_>, runs: &[RunEntries], metric: &Metric, per_load: bool) -> Vec<Cell> {
    row.iter()
        .zip(runs)
        .filter_map(|(entry, run)| match entry {
            Some(entry) if per_load => entry.per_load.get(metric).copied(),
            Some(entry) => entry.cells.get(metric).copied(),
            None if run.exact => Some(Cell::exact(0.0)),
            None if run.samples > 0 => {
                // Rule of three: 95 % upper bound of a share without occurrences among the samples.
                let share = (3.0 / run.samples as f64).min(1.0);
                let most = match metric {
                    Metric::Time => 100.0 * share,
                    Metric::Seconds => run.instrumented_seconds? * share,
                    _ => return None,
                };
                Some(Cell {
                    value: 0.0,
                    lo: Some(0.0),
                    hi: Some(most),
                })
            }
            None => None,
        })
        .collect()
}

/// Few runs do not show how much the CPU time differs from run to run. That difference is added to
/// the interval of each run. It is all of the interval of the run's CPU time, which is measured. A
/// part of the time whose error is unknown stays without an interval.
fn with_run_to_run(mut cells: Vec<Cell>, metric: &Metric) -> Vec<Cell> {
    if matches!(metric, Metric::Seconds | Metric::Cpu) && cells.len() < MIN_RUNS_FOR_RANKS {
        for cell in &mut cells {
            let ends = match (metric, cell.lo.zip(cell.hi)) {
                (_, Some((lo, hi))) => [lo, hi],
                (Metric::Cpu, None) => [cell.value; 2],
                _ => continue,
            };
            let chance = RUN_TO_RUN * cell.value;
            let [less, more] = ends.map(|end| (end - cell.value).hypot(chance));
            cell.lo = Some((cell.value - less).max(0.0));
            cell.hi = Some(cell.value + more);
        }
    }
    cells
}

/// Numbers of a side, and their mean with its errors.
#[derive(Clone, Debug)]
struct Sample {
    values: Vec<f64>,
    /// Mean; the median of exact or ranked numbers.
    value: f64,
    /// Standard errors of the mean downwards and upwards, from the runs' own intervals; `None`
    /// without intervals.
    below: Option<f64>,
    above: Option<f64>,
    /// Standard error of the mean from the differences between runs.
    between: Option<f64>,
    exact: bool,
}

impl Sample {
    fn new(cells: &[Cell]) -> Option<Sample> {
        if cells.is_empty() {
            return None;
        }
        let n = cells.len() as f64;
        let values: Vec<f64> = cells.iter().map(|c| c.value).collect();
        let mean = values.iter().sum::<f64>() / n;
        let error = |end: &dyn Fn(&Cell) -> Option<f64>| -> Option<f64> {
            let squares = cells
                .iter()
                .map(|c| end(c).map(|e| ((e - c.value) / NORMAL_QUANTILE_OF_95_PCT).powi(2)));
            Some(squares.sum::<Option<f64>>()?.sqrt() / n)
        };
        let between = (cells.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
            (squares / (n - 1.0) / n).sqrt()
        });
        let exact = cells.iter().all(Cell::is_exact);
        Some(Sample {
            value: if exact { median(&values) } else { mean },
            values,
            below: error(&|c| c.lo),
            above: error(&|c| c.hi),
            between,
            exact,
        })
    }

    /// Standard error towards the other side, and its degrees of freedom.
    fn error(&self, upwards: bool) -> Option<(f64, f64)> {
        let own = if upwards { self.above } else { self.below };
        let runs = (self.values.len() - 1) as f64;
        match (own, self.between) {
            (Some(own), Some(between)) if between > own => Some((between, runs)),
            (Some(own), _) => Some((own, f64::INFINITY)),
            (None, Some(between)) if self.values.len() >= MIN_RUNS_FOR_RANKS => {
                Some((between, runs))
            }
            _ => None,
        }
    }

    fn shown(&self) -> Cell {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self
            .values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        match self.exact {
            true => Cell {
                value: self.value,
                lo: Some(least),
                hi: Some(most),
            },
            false => Cell {
                value: self.value,
                lo: self
                    .error(false)
                    .map(|e| (self.value - NORMAL_QUANTILE_OF_95_PCT * e.0).max(0.0)),
                hi: self
                    .error(true)
                    .map(|e| self.value + NORMAL_QUANTILE_OF_95_PCT * e.0),
            },
        }
    }

    /// These numbers as shares of the rest, without parts that take `gone` percent.
    fn of_rest(&self, gone: f64) -> Sample {
        let scale = 100.0 / (100.0 - gone).max(1e-9);
        let scaled = |x: Option<f64>| x.map(|x| x * scale);
        Sample {
            values: self.values.iter().map(|v| v * scale).collect(),
            value: self.value * scale,
            below: scaled(self.below),
            above: scaled(self.above),
            between: scaled(self.between),
            exact: self.exact,
        }
    }
}

/// Probability of the difference by chance, by intervals; and the standard error.
fn by_intervals(base: &Sample, new: &Sample) -> Option<(f64, f64)> {
    let up = new.value > base.value;
    let ((a, fa), (b, fb)) = (base.error(up)?, new.error(!up)?);
    let error = a.hypot(b);
    let difference = (new.value - base.value).abs();
    if error == 0.0 {
        return Some((if difference == 0.0 { 1.0 } else { 0.0 }, 0.0));
    }
    // Welch and Satterthwaite.
    let part = |e: f64, f: f64| if f.is_finite() { e.powi(4) / f } else { 0.0 };
    let freedom = error.powi(4) / (part(a, fa) + part(b, fb)).max(f64::MIN_POSITIVE);
    Some((student_p(difference / error, freedom), error))
}

struct Pending {
    change: Change,
    base: Sample,
    new: Sample,
    /// Executed loads of the entry, the greater number of both sides.
    loads: f64,
}

/// Compares two sets of runs. Entries with a name in `wanted` are compared whatever their weight.
pub fn compare(base: &[RunEntries], new: &[RunEntries], wanted: &BTreeSet<String>) -> Comparison {
    let mut out = Comparison {
        base: base.iter().map(|r| r.path.clone()).collect(),
        new: new.iter().map(|r| r.path.clone()).collect(),
        ..Comparison::default()
    };
    let (Some(first_base), Some(first_new)) = (base.first(), new.first()) else {
        return out;
    };
    let found = partners(first_base, first_new);
    let mut pending: Vec<Pending> = Vec::new();
    for kind in [
        EntryKind::Run,
        EntryKind::Function,
        EntryKind::Loop,
        EntryKind::Line,
        EntryKind::Object,
    ] {
        let (ours, theirs) = (side(base, kind), side(new, kind));
        let pairs = &found[&kind];
        let absent_new: Runs<'_> = vec![None; new.len()];
        let absent_base: Runs<'_> = vec![None; base.len()];
        let taken: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
        let mut rows: Vec<(&Runs<'_>, &Runs<'_>)> = Vec::new();
        for (at, row) in ours.iter().enumerate() {
            let partner = pairs.get(at).copied().flatten().and_then(|p| theirs.get(p));
            rows.push((row, partner.unwrap_or(&absent_new)));
        }
        let left = theirs
            .iter()
            .enumerate()
            .filter(|(at, _)| !taken.contains(at));
        rows.extend(left.map(|(_, row)| (&absent_base, row)));
        let worth = match kind {
            EntryKind::Line | EntryKind::Loop => MIN_LINE_WEIGHT_PCT,
            _ => MIN_WEIGHT_PCT,
        };
        for (ours, theirs) in rows {
            let weight = weight(ours).max(weight(theirs));
            let (a, b) = (ours.iter().flatten().next(), theirs.iter().flatten().next());
            let Some(named) = a.or(b) else { continue };
            if weight < worth && !wanted.contains(&named.name) {
                continue;
            }
            if a.is_none() || b.is_none() {
                let alone = Alone {
                    kind,
                    name: shown_name(kind, named),
                    weight,
                };
                if a.is_none() {
                    out.only_new.push(alone);
                } else {
                    out.only_base.push(alone);
                }
                // Data that moved to another object are neither better nor worse.
                if kind == EntryKind::Object && !wanted.contains(&named.name) {
                    continue;
                }
                // An entry that is gone or new is compared by its time and loads only.
            }
            let metrics: BTreeSet<&Metric> = [a, b]
                .into_iter()
                .flatten()
                .flat_map(|e| e.cells.keys().chain(e.per_load.keys()))
                .collect();
            let in_seconds = [(a, base), (b, new)]
                .iter()
                .all(|(entry, runs)| match entry {
                    Some(entry) => entry.cells.contains_key(&Metric::Seconds),
                    None => runs.iter().all(|run| run.instrumented_seconds.is_some()),
                });
            for metric in metrics {
                let is_time = matches!(metric, Metric::Seconds | Metric::Time);
                if (a.is_none() || b.is_none()) && !is_time && *metric != Metric::Loads
                    || *metric == Metric::Time && in_seconds
                    || *metric == Metric::Seconds && !in_seconds
                {
                    continue;
                }
                pending.extend(prepare(
                    (kind, metric, weight),
                    (ours, base),
                    (theirs, new),
                    (named, b),
                ));
            }
        }
    }
    decide(without_repetitions(pending), &mut out);
    out
}

/// Numbers that are equal if two comparisons are the same test.
type Figures = (Metric, [Option<u64>; 6]);

fn figures(change: &Change) -> Figures {
    let bits = |cell: &Cell| [Some(cell.value), cell.lo, cell.hi].map(|x| x.map(f64::to_bits));
    let ([a, b, c], [d, e, f]) = (bits(&change.base), bits(&change.new));
    (change.metric.clone(), [a, b, c, d, e, f])
}

/// Leaves out loops and lines that have the numbers of their function, and lines that have those of
/// a loop.
fn without_repetitions(pending: Vec<Pending>) -> Vec<Pending> {
    let mut known: BTreeSet<(String, Figures)> = BTreeSet::new();
    let keep = |p: &Pending| match p.change.kind {
        EntryKind::Run | EntryKind::Object => true,
        kind => {
            known.insert((p.change.name.clone(), figures(&p.change))) || kind == EntryKind::Function
        }
    };
    // Functions come first, then loops, then lines.
    pending.into_iter().filter(keep).collect()
}

fn shown_name(kind: EntryKind, entry: &Entry) -> String {
    match kind {
        EntryKind::Line | EntryKind::Loop => format!("{} at {}", entry.name, place(entry)),
        _ => entry.name.clone(),
    }
}

fn place(entry: &Entry) -> String {
    if entry.line == 0 {
        return String::new();
    }
    let file = entry.file.rsplit('/').next().unwrap_or(&entry.file);
    format!("{file}:{}", entry.line)
}

fn prepare(
    (kind, metric, weight): (EntryKind, &Metric, f64),
    ours: (&Runs<'_>, &[RunEntries]),
    theirs: (&Runs<'_>, &[RunEntries]),
    (named, other): (&Entry, Option<&&Entry>),
) -> Option<Pending> {
    let sides = |per_load: bool| {
        let a = with_run_to_run(cells(ours.0, ours.1, metric, per_load), metric);
        let b = with_run_to_run(cells(theirs.0, theirs.1, metric, per_load), metric);
        Some((Sample::new(&a)?, Sample::new(&b)?))
    };
    let (per_load, (base, new)) = match sides(false) {
        Some(both) => (false, both),
        // Without numbers of loads, the weight of each function in the sum depends on which code
        // the windows met. No comparison is made then.
        None if matches!(kind, EntryKind::Run | EntryKind::Object) => return None,
        None => (true, sides(true)?),
    };
    let change = Change {
        kind,
        name: named.name.clone(),
        new_name: other
            .filter(|o| o.name != named.name)
            .map(|o| o.name.clone()),
        place: place(named),
        new_place: other.map_or_else(String::new, |o| place(o)),
        metric: metric.clone(),
        unit: metric.unit(per_load),
        base: base.shown(),
        new: new.shown(),
        change_pct: (base.value != 0.0).then(|| (new.value / base.value - 1.0) * 100.0),
        change_lo: None,
        change_hi: None,
        p: None,
        test: Test::None,
        verdict: Verdict::Unclear,
        weight,
    };
    let loads = |side: (&Runs<'_>, &[RunEntries])| {
        let known = cells(side.0, side.1, &Metric::Loads, false);
        known.iter().map(|c| c.value).fold(0.0, f64::max)
    };
    let loads = loads(ours).max(loads(theirs));
    Some(Pending {
        change,
        base,
        new,
        loads,
    })
}

#[derive(Clone, Copy)]
struct Tested {
    /// Index of the comparison in the pending ones.
    at: usize,
    /// Probability of the difference by chance.
    chance: f64,
    test: Test,
    /// Standard error, if intervals are known.
    error: Option<f64>,
}

/// Comparisons that are being judged.
struct Judge {
    pending: Vec<Pending>,
    /// Number of different tests.
    tests: usize,
}

/// Judges exact comparisons first, then all others together.
fn decide(mut pending: Vec<Pending>, out: &mut Comparison) {
    for one in pending.iter_mut().filter(|p| p.base.exact && p.new.exact) {
        exact(one);
    }
    // Equal numbers give the same test.
    let open = pending.iter().filter(|p| p.is_open());
    let different: BTreeSet<Figures> = open.map(|p| figures(&p.change)).collect();
    let mut judge = Judge {
        tests: different.len(),
        pending,
    };
    out.tests = judge.tests;
    out.too_few_runs = judge.pending.iter().any(|p| {
        let enough = |s: &Sample| s.values.len() >= MIN_RUNS_FOR_RANKS;
        p.is_open() && enough(&p.base) && enough(&p.new) && !judge.is_ranked(p)
    });
    let mut alone: Vec<usize> = Vec::new();
    for kind in [
        EntryKind::Function,
        EntryKind::Loop,
        EntryKind::Line,
        EntryKind::Object,
    ] {
        let rows: Vec<usize> = (0..judge.pending.len())
            .filter(|&i| {
                let p = &judge.pending[i];
                p.change.kind == kind && p.change.metric.is_share() && p.is_open()
            })
            .collect();
        alone.extend(&rows);
        judge.decide_shares(kind, rows);
    }
    judge.decide_others(&alone);
    out.changes = judge.pending.into_iter().map(|p| p.change).collect();
}

impl Pending {
    fn is_open(&self) -> bool {
        self.change.test != Test::Exact
    }

    /// Difference of the shares of the rest, without parts that take `gone` percent.
    fn difference_of_rest(&self, gone: (f64, f64)) -> f64 {
        (self.new.of_rest(gone.1).value - self.base.of_rest(gone.0).value).abs()
    }
}

impl Judge {
    /// True if there are enough runs to compare ranks.
    fn is_ranked(&self, p: &Pending) -> bool {
        let (n, m) = (p.base.values.len(), p.new.values.len());
        n >= MIN_RUNS_FOR_RANKS
            && m >= MIN_RUNS_FOR_RANKS
            && smallest_p(n, m) * self.tests as f64 <= MAX_ERROR_PROBABILITY
    }

    /// Tests whether a comparison differs by chance. `base` and `new` are its numbers, or shares of
    /// the rest.
    fn test(&self, at: usize, base: &Sample, new: &Sample) -> Option<Tested> {
        let intervals = by_intervals(base, new);
        let error = intervals.map(|i| i.1);
        let (chance, test) = if self.is_ranked(&self.pending[at]) {
            (mann_whitney(&base.values, &new.values)?, Test::Ranks)
        } else {
            (intervals?.0, Test::Intervals)
        };
        Some(Tested {
            at,
            chance,
            test,
            error,
        })
    }

    /// Decides shares, which add up to the whole. The one that has changed most is set aside, and
    /// the others are compared as shares of the rest.
    fn decide_shares(&mut self, kind: EntryKind, mut left: Vec<usize>) {
        let tests = self.tests as f64;
        let mut gone = (0.0, 0.0);
        // Loops are nested, so that their shares do not add up.
        let adds_up = kind != EntryKind::Loop;
        loop {
            let of_rest = |&i: &usize| {
                let p = &self.pending[i];
                self.test(i, &p.base.of_rest(gone.0), &p.new.of_rest(gone.1))
            };
            let results: Vec<Tested> = left.iter().filter_map(of_rest).collect();
            let next = self.most_changed(&results, gone);
            let judged = match next {
                Some(next) if adds_up => vec![next],
                Some(_) | None => results,
            };
            for tested in judged {
                let scale = (100.0 - gone.1).max(1.0) / 100.0;
                conclude(
                    &mut self.pending[tested.at],
                    (tested.chance * tests).min(1.0),
                    tested.test,
                    tested.error.map(|e| e * scale),
                    gone,
                );
            }
            let Some(next) = next.filter(|_| adds_up) else {
                break;
            };
            let p = &self.pending[next.at];
            gone.0 = (gone.0 + p.base.value).min(99.9);
            gone.1 = (gone.1 + p.new.value).min(99.9);
            left.retain(|&l| l != next.at);
        }
    }

    /// Finds the greatest significant change.
    fn most_changed(&self, results: &[Tested], gone: (f64, f64)) -> Option<Tested> {
        let by = |r: &Tested| -self.pending[r.at].difference_of_rest(gone);
        // Two tiny probabilities do not show which change is the cause.
        let clear = |p: f64| p.max(1e-12);
        // A new or removed entry is its own cause.
        let stays = |r: &Tested| {
            let p = &self.pending[r.at];
            p.base.value > 0.0 && p.new.value > 0.0
        };
        results
            .iter()
            .filter(|r| r.chance * self.tests as f64 <= MAX_ERROR_PROBABILITY)
            .min_by(|a, b| {
                (stays(a).cmp(&stays(b)))
                    .then(clear(a.chance).total_cmp(&clear(b.chance)))
                    .then(by(a).total_cmp(&by(b)))
            })
            .copied()
    }

    /// Decides numbers that are not shares. `alone` lists the shares, which are already decided.
    fn decide_others(&mut self, alone: &[usize]) {
        let others: Vec<Tested> = (0..self.pending.len())
            .filter(|i| self.pending[*i].is_open() && !alone.contains(i))
            .filter_map(|i| self.test(i, &self.pending[i].base, &self.pending[i].new))
            .collect();
        // The tests of shares also count for the correction: as the least significant ones.
        let mut distinct: BTreeMap<Figures, f64> = BTreeMap::new();
        for tested in &others {
            distinct.insert(figures(&self.pending[tested.at].change), tested.chance);
        }
        let mut chances: Vec<f64> = distinct.values().copied().collect();
        chances.resize(chances.len().max(self.tests), 1.0);
        let corrected: BTreeMap<Figures, f64> = distinct.into_keys().zip(holm(&chances)).collect();
        for tested in others {
            let one = &mut self.pending[tested.at];
            let chance = corrected.get(&figures(&one.change)).copied();
            let chance = chance.unwrap_or(tested.chance);
            conclude(one, chance, tested.test, tested.error, (0.0, 0.0));
        }
    }
}

/// Exact numbers of single runs differ or do not. Those of several runs differ if their ranges do
/// not overlap.
fn exact(one: &mut Pending) {
    let change = &mut one.change;
    change.test = Test::Exact;
    let range = |s: &Sample| {
        let least = s.values.iter().copied().fold(f64::INFINITY, f64::min);
        (
            least,
            s.values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let (a, b) = (range(&one.base), range(&one.new));
    change.verdict = if a == b {
        Verdict::Same
    } else if b.0 > a.1 {
        Verdict::Worse
    } else if b.1 < a.0 {
        Verdict::Better
    } else if change
        .change_pct
        .is_some_and(|c| c.abs() < SAME_RATIO * 100.0)
    {
        Verdict::Same
    } else {
        Verdict::Unclear
    };
    (change.change_lo, change.change_hi) = (change.change_pct, change.change_pct);
}

/// Predicted misses per load of two runs that differ by less than this may be the same. The
/// intervals do not cover the assumptions of the cache model, and the part of a set just above a
/// cache that windows happen to share changes the prediction by this much.
const MODEL: f64 = 0.03;

/// Estimates that differ by less are the same, whatever their ratio. `loads` is the number of
/// executed loads of the entry.
fn least(change: &Change, test: Test, loads: f64) -> f64 {
    let per_load = if test == Test::Intervals { MODEL } else { 1e-4 };
    match change.metric {
        Metric::Misses(_) if change.unit == Metric::PER_LOAD => per_load,
        Metric::Misses(_) => (per_load * loads).max(1.0),
        Metric::Loads | Metric::Footprint | Metric::Size => 1.0,
        // The smallest cache has hundreds of blocks.
        Metric::Distance(_) => 2.0,
        Metric::Time | Metric::Share => 0.1,
        Metric::Growth => 1e-9,
        Metric::Seconds | Metric::Cpu => 0.001,
    }
}

/// Concludes from a test. `gone`: percent of the whole that was set aside before, on both sides.
fn conclude(one: &mut Pending, chance: f64, test: Test, error: Option<f64>, gone: (f64, f64)) {
    let change = &mut one.change;
    (change.p, change.test) = (Some(chance), test);
    // The expected share: the share of the rest stays the same, and is converted to a share of the
    // whole.
    let expected = one.base.value * (100.0 - gone.1) / (100.0 - gone.0);
    let difference = one.new.value - expected;
    if let Some(error) = error
        && expected > 0.0
    {
        let end = |sign: f64| {
            Some((difference + sign * NORMAL_QUANTILE_OF_95_PCT * error) / expected * 100.0)
        };
        (change.change_lo, change.change_hi) = (end(-1.0), end(1.0));
    }
    let within = |limit: f64, scale: f64| {
        [change.change_lo, change.change_hi]
            .iter()
            .all(|end| end.is_some_and(|e| (e * scale).abs() <= limit))
    };
    // A removed or new entry is not the same, however small it was.
    let both = one.base.value > 0.0 && one.new.value > 0.0;
    change.verdict = if difference.abs() < least(change, test, one.loads) {
        Verdict::Same
    } else if chance <= MAX_ERROR_PROBABILITY {
        if difference > 0.0 {
            Verdict::Worse
        } else {
            Verdict::Better
        }
    } else if within(SAME_RATIO * 100.0, 1.0)
        || both && change.metric.is_share() && within(SAME_POINTS, expected / 100.0)
    {
        Verdict::Same
    } else {
        Verdict::Unclear
    };
}
