//! Estimates as they stand in rows of tables: `…_hat` with `…_lo` and `…_hi`.

use crate::code::CodeMap;
use crate::engine::{BucketOutcome, Outcome};
use crate::estimate::{Design, Estimate, Grouped, distance, executed, footprint};
use crate::metrics::Counts;
use crate::totals::{REPLICATES, RepSums};
use serde::Serialize;

/// A row is undersampled if fewer samples than this have seen it.
const FEW: u64 = 10;

/// Which estimator `F_hat` comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Estimator {
    /// Capture and recapture of addresses in samples; does not overestimate.
    #[default]
    Recapture,
    /// ρ·F, as the MemGaze report has it; without intervals.
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

/// Estimates for the whole run, with 95 % intervals. `None` where nothing can be said.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields are the symbols of docs/mgz-analyze.md")]
pub struct Hats {
    /// Samples in which the row has loads.
    pub samples_seen: u64,
    /// Mean F of a sample: what the row touches in a window of that size.
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
    /// Too few samples, or intervals too wide, to act on the row.
    pub undersampled: bool,
}

/// What targets rows are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The whole trace.
    Whole,
    /// Functions.
    Function,
    /// Source lines.
    Line,
}

/// Replicate sums of several targets.
struct Sums(Vec<[RepSums; REPLICATES]>);

/// Makes the estimates of targets of one kind.
pub struct Maker<'a> {
    outcome: &'a BucketOutcome,
    scale: f64,
    design: Option<Design>,
    estimator: Estimator,
    /// The samples are in step with the program, see [`crate::growth::resonance`].
    resonant: bool,
    sums: Sums,
    /// All loads, Strided, Irregular; by address. Then all by line.
    blocks: Option<[Grouped; 4]>,
}

fn target_of(code: &CodeMap, target: Target, group: u32) -> Option<u32> {
    let piece = code.pieces.get(group as usize / 4).filter(|_| group & 3 != crate::code::CLASS_STORE)?;
    Some(match target {
        Target::Whole => 0,
        Target::Function => piece.function,
        Target::Line => piece.line,
    })
}

impl<'a> Maker<'a> {
    /// For all rows of a kind.
    pub fn new(outcome: &'a Outcome, code: &CodeMap, target: Target, design: Option<Design>, estimator: Estimator, resonant: bool) -> Maker<'a> {
        let bucket = &outcome.buckets[0];
        let count = match target {
            Target::Whole => 1,
            Target::Function => code.functions.len(),
            Target::Line => code.lines.len(),
        };
        let mut sums = vec![[RepSums::default(); REPLICATES]; count];
        for (group, replicates) in bucket.reuse.replicates.iter().enumerate() {
            if let (Some(replicates), Some(target)) = (replicates, target_of(code, target, group as u32)) {
                let into = &mut sums[target as usize];
                into.iter_mut().zip(replicates.iter()).for_each(|(a, b)| a.merge(b));
            }
        }
        let wanted = design.is_some_and(|d| !d.complete()) && estimator == Estimator::Recapture;
        let blocks = wanted.then(|| {
            let by = |shift: u32, class: Option<u32>| {
                Grouped::new(&outcome.incidence, shift, move |g| target_of(code, target, g).filter(|_| class.is_none_or(|c| g & 3 == c)))
            };
            [by(0, None), by(0, Some(1)), by(0, Some(2)), by(6, None)]
        });
        Maker { outcome: bucket, scale: outcome.incidence.scale(), design, estimator, resonant, sums: Sums(sums), blocks }
    }

    /// Estimates of one row with these counts. `seen`: samples in which it has loads.
    pub fn make(&self, target: u32, counts: &Counts, seen: u64) -> Hats {
        let Some(design) = self.design else { return Hats { samples_seen: seen, undersampled: true, ..Hats::default() } };
        let sums = &self.sums.0[target as usize];
        let samples = &self.outcome.reuse.samples;
        let all = executed(sums, samples, design, counts.accesses + counts.implied);
        let mean = distance(sums, samples, design);
        let estimate = |kind: usize, observed: u64| -> Option<Estimate> {
            match (&self.blocks, self.estimator) {
                _ if design.complete() => Some(Estimate::exact(observed as f64)),
                (Some(blocks), _) => {
                    let mut estimate = footprint(blocks[kind].of(target), design, self.scale, observed);
                    if self.resonant {
                        estimate.hi = estimate.hi.max(observed as f64 / design.share);
                    }
                    Some(estimate)
                }
                _ => None,
            }
        };
        let memgaze = |observed: u64| observed as f64 / design.share;
        let found = [
            (estimate(0, counts.footprint), counts.footprint),
            (estimate(1, counts.strided), counts.strided),
            (estimate(2, counts.irregular), counts.irregular),
            (estimate(3, counts.lines64), counts.lines64),
        ];
        let [f, s, i, l] = found.map(|(estimate, observed)| (estimate.map_or(memgaze(observed), |e| e.value), estimate.map(|e| e.lo), estimate.map(|e| e.hi)));
        let vague = |e: &Option<Estimate>| e.is_none_or(|e| e.vague());
        let per_sample = |kind: usize| {
            let sightings = |b: &Grouped| b.of(target).iter().map(|b| u64::from(b.samples)).sum::<u64>();
            self.blocks.as_ref().map(|b| sightings(&b[kind]) as f64 * self.scale / design.samples.max(1) as f64)
        };
        Hats {
            samples_seen: seen,
            per_sample: per_sample(0),
            strided_per_sample: per_sample(1),
            irregular_per_sample: per_sample(2),
            accesses: all.map(|e| e.value).or(Some((counts.accesses + counts.implied) as f64 / design.share)),
            accesses_lo: all.map(|e| e.lo),
            accesses_hi: all.map(|e| e.hi),
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
            distance_lo: mean.map(|e| e.lo),
            distance_hi: mean.map(|e| e.hi),
            undersampled: !design.complete() && (seen < FEW || vague(&all) || (self.blocks.is_some() && vague(&found[0].0))),
        }
    }
}

/// Samples in which targets have loads: at least the most of their groups, at most the sum; exact from the marks where those are complete.
pub fn samples_seen(outcome: &Outcome, code: &CodeMap, target: Target) -> Vec<u64> {
    let count = match target {
        Target::Whole => 1,
        Target::Function => code.functions.len(),
        Target::Line => code.lines.len(),
    };
    let mut seen = vec![0u64; count];
    if target == Target::Whole {
        seen[0] = outcome.census.samples;
        return seen;
    }
    if outcome.incidence.level() == 0 && outcome.incidence.spaces().iter().any(|s| !s.is_empty()) {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for marks in outcome.incidence.spaces() {
            pairs.extend(marks.iter().filter_map(|m| Some((target_of(code, target, m.group)?, m.sample))));
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs.iter().for_each(|p| seen[p.0 as usize] += 1);
        return seen;
    }
    for (group, replicates) in outcome.buckets[0].reuse.replicates.iter().enumerate() {
        if let (Some(replicates), Some(target)) = (replicates, target_of(code, target, group as u32)) {
            let samples = replicates.iter().map(|r| r.samples).sum::<u64>();
            let entry = &mut seen[target as usize];
            *entry = (*entry).max(samples);
        }
    }
    seen
}
