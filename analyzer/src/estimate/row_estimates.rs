//! Estimates as columns of tables: `…_hat` with `…_lo` and `…_hi`.

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::AccessCounts;
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::engine::{BucketOutcome, EngineOutcome};
use crate::estimate::growth_tables::WholeSightings;
use crate::estimate::sample_shares::Shares;
use crate::estimate::time_shares::TimeShare;
use crate::estimate::{
    Blocks, Design, Estimate, Grouped, Kinds, Listed, ReplicateLoads, Sightings, executed_loads,
    mean_distance, params,
};
use crate::stages::reuse::{REPLICATES, RepSums};
use serde::Serialize;

/// Which estimator `F_hat` comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Estimator {
    /// Capture and recapture of addresses in samples; does not overestimate.
    #[default]
    Recapture,
    /// ρ·F, as in the MemGaze report; without intervals.
    Memgaze,
}

impl Estimator {
    /// As it stands in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Estimator::Recapture => "recapture",
            Estimator::Memgaze => "memgaze",
        }
    }
}

/// Estimates for the whole run, with 95 % intervals. `None` where no estimate is possible.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are the symbols of docs/reference/metrics.md"
)]
pub struct Hats {
    /// Samples in which the row has loads. `None` for memory regions and parts of a complete trace,
    /// where they are not counted.
    pub samples_seen: Option<u64>,
    /// Mean footprint of a window of a sample's size: mean over samples, weighted by the loads that
    /// each represents.
    #[serde(rename = "F_sample")]
    pub per_sample: Option<f64>,
    #[serde(rename = "F_str_sample")]
    pub strided_per_sample: Option<f64>,
    #[serde(rename = "F_irr_sample")]
    pub irregular_per_sample: Option<f64>,
    #[serde(rename = "A_hat")]
    pub accesses: Option<f64>,
    #[serde(rename = "A_lo")]
    pub accesses_lo: Option<f64>,
    #[serde(rename = "A_hi")]
    pub accesses_hi: Option<f64>,
    #[serde(rename = "F_hat")]
    pub footprint: Option<f64>,
    #[serde(rename = "F_lo")]
    pub footprint_lo: Option<f64>,
    #[serde(rename = "F_hi")]
    pub footprint_hi: Option<f64>,
    #[serde(rename = "F_str_hat")]
    pub strided: Option<f64>,
    #[serde(rename = "F_str_lo")]
    pub strided_lo: Option<f64>,
    #[serde(rename = "F_str_hi")]
    pub strided_hi: Option<f64>,
    #[serde(rename = "F_irr_hat")]
    pub irregular: Option<f64>,
    #[serde(rename = "F_irr_lo")]
    pub irregular_lo: Option<f64>,
    #[serde(rename = "F_irr_hi")]
    pub irregular_hi: Option<f64>,
    #[serde(rename = "F_64_hat")]
    pub lines64: Option<f64>,
    #[serde(rename = "F_64_lo")]
    pub lines64_lo: Option<f64>,
    #[serde(rename = "F_64_hi")]
    pub lines64_hi: Option<f64>,
    /// ρ·F.
    #[serde(rename = "F_memgaze_hat")]
    pub memgaze: Option<f64>,
    #[serde(rename = "D_mean_lo")]
    pub distance_lo: Option<f64>,
    #[serde(rename = "D_mean_hi")]
    pub distance_hi: Option<f64>,
    /// The interval of F_hat is too wide to act on it.
    #[serde(rename = "F_undersampled")]
    pub footprint_undersampled: bool,
    /// The interval of the row's share (of time or loads) is too wide to act on the row.
    pub undersampled: bool,
}

impl Hats {
    /// Executed loads, if they are known.
    pub fn executed(&self) -> Option<Estimate> {
        Some(Estimate {
            value: self.accesses?,
            lo: self.accesses_lo?,
            hi: self.accesses_hi?,
        })
    }

    /// Marked by the interval of the row's share of time.
    pub fn marked_by(self, share: TimeShare) -> Hats {
        let undersampled = match (share.lo, share.hi) {
            (Some(lo), Some(hi)) => Estimate { value: lo, lo, hi }.is_vague(),
            _ => true,
        };
        Hats {
            undersampled,
            ..self
        }
    }
}

