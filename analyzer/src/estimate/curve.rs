//! The footprint of windows of any size, from part of a sample to the whole run.
//!
//! Windows up to the sample's size are counted exactly by [`crate::stages::windows`]. Between
//! samples nothing is seen. The address range is cut into *strata*: where nothing was touched for
//! 64 KiB, and where the estimator finds a difference in use. Strata are mostly objects. Each is
//! divided again by the number of samples that have seen an address (octaves of eight), since data
//! in constant use may be next to data that was used once.
//!
//! **From two periods on**, a window of m = 2, 4, 8, … consecutive samples is treated as a run of
//! its own, and the estimator of the whole run ([`crate::estimate::Listed::footprint`]) is applied
//! to it. Its inputs are the numbers of blocks that any, exactly one and exactly two of the m
//! samples have seen, by stratum, summed over all such windows before the formula is applied.
//! Therefore the curve needs no assumption about the distribution of use over the run. It is valid
//! for data that is used only for a while, for phases, and for recurring loops. Between these sizes
//! the curve is log-linear; its last point is the estimate of the whole run.
//!
//! **Between the sample and two periods** there is no evidence (the report's blind spot R2), so a
//! model is used. For each stratum it uses
//!
//! - U, its footprint in windows of two periods that touch it, as above,
//! - f, its mean footprint in the samples that touch it,
//! - a(W), the share of windows of W loads that touch it at all, from runs of consecutive samples
//!   (such a window touches it for W' = W·a(w)/a(W) loads).
//!
//! The mean footprint in a window of W loads is a(W) times f, extrapolated from the sample's size w
//! to W' and bounded by U. For a walk over data the footprint is proportional to time until all of
//! it was seen: min(U, f·(1 + γ·(W' − w)/w)). For random accesses it grows as U·(1 − (1 −
//! f/U)^(W'/w)). The two are mixed by the share of addresses that Irregular loads touch. γ is the
//! growth at the end of samples divided by the mean growth (1 unless samples reuse data). If this
//! would not reach U, the footprint grows as a power of W.
//!
//! **Intervals** contain the interval of the estimator and the uncertainty of the part of time in
//! which a stratum is in use. There is one sample per period, so the variation is in the positions
//! between samples where a phase of use begins and ends. The variance of the number of samples that
//! see a stratum is taken as half the number of changes between neighbours (successive differences,
//! as for systematic samples). The length of a phase of ten samples is known to about a tenth, and
//! that of a phase of two samples to about a half. Phases that no sample has seen are unknown.
//!
//! **Samples with different numbers of loads** (windows by time,
//! [`crate::estimate::sample_shares`]): a window of m samples represents V = Σ v_k loads, and
//! counts with weight V in all sums. Slow code needs many more samples than fast code for the same
//! number of loads, and strata are mostly of one kind of code. Therefore each stratum has sizes of
//! its own: for its windows of 1, 2, 4, … samples, the mean ΣV²/ΣV over those that touch it, with
//! the mean footprint ΣV·F/ΣV. Their evidence equals that of (ΣV)²/ΣV² equal windows. The curve is
//! the sum over strata at each size. In the intervals, changes between neighbours count with v_k²,
//! and the error of the speeds behind v_k is added for strata that are not in use all of the time.

pub use crate::estimate::curve_order::Order;
pub use crate::estimate::curve_points::{Curve, CurvePoint};

use crate::estimate::curve_points::MeanSpread;
use crate::estimate::curve_strata::Strata;
use crate::estimate::params;
use crate::estimate::recapture::together;
use crate::estimate::{Blocks, Design, Estimate};

