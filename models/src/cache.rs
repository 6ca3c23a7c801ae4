//! Caches: the stack-distance cache model, and an exact simulator of set-associative LRU caches.

use crate::histogram::Bin;
use serde::{Deserialize, Serialize};

/// Why a cache cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A number is zero.
    #[error("a cache of {size} bytes with {ways} ways of {line}-byte lines cannot be: none of the three may be 0")]
    Zero {
        /// Bytes.
        size: u64,
        /// Ways.
        ways: u64,
        /// Line.
        line: u64,
    },
    /// The line is not a power of two.
    #[error("lines of {0} bytes cannot be: it must be a power of two from 1 to 65536")]
    Line(u64),
    /// The size is no multiple of a way.
    #[error("{size} bytes do not divide into {ways} ways of {line}-byte lines: the size must be a multiple of {}", ways * line)]
    Uneven {
        /// Bytes.
        size: u64,
        /// Ways.
        ways: u64,
        /// Line.
        line: u64,
    },
}

/// Shape of a set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Associativity A.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
}

impl Shape {
    /// Checks a shape. Sets need not be a power of two (real last-level caches have 12 × 2ⁿ); the simulator takes
    /// the set as block number modulo sets.
    pub fn new(size: u64, ways: u64, line: u64) -> Result<Shape, ShapeError> {
        if size == 0 || ways == 0 || line == 0 {
            return Err(ShapeError::Zero { size, ways, line });
        }
        if !line.is_power_of_two() || line > 1 << 16 {
            return Err(ShapeError::Line(line));
        }
        match ways.checked_mul(line) {
            Some(way) if size.is_multiple_of(way) => Ok(Shape { size, ways, line }),
            _ => Err(ShapeError::Uneven { size, ways, line }),
        }
    }

    /// Blocks B.
    pub fn blocks(&self) -> u64 {
        self.size / self.line
    }

    /// Sets.
    pub fn sets(&self) -> u64 {
        self.blocks() / self.ways
    }
}

/// P(h|D) of the stack-distance cache model (Brehob and Enbody; Barai et al., equation 2): the probability that an access with D
/// distinct blocks in between hits in a cache of `sets` sets with A ways, if blocks fall into sets at random: less than A of the D fell into
/// its set, Σ_{a<A} C(D,a) (1/sets)^a (1 − 1/sets)^(D−a). D may be a fraction (the mean of a bin).
pub fn hit_probability(distance: f64, ways: u64, sets: u64) -> f64 {
    if distance < ways as f64 {
        return 1.0;
    }
    if sets == 1 {
        return 0.0;
    }
    below(ways, distance, 1.0 / sets as f64)
}

/// P(a < `ways`) for a binomial a of `n` trials with probability `p`; n may be a fraction.
fn below(ways: u64, n: f64, p: f64) -> f64 {
    if n < ways as f64 || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (distance, mean) = (n, n * p);
    let ways = ways as f64;
    // Far from the threshold the sum is 1 or 0 to the last digit.
    let deviation = (mean * (1.0 - p)).sqrt();
    if ways > mean + 10.0 * deviation + 30.0 {
        return 1.0;
    }
    if ways < mean - 12.0 * deviation - 30.0 {
        return 0.0;
    }
    // From the largest term downwards on either side of it, as far as terms matter.
    let odds = p / (1.0 - p);
    let mode = (((distance + 1.0) * p).floor()).min(ways - 1.0).max(0.0);
    let log_mode = ln_choose(distance, mode) + mode * p.ln() + (distance - mode) * (-p).ln_1p();
    let top = log_mode.exp();
    let (mut sum, mut term, mut a) = (top, top, mode);
    while a > 0.0 && term > sum * 1e-17 {
        term *= a / ((distance - a + 1.0) * odds);
        sum += term;
        a -= 1.0;
    }
    let (mut term, mut a) = (top, mode);
    while a + 1.0 < ways && term > sum * 1e-17 {
        term *= (distance - a) / (a + 1.0) * odds;
        sum += term;
        a += 1.0;
    }
    sum.min(1.0)
}