/// Limits of the upper end of a footprint.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Addresses that unsampled phases may touch; `None` if unknown.
    unseen: Option<f64>,
    /// Addresses that fit in the touched objects or in the mapped memory, if the sizes are known.
    room: Option<f64>,
    /// Lines of the mapped memory, if its size is known.
    lines: Option<f64>,
}

/// The smaller of two sizes, as far as they are known.
fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// Number of addresses that fit in `bytes`. The code is assumed to use as many bytes per address as
/// for the addresses seen.
fn room(counts: &AccessCounts, bytes: Option<u64>) -> Option<f64> {
    let each = (counts.bytes as f64 / counts.footprint.max(1) as f64).max(1.0);
    bytes.map(|bytes| bytes as f64 / each)
}

impl Limits {
    /// Limits for a row with loads in `seen` samples. `loads` is the upper bound of its executed
    /// loads. Only its recorded loads touch new addresses; implied ones do not.
    fn new(
        seen: u64,
        loads: Option<f64>,
        counts: &AccessCounts,
        (bytes, mapped): (Option<u64>, Option<u64>),
    ) -> Limits {
        let recorded = counts.accesses as f64 / (counts.accesses + counts.implied).max(1) as f64;
        Limits {
            unseen: loads.filter(|_| seen > 0).map(|loads| {
                (params::UNSEEN_EVENTS_AT_95_PCT / seen as f64).min(1.0) * loads * recorded
            }),
            room: room(counts, smaller(bytes, mapped)),
            lines: mapped.map(|bytes| (bytes / LINE_BYTES) as f64),
        }
    }

    /// The limits of lines.
    fn of_lines(self) -> Limits {
        Limits {
            room: self.room.into_iter().chain(self.lines).reduce(f64::min),
            ..self
        }
    }

    /// The upper end of an estimate; `None` without a bound.
    fn upper(&self, hi: f64, observed: u64) -> Option<f64> {
        let hi = self.unseen.map(|unseen| hi + unseen);
        match (hi, self.room) {
            (Some(hi), Some(bound)) => Some(hi.min(bound)),
            (hi, bound) => hi.or(bound),
        }
        .map(|hi| hi.max(observed as f64))
    }
}

/// Replicate sums of several targets.
struct ReplicateSums(Vec<([RepSums; REPLICATES], ReplicateLoads)>);

/// Computes the estimates of targets of one kind.
pub struct Maker<'a> {
    outcome: &'a BucketOutcome,
    scale: f64,
    design: Option<Design>,
    /// The sampling period resonates with the program, see
    /// [`crate::estimate::growth_tables::resonance`].
    resonant: bool,
    /// As in [`RegionEstimator`].
    mapped: Option<u64>,
    sums: ReplicateSums,
    blocks: Option<Seers<'a>>,
    detail: Detail,
    /// Addresses that only the ends of the run may touch
    /// ([`crate::estimate::growth_tables::hidden`]); set only for the whole run.
    hidden: f64,
    shares: Option<&'a Shares>,
}

/// Blocks that samples have seen, by row.
enum Seers<'a> {
    /// There is one row, for the whole.
    Whole(&'a WholeSightings),
    /// By function, line or loop.
    Rows(Grouped),
}

/// Lists of blocks that estimates use.
#[derive(Clone, Copy)]
enum List {
    All,
    Strided,
    Irregular,
    Lines,
}

impl Seers<'_> {
    /// The estimate of a row.
    fn footprint(
        &self,
        row: u32,
        list: List,
        (design, scale): (Design, f64),
        observed: u64,
    ) -> Estimate {
        match self {
            Seers::Whole(seen) => whole(seen, list).listed.footprint(design, scale, observed),
            Seers::Rows(rows) => rows.of(row).map_or(Estimate::exact(observed as f64), |k| {
                of(k, list).footprint(design, scale, observed)
            }),
        }
    }

    /// Sightings of a row's addresses by samples.
    fn sightings(&self, row: u32, shares: Option<&Shares>) -> Sightings {
        match self {
            Seers::Whole(seen) => {
                let of = |blocks: &Blocks| blocks.sightings(shares);
                Sightings {
                    all: of(&seen.all),
                    strided: of(&seen.strided),
                    irregular: of(&seen.irregular),
                }
            }
            Seers::Rows(rows) => rows.of(row).map(|k| k.sightings).unwrap_or_default(),
        }
    }
}