/// Cuts blocks at gaps of 64 KiB and at the estimator's cuts (`ends`). Smaller gaps may be parts of
/// one object that no sample has seen.
fn gaps(blocks: &Blocks, shift: u32, ends: &[usize]) -> Vec<usize> {
    let list = &blocks.listed.blocks;
    let mut gap = (params::MIN_GAP_BYTES_OF_STRATA >> shift).max(params::MIN_GAP_BLOCKS_OF_STRATA);
    loop {
        let cuts = (1..list.len()).filter(|&i| {
            list[i].number - list[i - 1].number >= gap || ends.binary_search(&i).is_ok()
        });
        let ends: Vec<usize> = cuts
            .chain((!list.is_empty()).then_some(list.len()))
            .collect();
        if ends.len() <= params::MAX_STRATA_OF_CURVE || gap > 1 << 60 {
            return ends;
        }
        gap *= params::GAP_GROWTH_FACTOR;
    }
}

/// Indices of the blocks of each stratum. `ends` are the estimator's cuts.
fn groups(blocks: &Blocks, shift: u32, ends: &[usize]) -> Vec<Vec<u32>> {
    let list = &blocks.listed.blocks;
    let mut from = 0;
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for end in gaps(blocks, shift, ends) {
        // Data in constant use may be next to data that was used once.
        let mut octaves: [Vec<u32>; params::MAX_PARTS_OF_STRATUM] = Default::default();
        for (at, block) in (from..end).zip(&list[from..end]) {
            octaves[block.samples.max(1).ilog(params::SAMPLES_RATIO_OF_PARTS) as usize]
                .push(at as u32);
        }
        groups.extend(octaves.into_iter().filter(|o| !o.is_empty()));
        from = end;
    }
    groups
}

/// Calculates the curve. `inside`: exact means of windows inside samples, ascending. `order`: for
/// each sample its thread and its number there. `sample` and `period`: rows of a sample, and rows
/// from sample to sample. `shift`: log2 of the bytes of a block. `scale` as for
/// [`crate::estimate::Listed::footprint`].
pub fn curve(
    inside: &[(f64, f64)],
    blocks: &Blocks,
    order: &Order,
    (sample, period): (f64, f64),
    shift: u32,
    design: Design,
    scale: f64,
) -> Curve {
    let seen = blocks.listed.blocks.len() as f64;
    let parts = blocks.listed.strata(design);
    let ends: Vec<usize> = parts.iter().map(|p| p.end).collect();
    let whole = if design.complete() {
        Estimate::exact(seen)
    } else {
        together(parts, 1.0, seen)
    };
    let mut curve = Curve {
        inside: inside.to_vec(),
        sample,
        period,
        longest: longest(order, period),
        growth: growth_at_end(inside),
        weighed: order.is_weighed(),
        ..Curve::default()
    };
    let mut strata = Strata::new(blocks, order, sample, period, design, scale);
    for group in groups(blocks, shift, &ends) {
        curve.strata.push(strata.measure(&group));
    }
    curve.far = (1..strata.windows.len())
        .map(|level| curve.far_at((1u64 << level) as f64 * period))
        .collect();
    if order.lengths().iter().filter(|&&l| l > 0).count() == 1 {
        curve.end_with(whole.times(scale));
    }
    curve.bound_by_longer();
    curve.at_sample = curve.model(sample);
    let seen: f64 = curve
        .strata
        .iter()
        .filter_map(|s| s.levels.first())
        .map(|l| l.1.value)
        .sum();
    curve.met = strata.met.sqrt() / seen.max(1e-300);
    curve
}

/// Loads of the longest thread.
fn longest(order: &Order, period: f64) -> f64 {
    let lengths = order.lengths();
    if !order.is_weighed() {
        return f64::from(lengths.iter().copied().max().unwrap_or(0)) * period;
    }
    (0..)
        .zip(lengths)
        .map(|(thread, &length)| order.loads(thread, 0, length))
        .fold(0.0, f64::max)
}

impl Curve {
    /// The footprint of windows of `size` rows, two periods or more, summed over the strata.
    fn far_at(&self, size: f64) -> (f64, Estimate) {
        let mut all = MeanSpread::default();
        self.strata
            .iter()
            .for_each(|s| all.add(self.far_of(s, size)));
        (size, all.estimate())
    }