/// ln C(n, k) for n that may be a fraction.
fn ln_choose(n: f64, k: f64) -> f64 {
    ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0)
}

/// ln Γ(x) for x > 0: Stirling's series after shifting x above 10 (error below 1e-12).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let i = 1.0 / x;
    let i2 = i * i;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + i * (1.0 / 12.0 - i2 * (1.0 / 360.0 - i2 * (1.0 / 1260.0 - i2 / 1680.0))) - shift
}

/// Expected hits of accesses whose distances (in lines of the cache) are given, in one cache that sees them all.
pub fn expected_hits(bins: impl Iterator<Item = Bin>, shape: &Shape) -> f64 {
    bins.map(|bin| {
        let width = bin.to - bin.from;
        if width <= 1.0 || bin.to <= shape.ways as f64 {
            return bin.count * hit_probability(bin.mean(), shape.ways, shape.sets());
        }
        // Wide bins: Simpson's rule over the values.
        let at = |d: f64| hit_probability(d, shape.ways, shape.sets());
        bin.count * (at(bin.from) + 4.0 * at(0.5 * (bin.from + bin.to - 1.0)) + at(bin.to - 1.0)) / 6.0
    })
    .fold(0.0, |sum, hits| sum + hits)
}

/// Distances by set of a cache, for a model that does not take sets as random.
///
/// [`hit_probability`] lets each of the D blocks in between fall into any set alike. Programs that stride by powers of two crowd into few sets, and those
/// that fill a cache exactly spread perfectly. This model has two more facts about each set, counted on the trace: how many distinct
/// blocks it gets in all (no more than those can be in between), and its share of the touches whose own distance is at least d, which is the
/// probability that the block that makes d distinct blocks d + 1 lies in it. Their sum over d < D is the mean number of blocks of the set among D.
pub struct SetProfile {
    sets: u64,
    /// Reuses, sets × [`SET_BINS`].
    reuses: Vec<u32>,
    /// Distinct blocks.
    blocks: Vec<u64>,
}

/// Log2 of the bins of an octave.
const FINE_BITS: u32 = 5;
/// Distances below 64 have a bin each, then 32 bins an octave.
const SET_BINS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

fn set_bin(distance: u64) -> usize {
    if distance < 2 << FINE_BITS {
        return distance as usize;
    }
    let shift = 63 - distance.leading_zeros() - FINE_BITS;
    ((shift as usize) << FINE_BITS) + (distance >> shift) as usize
}

/// First distance of a bin.
fn set_bin_from(bin: usize) -> f64 {
    let shift = (bin >> FINE_BITS).saturating_sub(1);
    (bin - (shift << FINE_BITS)) as f64 * (2.0f64).powi(shift as i32)
}

impl SetProfile {
    /// For a cache. `None` if it has so many sets that counting each would take more than 64 MB.
    pub fn new(shape: &Shape) -> Option<SetProfile> {
        let sets = shape.sets();
        (sets <= 1 << 12).then(|| SetProfile { sets, reuses: vec![0; sets as usize * SET_BINS], blocks: vec![0; sets as usize] })
    }

    /// A block is touched for the first time.
    #[inline(always)]
    pub fn first(&mut self, block: u64) {
        self.blocks[(block % self.sets) as usize] += 1;
    }

    /// A block is touched again.
    #[inline(always)]
    pub fn reuse(&mut self, block: u64, distance: u64) {
        let count = &mut self.reuses[(block % self.sets) as usize * SET_BINS + set_bin(distance)];
        *count = count.saturating_add(1);
    }