fn whole(seen: &WholeSightings, list: List) -> &Blocks {
    match list {
        List::All => &seen.all,
        List::Strided => &seen.strided,
        List::Irregular => &seen.irregular,
        List::Lines => &seen.lines,
    }
}

fn of(kinds: &Kinds, list: List) -> &Listed {
    match list {
        List::All => &kinds.all,
        List::Strided => kinds.strided(),
        List::Irregular => kinds.irregular(),
        List::Lines => &kinds.lines,
    }
}

fn targets_of(code: &CodeMap, target: Target, group: Group) -> &[u32] {
    if group.is_store() {
        &[]
    } else {
        code.targets(target, group)
    }
}

/// Prepares the estimates of the whole, or of functions, lines or loops. Estimates of memory are
/// added by [`Maker::seeing_whole`] and [`Maker::see_rows`]. `shares`: weights of samples, if they
/// differ.
pub fn maker<'a>(
    outcome: &'a EngineOutcome,
    code: &CodeMap,
    target: Target,
    places: RegionEstimator,
    shares: Option<&'a Shares>,
    detail: Detail,
) -> Maker<'a> {
    Maker {
        hidden: 0.0,
        outcome: &outcome.buckets[0],
        scale: outcome.incidence.scale(),
        design: places.design,
        resonant: places.resonant,
        mapped: places.mapped,
        sums: sums(&outcome.buckets[0], code, target),
        blocks: None,
        shares,
        detail,
    }
}

/// Rows of a table that have estimates of their memory.
pub type Shown = Vec<bool>;

/// Blocks that samples have seen, for the shown rows of each table. Each table is for one maker.
/// Empty if estimates do not need blocks.
pub fn see_rows(
    outcome: &EngineOutcome,
    code: &CodeMap,
    places: RegionEstimator,
    shares: Option<&Shares>,
    tables: &[(Target, Shown)],
    detail: Detail,
) -> Vec<Grouped> {
    let Some(design) = places.needs_blocks() else {
        return Vec::new();
    };
    let targets: Vec<_> = (tables.iter())
        .map(|(target, shown)| {
            move |group| {
                let rows = targets_of(code, *target, group);
                rows.iter().copied().filter(|&row| shown[row as usize])
            }
        })
        .collect();
    Grouped::several(&outcome.incidence, shares, design, &targets, detail)
}

/// Replicate sums of all targets of a kind.
fn sums(bucket: &BucketOutcome, code: &CodeMap, target: Target) -> ReplicateSums {
    let mut sums =
        vec![([RepSums::default(); REPLICATES], ReplicateLoads::default()); code.rows(target)];
    for (group, replicates) in bucket.reuse.replicates.iter().enumerate() {
        let Some(replicates) = replicates else {
            continue;
        };
        let loads = bucket.counts.get(group).map_or(0, |c| c.rows + c.implied);
        for &row in targets_of(code, target, Group::from_index(group)) {
            let (of_row, loads_of_row) = &mut sums[row as usize];
            of_row
                .iter_mut()
                .zip(replicates.iter())
                .for_each(|(a, b)| a.merge(b));
            loads_of_row.add(replicates, loads);
        }
    }
    ReplicateSums(sums)
}

impl<'a> Maker<'a> {
    /// Sets whether the sampling period resonates with the program.
    pub fn in_step(self, resonant: bool) -> Self {
        Maker { resonant, ..self }
    }

    /// Adds the blocks that samples have seen in the whole run.
    pub fn seeing_whole(self, outcome: &EngineOutcome, seen: Option<&'a WholeSightings>) -> Self {
        let Some((seen, design)) = seen.zip(self.design) else {
            return self;
        };
        let hidden = crate::estimate::growth_tables::hidden(outcome, seen, 1.0 / design.share);
        Maker {
            hidden,
            blocks: Some(Seers::Whole(seen)),
            ..self
        }
    }

    /// Adds the blocks that samples have seen in the rows.
    pub fn see_rows(&mut self, rows: Option<Grouped>) {
        self.blocks = rows.map(Seers::Rows);
    }

