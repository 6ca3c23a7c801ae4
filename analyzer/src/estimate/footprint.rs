//! The footprint estimator, see [`super`].

use super::{Design, Estimate, Z, poisson_bounds};

/// Strata are divided at most this often.
const DEPTH: u32 = 10;
/// Two strata differ if the ratios of their doubletons to singletons do by this many standard deviations.
const DIFFERENT: f64 = 3.0;

/// An address (line, page) and how many samples have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number; what is near in number is used alike.
    pub number: u64,
    /// Samples that have seen it.
    pub samples: u32,
    /// The first two of these.
    pub first: [u32; 2],
    /// Whether an Irregular load has touched it.
    pub irregular: bool,
}

/// Sums over blocks of one stratum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Blocks seen in one sample, in two.
    f1: f64,
    f2: f64,
    /// Blocks per independent coincidence of two samples.
    cluster: f64,
    /// Standard deviation of `f1`.
    spread: f64,
    /// Singletons per sample that has any.
    single: f64,
    /// Share of blocks that Irregular loads touch.
    irregular: f64,
}

/// Of a list: the mean length of the run of equals that a member is in, and the sum of the squared lengths.
fn mean_cluster<T: Ord + Copy>(list: &mut [T]) -> (f64, f64) {
    list.sort_unstable();
    let squares: f64 = list.chunk_by(|a, b| a == b).map(|run| (run.len() as f64).powi(2)).sum();
    (if list.is_empty() { 0.0 } else { squares / list.len() as f64 }, squares)
}

impl Tally {
    fn of(blocks: &[Block], design: Design) -> Tally {
        let singles = blocks.iter().filter(|b| b.samples == 1).map(|b| b.first[0]).collect();
        let pairs = blocks.iter().filter(|b| b.samples == 2).map(|b| b.first).collect();
        let irregular = blocks.iter().filter(|b| b.samples <= 2 && b.irregular).count();
        Tally::new(singles, pairs, irregular, design.samples, design.share)
    }

    /// From the samples of the singletons and of the doubletons, of `samples` samples in all; `irregular` of these blocks are so.
    pub(super) fn new(mut singles: Vec<u32>, mut pairs: Vec<[u32; 2]>, irregular: usize, samples: u64, share: f64) -> Tally {
        let (f1, f2) = (singles.len() as f64, pairs.len() as f64);
        let (single_cluster, squares) = mean_cluster(&mut singles);
        let (pair_cluster, _) = mean_cluster(&mut pairs);
        let samples = samples.max(1) as f64;
        // Variance of a total over samples, those without singletons included.
        let variance = (squares - f1 * f1 / samples).max(0.0) * samples / (samples - 1.0).max(1.0);
        Tally {
            f1,
            f2,
            // Without a coincidence, one would be of about half of what a sample has for itself.
            cluster: if f2 > 0.0 { pair_cluster } else { (single_cluster / 2.0).max(1.0) },
            spread: (variance.max(f1) * (1.0 - share).max(0.0)).sqrt(),
            single: single_cluster.max(1.0),
            irregular: if f1 + f2 > 0.0 { irregular as f64 / (f1 + f2) } else { 0.0 },
        }
    }

    /// Independent coincidences.
    fn coincidences(&self) -> f64 {
        self.f2 / self.cluster.max(1.0)
    }

    /// The unseen blocks if there were `f1` singletons and `f2` doubletons, and the share `chance` of the blocks were used by chance.
    fn unseen_of(f1: f64, f2: f64, chance: f64, design: Design) -> f64 {
        if f1 <= 0.0 || design.complete() {
            return 0.0;
        }
        let (t, q) = (design.samples.max(2) as f64, design.share);
        // The mean number of further sightings of a block that was seen, and what makes it all that there is.
        let (again, rest) = (2.0 * t / (t - 1.0) * f2 / f1, q / (1.0 - q));
        let regular = f1 / (again + rest);
        let by_chance = if again / rest < 1e-6 { f1 / rest } else { f1 / again * -(-again / rest).exp_m1() };
        regular + (by_chance - regular) * chance
    }