    /// Expected hits with `ways` ways.
    pub fn expected_hits(&self, ways: u64) -> f64 {
        let set = |s: usize| &self.reuses[s * SET_BINS..(s + 1) * SET_BINS];
        let last = (0..self.sets as usize).filter_map(|s| set(s).iter().rposition(|&n| n > 0)).max().unwrap_or(0);
        // Touches with distances from each bin on; first touches have come from beyond all.
        let mut tails = vec![self.blocks.iter().sum::<u64>() as f64; last + 2];
        for bin in (0..=last).rev() {
            tails[bin] = tails[bin + 1] + (0..self.sets as usize).map(|s| f64::from(set(s)[bin])).sum::<f64>();
        }
        let mut hits = 0.0;
        for s in 0..self.sets as usize {
            let counts = set(s);
            let mut tail = self.blocks[s] as f64 + counts.iter().map(|&n| f64::from(n)).sum::<f64>();
            let others = self.blocks[s].saturating_sub(1) as f64;
            // The block itself is not among those between its use and its reuse.
            let without = others / (others + 1.0);
            // Mean number of the set's blocks among as many as the bin begins with.
            let mut mean = 0.0;
            for bin in 0..=last {
                let (from, width) = (set_bin_from(bin), set_bin_from(bin + 1) - set_bin_from(bin));
                let rate = if tails[bin] > 0.0 { without * tail / tails[bin] } else { 0.0 };
                if counts[bin] > 0 {
                    let half = 0.5 * (width - 1.0);
                    let distance = from + half;
                    let n = distance.min(others);
                    let expected = (mean + half * rate).min(n);
                    hits += f64::from(counts[bin]) * if n > 0.0 { below(ways, n, expected / n) } else { 1.0 };
                }
                mean += width * rate;
                tail -= f64::from(counts[bin]);
            }
        }
        hits
    }
}

/// A set-associative cache with exact LRU replacement in each set.
pub struct Cache {
    sets: u64,
    ways: usize,
    mask: Option<u64>,
    /// Ways of a set next to each other, most recent first.
    lines: Vec<u64>,
    /// Lines in use by set.
    used: Vec<u32>,
}

impl Cache {
    /// An empty cache.
    pub fn new(shape: &Shape) -> Cache {
        let sets = shape.sets();
        Cache {
            sets,
            ways: shape.ways as usize,
            mask: sets.is_power_of_two().then(|| sets - 1),
            lines: vec![0; (sets * shape.ways) as usize],
            used: vec![0; sets as usize],
        }
    }

    /// Accesses a block (address divided by the line size); brings it in if need be. Whether it hit.
    #[inline]
    pub fn access(&mut self, block: u64) -> bool {
        let set = match self.mask {
            Some(mask) => block & mask,
            None => block % self.sets,
        } as usize;
        let used = self.used[set] as usize;
        let lines = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        let found = lines[..used].iter().position(|&l| l == block);
        let last = match found {
            Some(at) => at,
            None if used < self.ways => {
                self.used[set] += 1;
                used
            }
            None => self.ways - 1,
        };
        lines.copy_within(..last, 1);
        lines[0] = block;
        found.is_some()
    }
}

/// Counts of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCounts {
    /// Accesses that reached the level.
    pub accesses: u64,
    /// Those that missed.
    pub misses: u64,
}

/// Levels of caches behind one another: a miss goes on to the next level, and each level that was asked keeps the line
/// (neither inclusion nor exclusion is enforced).
pub struct Hierarchy {
    levels: Vec<(Shape, Cache, LevelCounts)>,
}

impl Hierarchy {
    /// Empty caches, first level first.
    pub fn new(shapes: &[Shape]) -> Hierarchy {
        Hierarchy { levels: shapes.iter().map(|s| (*s, Cache::new(s), LevelCounts::default())).collect() }
    }

