//! The footprint of windows of any size, from inside a sample to the whole run.
//!
//! Windows up to the sample's size are counted exactly by [`crate::windows`]. What lies between samples is not seen, and no reuse interval between the
//! sample's size and the period can be (the report's blind spot R2), so that longer windows need a model. The address range is cut into
//! *strata* where nothing was touched for 64 KiB, and where the estimator finds that use differs: mostly objects. Each is divided once more by how many samples have seen an address (octaves of eight),
//! since what is always in use and what was used once may lie side by side. Of each is known
//!
//! - U, its footprint in the whole run ([`super::footprint()`], with what is unseen dealt out by singletons),
//! - f, its mean footprint in the samples that touch it,
//! - a(W), the share of windows of W loads that touch it at all, from runs of consecutive samples (so that such a window does so for
//!   W' = W·a(w)/a(W) loads),
//!
//! and from these the mean footprint in a window of W loads: a(W) times f grown from the sample's size w to W' and bounded by U. Data that is walked grows in
//! proportion to time until all of it was seen: min(U, f·(1 + γ·(W' − w)/w)); data that is used by chance grows as U·(1 − (1 − f/U)^(W'/w)). Both are mixed by the
//! share of addresses that Irregular loads touch. γ is the growth at the end of samples over the mean growth (1 unless samples reuse data).

use super::footprint::together;
use super::{Blocks, Design, Estimate};
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

    /// Adds the next sample of a thread, if it is not known yet.
    pub fn add(&mut self, sample: u32, thread: u32) {
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
    whole: f64,
    per_sample: f64,
    irregular: f64,
    /// Share of the windows of 1, 2, 4, … samples that touch it.
    active: Vec<f64>,
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
    /// Of the whole footprint: lower and upper end over the estimate.
    bounds: (f64, f64),
}

impl Curve {
    /// The footprint of windows of `size` rows; `None` outside of what can be said.
    pub fn at(&self, size: f64) -> Option<CurvePoint> {
        if let Some(&(_, value)) = self.inside.iter().find(|i| (i.0 / size - 1.0).abs() < 1e-9) {
            return Some(CurvePoint { footprint: Estimate::exact(value), measured: true });
        }
        if size < self.sample || size > self.longest * (1.0 + 1e-9) {
            return None;
        }
        // The model is exact at the sample's size but for what the strata's means hide: it starts there.
        let at_sample = self.at_sample;
        let exact = self.inside.last().map_or(at_sample, |i| i.1 * (self.sample / i.0).powf(self.growth.min(1.0)));
        let fade = (self.sample / size).sqrt();
        let fit = 1.0 + (exact / at_sample.max(1e-300) - 1.0) * fade;
        let of = |bound: f64| self.model(size, bound) * fit;
        Some(CurvePoint { footprint: Estimate { value: of(1.0), lo: of(self.bounds.0), hi: of(self.bounds.1) }, measured: false })
    }

    fn model(&self, size: f64, bound: f64) -> f64 {
        let steps = size / self.sample;
        self.strata
            .iter()
            .map(|s| {
                let whole = (s.whole * bound).max(s.per_sample);
                // A window that touches it need not do so all the time.
                let active = self.activity(s, size);
                let steps = (steps * s.active.first().copied().unwrap_or(0.0) / active.max(1e-300)).max(1.0);
                let walked = (s.per_sample * (1.0 + self.growth * (steps - 1.0))).min(whole);
                let chance = whole * (1.0 - (1.0 - (s.per_sample / whole).min(1.0)).powf(steps));
                active * (walked + (chance - walked) * s.irregular)
            })
            .sum()
    }

    /// Share of the windows of `size` rows that touch a stratum.
    fn activity(&self, stratum: &Stratum, size: f64) -> f64 {
        let level = (size / self.period).max(1.0).log2();
        let (low, part) = (level.floor() as usize, level.fract());
        let at = |l: usize| stratum.active.get(l).or(stratum.active.last()).copied().unwrap_or(0.0);
        at(low) + (at(low + 1) - at(low)) * part
    }

