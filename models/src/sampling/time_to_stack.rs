//! From time distances to reuse distances: the model of Shen, Shaw, Meeker and Ding (POPL 2007 and
//! TR902), as RDX uses it (appendix A).
//!
//! There are Δ − 1 accesses between a use and its reuse at time distance Δ. The model assumes that
//! each of the N blocks is accessed there independently with the same probability, so the number of
//! distinct blocks is binomial with mean E(Δ) = Σ_{τ=0}^{Δ−2} P(time distance > τ): the access that
//! is τ + 1 before the end of the interval is the last one to its block there if that block is not
//! accessed within the next τ. First touches count as infinite distances here, because in an
//! interval they are also new blocks.
//!
//! Bars may have any width: values are assumed to be evenly spread over a bar, E is integrated
//! piece by piece in closed form, and each bar is divided into slices whose binomials are added on
//! the output scale. The cost depends on the number of bars, not on the range that they span.

use crate::histogram::Bin;
use crate::statistics::distributions::normal_below;

/// Method to place a slice of time bars on the stack scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBarSpread {
    /// Binomial around the mean, as in the paper.
    Binomial,
    /// All at the mean (as in StatStack).
    Mean,
}

/// Sub-bins per octave of the result.
const BITS: u32 = 7;
/// Slices of a time bar that spans more than one value.
const SLICES: usize = 4;

/// Result bins: index as in `Fine` with [`BITS`].
struct Out {
    cells: Vec<(f64, f64)>,
}

impl Out {
    fn index(value: u64) -> usize {
        let shift = (64 - value.leading_zeros()).saturating_sub(BITS + 1);
        ((shift as usize) << BITS) + (value >> shift) as usize
    }

    fn bounds(index: usize) -> (f64, f64) {
        let shift = (index >> BITS).saturating_sub(1);
        let first = ((index - (shift << BITS)) as u64) << shift;
        (first as f64, first as f64 + (1u64 << shift) as f64)
    }

    fn put(&mut self, value: f64, mass: f64) {
        let index = Out::index(value.max(0.0).round() as u64);
        self.put_at(index, value.max(0.0), mass);
    }

    fn put_at(&mut self, index: usize, value: f64, mass: f64) {
        if index >= self.cells.len() {
            self.cells.resize(index + 1, (0.0, 0.0));
        }
        self.cells[index].0 += mass;
        self.cells[index].1 += mass * value;
    }
}

/// E(m): expected distinct blocks in m consecutive accesses, from bars of time distances.
struct Growth {
    /// Start of a piece, E there, P(distance > start), and the decrease of that probability per
    /// access inside.
    pieces: Vec<(f64, f64, f64, f64)>,
}

impl Growth {
    fn new(bars: &[Bin], cold: f64) -> Growth {
        let total: f64 = bars.iter().map(|b| b.count).sum::<f64>() + cold;
        let mut pieces = Vec::with_capacity(2 * bars.len() + 1);
        // E(m) = Σ_{τ=0}^{m−1} S(τ), with S(τ) = P(distance > τ), S(0) = 1 (distances are at least
        // 1).
        let (mut at, mut expected, mut survive) = (0.0, 0.0, 1.0);
        for bar in bars {
            let from = bar.from.max(1.0);
            if from > at {
                pieces.push((at, expected, survive, 0.0));
                expected += (from - at) * survive;
                at = from;
            }
            // At τ = from, values equal to `from` are no longer greater: S decreases by one value's
            // share at each τ.
            let width = (bar.to - from).max(1.0);
            let fall = bar.count / total / width;
            pieces.push((at, expected, survive - fall, fall));
            expected += width * (survive - fall) - fall * width * (width - 1.0) / 2.0;
            survive -= bar.count / total;
            at += width;
        }
        pieces.push((at, expected, survive.max(0.0), 0.0));
        Growth { pieces }
    }

    fn at(&self, m: f64) -> f64 {
        let next = self.pieces.partition_point(|p| p.0 <= m);
        let (start, expected, survive, fall) = self.pieces[next.saturating_sub(1)];
        let n = m - start;
        expected + n * survive - fall * n * (n - 1.0).max(0.0) / 2.0
    }
}