    /// The executed loads of a row with these counts. `measured` as in [`Maker::make`].
    pub fn accesses(
        &self,
        target: u32,
        counts: &AccessCounts,
        measured: Option<Option<Estimate>>,
    ) -> Option<f64> {
        let design = self.design?;
        let loads = &self.sums.0[target as usize].1;
        let all =
            measured.unwrap_or_else(|| executed_loads(loads, &self.outcome.reuse.samples, design));
        let plain = (counts.accesses + counts.implied) as f64 / design.share;
        all.map(|e| e.value)
            .or(Some(plain).filter(|_| measured.is_none()))
    }

    /// Estimates of one row with these counts. `seen`: samples in which it has loads. `measured`:
    /// if windows are triggered by time, its executed loads if they were measured. `bytes`: size of
    /// the objects that it touches, if known.
    pub fn make(
        &self,
        target: u32,
        counts: &AccessCounts,
        seen: u64,
        measured: Option<Option<Estimate>>,
        bytes: Option<u64>,
    ) -> Hats {
        let Some(design) = self.design else {
            return Hats {
                samples_seen: Some(seen),
                ..unknown(counts, smaller(bytes, self.mapped))
            };
        };
        let (sums, loads) = &self.sums.0[target as usize];
        let samples = &self.outcome.reuse.samples;
        let counted = || executed_loads(loads, samples, design);
        let all = measured.unwrap_or_else(counted);
        // The speed of code does not affect whether enough samples have seen the row.
        let sampled = executed_loads(loads, samples, design.weighted(design.weights.map(|_| 0.0)));
        let mean = mean_distance(sums, samples, design);
        let is_wanted = |list: &List| self.detail.is_all() || matches!(list, List::Lines);
        let lists = |list: List, observed: u64| {
            let blocks = self.blocks.as_ref().filter(|_| is_wanted(&list))?;
            Some(blocks.footprint(target, list, (design, self.scale), observed))
        };
        let sightings = (self.blocks.as_ref())
            .filter(|_| self.detail.is_all())
            .map(|b| b.sightings(target, self.shares));
        let hats = footprint_hats(
            lists,
            sightings,
            counts,
            (design, self.scale),
            (self.resonant, self.hidden),
            Limits::new(seen, all.map(|e| e.hi), counts, (bytes, self.mapped)),
        );
        Hats {
            samples_seen: Some(seen),
            accesses: self.accesses(target, counts, measured),
            accesses_lo: all.map(|e| e.lo),
            accesses_hi: all.map(|e| e.hi),
            distance_lo: mean.map(|e| e.lo),
            distance_hi: mean.map(|e| e.hi),
            undersampled: !design.complete() && vague(&sampled),
            ..hats
        }
    }
}

/// The estimates of a row if the sampled share of the run is unknown.
fn unknown(counts: &AccessCounts, bytes: Option<u64>) -> Hats {
    let observed = counts.footprint as f64;
    let hi = Limits {
        unseen: None,
        room: room(counts, bytes),
        lines: None,
    }
    .upper(0.0, counts.footprint);
    let range = hi.map(|hi| Estimate {
        value: observed,
        lo: observed,
        hi,
    });
    Hats {
        footprint_lo: Some(observed),
        footprint_hi: hi,
        footprint_undersampled: vague(&range),
        undersampled: true,
        ..Hats::default()
    }
}

fn vague(estimate: &Option<Estimate>) -> bool {
    estimate.is_none_or(|e| e.is_vague())
}

