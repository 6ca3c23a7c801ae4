//! The footprint of windows of any size, from inside a sample to the whole run.
//!
//! Windows up to the sample's size are counted exactly by [`crate::windows`]. What lies between samples is not seen. The address range is cut into
//! *strata* where nothing was touched for 64 KiB, and where the estimator finds that use differs: mostly objects. Each is divided once more by how many samples have seen an address (octaves of eight),
//! since what is always in use and what was used once may lie side by side.
//!
//! **From two periods on**: a window of m = 2, 4, 8, … consecutive samples is a run of its own. The estimator of the whole run ([`super::footprint()`]) is applied to it: seen blocks, those that exactly one and exactly two
//! of the m samples have seen, summed over all such windows before the formula is applied, by stratum. So data that is used for a while and then left, phases, and loops that come again are met as they are, and nothing is assumed of
//! how use is spread over the run. Between these sizes the curve is straight in logarithms; at the end stands the estimate of the whole run.
//!
//! **Between the sample and two periods** there is no evidence (the report's blind spot R2), so there is a model. Of each stratum is known
//!
//! - U, its footprint in windows of two periods that touch it, as above,
//! - f, its mean footprint in the samples that touch it,
//! - a(W), the share of windows of W loads that touch it at all, from runs of consecutive samples (so that such a window does so for
//!   W' = W·a(w)/a(W) loads),
//!
//! and from these the mean footprint in a window of W loads: a(W) times f grown from the sample's size w to W' and bounded by U. Data that is walked grows in
//! proportion to time until all of it was seen: min(U, f·(1 + γ·(W' − w)/w)); data that is used by chance grows as U·(1 − (1 − f/U)^(W'/w)). Both are mixed by the
//! share of addresses that Irregular loads touch. γ is the growth at the end of samples over the mean growth (1 unless samples reuse data). What would not reach U so grows as a power of W.
//!
//! **Intervals**: that of the estimator; and which part of its time a stratum was met in. Samples come one per period, so what varies is where a stretch of use begins and ends between two samples: the variance of the number of
//! samples that see a stratum is taken as half the number of changes between neighbours (successive differences, as for systematic samples). A phase of ten samples is known to about a tenth, one of two samples to about a half;
//! of phases that no sample has met nothing is known.
//!
//! **Samples that stand for different numbers of loads** (by time, [`crate::shares`]): a window of m samples is one of V = Σ v_k loads, and counts for V in all sums. Where two samples of fast code cover V loads, of slow code it takes many
//! more, and strata are mostly of one kind of code. So each stratum has sizes of its own: of its windows of 1, 2, 4, … samples the mean ΣV²/ΣV over those that touch it, with ΣV·F/ΣV as the mean footprint and, for evidence, the counts of
//! (ΣV)²/ΣV² windows that are alike. The curve is the sum of what the strata have at each size. In the intervals the changes between neighbours count for the squares of v_k, and the error of the speeds that v_k come from is added for what is not touched all of the time.

use super::footprint::{Tally, together};
use super::{Blocks, Design, Estimate, Z};
use crate::mix::Mixed;
use std::collections::HashMap;

/// For each sample its thread (numbered from 0) and its number there.
#[derive(Default)]
pub struct Order {
    /// By sample, as far as samples are numbered without large holes.
    dense: Vec<Option<(u32, u32)>>,
    sparse: HashMap<u32, (u32, u32), Mixed>,
    /// Samples by thread.
    lengths: Vec<u32>,
    len: usize,
    /// By thread: 0, and the loads of the run that its samples up to each stand for. Empty if all samples stand for equally many.
    upto: Vec<Vec<f64>>,
}

impl Order {
    /// The thread of a sample and its number there.
    #[inline(always)]
    pub fn get(&self, sample: u32) -> Option<(u32, u32)> {
        match self.dense.get(sample as usize) {
            Some(place) => *place,
            None => self.sparse.get(&sample).copied(),
        }
    }

    /// Adds the next sample of a thread, if it is not known yet. `loads`: what it stands for; none for all samples if these stand for equally many.
    pub fn add(&mut self, sample: u32, thread: u32, loads: Option<f64>) {
        if self.get(sample).is_some() {
            return;
        }
        if self.lengths.len() <= thread as usize {
            self.lengths.resize(thread as usize + 1, 0);
        }
        let number = &mut self.lengths[thread as usize];
        let place = (thread, *number);
        *number += 1;
        self.len += 1;
        if let Some(loads) = loads {
            self.upto.resize(self.lengths.len(), vec![0.0]);
            let upto = &mut self.upto[thread as usize];
            upto.push(upto.last().copied().unwrap_or(0.0) + loads);
        }
        let at = sample as usize;
        // What is in one part must not be hidden by the other.
        if at < self.dense.len() {
            self.dense[at] = Some(place);
        } else if self.sparse.is_empty() && at < self.len * 4 + 1024 {
            self.dense.resize(at + 1, None);
            self.dense[at] = Some(place);
        } else {
            self.sparse.insert(sample, place);
        }
    }