    /// Unseen blocks: estimate and bounds.
    pub(super) fn unseen(&self, design: Design) -> Estimate {
        let n = self.coincidences();
        let (low, high) = poisson_bounds(n);
        // Few samples that have singletons (a short phase) might as well have been none, or several times as many.
        let (few_low, few_high) = poisson_bounds(self.f1 / self.single);
        let f1_low = (self.f1 - Z * self.spread).min(few_low * self.single).max(0.0);
        let f1_high = (self.f1 + Z * self.spread).max(few_high * self.single);
        // The bias correction of one coincidence: the mean of 1/(n+1) is 1/mean for Poisson n.
        let of = |f1: f64, n: f64, chance: f64| Self::unseen_of(f1, n * self.cluster, chance, design);
        let value = of(self.f1, n + 1.0, self.irregular);
        // A coincidence more is two singletons less: both push the estimate the same way, so their errors add up.
        // The lower ends take fewer blocks as used by chance than Irregular loads touch, the upper ends more.
        let (few, many) = (self.irregular * self.irregular, 1.0 - (1.0 - self.irregular).powi(2));
        let by_pairs = (of(self.f1, high, few), of(self.f1, low, many));
        let by_singles = (of(f1_low, n + 1.0, self.irregular), of(f1_high, n + 1.0, self.irregular));
        let lo = value - (value - by_pairs.0) - (value - by_singles.0);
        let hi = value + (by_pairs.1 - value).max(0.0) + (by_singles.1 - value).max(0.0);
        Estimate { value, lo: lo.max(0.0), hi }
    }

    /// Whether there is enough evidence for an estimate of its own: the denominator is known to about a quarter.
    fn precise(&self, design: Design) -> bool {
        let n = self.coincidences();
        let q = design.share;
        2.0 * n + q / (1.0 - q).max(1e-9) * self.f1 / self.cluster.max(1.0) >= 8.0 * (n + 1.0).sqrt()
    }

    /// Whether two strata are used differently: their doubletons per singleton, which estimate q(k−1)/2 for blocks that occur in k windows, differ.
    fn differs(&self, other: &Tally) -> bool {
        let (a, b) = (self.coincidences() + 0.5, other.coincidences() + 0.5);
        if self.f1 <= 0.0 || other.f1 <= 0.0 {
            return self.f1 != other.f1;
        }
        let ratio = (a * self.cluster.max(1.0) / self.f1).ln() - (b * other.cluster.max(1.0) / other.f1).ln();
        ratio.abs() > DIFFERENT * (1.0 / a + 1.0 / b).sqrt()
    }
}

/// Cuts blocks, sorted by number, into strata; returns the ends of the strata (exclusive indices).
pub(super) fn strata(blocks: &[Block], design: Design) -> Vec<usize> {
    let mut ends = Vec::new();
    divide(blocks, 0, Tally::of(blocks, design), design, 0, &mut ends);
    ends
}

fn divide(blocks: &[Block], from: usize, whole: Tally, design: Design, depth: u32, ends: &mut Vec<usize>) {
    if depth < DEPTH && blocks.len() >= 16 {
        // At the widest gap, which is where objects meet; else in the middle.
        let gap = (1..blocks.len()).max_by_key(|&i| (blocks[i].number - blocks[i - 1].number, std::cmp::Reverse(i.abs_diff(blocks.len() / 2))));
        for at in [gap.unwrap_or(1), blocks.len() / 2, blocks.len() / 4, blocks.len() * 3 / 4] {
            let (left, right) = blocks.split_at(at);
            let (a, b) = (Tally::of(left, design), Tally::of(right, design));
            if a.precise(design) && b.precise(design) && a.differs(&b) {
                divide(left, from, a, design, depth + 1, ends);
                divide(right, from + at, b, design, depth + 1, ends);
                return;
            }
        }
        // Alike at this resolution; below an even cut there may still be differences.
        if depth < 4 && whole.f1 > 64.0 {
            let at = blocks.len() / 2;
            let (left, right) = blocks.split_at(at);
            let (a, b) = (Tally::of(left, design), Tally::of(right, design));
            if a.precise(design) && b.precise(design) {
                let mut inner = Vec::new();
                divide(left, from, a, design, depth + 1, &mut inner);
                let cut_left = inner.len() > 1;
                let mark = inner.len();
                divide(right, from + at, b, design, depth + 1, &mut inner);
                if cut_left || inner.len() - mark > 1 {
                    ends.extend(inner);
                    return;
                }
            }
        }
    }
    ends.push(from + blocks.len());
}