    /// An access to `size` bytes at `address`. Across lines, each line is accessed, and the access counts once: as a miss of a level if any of
    /// its lines missed there.
    #[inline]
    pub fn access(&mut self, address: u64, size: u32) {
        let last = address.saturating_add(u64::from(size.max(1)) - 1);
        let mut reached = 0;
        let line = self.levels.first().map_or(64, |l| l.0.line).trailing_zeros();
        for block in (address >> line)..=(last >> line) {
            let mut level = 0;
            while level < self.levels.len() {
                let (shape, cache, _) = &mut self.levels[level];
                if cache.access((block << line) >> shape.line.trailing_zeros()) {
                    break;
                }
                level += 1;
            }
            reached = reached.max(level);
        }
        for (number, (_, _, counts)) in self.levels.iter_mut().enumerate() {
            counts.accesses += u64::from(number <= reached);
            counts.misses += u64::from(number < reached);
        }
    }

    /// An access, and whether it missed in the last level.
    #[inline]
    pub fn misses(&mut self, address: u64, size: u32) -> bool {
        let before = self.levels.last().map_or(0, |l| l.2.misses);
        self.access(address, size);
        self.levels.last().is_none_or(|l| l.2.misses > before)
    }

    /// Counts by level.
    pub fn counts(&self) -> Vec<LevelCounts> {
        self.levels.iter().map(|l| l.2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Fine, WHOLE};
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};

    /// Model of the sets and the exact cache on a stream of lines; hit rates.
    fn by_sets(lines: &[u64], ways: u64, sets: u64) -> (f64, f64) {
        use crate::reuse::{ReuseEngine, ReuseSink};
        struct Sink(SetProfile);
        impl ReuseSink for Sink {
            fn first(&mut self, _: u64, block: u64, _: u32) {
                self.0.first(block);
            }
            fn reuse(&mut self, _: u64, block: u64, _: u32, distance: u64, _: u64) {
                self.0.reuse(block, distance);
            }
            fn done(&mut self, _: u64, _: u32) {}
        }
        let shape = Shape::new(ways * sets * 64, ways, 64).unwrap();
        let address: Vec<u64> = lines.iter().map(|l| l * 64).collect();
        let (size, tag) = (vec![8; lines.len()], vec![0; lines.len()]);
        let mut sink = Sink(SetProfile::new(&shape).unwrap());
        ReuseEngine::new(6).run(&address, &size, &tag, &mut sink);
        let mut cache = Hierarchy::new(std::slice::from_ref(&shape));
        address.iter().for_each(|&a| cache.access(a, 8));
        let counts = cache.counts()[0];
        let n = lines.len() as f64;
        (sink.0.expected_hits(ways) / n, (counts.accesses - counts.misses) as f64 / n)
    }

    #[test]
    fn sets_that_are_filled_exactly_or_crowded_are_seen() {
        // Filled exactly: each set has as many blocks as ways, and all but the first touches hit.
        let cyclic: Vec<u64> = (0..512 * 20).map(|i| i % 512).collect();
        let (model, exact) = by_sets(&cyclic, 8, 64);
        assert!((model - exact).abs() < 1e-9 && exact > 0.94, "{model} {exact}");
        // A quarter more: everything misses.
        let cyclic: Vec<u64> = (0..640 * 20).map(|i| i % 640).collect();
        let (model, exact) = by_sets(&cyclic, 8, 64);
        assert!((model - exact).abs() < 0.01 && exact == 0.0, "{model} {exact}");
        // Half of the touches crowd into one set.
        let mut random = crate::random::Random::new(3);
        let crowded: Vec<u64> = (0..200_000).map(|_| if random.below(2) == 0 { random.below(16) * 64 } else { random.below(256) }).collect();
        let (model, exact) = by_sets(&crowded, 8, 64);
        assert!((model - exact).abs() < 0.02, "{model} {exact}");
        let mut counted = crate::histogram::Fine::new(crate::histogram::WHOLE);
        let mut stack: Vec<u64> = Vec::new();
        for line in &crowded {
            if let Some(at) = stack.iter().rposition(|l| l == line) {
                counted.add((stack.len() - 1 - at) as u64);
                stack.remove(at);
            }
            stack.push(*line);
        }
        let random_sets = expected_hits(counted.bins(), &Shape::new(8 * 64 * 64, 8, 64).unwrap()) / crowded.len() as f64;
        assert!((random_sets - exact).abs() > 0.1, "the model with random sets is far off: {random_sets} {exact}");
    }