    /// Whether samples stand for different numbers of loads.
    pub fn is_weighed(&self) -> bool {
        !self.upto.is_empty()
    }

    /// Loads that samples of a thread stand for, `from..to` by their numbers there; only where these are not equally many.
    pub fn loads(&self, thread: u32, from: u32, to: u32) -> f64 {
        let upto = &self.upto[thread as usize];
        upto[to as usize] - upto[from as usize]
    }

    /// What a window of `1 << level` samples counts for in means: the loads that they stand for, or one if all samples stand for equally many.
    fn weight(&self, thread: u32, window: u32, level: usize) -> f64 {
        if self.is_weighed() { self.loads(thread, window << level, (window + 1) << level) } else { 1.0 }
    }

    /// What all whole windows of `1 << level` samples count for.
    fn windows(&self, level: usize) -> f64 {
        let whole = |length: u32| length.checked_shr(level as u32).unwrap_or(0);
        let of = |(thread, &length): (u32, &u32)| if self.is_weighed() { self.loads(thread, 0, whole(length) << level) } else { whole(length).into() };
        (0..).zip(&self.lengths).map(of).sum()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of samples of each thread.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

/// Blocks of a stratum that were seen by so many times as many samples are another stratum.
const OFTEN: u32 = 8;
/// Such parts, at most: the logarithm of 2³² to that base.
const OCTAVES: usize = 11;
/// Strata, at most.
const MOST: usize = 4096;

/// Windows of 2, 4, … up to this power of two of samples.
const LEVELS: usize = 33;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Mean footprint.
    pub footprint: Estimate,
    /// Whether windows of this size were counted; else it is an estimate.
    pub measured: bool,
}

#[derive(Clone, Debug, Default)]
struct Stratum {
    /// Its footprint in windows of two periods that touch it.
    nearby: f64,
    per_sample: f64,
    irregular: f64,
    /// Share of the windows of 1, 2, 4, … samples that touch it.
    active: Vec<f64>,
    /// For these windows: loads of one (of those that touch it, where these differ), and the mean footprint.
    levels: Vec<(f64, Spread)>,
}

impl Stratum {
    /// Of how many samples windows of `size` rows are that touch it, as a power of two.
    fn level(&self, size: f64) -> f64 {
        match self.levels.iter().position(|l| l.0 > size) {
            Some(0) => 0.0,
            Some(at) => {
                let (from, to) = (self.levels[at - 1].0, self.levels[at].0);
                (at - 1) as f64 + (size / from).ln() / (to / from).ln()
            }
            None => self.levels.len().saturating_sub(1) as f64,
        }
    }
}

/// A mean, and the squares of how far its interval reaches below and above.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    value: f64,
    below: f64,
    above: f64,
}

impl Spread {
    fn add(&mut self, other: Spread) {
        self.value += other.value;
        self.below += other.below;
        self.above += other.above;
    }

    fn estimate(self) -> Estimate {
        Estimate { value: self.value, lo: (self.value - self.below.sqrt()).max(0.0), hi: self.value + self.above.sqrt() }
    }
}

/// Footprint against window size.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    inside: Vec<(f64, f64)>,
    strata: Vec<Stratum>,
    sample: f64,
    period: f64,
    longest: f64,
    growth: f64,
    /// What the strata give for windows of the sample's size.
    at_sample: f64,
    /// Standard deviation of that over itself, by which samples have met the strata.
    met: f64,
    /// Samples stand for different numbers of loads.
    weighed: bool,
    /// Sizes from two periods on, ascending, and what was found there.
    far: Vec<(f64, Estimate)>,
}

impl Curve {
    /// The footprint of windows of `size` rows; `None` outside of what can be said.
    pub fn at(&self, size: f64) -> Option<CurvePoint> {
        let half = Z * self.met;
        if let Some(&(_, value)) = self.inside.iter().find(|i| (i.0 / size - 1.0).abs() < 1e-9) {
            let footprint = Estimate { value, lo: value * (1.0 - half).max(0.0), hi: value * (1.0 + half) };
            return Some(CurvePoint { footprint, measured: true });
        }
        if size > self.longest * (1.0 + 1e-9) {
            return None;
        }
        if size < self.sample {
            // Too few samples are as long as this.
            let at = self.inside.iter().position(|i| i.0 > size).unwrap_or(self.inside.len());
            let from = *self.inside.get(at.checked_sub(1)?)?;
            let value = self.inside.get(at).map_or_else(|| grown_from(from, size, self.growth), |&to| straight(from, to, size));
            return Some(CurvePoint { footprint: Estimate { value, lo: value * (1.0 - half).max(0.0), hi: value * (1.0 + half) }, measured: false });
        }
        let footprint = match self.far.iter().position(|f| f.0 * (1.0 + 1e-9) >= size) {
            Some(0) => self.between(size, half),
            Some(at) => {
                let (from, to) = (self.far[at - 1], self.far[at]);
                let of = |of: fn(&Estimate) -> f64| straight((from.0, of(&from.1)), (to.0, of(&to.1)), size);
                Estimate { value: of(|e| e.value), lo: of(|e| e.lo), hi: of(|e| e.hi) }
            }
            // The last windows that can be counted: no longer ones are known.
            None => self.far.last()?.1,
        };
        Some(CurvePoint { footprint, measured: false })
    }