/// The number of distinct blocks of the whole run. `blocks`: those that were seen, sorted by number; `scale`: of how many pages these are
/// one ([`crate::incidence::Incidence::scale`]); `observed`: how many were seen in all (exact).
pub fn footprint(blocks: &[Block], design: Design, scale: f64, observed: u64) -> Estimate {
    let observed = observed as f64;
    if design.complete() || blocks.is_empty() {
        return Estimate::exact(observed);
    }
    let (mut value, mut below, mut above) = (0.0, 0.0, 0.0);
    let mut from = 0;
    for end in strata(blocks, design) {
        let unseen = Tally::of(&blocks[from..end], design).unseen(design);
        value += unseen.value;
        below += (unseen.value - unseen.lo).powi(2);
        above += (unseen.hi - unseen.value).powi(2);
        from = end;
    }
    Estimate {
        value: observed + value * scale,
        lo: observed + (value - below.sqrt()).max(0.0) * scale,
        hi: observed + (value + above.sqrt()) * scale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A generator of pseudo-random numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    /// Samples windows of `window` accesses from a run, one per period, each at a random place of its period.
    fn sampled(run: &[u64], window: usize, period: usize, random: &mut Random) -> (Vec<Block>, Design, u64) {
        let mut seen: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let samples = run.len() / period;
        for sample in 0..samples {
            let from = sample * period + random.below((period - window + 1) as u64) as usize;
            for &address in &run[from..from + window] {
                let list = seen.entry(address).or_default();
                if list.last() != Some(&(sample as u32)) {
                    list.push(sample as u32);
                }
            }
        }
        let blocks: Vec<Block> = seen
            .iter()
            .map(|(&number, list)| Block { number, samples: list.len() as u32, first: [list[0], list.get(1).copied().unwrap_or(0)], irregular: number >> 40 != 0 })
            .collect();
        let observed = blocks.len() as u64;
        (blocks, Design::new(run.len() as f64 / (samples * window) as f64, samples as u64), observed)
    }

    fn distinct(run: &[u64]) -> f64 {
        run.iter().collect::<std::collections::HashSet<_>>().len() as f64
    }

    /// Runs of different kinds: all addresses once; a loop over an array; random accesses; a hot table beside a stream.
    fn run(kind: usize, length: usize, random: &mut Random) -> Vec<u64> {
        let n = length as u64;
        (0..n)
            .map(|i| match kind {
                0 => i,
                1 => i % (n / 23),
                2 => 1 << 40 | random.below(n / 8),
                3 => if i % 4 == 0 { 1 << 40 | random.below(n / 100) } else { i },
                _ => if i % 2 == 0 { i % (n / 11) } else { 1 << 40 | random.below(n / 40) },
            })
            .collect()
    }

    /// Intervals cover the truth in 90 % of the cases and more, and the estimate is near: better than ρF wherever samples overlap.
    #[test]
    fn intervals_cover_the_truth_of_simulated_runs() {
        let mut random = Random(5);
        for kind in 0..5 {
            let (mut hits, mut error, mut naive) = (0, 0.0, 0.0);
            let cases = 20;
            for _ in 0..cases {
                let run = run(kind, 400_000, &mut random);
                let truth = distinct(&run);
                let (blocks, design, observed) = sampled(&run, 100, 2000, &mut random);
                let estimate = footprint(&blocks, design, 1.0, observed);
                assert!(estimate.lo <= estimate.value && estimate.value <= estimate.hi && estimate.lo >= observed as f64);
                hits += u32::from(estimate.lo <= truth && truth <= estimate.hi);
                error += (estimate.value / truth - 1.0).abs() / f64::from(cases);
                naive += (observed as f64 / design.share / truth - 1.0).abs() / f64::from(cases);
            }
            let rate = f64::from(hits) / f64::from(cases);
            println!("kind {kind}: {rate} covered, error {error:.3}, of ρF {naive:.1}");
            assert!(rate >= 0.9, "kind {kind}: {rate} covered, error {error}");
            assert!(error < 0.25, "kind {kind}: error {error}");
            assert!(kind == 0 || kind == 3 || error < naive / 2.0, "kind {kind}: error {error}, of ρF {naive}");
        }
    }

    #[test]
    fn everything_seen_is_exact_and_nothing_is_nothing() {
        let blocks = [Block { number: 1, samples: 1, first: [0, 0], irregular: false }];
        assert_eq!(footprint(&blocks, Design::new(1.0, 1), 1.0, 1), Estimate::exact(1.0));
        assert_eq!(footprint(&[], Design::new(100.0, 3), 1.0, 0), Estimate::exact(0.0));
        // One sample of a thousandth: anything up to ρF is possible, and the row says so.
        let blocks: Vec<Block> = (0..100).map(|number| Block { number, samples: 1, first: [0, 0], irregular: false }).collect();
        let estimate = footprint(&blocks, Design::new(1000.0, 1), 1.0, 100);
        assert!(estimate.vague() && estimate.hi >= 99_000.0, "{estimate:?}");
    }

    #[test]
    fn a_stream_beside_a_hot_table_is_cut_from_it() {
        let mut random = Random(9);
        let run = run(3, 2_000_000, &mut random);
        let (blocks, design, observed) = sampled(&run, 500, 5000, &mut random);
        let estimate = footprint(&blocks, design, 1.0, observed);
        let truth = distinct(&run);
        assert!((estimate.value / truth - 1.0).abs() < 0.1, "{estimate:?}, truth {truth}");
        assert!(strata(&blocks, design).len() > 1);
    }
}