    /// Greatest size.
    pub fn end(&self) -> f64 {
        self.longest
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
    let longest = lengths.iter().copied().max().unwrap_or(0);
    // What is unseen, by the strata of the estimator.
    let list = &blocks.blocks;
    let mut unseen = vec![0.0; list.len()];
    let mut from = 0;
    let parts = blocks.strata(design);
    for part in parts {
        let singles = list[from..part.end].iter().filter(|b| b.samples == 1).count() as f64;
        for (at, _) in list[from..part.end].iter().enumerate().filter(|(_, b)| b.samples == 1) {
            unseen[from + at] = part.unseen.value / singles;
        }
        from = part.end;
    }
    let ends: Vec<usize> = parts.iter().map(|p| p.end).collect();
    let whole = if design.complete() { Estimate::exact(list.len() as f64) } else { together(parts, 1.0, list.len() as u64) };
    let mut curve = Curve {
        inside: inside.to_vec(),
        strata: Vec::new(),
        sample,
        period,
        longest: f64::from(longest) * period,
        growth: growth_at_end(inside),
        at_sample: 0.0,
        bounds: (whole.lo / whole.value.max(1e-300), whole.hi / whole.value.max(1e-300)),
    };
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
    let mut once = Once::new(lengths);
    for group in groups {
        let mut touched: Vec<u64> = Vec::new();
        let mut sightings = 0u64;
        once.begin();
        for &at in &group {
            for place in blocks.samples(at as usize).iter().filter_map(|&s| order.get(s)) {
                sightings += 1;
                if once.is_new(place) {
                    touched.push(u64::from(place.0) << 32 | u64::from(place.1));
                }
            }
        }
        let sightings = sightings as f64;
        touched.sort_unstable();
        let per_sample = sightings * scale / touched.len().max(1) as f64;
        // Windows of 1, 2, 4, … samples from the start of each thread that it is in: fewer and fewer.
        let mut windows: Vec<(u32, u32)> = touched.iter().map(|&t| ((t >> 32) as u32, t as u32)).collect();
        let active = (0..32).map(|e| 1u32 << e).take_while(|&m| m <= longest).map(|m| {
            if m > 1 {
                windows.iter_mut().for_each(|w| w.1 /= 2);
                windows.dedup();
            }
            // A last, incomplete one does not count.
            let all: u32 = lengths.iter().map(|l| l / m).sum();
            let count = windows.iter().filter(|w| w.1 < lengths[w.0 as usize] / m).count();
            count as f64 / f64::from(all.max(1))
        });
        curve.strata.push(Stratum {
            whole: (group.len() as f64 + group.iter().map(|&at| unseen[at as usize]).sum::<f64>()) * scale,
            per_sample,
            irregular: group.iter().filter(|&&at| list[at as usize].irregular).count() as f64 / group.len() as f64,
            active: active.collect(),
        });
    }
    curve.at_sample = curve.model(sample, 1.0);
    curve
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

/// Growth at the end of samples over their mean growth.
fn growth_at_end(inside: &[(f64, f64)]) -> f64 {
    match inside {
        [.., a, b] if a.1 > 0.0 && b.1 > 0.0 => (((b.1 - a.1) / (b.0 - a.0)) / (b.1 / b.0)).clamp(0.0, 1.0),
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

    #[test]
    fn footprints_of_windows_longer_than_a_sample_are_near_the_truth() {
        let mut state = 3u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let length = 1u64 << 20;
        for kind in 0..5 {
            let run: Vec<u64> = (0..length)
                .map(|i| match kind {
                    0 => i * 8,
                    1 => i % 30_000 * 8,
                    2 => if i % 2 == 0 { i % 50_000 * 8 } else { 1 << 40 | (random(20_000) * 8) },
                    // A table that is made once, and a part of it that is used ever after.
                    4 => if i < 16_384 { i * 8 } else { i % 512 * 64 },
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
                order.add(sample as u32, 0);
            }
            let incidence = Incidence::fold(vec![incidence]);
            let blocks = Blocks::new(&incidence, 0, |_| true);
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