    /// From the sample to the first of the far sizes.
    fn between(&self, size: f64, half: f64) -> Estimate {
        // The model is exact at the sample's size but for what the strata's means hide: it starts there.
        let at_sample = self.at_sample;
        let exact = self.inside.last().map_or(at_sample, |i| grown_from(*i, self.sample, self.growth));
        let fade = (self.sample / size).sqrt();
        let fit = 1.0 + (exact / at_sample.max(1e-300) - 1.0) * fade;
        let value = self.model(size) * fit;
        let (end, found) = self.far[0];
        let part = if end > self.sample { (size / self.sample).ln() / (end / self.sample).ln() } else { 1.0 };
        let factor = |bound: f64, near: f64| near + (bound / found.value.max(1e-300) - near) * part.clamp(0.0, 1.0);
        Estimate { value, lo: value * factor(found.lo, (1.0 - half).max(0.0)), hi: value * factor(found.hi, 1.0 + half) }
    }

    /// What the model gives for windows of `size` rows, between the sample and two periods.
    fn model(&self, size: f64) -> f64 {
        self.strata.iter().map(|s| self.grown(s, size)).sum()
    }

    /// The same of one stratum.
    fn grown(&self, s: &Stratum, size: f64) -> f64 {
        let end = if self.weighed { s.levels.get(1).map(|l| l.0) } else { self.far.first().map(|f| f.0) }.unwrap_or(self.sample);
        let whole = s.nearby.max(s.per_sample);
        // A window that touches it need not do so all the time.
        let (active, first) = (self.activity(s, size), s.active.first().copied().unwrap_or(0.0));
        let steps = |size: f64, active: f64| (size / self.sample * first / active.max(1e-300)).max(1.0);
        let (now, last) = (steps(size, active), steps(end, self.activity(s, end)));
        let grown = |steps: f64| {
            let walked = (s.per_sample * (1.0 + self.growth * (steps - 1.0))).min(whole);
            let chance = whole * (1.0 - (1.0 - (s.per_sample / whole).min(1.0)).powf(steps));
            walked + (chance - walked) * s.irregular
        };
        // What was found two periods away must be reached.
        let power = if last > 1.0 && s.per_sample > 0.0 { (whole / s.per_sample).ln() / last.ln() } else { 0.0 };
        active * grown(now).max(s.per_sample * now.powf(power)).min(whole)
    }

    /// The mean footprint of one stratum in windows of `size` rows, two periods or more. Where its code is so fast that a window of two samples covers more, the model.
    fn far_of(&self, s: &Stratum, size: f64) -> Spread {
        match s.levels.iter().position(|l| l.0 >= size) {
            Some(at) if s.levels[at].0 == size => s.levels[at].1,
            Some(at) if at > 1 => {
                let (from, to) = (s.levels[at - 1], s.levels[at]);
                let of = |of: fn(&Spread) -> f64| straight((from.0, of(&from.1)), (to.0, of(&to.1)), size);
                Spread { value: of(|s| s.value), below: of(|s| s.below), above: of(|s| s.above) }
            }
            Some(_) => {
                let known = s.levels.get(1).or(s.levels.first()).map(|l| l.1).unwrap_or_default();
                let value = self.grown(s, size);
                let part = (value / known.value.max(1e-300)).powi(2);
                Spread { value, below: known.below * part, above: known.above * part }
            }
            // Windows that touch it are no longer than this: the run has no more of it.
            None => s.levels.last().map(|l| l.1).unwrap_or_default(),
        }
    }

    /// Share of the windows of `size` rows that touch a stratum.
    fn activity(&self, stratum: &Stratum, size: f64) -> f64 {
        let level = if self.weighed { stratum.level(size) } else { (size / self.period).max(1.0).log2() };
        let (low, part) = (level.floor() as usize, level.fract());
        let at = |l: usize| stratum.active.get(l).or(stratum.active.last()).copied().unwrap_or(0.0);
        at(low) + (at(low + 1) - at(low)) * part
    }

    /// Greatest size.
    pub fn end(&self) -> f64 {
        self.longest
    }
}

