//! The footprint estimator, see [`super`].

use super::clusters::{Sums, Table};
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

impl Tally {
    /// From the samples of the singletons and of the doubletons.
    fn new(counts: &Sums, design: Design) -> Tally {
        let (f1, f2) = (counts.singles as f64, counts.pairs as f64);
        // The mean number of equals that a member has.
        let mean = |squares: u64, count: f64| if count > 0.0 { squares as f64 / count } else { 0.0 };
        let single_cluster = mean(counts.single_squares, f1);
        let samples = design.samples.max(1) as f64;
        // Variance of a total over samples, those without singletons included.
        let variance = (counts.single_squares as f64 - f1 * f1 / samples).max(0.0) * samples / (samples - 1.0).max(1.0);
        Tally {
            f1,
            f2,
            // Without a coincidence, one would be of about half of what a sample has for itself.
            cluster: if f2 > 0.0 { mean(counts.pair_squares, f2) } else { (single_cluster / 2.0).max(1.0) },
            spread: (variance.max(f1) * (1.0 - design.share).max(0.0)).sqrt(),
            single: single_cluster.max(1.0),
            irregular: if f1 + f2 > 0.0 { counts.irregular as f64 / (f1 + f2) } else { 0.0 },
        }
    }

    /// Of windows of a few samples each, summed over all such windows. `per_sample`: blocks that a sample sees; `irregular`: share of blocks that Irregular loads touch.
    pub(super) fn pooled(singles: f64, pairs: f64, per_sample: f64, irregular: f64, design: Design) -> Tally {
        Tally {
            f1: singles,
            f2: pairs,
            // Of what one of the two samples sees, the other one has seen this part.
            cluster: (per_sample * pairs / (singles + pairs).max(1.0)).max(1.0),
            spread: (singles * per_sample.max(1.0) * (1.0 - design.share).max(0.0)).sqrt(),
            single: per_sample.max(1.0),
            irregular,
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

/// Part of the blocks, which is estimated by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stratum {
    /// Where its blocks end (exclusive index).
    pub(super) end: usize,
    /// What is unseen of it.
    pub(super) unseen: Estimate,
}

/// Cuts blocks, sorted by number, into strata.
pub(super) fn strata(blocks: &[Block], design: Design) -> Vec<Stratum> {
    let mut division = Division { design, table: Table::new(blocks), strata: Vec::new() };
    let [(_, whole)] = division.table.sides(0, blocks.len(), &[0]);
    division.divide(blocks, 0, Tally::new(&whole, design), 0);
    division.strata
}

/// Where the number of a block is farthest from that of the one before; of equals the one nearest to the middle.
fn widest_gap(blocks: &[Block]) -> usize {
    let middle = blocks.len() / 2;
    let gap = |i: usize| blocks[i].number - blocks[i - 1].number;
    let widest = blocks.windows(2).map(|pair| pair[1].number - pair[0].number).max().unwrap_or(0);
    let at = |i: usize| (1..blocks.len()).contains(&i) && gap(i) == widest;
    (0..blocks.len()).find_map(|d| [middle + d, middle.wrapping_sub(d)].into_iter().find(|&i| at(i))).unwrap_or(1)
}

struct Division {
    design: Design,
    table: Table,
    strata: Vec<Stratum>,
}

impl Division {
    fn divide(&mut self, blocks: &[Block], from: usize, whole: Tally, depth: u32) {
        let design = self.design;
        if depth < DEPTH && blocks.len() >= 16 {
            // At the widest gap, which is where objects meet; else in the middle.
            let middle = blocks.len() / 2;
            let gap = widest_gap(blocks);
            let wanted = [gap, middle, blocks.len() / 4, blocks.len() * 3 / 4];
            let mut places = wanted;
            places.sort_unstable();
            let sides = self.table.sides(from, from + blocks.len(), &places.map(|p| from + p));
            let sides = sides.map(|(a, b)| (Tally::new(&a, design), Tally::new(&b, design)));
            let at = |place: usize| sides[places.iter().position(|&p| p == place).unwrap_or(0)];
            for place in wanted {
                let (a, b) = at(place);
                if a.precise(design) && b.precise(design) && a.differs(&b) {
                    let (left, right) = blocks.split_at(place);
                    self.divide(left, from, a, depth + 1);
                    self.divide(right, from + place, b, depth + 1);
                    return;
                }
            }
            // Alike at this resolution; below an even cut there may still be differences.
            let (a, b) = at(middle);
            if depth < 4 && whole.f1 > 64.0 && a.precise(design) && b.precise(design) {
                let (left, right) = blocks.split_at(middle);
                let mark = self.strata.len();
                self.divide(left, from, a, depth + 1);
                let half = self.strata.len();
                self.divide(right, from + middle, b, depth + 1);
                if half - mark > 1 || self.strata.len() - half > 1 {
                    return;
                }
                self.strata.truncate(mark);
            }
        }
        self.strata.push(Stratum { end: from + blocks.len(), unseen: whole.unseen(design) });
    }
}

/// The number of distinct blocks of the whole run. `blocks`: those that were seen, sorted by number; `scale`: of how many pages these are
/// one ([`crate::incidence::Incidence::scale`]); `observed`: how many were seen in all (exact).
pub fn footprint(blocks: &[Block], design: Design, scale: f64, observed: u64) -> Estimate {
    if design.complete() || blocks.is_empty() {
        return Estimate::exact(observed as f64);
    }
    let marked = design.marked();
    together(&strata(blocks, marked), scale, base(blocks, design, scale, observed)).at_least(observed as f64)
}

/// What an estimate is added to: what was seen; where that is known of some samples alone, what these have seen.
pub(super) fn base(blocks: &[Block], design: Design, scale: f64, observed: u64) -> f64 {
    if design.kept < 1.0 { blocks.len() as f64 * scale } else { observed as f64 }
}

/// As [`footprint`], from the strata.
pub(super) fn together(strata: &[Stratum], scale: f64, observed: f64) -> Estimate {
    let (mut value, mut below, mut above) = (0.0, 0.0, 0.0);
    for Stratum { unseen, .. } in strata {
        value += unseen.value;
        below += (unseen.value - unseen.lo).powi(2);
        above += (unseen.hi - unseen.value).powi(2);
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