/// Footprints of a row; `undersampled` is set if the interval is too wide.
fn footprint_hats(
    estimate_of: impl Fn(List, u64) -> Option<Estimate>,
    sightings: Option<Sightings>,
    counts: &AccessCounts,
    (design, scale): (Design, f64),
    (resonant, hidden): (bool, f64),
    limits: Limits,
) -> Hats {
    // The estimate with its ends. An unbounded upper end is unknown.
    let estimate = |list: List, observed: u64| -> Option<(f64, f64, Option<f64>)> {
        if design.complete() {
            let exact = observed as f64;
            return Some((exact, exact, Some(exact)));
        }
        let mut estimate = estimate_of(list, observed)?;
        estimate.hi += hidden;
        if resonant {
            estimate.hi = estimate.hi.max(observed as f64 / design.share);
        }
        let limits = match list {
            List::Lines => limits.of_lines(),
            List::All | List::Strided | List::Irregular => limits,
        };
        let hi = limits.upper(estimate.hi, observed);
        let most = hi.unwrap_or(f64::INFINITY);
        Some((estimate.value.min(most), estimate.lo.min(most), hi))
    };
    let memgaze = |observed: u64| observed as f64 / design.share;
    let found = [
        (estimate(List::All, counts.footprint), counts.footprint),
        (estimate(List::Strided, counts.strided), counts.strided),
        (
            estimate(List::Irregular, counts.irregular),
            counts.irregular,
        ),
        (estimate(List::Lines, counts.lines64), counts.lines64),
    ];
    let [f, s, i, l] = found.map(|(estimate, observed)| {
        (
            estimate.map_or(memgaze(observed), |e| e.0),
            estimate.map(|e| e.1),
            estimate.and_then(|e| e.2),
        )
    });
    // (An empty sum is -0.)
    let per_sample =
        |of: fn(Sightings) -> f64| sightings.map(|s| of(s) * scale / design.windows() + 0.0);
    Hats {
        per_sample: per_sample(|s| s.all),
        strided_per_sample: per_sample(|s| s.strided),
        irregular_per_sample: per_sample(|s| s.irregular),
        footprint: Some(f.0),
        footprint_lo: f.1,
        footprint_hi: f.2,
        strided: Some(s.0),
        strided_lo: s.1,
        strided_hi: s.2,
        irregular: Some(i.0),
        irregular_lo: i.1,
        irregular_hi: i.2,
        lines64: Some(l.0),
        lines64_lo: l.1,
        lines64_hi: l.2,
        memgaze: Some(memgaze(counts.footprint)),
        footprint_undersampled: found[0].0.is_some()
            && vague(&f.1.zip(f.2).map(|(lo, hi)| Estimate { value: f.0, lo, hi })),
        ..Hats::default()
    }
}

/// Estimator for parts of memory or of the run. Their blocks are known by sample, but their loads
/// are not.
#[derive(Clone, Copy)]
pub struct RegionEstimator {
    /// The sampling design, if known.
    pub design: Option<Design>,
    /// The estimator of the footprint.
    pub estimator: Estimator,
    /// True if the sampling period resonates with the program.
    pub resonant: bool,
    /// Memory that the processes had mapped, bytes, if known. No row touches more.
    pub mapped: Option<u64>,
}

impl RegionEstimator {
    /// The design, if the estimates need the blocks that samples have seen.
    pub(crate) fn needs_blocks(&self) -> Option<Design> {
        let design = self.design.filter(|d| !d.complete());
        design.filter(|_| self.estimator == Estimator::Recapture)
    }

    /// Estimates of a part of memory or of the run with these counts. `seen` has its blocks by
    /// sample. `scale` is the number of pages that each tracked page represents. `accesses` are its
    /// estimated loads, and `bytes` is its size, if it has one.
    pub fn make(
        &self,
        seen: Option<&Kinds>,
        scale: f64,
        counts: &AccessCounts,
        accesses: Option<f64>,
        bytes: Option<u64>,
    ) -> Hats {
        let Some(design) = self.design else {
            return unknown(counts, smaller(bytes, self.mapped));
        };
        let wanted = self.estimator == Estimator::Recapture && !design.complete();
        let none = Kinds::default();
        let kinds = seen.unwrap_or(&none);
        let estimate = |list: List, observed: u64| {
            wanted.then(|| of(kinds, list).footprint(design, scale, observed))
        };
        let samples_seen =
            (!design.complete()).then_some((kinds.samples as f64 / design.kept).round() as u64);
        let hats = footprint_hats(
            estimate,
            wanted.then_some(kinds.sightings),
            counts,
            (design, scale),
            (self.resonant, 0.0),
            Limits::new(
                samples_seen.unwrap_or(0),
                accesses,
                counts,
                (bytes, self.mapped),
            ),
        );
        Hats {
            samples_seen,
            accesses,
            undersampled: hats.footprint_undersampled,
            ..hats
        }
    }
}