/// What windows that are a bit longer than those of a known footprint have.
fn grown_from((known, footprint): (f64, f64), size: f64, growth: f64) -> f64 {
    footprint * (size / known).powf(growth.min(1.0))
}

/// Between two sizes, straight in logarithms.
fn straight((from, a): (f64, f64), (to, b): (f64, f64), size: f64) -> f64 {
    let part = ((size / from).ln() / (to / from).ln()).clamp(0.0, 1.0);
    if a > 0.0 && b > 0.0 { (a.ln() + (b / a).ln() * part).exp() } else { a + (b - a) * part }
}

/// Blocks in aligned windows of 1, 2, 4, … samples, summed over all such windows: how many were seen, by exactly one sample, by exactly two, by exactly three. As differences
/// from one level to the next, so that a sighting takes the same time for all levels.
struct Together {
    seen: [i64; LEVELS + 1],
    singles: [i64; LEVELS + 1],
    pairs: [i64; LEVELS + 1],
    triples: [i64; LEVELS + 1],
}

impl Together {
    fn new() -> Together {
        Together { seen: [0; LEVELS + 1], singles: [0; LEVELS + 1], pairs: [0; LEVELS + 1], triples: [0; LEVELS + 1] }
    }

    /// Adds the samples that have seen a block: thread and number there, sorted. Windows that are not complete do not count.
    fn add(&mut self, places: &[(u32, u32)], lengths: &[u32]) {
        // The first level at which two samples are in one window: where their numbers differ, above.
        let apart = |a: Option<&(u32, u32)>, b: Option<&(u32, u32)>| match (a, b) {
            (Some(a), Some(b)) if a.0 == b.0 => (32 - (a.1 ^ b.1).leading_zeros()) as usize,
            _ => LEVELS,
        };
        for (at, place) in places.iter().enumerate() {
            // In the same way: the last window is cut off by what would be the next sample.
            let whole = (32 - (place.1 ^ lengths[place.0 as usize]).leading_zeros()) as usize;
            let before = apart(at.checked_sub(1).map(|b| &places[b]), Some(place));
            let after = apart(Some(place), places.get(at + 1));
            let later = apart(places.get(at + 1), places.get(at + 2));
            let last = apart(places.get(at + 2), places.get(at + 3));
            let first = before.min(whole);
            add(&mut self.seen, 0, first);
            add(&mut self.singles, 0, first.min(after));
            add(&mut self.pairs, after, first.min(later));
            add(&mut self.triples, after.max(later), first.min(last));
        }
    }

    /// Seen blocks, singles, pairs and triples in windows of `1 << level` samples, for each level.
    fn levels(&self) -> impl Iterator<Item = [f64; 4]> + '_ {
        let mut sums = [0i64; 4];
        (0..LEVELS).map(move |level| {
            for (sum, steps) in sums.iter_mut().zip([&self.seen, &self.singles, &self.pairs, &self.triples]) {
                *sum += steps[level];
            }
            sums.map(|s| s as f64)
        })
    }
}

/// The same where each window counts for the loads that its samples stand for.
struct Weighed {
    levels: Vec<[f64; 4]>,
}

impl Weighed {
    fn add(&mut self, places: &[(u32, u32)], order: &Order) {
        for (level, sums) in self.levels.iter_mut().enumerate() {
            for same in places.chunk_by(|a, b| (a.0, a.1 >> level) == (b.0, b.1 >> level)) {
                let (thread, window) = (same[0].0, same[0].1 >> level);
                if window < order.lengths[thread as usize] >> level {
                    let weight = order.weight(thread, window, level);
                    sums[0] += weight;
                    sums[1] += if same.len() == 1 { weight } else { 0.0 };
                    sums[2] += if same.len() == 2 { weight } else { 0.0 };
                    sums[3] += if same.len() == 3 { weight } else { 0.0 };
                }
            }
        }
    }
}

/// One more at the levels `from..to`.
fn add(steps: &mut [i64; LEVELS + 1], from: usize, to: usize) {
    if from < to {
        steps[from] += 1;
        steps[to] -= 1;
    }
}

/// Cuts blocks where none follows for 64 KiB, and where the estimator does (`ends`). Smaller gaps may be what samples have left out of one object.
fn gaps(blocks: &Blocks, shift: u32, ends: &[usize]) -> Vec<usize> {
    let list = &blocks.blocks;
    let mut gap = (65_536u64 >> shift).max(2);
    loop {
        let cuts = (1..list.len()).filter(|&i| list[i].number - list[i - 1].number >= gap || ends.binary_search(&i).is_ok());
        let ends: Vec<usize> = cuts.chain((!list.is_empty()).then_some(list.len())).collect();
        if ends.len() <= MOST || gap > 1 << 60 {
            return ends;
        }
        gap *= 4;
    }
}