/// Converts time distances (`bars` ascending, values from 1) of a stream with `cold` first touches
/// and `blocks` distinct blocks to reuse distances. The counts of the result sum to those of the
/// bars.
pub fn convert(bars: &[Bin], cold: f64, blocks: f64, spread: TimeBarSpread) -> Vec<Bin> {
    let growth = Growth::new(bars, cold);
    let mut out = Out { cells: Vec::new() };
    for bar in bars.iter().filter(|b| b.count > 0.0) {
        let width = bar.to - bar.from;
        let slices = if width <= 1.0 {
            1
        } else {
            SLICES.min(width as usize)
        };
        for slice in 0..slices {
            let time = if slices == 1 {
                bar.mean()
            } else {
                bar.from + (width - 1.0) * (slice as f64 + 0.5) / slices as f64
            };
            let mean = growth.at((time - 1.0).max(0.0)).min(blocks);
            let mass = bar.count / slices as f64;
            match spread {
                TimeBarSpread::Mean => out.put(mean, mass),
                // The interval has at least one other access. All of them are to other blocks.
                TimeBarSpread::Binomial => {
                    binomial(&mut out, mean, (blocks - 1.0).max(mean).max(1.0), mass)
                }
            }
        }
    }
    out.cells
        .iter()
        .enumerate()
        .filter(|(_, c)| c.0 > 0.0)
        .map(|(index, &(count, sum))| {
            let (from, to) = Out::bounds(index);
            Bin {
                from,
                to,
                count,
                sum,
            }
        })
        .collect()
}