/// Numbers of samples in which targets have loads. They are at least the maximum over their groups
/// and at most the sum; if the marks are complete, they are exact.
pub fn samples_seen(outcome: &EngineOutcome, code: &CodeMap, target: Target) -> Vec<u64> {
    let mut seen = vec![0u64; code.rows(target)];
    if target == Target::Whole {
        seen[0] = outcome.census.samples;
        return seen;
    }
    if outcome.incidence.level() == 0
        && outcome.incidence.thinned() == 0
        && outcome.incidence.spaces().iter().any(|s| !s.is_empty())
    {
        let mut pairs = Pairs::new(seen.len(), outcome.incidence.samples_end() as usize);
        for mark in outcome.incidence.spaces().iter().flatten() {
            targets_of(code, target, mark.group)
                .iter()
                .for_each(|&row| pairs.add(row, mark.sample));
        }
        pairs.count(&mut seen);
        return seen;
    }
    for (group, replicates) in outcome.buckets[0].reuse.replicates.iter().enumerate() {
        let Some(replicates) = replicates else {
            continue;
        };
        for &row in targets_of(code, target, Group::from_index(group)) {
            let samples = replicates.iter().map(|r| r.samples).sum::<u64>();
            let entry = &mut seen[row as usize];
            *entry = (*entry).max(samples);
        }
    }
    seen
}

/// Pairs of a row and a sample: as bits if these take little memory, else as a list.
struct Pairs {
    columns: usize,
    bits: Vec<u64>,
    list: Vec<(u32, u32)>,
}

impl Pairs {
    fn new(rows: usize, columns: usize) -> Pairs {
        let words = columns.div_ceil(64);
        let bits = rows
            .checked_mul(words * 64)
            .filter(|&n| n <= params::MAX_BITS_OF_SAMPLE_PAIRS)
            .map_or(Vec::new(), |n| vec![0; n / 64]);
        Pairs {
            columns: words * 64,
            bits,
            list: Vec::new(),
        }
    }

    fn add(&mut self, row: u32, column: u32) {
        let at = row as usize * self.columns + column as usize;
        match self.bits.get_mut(at / 64) {
            Some(word) => *word |= 1 << (at % 64),
            None => self.list.push((row, column)),
        }
    }

    fn count(mut self, into: &mut [u64]) {
        for (row, words) in into
            .iter_mut()
            .zip(self.bits.chunks_exact((self.columns / 64).max(1)))
        {
            *row = words.iter().map(|w| u64::from(w.count_ones())).sum();
        }
        self.list.sort_unstable();
        self.list.dedup();
        self.list.iter().for_each(|p| into[p.0 as usize] += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows leave room for rare code with many addresses, but not for more than was mapped.
    #[test]
    fn footprints_fit_into_what_was_mapped() {
        let counts = AccessCounts {
            accesses: 1_000_000,
            footprint: 50_000,
            bytes: 400_000,
            ..AccessCounts::default()
        };
        let limits = |bytes, mapped| Limits::new(800, Some(4e9), &counts, (bytes, mapped));
        let upper = |bytes, mapped| limits(bytes, mapped).upper(60_000.0, 50_000);
        assert_eq!(upper(None, None), Some(60_000.0 + 3.0 / 800.0 * 4e9));
        assert_eq!(upper(None, Some(1 << 23)), Some((1 << 20) as f64));
        assert_eq!(upper(Some(1 << 22), Some(1 << 23)), Some((1 << 19) as f64));
        // The addresses seen are certain.
        assert_eq!(upper(None, Some(1000)), Some(50_000.0));
        let lines = limits(None, Some(1 << 23)).of_lines();
        assert_eq!(lines.upper(9000.0, 8000), Some((1 << 17) as f64));
    }

    #[test]
    fn bits_and_lists_count_the_same_pairs() {
        let pairs = [(0u32, 5u32), (2, 0), (0, 5), (2, 699), (2, 64), (1, 63)];
        let count = |mut counter: Pairs| {
            pairs.iter().for_each(|p| counter.add(p.0, p.1));
            let mut seen = vec![0; 4];
            counter.count(&mut seen);
            seen
        };
        assert_eq!(count(Pairs::new(4, 700)), [1, 1, 3, 0]);
        assert_eq!(
            count(Pairs {
                columns: 704,
                bits: Vec::new(),
                list: Vec::new()
            }),
            [1, 1, 3, 0]
        );
    }
}