/// Makes the curve. `inside`: exact means of windows inside samples, ascending; `order`: for each sample its thread and its number there;
/// `sample` and `period`: rows of a sample, and from sample to sample; `shift`: log2 of the bytes of a block; `scale` as for [`super::footprint()`].
pub fn curve(inside: &[(f64, f64)], blocks: &Blocks, order: &Order, (sample, period): (f64, f64), shift: u32, design: Design, scale: f64) -> Curve {
    let lengths = order.lengths();
    let longest = f64::from(lengths.iter().copied().max().unwrap_or(0)) * period;
    let longest = if order.is_weighed() { (0..).zip(lengths).map(|(thread, &length)| order.loads(thread, 0, length)).fold(0.0, f64::max) } else { longest };
    let list = &blocks.blocks;
    let parts = blocks.strata(design);
    let ends: Vec<usize> = parts.iter().map(|p| p.end).collect();
    let whole = if design.complete() { Estimate::exact(list.len() as f64) } else { together(parts, 1.0, list.len() as f64) };
    let mut curve =
        Curve { inside: inside.to_vec(), sample, period, longest, growth: growth_at_end(inside), weighed: order.is_weighed(), ..Curve::default() };
    let mut from = 0;
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for end in gaps(blocks, shift, &ends) {
        // What is always in use and what was used once may lie side by side.
        let mut octaves: [Vec<u32>; OCTAVES] = Default::default();
        for (at, block) in (from..end).zip(&list[from..end]) {
            octaves[block.samples.max(1).ilog(OFTEN) as usize].push(at as u32);
        }
        groups.extend(octaves.into_iter().filter(|o| !o.is_empty()));
        from = end;
    }
    // What windows of so many samples count for, of all threads.
    let windows: Vec<f64> = (0..LEVELS).map(|level| order.windows(level)).take_while(|&w| w > 0.0).collect();
    // Standard deviation of the logarithm of what samples stand for.
    let speeds = design.weights.map_or(0.0, |error| error.ln_1p() / Z);
    let mut met = 0.0;
    let mut once = Once::new(lengths);
    let mut places: Vec<(u32, u32)> = Vec::new();
    for group in groups {
        let mut touched: Vec<u64> = Vec::new();
        let mut sightings = 0u64;
        let mut together = Together::new();
        let mut weighed = Weighed { levels: vec![[0.0; 4]; if curve.weighed { windows.len() } else { 0 }] };
        once.begin();
        for &at in &group {
            places.clear();
            places.extend(blocks.samples(at as usize).iter().filter_map(|&s| order.get(s)));
            if !places.is_sorted() {
                places.sort_unstable();
            }
            sightings += places.len() as u64;
            touched.extend(places.iter().filter(|p| once.is_new(**p)).map(|p| u64::from(p.0) << 32 | u64::from(p.1)));
            if curve.weighed {
                weighed.add(&places, order);
            } else {
                together.add(&places, lengths);
            }
        }
        touched.sort_unstable();
        let counts: Vec<[f64; 4]> = if curve.weighed { weighed.levels } else { together.levels().take(windows.len()).collect() };
        let irregular = group.iter().filter(|&&at| list[at as usize].irregular).count() as f64 / group.len() as f64;
        let mut varies = varies(&touched, order);
        let mut stratum = Stratum { irregular, ..Stratum::default() };
        // Windows of 1, 2, 4, … samples from the start of each thread that it is in: fewer and fewer.
        let mut starts: Vec<(u32, u32)> = touched.iter().map(|&t| ((t >> 32) as u32, t as u32)).collect();
        for (level, ([seen, singles, pairs, triples], &windows)) in counts.into_iter().zip(&windows).enumerate() {
            if level > 0 {
                starts.iter_mut().for_each(|w| w.1 /= 2);
                starts.dedup();
            }
            // A last, incomplete one does not count.
            let whole = starts.iter().filter(|w| w.1 < lengths[w.0 as usize] >> level);
            let (weights, squares) = whole.map(|w| order.weight(w.0, w.1, level)).fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
            if level == 0 {
                stratum.per_sample = if curve.weighed { seen / weights.max(1e-300) } else { sightings as f64 / touched.len().max(1) as f64 };
            }
            if weights <= 0.0 && curve.weighed {
                // No windows so long that touch it.
                break;
            }
            stratum.active.push(weights / windows);
            if level == 0 {
                // What is touched in all of the run's loads is so whatever these are.
                varies += (speeds * (1.0 - weights / windows)).powi(2);
            }
            // Loads of a window that touches it, and what such a window counts for: the evidence is that of (Σw)²/Σw² windows that are alike.
            let (size, each) = if curve.weighed { (squares / weights, squares / weights) } else { ((1u64 << level) as f64 * period, 1.0) };
            let marked = design.marked();
            let share = if curve.weighed { ((1u64 << level) as f64 * sample / size).clamp(f64::MIN_POSITIVE, 1.0) } else { marked.share };
            let here = Design { samples: 1 << level, share, ..marked };
            let unseen = if level == 0 { Estimate::exact(0.0) } else { Tally::pooled([singles, pairs, triples].map(|n| n / each), stratum.per_sample, irregular, here).unseen(here) };
            let unseen = Estimate { value: unseen.value * each, lo: unseen.lo * each, hi: unseen.hi * each };
            let value = (seen + unseen.value) * scale / windows;
            let by_time = value * value * varies;
            if level == 0 {
                met += by_time;
            }
            if level == 1 && weights > 0.0 {
                stratum.nearby = (seen + unseen.value) * scale / weights;
            }
            let below = ((unseen.value - unseen.lo) * scale / windows).powi(2) + Z * Z * by_time;
            let above = ((unseen.hi - unseen.value) * scale / windows).powi(2) + Z * Z * by_time;
            stratum.levels.push((size, Spread { value, below, above }));
        }
        if stratum.nearby == 0.0 {
            stratum.nearby = stratum.per_sample;
        }
        stratum.per_sample *= scale;
        curve.strata.push(stratum);
    }
    let far = |level: usize| {
        let size = (1u64 << level) as f64 * period;
        let mut all = Spread::default();
        curve.strata.iter().for_each(|s| all.add(curve.far_of(s, size)));
        (size, all.estimate())
    };
    curve.far = (1..windows.len()).map(far).collect();
    // The whole run, if it is one thread's.
    if lengths.iter().filter(|&&l| l > 0).count() == 1 {
        curve.far.retain(|f| f.0 < curve.longest * (1.0 - 1e-9));
        let of = |value: f64| value * scale;
        curve.far.push((curve.longest, Estimate { value: of(whole.value), lo: of(whole.lo), hi: of(whole.hi) }));
    }
    // Longer windows touch no less, and more is known of them: samples of one lap of a loop never meet, which makes windows of few laps look larger than they are.
    for at in (1..curve.far.len()).rev() {
        let longer = curve.far[at].1;
        let here = &mut curve.far[at - 1].1;
        *here = Estimate { value: here.value.min(longer.value), lo: here.lo.min(longer.lo), hi: here.hi.min(longer.hi) };
    }
    curve.at_sample = curve.model(sample);
    let seen: f64 = curve.strata.iter().filter_map(|s| s.levels.first()).map(|l| l.1.value).sum();
    curve.met = met.sqrt() / seen.max(1e-300);
    curve
}