    #[test]
    fn bins_of_set_profiles_are_in_order() {
        let mut last = 0;
        for distance in (0..5000).chain((13..64).map(|b| 1 << b)) {
            let bin = set_bin(distance);
            assert!(bin >= last && bin < SET_BINS && set_bin_from(bin) <= distance as f64 && (distance as f64) < set_bin_from(bin + 1), "{distance} {bin}");
            last = bin;
        }
    }

    /// Expected hits as the text of [`SetProfile`] defines them, touch by touch.
    fn by_definition(lines: &[u64], ways: u64, sets: u64) -> f64 {
        let mut stack: Vec<u64> = Vec::new();
        // Set and distance of each touch; first ones have come from beyond all.
        let touches: Vec<(u64, Option<usize>)> = lines
            .iter()
            .map(|line| {
                let at = stack.iter().rposition(|l| l == line);
                let distance = at.map(|at| stack.len() - 1 - at);
                at.map(|at| stack.remove(at));
                stack.push(*line);
                (line % sets, distance)
            })
            .collect();
        let from = |least: usize, set: Option<u64>| touches.iter().filter(|t| set.is_none_or(|s| s == t.0) && t.1.is_none_or(|d| d >= least)).count() as f64;
        let hit = |&(set, distance): &(u64, Option<usize>)| {
            let Some(distance) = distance else { return 0.0 };
            let others = touches.iter().filter(|t| t.0 == set && t.1.is_none()).count() as f64 - 1.0;
            let n = (distance as f64).min(others);
            let mean: f64 = (0..distance).map(|d| others / (others + 1.0) * from(d, Some(set)) / from(d, None)).sum();
            let p = if n > 0.0 { (mean / n).min(1.0) } else { 0.0 };
            let choose = |k: u64| (0..k).fold(1.0, |c, i| c * (n - i as f64) / (i + 1) as f64);
            (0..ways.min(n as u64 + 1)).map(|k| choose(k) * p.powi(k as i32) * (1.0 - p).powi(n as i32 - k as i32)).sum::<f64>().min(1.0)
        };
        touches.iter().map(hit).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_model_of_sets_is_its_definition(lines in prop::collection::vec(prop_oneof![0u64..60, (0u64..8).prop_map(|k| 100 + 4 * k)], 1..120), ways in 1u64..6, sets in 1u64..9) {
            let (model, _) = by_sets(&lines, ways, sets);
            let want = by_definition(&lines, ways, sets) / lines.len() as f64;
            prop_assert!((model - want).abs() < 1e-9, "{} {}", model, want);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// 40,000 independent accesses: the exact share has a standard deviation of at most √(¼ / 40,000) = 0.0025, of which five are allowed. The
        /// model draws blocks with replacement, where the truth is without; measured, that is half a block of all, and one is allowed.
        #[test]
        fn with_random_sets_both_models_agree_with_the_cache(seed: u64, blocks in 100u64..1200, ways in 2u64..9) {
            let mut random = crate::random::Random::new(seed);
            let lines: Vec<u64> = (0..40_000).map(|_| random.below(blocks) * 0x9e37 % 0x1_0001).collect();
            let (model, exact) = by_sets(&lines, ways, 32);
            prop_assert!((model - exact).abs() < 5.0 * 0.0025 + 1.0 / blocks as f64, "{} {}", model, exact);
        }
    }

    #[test]
    fn impossible_shapes_say_why() {
        for (size, ways, line, word) in [(0, 8, 64, "0"), (32768, 0, 64, "0"), (32768, 8, 48, "power of two"), (1000, 8, 64, "multiple of 512")] {
            let error = Shape::new(size, ways, line).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let l3 = Shape::new(36 << 20, 12, 64).unwrap();
        assert_eq!((l3.blocks(), l3.sets()), (589_824, 49_152));
        assert!(Shape::new(u64::MAX, u64::MAX, 64).is_err());
    }

    #[test]
    fn full_associativity_is_a_step_and_direct_mapping_a_power() {
        // A = B: hit if and only if D < A.
        assert_eq!((hit_probability(15.0, 16, 1), hit_probability(16.0, 16, 1)), (1.0, 0.0));
        // A = 1: none of the D may fall into the set.
        for d in [1.0f64, 10.0, 1000.0] {
            assert!((hit_probability(d, 1, 64) - (63.0 / 64.0f64).powf(d)).abs() < 1e-12);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn hit_probability_agrees_with_equation_2(distance in 0u64..3000, ways in 1u64..40, sets_log in 0u32..9) {
            let sets = 1u64 << sets_log;
            // The equation term by term, in logarithms of exact products.
            let (a_over_b, rest) = (1.0 / sets as f64, 1.0 - 1.0 / sets as f64);
            let mut sum = 0.0;
            let mut ln_choose = 0.0;
            for a in 0..ways.min(distance + 1) {
                let b = distance - a;
                let tail = if b == 0 { 0.0 } else { b as f64 * rest.ln() };
                sum += (ln_choose + a as f64 * a_over_b.ln() + tail).exp();
                ln_choose += ((distance - a) as f64).ln() - ((a + 1) as f64).ln();
            }
            prop_assert!((hit_probability(distance as f64, ways, sets) - sum.min(1.0)).abs() < 1e-9);
        }

        #[test]
        fn the_simulator_agrees_with_lists(
            trace in prop::collection::vec((0u64..4096, 1u32..100), 1..400),
            ways in 1u64..5, sets in 1u64..7, more in 1u64..4,
        ) {
            let first = Shape::new(ways * sets * 32, ways, 32).unwrap();
            let second = Shape::new(ways * sets * more * 64, ways, 64).unwrap();
            let mut hierarchy = Hierarchy::new(&[first, second]);
            let mut lists: [HashMap<u64, VecDeque<u64>>; 2] = Default::default();
            let mut want = [(0u64, 0u64); 2];
            let mut touch = |level: usize, shape: &Shape, address: u64| {
                let block = address / shape.line;
                let list = lists[level].entry(block % shape.sets()).or_default();
                let hit = list.contains(&block);
                list.retain(|&b| b != block);
                list.push_front(block);
                list.truncate(shape.ways as usize);
                hit
            };
            for &(address, size) in &trace {
                hierarchy.access(address, size);
                let (mut reached_second, mut missed_second) = (false, false);
                for line in address / 32..=(address + u64::from(size) - 1) / 32 {
                    if !touch(0, &first, line * 32) {
                        reached_second = true;
                        missed_second |= !touch(1, &second, line * 32);
                    }
                }
                want[0].0 += 1;
                want[0].1 += u64::from(reached_second);
                want[1].0 += u64::from(reached_second);
                want[1].1 += u64::from(missed_second);
            }
            let got: Vec<(u64, u64)> = hierarchy.counts().iter().map(|c| (c.accesses, c.misses)).collect();
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn the_model_predicts_random_accesses() {
        let shape = Shape::new(8 * 64 * 64, 8, 64).unwrap();
        let mut cache = Cache::new(&shape);
        let mut fine = Fine::new(WHOLE);
        let mut stack: Vec<u64> = Vec::new();
        let (mut x, mut hits) = (3u64, 0u32);
        for _ in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let unit = (x >> 11) as f64 / (1u64 << 53) as f64;
            let block = (unit * unit * 1500.0) as u64;
            hits += u32::from(cache.access(block));
            if let Some(at) = stack.iter().rposition(|&b| b == block) {
                fine.add((stack.len() - 1 - at) as u64);
                stack.remove(at);
            }
            stack.push(block);
        }
        let expected = expected_hits(fine.bins(), &shape);
        assert!((expected - f64::from(hits)).abs() < 1000.0, "{expected} {hits}");
    }
}