    /// Makes the whole run the last point. Only a run of one thread is such a window.
    fn end_with(&mut self, whole: Estimate) {
        self.far.retain(|f| f.0 < self.longest * (1.0 - 1e-9));
        self.far.push((self.longest, whole));
    }

    /// Bounds each far size by the longer ones. A longer window has no smaller footprint, and its
    /// estimate has more evidence. The samples of one lap of a loop never overlap, so windows of
    /// few laps look larger than they are.
    fn bound_by_longer(&mut self) {
        for at in (1..self.far.len()).rev() {
            let longer = self.far[at].1;
            let here = &mut self.far[at - 1].1;
            *here = Estimate {
                value: here.value.min(longer.value),
                lo: here.lo.min(longer.lo),
                hi: here.hi.min(longer.hi),
            };
        }
    }
}

/// Growth at the end of samples divided by their mean growth. (Neighbouring sizes do not show it,
/// because their means are of different samples.)
fn growth_at_end(inside: &[(f64, f64)]) -> f64 {
    let Some((b, before)) = inside.split_last() else {
        return 1.0;
    };
    match before
        .iter()
        .rfind(|a| a.0 <= params::MAX_SIZE_SHARE_FOR_GROWTH * b.0)
    {
        Some(a) if a.1 > 0.0 && b.1 > 0.0 => {
            (((b.1 - a.1) / (b.0 - a.0)) / (b.1 / b.0)).clamp(0.0, 1.0)
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;
    use crate::data::rows::ColumnSlices;
    use crate::estimate::curve_sightings::Together;
    use crate::stages::incidence::Incidence;
    use std::collections::HashMap;

    /// Mean number of distinct values in windows of a size.
    fn by_definition(run: &[u64], size: usize) -> f64 {
        let windows: Vec<f64> = run
            .chunks_exact(size)
            .map(|w| w.iter().collect::<std::collections::HashSet<_>>().len() as f64)
            .collect();
        windows.iter().sum::<f64>() / windows.len() as f64
    }

    /// A phase that two samples have seen may have been half or twice as long. The length of a
    /// phase of half the run is well known.
    #[test]
    fn what_few_samples_have_met_is_vague() {
        for (length, vague) in [(16_384u64, true), (524_288, false)] {
            let run: Vec<u64> = (0..1u64 << 20)
                .map(|i| {
                    if i < length {
                        (1 << 40) | (i * 8)
                    } else {
                        i % 512 * 64
                    }
                })
                .collect();
            let (mut incidence, mut order) = (Incidence::default(), Order::default());
            for (sample, part) in run.chunks_exact(8192).enumerate() {
                let group: Vec<Group> = part[3000..3512]
                    .iter()
                    .map(|a| Group::from_raw(1 + (a >> 40) as u32))
                    .collect();
                incidence.add(
                    &ColumnSlices {
                        address: &part[3000..3512],
                        size: &[8; 512],
                        group: &group,
                        implied: &[0; 512],
                    },
                    0,
                    sample as u32,
                );
                order.add(sample as u32, 0, None);
            }
            let blocks = Blocks::new(&Incidence::fold(vec![incidence]), None, 0, |group| {
                group.raw() == 2
            });
            let curve = curve(
                &[],
                &blocks,
                &order,
                (512.0, 8192.0),
                0,
                Design::new(16.0, 128),
                1.0,
            );
            for level in [10, 13, 15] {
                let found = curve.at((1u64 << level) as f64).unwrap().footprint;
                assert_eq!(
                    found.is_vague(),
                    vague,
                    "{length} loads, windows of 2^{level}: {found:?}"
                );
            }
        }
    }

    /// Counts by level agree with separate counts of each window.
    #[test]
    fn blocks_in_windows_of_samples_agree_with_their_definition() {
        let mut state = 11u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        for _ in 0..200 {
            let lengths = [1 + random(40), 1 + random(9)];
            let mut places: Vec<(u32, u32)> = (0..random(30))
                .map(|_| random(2))
                .collect::<Vec<u32>>()
                .into_iter()
                .map(|t| (t, random(lengths[t as usize].into())))
                .collect();
            places.sort_unstable();
            places.dedup();
            let mut together = Together::new();
            together.add(&places, &lengths);
            for (level, found) in together.levels().enumerate().take(8) {
                let mut windows: HashMap<(u32, u32), u32> = HashMap::new();
                for place in places
                    .iter()
                    .filter(|p| p.1 >> level < lengths[p.0 as usize] >> level)
                {
                    *windows.entry((place.0, place.1 >> level)).or_default() += 1;
                }
                let of = |n: u32| windows.values().filter(|&&w| w == n).count() as f64;
                assert_eq!(
                    found,
                    [windows.len() as f64, of(1), of(2), of(3)],
                    "level {level}: {places:?} of {lengths:?}"
                );
            }
        }
    }

    /// Samples by time of a program that alternates slow code and fast code with four times as many
    /// loads in a sample's time. With the samples' weights, means over windows of loads are
    /// correct; without them they are far off.
    #[test]
    fn samples_by_time_give_footprints_by_loads() {
        let (window, period) = (512usize, 2048usize);
        // Seven samples of slow code and nine of fast code, in turns.
        let (slow, fast) = (7 * period, 9 * 4 * period);
        let run: Vec<u64> = (0..12 * (slow + fast))
            .map(|i| match (i / (slow + fast), i % (slow + fast)) {
                (_, at) if at < slow => at as u64 % 300 * 8,
                (turn, at) => (1 << 40) | ((turn * 20_000 + at % 5_000) as u64 * 8),
            })
            .collect();
        let mut state = 5u64;
        let (mut incidence, mut samples, mut at) = (Incidence::default(), Vec::new(), 0);
        while at < run.len() {
            let length = if at % (slow + fast) < slow {
                period
            } else {
                4 * period
            };
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let from = at + (state >> 33) as usize % (length - window);
            incidence.add(
                &ColumnSlices {
                    address: &run[from..from + window],
                    size: &[8; 512],
                    group: &[Group::from_raw(1); 512],
                    implied: &[0; 512],
                },
                0,
                samples.len() as u32,
            );
            samples.push((from, length as f64));
            at += length;
        }
        let blocks = Blocks::new(&Incidence::fold(vec![incidence]), None, 0, |_| true);
        let period = run.len() as f64 / samples.len() as f64;
        let design = Design::new(period / window as f64, samples.len() as u64);
        let truth: Vec<f64> = (4..=19)
            .map(|level| by_definition(&run, 1 << level))
            .collect();
        let errors = [false, true].map(|weighed| {
            let weight = |length: f64| if weighed { length } else { 1.0 };
            let sum: f64 = samples.iter().map(|s| weight(s.1)).sum();
            let mean = |size: usize| {
                samples
                    .iter()
                    .map(|&(from, length)| {
                        weight(length) * by_definition(&run[from..from + window], size)
                    })
                    .sum::<f64>()
                    / sum
            };
            let inside: Vec<(f64, f64)> = (4..=9)
                .map(|level| ((1u64 << level) as f64, mean(1 << level)))
                .collect();
            let mut order = Order::default();
            samples
                .iter()
                .enumerate()
                .for_each(|(number, s)| order.add(number as u32, 0, weighed.then_some(s.1)));
            let curve = curve(
                &inside,
                &blocks,
                &order,
                (window as f64, period),
                0,
                design,
                1.0,
            );
            let off = truth.iter().zip(4..).map(|(truth, level)| {
                let found = curve.at((1u64 << level) as f64).unwrap().footprint;
                println!(
                    "{} 2^{level}: {found:?} for {truth:.0}",
                    if weighed { "by loads" } else { "by time" }
                );
                assert!(found.lo <= found.value && found.value <= found.hi);
                (found.value / truth).ln().abs()
            });
            off.sum::<f64>() / truth.len() as f64
        });
        assert!(
            errors[1] < 0.15 && errors[0] > 1.5 * errors[1],
            "{errors:?}"
        );
    }

    #[test]
    fn footprints_of_windows_longer_than_a_sample_are_near_the_truth() {
        let mut state = 3u64;
        let mut random = move |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let length = 1u64 << 20;
        for kind in 0..6 {
            let run: Vec<u64> = (0..length)
                .map(|i| match kind {
                    0 => i * 8,
                    1 => i % 30_000 * 8,
                    2 => {
                        if i % 2 == 0 {
                            i % 50_000 * 8
                        } else {
                            1 << 40 | (random(20_000) * 8)
                        }
                    }
                    // A table that is written once, and then a part of it that is used until the
                    // end.
                    4 => {
                        if i < 16_384 {
                            i * 8
                        } else {
                            i % 512 * 64
                        }
                    }
                    // Blocks of 2,000 addresses, each used twenty times and never again. No part of
                    // the run grows like the whole run.
                    5 => (i / 40_000 * 2_000 + i % 2_000) * 8,
                    // Two phases.
                    _ => {
                        if i < length / 2 {
                            i % 10_000 * 8
                        } else {
                            1 << 40 | (random(5_000) * 8)
                        }
                    }
                })
                .collect();
            let (window, period) = (512usize, 8192usize);
            let mut incidence = Incidence::default();
            let mut order = Order::default();
            for (sample, part) in run.chunks_exact(period).enumerate() {
                let from = random((period - window) as u64) as usize;
                let address = &part[from..from + window];
                let group: Vec<Group> = address
                    .iter()
                    .map(|a| Group::from_raw(1 + (a >> 40) as u32))
                    .collect();
                incidence.add(
                    &ColumnSlices {
                        address,
                        size: &vec![8; window],
                        group: &group,
                        implied: &vec![0; window],
                    },
                    0,
                    sample as u32,
                );
                order.add(sample as u32, 0, None);
            }
            let incidence = Incidence::fold(vec![incidence]);
            let blocks = Blocks::new(&incidence, None, 0, |_| true);
            let inside: Vec<(f64, f64)> = (4..=9)
                .map(|l| ((1u64 << l) as f64, by_definition(&run, 1 << l)))
                .collect();
            let design = Design::new(period as f64 / window as f64, (run.len() / period) as u64);
            let curve = curve(
                &inside,
                &blocks,
                &order,
                (window as f64, period as f64),
                0,
                design,
                1.0,
            );
            assert_eq!(curve.end(), length as f64);
            let mut error = 0.0;
            for level in 4..=20 {
                let (truth, found) = (
                    by_definition(&run, 1 << level),
                    curve.at((1u64 << level) as f64).unwrap(),
                );
                assert_eq!(found.measured, level <= 9, "2^{level}");
                let off = found.footprint.value / truth - 1.0;
                println!(
                    "kind {kind}, 2^{level}: {:.0} for {truth:.0}, {:.1} %",
                    found.footprint.value,
                    off * 100.0
                );
                // Two samples of a short phase do not show its length, but the data beside the hot
                // part must not be invented.
                assert!(
                    off < 0.25 && (off > -0.25 || kind == 4),
                    "kind {kind}, 2^{level}: {found:?}, truth {truth}"
                );
                error += if kind == 4 { 0.0 } else { off.abs() / 17.0 };
            }
            assert!(error < 0.08, "kind {kind}: mean error {error}");
            assert!(curve.at(8.0).is_none() && curve.at(2.0 * length as f64).is_none());
        }
    }
}