/// The variance of what the samples count for that see a stratum, `touched`, over the square of that. Samples come one per period, so it is half the changes between neighbours.
fn varies(touched: &[u64], order: &Order) -> f64 {
    if !order.is_weighed() {
        return changes(touched, &order.lengths) / 2.0 / (touched.len().max(1) as f64).powi(2);
    }
    let weight = |t: u64| order.weight((t >> 32) as u32, t as u32, 0);
    let squares: f64 = touched.iter().enumerate().map(|(at, &t)| ends(touched, at, &order.lengths) * weight(t).powi(2)).sum();
    squares / 2.0 / touched.iter().map(|&t| weight(t)).sum::<f64>().powi(2).max(1e-300)
}

/// How often a thread's next sample differs from the one before in whether it is among those that are `touched` (sorted; thread above, number below).
fn changes(touched: &[u64], lengths: &[u32]) -> f64 {
    (0..touched.len()).map(|at| ends(touched, at, lengths)).sum()
}

/// Of the samples before and behind one of those that are `touched`: how many are not among them.
fn ends(touched: &[u64], at: usize, lengths: &[u32]) -> f64 {
    let t = touched[at];
    let is = |i: Option<usize>, wanted: u64| i.and_then(|i| touched.get(i)) == Some(&wanted);
    let begins = t as u32 > 0 && !is(at.checked_sub(1), t.wrapping_sub(1));
    let ends = (t as u32) + 1 < lengths[(t >> 32) as usize] && !is(Some(at + 1), t + 1);
    f64::from(u32::from(begins) + u32::from(ends))
}

/// Which samples have been met since the last [`Once::begin`].
struct Once {
    /// Number of the first sample of each thread.
    starts: Vec<usize>,
    met: Vec<u32>,
    turn: u32,
}

impl Once {
    fn new(lengths: &[u32]) -> Once {
        let mut all = 0;
        let mut starts = Vec::with_capacity(lengths.len());
        for &length in lengths {
            starts.push(all);
            all += length as usize;
        }
        Once { starts, met: vec![0; all], turn: 0 }
    }

    fn begin(&mut self) {
        // There are fewer groups than numbers: at most `MOST` times `OCTAVES`.
        self.turn += 1;
    }