/// Adds `mass` times a binomial of `n` trials with the given mean.
fn binomial(out: &mut Out, mean: f64, n: f64, mass: f64) {
    let p = mean / n;
    let variance = mean * (1.0 - p);
    if variance < 1e-6 {
        return out.put(mean, mass);
    }
    let deviation = variance.sqrt();
    if mean <= 128.0 && n * (-p).ln_1p() > -700.0 {
        let mut probability = (n * (-p).ln_1p()).exp();
        let (mut left, odds) = (1.0, p / (1.0 - p));
        let last = (mean + 10.0 * deviation + 10.0).min(n) as u64;
        for k in 0..=last {
            out.put(k as f64, mass * probability);
            left -= probability;
            probability *= (n - k as f64) / (k as f64 + 1.0) * odds;
            if left < 1e-12 {
                break;
            }
        }
        if left > 0.0 {
            out.put(mean, mass * left);
        }
        return;
    }
    // A normal distribution, divided among the output's cells.
    let low = (mean - 5.0 * deviation).max(0.0);
    let mut index = Out::index(low as u64);
    let mut before = 0.0;
    loop {
        let (from, to) = Out::bounds(index);
        let below = normal_below((to - 0.5 - mean) / deviation);
        let last = to > mean + 5.0 * deviation || to > n;
        let share = if last { 1.0 - before } else { below - before };
        out.put_at(index, (0.5 * (from + to - 1.0)).min(n), mass * share);
        if last {
            return;
        }
        before = below;
        index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Fine, Scale, TRACE_BITS, cut, shares, similarity};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn bars(values: &[(u64, u64)]) -> Vec<Bin> {
        values
            .iter()
            .map(|&(v, n)| Bin {
                from: v as f64,
                to: v as f64 + 1.0,
                count: n as f64,
                sum: (v * n) as f64,
            })
            .collect()
    }

    #[test]
    fn growth_is_the_expected_number_of_distinct_blocks() {
        // All accesses go to new blocks: m accesses touch m blocks.
        assert_eq!(Growth::new(&[], 5.0).at(7.0), 7.0);
        // All accesses are immediate reuses: one block for any length.
        let g = Growth::new(&bars(&[(1, 10)]), 0.0);
        assert_eq!((g.at(1.0), g.at(2.0), g.at(100.0)), (1.0, 1.0, 1.0));
        // A cycle over four blocks.
        let g = Growth::new(&bars(&[(4, 10)]), 0.0);
        assert_eq!((g.at(3.0), g.at(4.0), g.at(50.0)), (3.0, 4.0, 4.0));
    }

    #[test]
    fn a_cycle_keeps_its_distance_at_the_mean() {
        // Blocks 0..n in turn: time distance n, reuse distance n − 1.
        for n in [2u64, 50, 5000, 1 << 30] {
            let got = convert(&bars(&[(n, 1000)]), 0.0, n as f64, TimeBarSpread::Mean);
            assert_eq!(got.iter().map(|b| b.count).sum::<f64>(), 1000.0);
            assert!((got[0].mean() - (n - 1) as f64).abs() < 1e-6 * n as f64);
        }
    }

    #[test]
    fn a_range_of_two_to_the_40_takes_no_time() {
        let mut fine = Fine::new(TRACE_BITS);
        let mut x = 1u64;
        for i in 0..2_000_000u64 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            fine.add(((x >> 24) >> (i % 40)).max(1));
        }
        let bars: Vec<Bin> = fine.bins().collect();
        let clock = std::time::Instant::now();
        let got = convert(&bars, 1e5, 1e9, TimeBarSpread::Binomial);
        // The limit includes debug builds and loaded machines. `benches/run models` has the figure.
        assert!(clock.elapsed().as_secs() < 20);
        assert!((got.iter().map(|b| b.count).sum::<f64>() - 2e6).abs() < 1.0);
    }

    #[test]
    fn random_accesses_are_converted_almost_exactly() {
        // The model assumes independent accesses, as these are.
        let mut x = 7u64;
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut stack: Vec<u64> = Vec::new();
        let (mut times, mut distances) = (Fine::new(TRACE_BITS), Fine::new(TRACE_BITS));
        for i in 0..60_000u64 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let unit = (x >> 11) as f64 / (1u64 << 53) as f64;
            let block = (unit * unit * 1000.0) as u64;
            if let Some(before) = last.insert(block, i) {
                times.add(i - before);
                let at = stack.iter().rposition(|&b| b == block).unwrap();
                distances.add((stack.len() - 1 - at) as u64);
                stack.remove(at);
            }
            stack.push(block);
        }
        let bars: Vec<Bin> = times.cut(&Scale::Octaves { first: 1, bins: 0 });
        for bars in [times.bins().collect::<Vec<_>>(), bars] {
            let got = convert(
                &bars,
                last.len() as f64,
                last.len() as f64,
                TimeBarSpread::Binomial,
            );
            let s = similarity(
                &shares(got.into_iter(), &Scale::Log),
                &shares(distances.bins(), &Scale::Log),
            );
            assert!(s > 0.96, "{s}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Equations 3 and 4 literally, with bars of width 1.
        #[test]
        fn agrees_with_the_equations(
            counts in prop::collection::vec(0u64..20, 1..40), cold in 1u64..30,
        ) {
            let blocks = cold as f64;
            let total: f64 = counts.iter().sum::<u64>() as f64 + cold as f64;
            let values: Vec<(u64, u64)> = counts.iter().enumerate().map(|(i, &n)| (i as u64 + 1, n)).filter(|v| v.1 > 0).collect();
            let mut want: HashMap<u64, f64> = HashMap::new();
            for &(delta, n) in &values {
                let expected: f64 = (0..delta - 1)
                    .map(|tau| (values.iter().filter(|v| v.0 > tau).map(|v| v.1).sum::<u64>() + cold) as f64 / total)
                    .sum::<f64>()
                    .min(blocks);
                let trials = (blocks - 1.0).max(expected).max(1.0);
                let p = expected / trials;
                // P(k, Δ) by definition. The number of trials may be a fraction if the mean exceeds
                // N − 1.
                if p * (1.0 - p) * trials < 1e-6 {
                    // Halfway between two values, rounding errors decide.
                    prop_assume!((expected.fract() - 0.5).abs() > 1e-9);
                    *want.entry(expected.round() as u64).or_default() += n as f64;
                    continue;
                }
                let mut choose = 1.0;
                let mut sum = 0.0;
                let mut k = 0;
                while f64::from(k) <= trials {
                    let term = choose * p.powi(k) * (1.0 - p).powf(trials - f64::from(k));
                    *want.entry(k as u64).or_default() += n as f64 * term;
                    sum += term;
                    choose *= (trials - f64::from(k)) / (f64::from(k) + 1.0);
                    k += 1;
                }
                prop_assert!((sum - 1.0).abs() < 1e-6 || trials.fract() != 0.0);
            }
            let got = convert(&bars(&values), cold as f64, blocks, TimeBarSpread::Binomial);
            for (k, mass) in want {
                let mine = got.iter().find(|b| b.from as u64 == k).map_or(0.0, |b| b.count);
                prop_assert!((mine - mass).abs() < 1e-3 * mass.max(1.0), "{k}: {mine} {mass}");
            }
            let (a, b): (f64, f64) = (got.iter().map(|b| b.count).sum(), values.iter().map(|v| v.1 as f64).sum());
            prop_assert!((a - b).abs() < 1e-6);
            prop_assert!(cut(got.into_iter(), &Scale::Log).iter().all(|b| b.count >= 0.0));
        }
    }
}