    /// Whether a sample of a thread is met for the first time.
    #[inline(always)]
    fn is_new(&mut self, (thread, number): (u32, u32)) -> bool {
        let met = &mut self.met[self.starts[thread as usize] + number as usize];
        std::mem::replace(met, self.turn) != self.turn
    }
}

/// Growth at the end of samples over their mean growth. (Sizes next to each other tell nothing of it: their means are of different samples.)
fn growth_at_end(inside: &[(f64, f64)]) -> f64 {
    let Some((b, before)) = inside.split_last() else { return 1.0 };
    match before.iter().rfind(|a| a.0 <= 0.8 * b.0) {
        Some(a) if a.1 > 0.0 && b.1 > 0.0 => (((b.1 - a.1) / (b.0 - a.0)) / (b.1 / b.0)).clamp(0.0, 1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidence::Incidence;
    use crate::rows::Rows;

    /// Mean number of distinct values in windows of a size.
    fn by_definition(run: &[u64], size: usize) -> f64 {
        let windows: Vec<f64> = run.chunks_exact(size).map(|w| w.iter().collect::<std::collections::HashSet<_>>().len() as f64).collect();
        windows.iter().sum::<f64>() / windows.len() as f64
    }

    /// A phase that two samples have met may have been half or twice as long; one that took half of the run is known.
    #[test]
    fn what_few_samples_have_met_is_vague() {
        for (length, vague) in [(16_384u64, true), (524_288, false)] {
            let run: Vec<u64> = (0..1u64 << 20).map(|i| if i < length { 1 << 40 | i * 8 } else { i % 512 * 64 }).collect();
            let (mut incidence, mut order) = (Incidence::default(), Order::default());
            for (sample, part) in run.chunks_exact(8192).enumerate() {
                let group: Vec<u32> = part[3000..3512].iter().map(|a| 1 + (a >> 40) as u32).collect();
                incidence.add(&Rows { address: &part[3000..3512], size: &[8; 512], group: &group, implied: &[0; 512] }, 0, sample as u32);
                order.add(sample as u32, 0, None);
            }
            let blocks = Blocks::new(&Incidence::fold(vec![incidence]), None, 0, |group| group == 2);
            let curve = curve(&[], &blocks, &order, (512.0, 8192.0), 0, Design::new(16.0, 128), 1.0);
            for level in [10, 13, 15] {
                let found = curve.at((1u64 << level) as f64).unwrap().footprint;
                assert_eq!(found.vague(), vague, "{length} loads, windows of 2^{level}: {found:?}");
            }
        }
    }

    /// Counts by level agree with counting each window by itself.
    #[test]
    fn blocks_in_windows_of_samples_agree_with_their_definition() {
        let mut state = 11u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        for _ in 0..200 {
            let lengths = [1 + random(40), 1 + random(9)];
            let mut places: Vec<(u32, u32)> = (0..random(30)).map(|_| random(2)).collect::<Vec<u32>>().into_iter().map(|t| (t, random(lengths[t as usize].into()))).collect();
            places.sort_unstable();
            places.dedup();
            let mut together = Together::new();
            together.add(&places, &lengths);
            for (level, found) in together.levels().enumerate().take(8) {
                let mut windows: HashMap<(u32, u32), u32> = HashMap::new();
                for place in places.iter().filter(|p| p.1 >> level < lengths[p.0 as usize] >> level) {
                    *windows.entry((place.0, place.1 >> level)).or_default() += 1;
                }
                let of = |n: u32| windows.values().filter(|&&w| w == n).count() as f64;
                assert_eq!(found, [windows.len() as f64, of(1), of(2), of(3)], "level {level}: {places:?} of {lengths:?}");
            }
        }
    }

    /// Samples by time of a program in turns of slow and of fast code, which loads four times as much in a sample's time: means over windows of loads are found if samples
    /// count for what they stand for, and are far off if they do not.
    #[test]
    fn samples_by_time_give_footprints_by_loads() {
        let (window, period) = (512usize, 2048usize);
        // Seven samples of slow code and nine of fast code, in turns.
        let (slow, fast) = (7 * period, 9 * 4 * period);
        let run: Vec<u64> = (0..12 * (slow + fast))
            .map(|i| match (i / (slow + fast), i % (slow + fast)) {
                (_, at) if at < slow => at as u64 % 300 * 8,
                (turn, at) => 1 << 40 | (turn * 20_000 + at % 5_000) as u64 * 8,
            })
            .collect();
        let mut state = 5u64;
        let (mut incidence, mut samples, mut at) = (Incidence::default(), Vec::new(), 0);
        while at < run.len() {
            let length = if at % (slow + fast) < slow { period } else { 4 * period };
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let from = at + (state >> 33) as usize % (length - window);
            incidence.add(&Rows { address: &run[from..from + window], size: &[8; 512], group: &[1; 512], implied: &[0; 512] }, 0, samples.len() as u32);
            samples.push((from, length as f64));
            at += length;
        }
        let blocks = Blocks::new(&Incidence::fold(vec![incidence]), None, 0, |_| true);
        let period = run.len() as f64 / samples.len() as f64;
        let design = Design::new(period / window as f64, samples.len() as u64);
        let truth: Vec<f64> = (4..=19).map(|level| by_definition(&run, 1 << level)).collect();
        let errors = [false, true].map(|weighed| {
            let weight = |length: f64| if weighed { length } else { 1.0 };
            let sum: f64 = samples.iter().map(|s| weight(s.1)).sum();
            let mean = |size: usize| samples.iter().map(|&(from, length)| weight(length) * by_definition(&run[from..from + window], size)).sum::<f64>() / sum;
            let inside: Vec<(f64, f64)> = (4..=9).map(|level| ((1u64 << level) as f64, mean(1 << level))).collect();
            let mut order = Order::default();
            samples.iter().enumerate().for_each(|(number, s)| order.add(number as u32, 0, weighed.then_some(s.1)));
            let curve = curve(&inside, &blocks, &order, (window as f64, period), 0, design, 1.0);
            let off = truth.iter().zip(4..).map(|(truth, level)| {
                let found = curve.at((1u64 << level) as f64).unwrap().footprint;
                println!("{} 2^{level}: {found:?} for {truth:.0}", if weighed { "by loads" } else { "by time" });
                assert!(found.lo <= found.value && found.value <= found.hi);
                (found.value / truth).ln().abs()
            });
            off.sum::<f64>() / truth.len() as f64
        });
        assert!(errors[1] < 0.15 && errors[0] > 1.5 * errors[1], "{errors:?}");
    }

    #[test]
    fn footprints_of_windows_longer_than_a_sample_are_near_the_truth() {
        let mut state = 3u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let length = 1u64 << 20;
        for kind in 0..6 {
            let run: Vec<u64> = (0..length)
                .map(|i| match kind {
                    0 => i * 8,
                    1 => i % 30_000 * 8,
                    2 => if i % 2 == 0 { i % 50_000 * 8 } else { 1 << 40 | (random(20_000) * 8) },
                    // A table that is made once, and a part of it that is used ever after.
                    4 => if i < 16_384 { i * 8 } else { i % 512 * 64 },
                    // Blocks of 2,000 addresses, each used twenty times and then left: what the whole run tells of growth is not true of any part of it.
                    5 => (i / 40_000 * 2_000 + i % 2_000) * 8,
                    // Two phases.
                    _ => if i < length / 2 { i % 10_000 * 8 } else { 1 << 40 | (random(5_000) * 8) },
                })
                .collect();
            let (window, period) = (512usize, 8192usize);
            let mut incidence = Incidence::default();
            let mut order = Order::default();
            for (sample, part) in run.chunks_exact(period).enumerate() {
                let from = random((period - window) as u64) as usize;
                let address = &part[from..from + window];
                let group: Vec<u32> = address.iter().map(|a| 1 + (a >> 40) as u32).collect();
                incidence.add(&Rows { address, size: &vec![8; window], group: &group, implied: &vec![0; window] }, 0, sample as u32);
                order.add(sample as u32, 0, None);
            }
            let incidence = Incidence::fold(vec![incidence]);
            let blocks = Blocks::new(&incidence, None, 0, |_| true);
            let inside: Vec<(f64, f64)> = (4..=9).map(|l| ((1u64 << l) as f64, by_definition(&run, 1 << l))).collect();
            let design = Design::new(period as f64 / window as f64, (run.len() / period) as u64);
            let curve = curve(&inside, &blocks, &order, (window as f64, period as f64), 0, design, 1.0);
            assert_eq!(curve.end(), length as f64);
            let mut error = 0.0;
            for level in 4..=20 {
                let (truth, found) = (by_definition(&run, 1 << level), curve.at((1u64 << level) as f64).unwrap());
                assert_eq!(found.measured, level <= 9, "2^{level}");
                let off = found.footprint.value / truth - 1.0;
                println!("kind {kind}, 2^{level}: {:.0} for {truth:.0}, {:.1} %", found.footprint.value, off * 100.0);
                // Two samples of a short phase do not tell how long it was; but nothing may be made of what lies beside the hot part.
                assert!(off < 0.25 && (off > -0.25 || kind == 4), "kind {kind}, 2^{level}: {found:?}, truth {truth}");
                error += if kind == 4 { 0.0 } else { off.abs() / 17.0 };
            }
            assert!(error < 0.08, "kind {kind}: mean error {error}");
            assert!(curve.at(8.0).is_none() && curve.at(2.0 * length as f64).is_none());
        }
    }
}
